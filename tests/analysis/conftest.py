import pytest

from tests.analysis.written_runs import write_run


@pytest.fixture
def savedir(tmp_path):
    """Two seeds with PopArt, one without; logs.csv only."""
    flags = {"total_steps": 300, "use_popart": True}
    logs = [(100, 360, -20.7, 1.7), (200, 720, -3.05, 1.7), (300, 1080, 14.6, 30.5)]
    write_run(tmp_path / "popart-1", logs, seed=1, xpid="popart-1", **flags)
    write_run(
        tmp_path / "popart-2",
        [(100, 360, -20.7, 1.7), (200, 1800, 14.6, 30.5)],
        seed=2,
        xpid="popart-2",
        **flags,
    )
    write_run(
        tmp_path / "clipped",
        [(150, 720, -20.7, 30.5), (250, 1080, 14.6, 30.5)],
        **{**flags, "use_popart": False},
    )
    return tmp_path
