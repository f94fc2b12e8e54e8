"""docs/migrating.md says what is true: its tables are read and checked row by row."""

import importlib
import json
import re
from pathlib import Path

import pytest
import torch

from torchbeast import atari_wrappers, polybeast, polybeast_learner
from torchbeast.cli.presets import PRESETS
from torchbeast.records.metrics import log_fields
from torchbeast.training import prepare
from torchbeast.training.recorder import Recorder
from torchbeast.training.state import RunState

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "migrating.md").read_text()


def tables():
    """Yields (header cells, heading, rows), each row a list of cells."""
    heading, table = "", []
    for line in [*PAGE.splitlines(), ""]:
        if line.startswith("#"):
            heading = line.lstrip("# ").replace("`", "")
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            yield table[0], heading, table[2:]
            table = []


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def rows(kind):
    """Pairs (heading, name, status, note) of all tables whose first column is ``kind``."""
    return [
        pytest.param(heading, name, status, note, id=f"{heading}-{name}")
        for header, heading, table in tables()
        if header[0] == kind
        for cell, status, note in table
        for name in code(cell)
    ]


def find(name):
    """The module or attribute that a dotted name stands for; ImportError if there is none."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        if not module:
            raise
        try:
            return getattr(find(module), attribute)
        except AttributeError as error:
            raise ImportError(name) from error


def check(status, name, note, exists):
    """Checks a row; ``exists`` tells whether there is something of a name."""
    assert status in ("kept", "renamed", "not kept")
    assert exists(name) == (status == "kept")
    if status == "renamed":
        assert exists(code(note)[0])
    if status == "not kept":
        assert note


def is_importable(name):
    try:
        find(name)
    except ImportError:
        return False
    return True


NAMES = rows("module of 2019") + rows("name of 2019")


@pytest.mark.parametrize(("heading", "name", "status", "note"), NAMES)
def test_names(heading, name, status, note):
    check(status, name, note, is_importable)


@pytest.mark.parametrize(("heading", "name", "status", "note"), rows("flag of 2019"))
def test_flags(heading, name, status, note):
    flags = find(heading).make_parser()._option_string_actions
    check(status, name, note, flags.__contains__)


def defaults():
    ((_, _, table),) = [t for t in tables() if t[0][0] == "program"]
    return table


@pytest.mark.parametrize(("program", "flag", "then", "here", "note"), defaults())
def test_defaults(program, flag, then, here, note):
    parser = find(*code(program)).make_parser()
    action = parser._option_string_actions[code(flag)[0]]
    assert str(action.default) == code(here)[0]
    assert then
    assert note or here != "`None`"


def test_only_defaults_that_differ_are_listed():
    assert all(then != here or note for _, _, then, here, note in defaults())


@pytest.mark.parametrize(("heading", "name", "status", "note"), rows("column of 2019"))
def test_columns(heading, name, status, note):
    columns = [re.sub("/Pong$", "/<game>", c) for c in log_fields(["Pong"], use_popart=True)]
    check(status, name, note, columns.__contains__)


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory):
    """The directory of a run that has not learned yet."""
    from torchbeast.monobeast import make_parser
    from torchbeast.training import TrainingConfig

    savedir = tmp_path_factory.mktemp("runs")
    flags = ["--env=Mock", f"--savedir={savedir}", "--xpid=run", "--num_actors=1"]
    setup = prepare(TrainingConfig.from_flags(vars(parse(make_parser(), flags))), has_pool=False)
    Recorder(setup, RunState(seed=1), queue_size=1).close()
    return savedir / "run"


def parse(parser, arguments):
    """Flags of a trainer, with those that only PolyBeast has."""
    pool = polybeast.make_parser().parse_args([])
    return parser.parse_args(arguments, namespace=pool)


@pytest.mark.parametrize(("heading", "name", "status", "note"), rows("key of 2019"))
def test_keys(heading, name, status, note, run_directory):
    if heading == "Keys of meta.json":
        keys = json.loads((run_directory / "meta.json").read_text())
    else:
        path = ROOT / "models" / "Pong" / "model.tar"
        # Shipped agents have no optimizer state.
        keys = {**torch.load(path, weights_only=True), "optimizer_state_dict": {}}
    check(status, name, note, keys.__contains__)


@pytest.mark.parametrize(("heading", "name", "status", "note"), rows("file of 2019"))
def test_files(heading, name, status, note, run_directory):
    if name in ("model.tar", "intermediate"):
        assert status == "kept"
        assert (ROOT / "models" / "MultiTaskPopArt" / name).exists()
        return
    path = run_directory.parent / name if name == "latest" else run_directory / name
    check(status, name, note, lambda _: path.exists())


REFERENCES = [
    pytest.param(*row, id=f"{heading}-{row[0]}")
    for header, heading, table in tables()
    if header[-1] == "test"
    for row in table
]


@pytest.mark.parametrize(("subject", "then", "here", "reference"), REFERENCES)
def test_tests_of_behaviour_exist(subject, then, here, reference):
    path, _, name = code(reference)[0].partition("::")
    assert re.search(rf"def {name}\(", (ROOT / path).read_text())
    assert subject
    assert here


def test_the_page_has_all_tables():
    heads = [header[0] for header, _, _ in tables()]
    assert heads.count("flag of 2019") == 6
    assert heads.count("subject") == 5
    assert {"module of 2019", "name of 2019", "program", "file of 2019"} <= set(heads)


def test_the_preset_is_what_the_page_says():
    assert PRESETS["2019"] == {
        "fixed_input_scale": True,
        "torch_initial_weights": True,
        "beta": 0.0003,
        "beta_per": "batch",
        "sigma_floor": 0.0,
    }


@pytest.mark.parametrize(
    ("program", "modes"),
    [
        ("polybeast", "train test test_render record env_info"),
        ("monobeast", "train test test_render"),
        ("analysis.analyze_resnet", "filter_vis filter_comp _filter_comp filter_comp_plot"),
    ],
)
def test_modes_of_2019_are_there(program, modes):
    parser = find(f"torchbeast.{program}").make_parser()
    for mode in modes.split():
        assert parser.parse_args(["--mode", mode]).mode == mode


def test_flags_cannot_be_abbreviated(capsys):
    with pytest.raises(SystemExit):
        polybeast.make_parser().parse_args(["--total=1000"])
    assert "unrecognized arguments: --total" in capsys.readouterr().err


def test_the_learner_of_2019_starts_no_servers(monkeypatch):
    monkeypatch.setattr(polybeast, "main", lambda argv: polybeast.make_parser().parse_args(argv))
    flags = polybeast_learner.main(["--env=Mock"])
    assert not flags.start_servers
    assert flags.pipes_basename == "unix:/tmp/polybeast"
    assert polybeast_learner.main(["--pipes_basename=unix:/x"]).pipes_basename == "unix:/x"
    flags = polybeast_learner.main(["--join_address", "localhost:4000"])
    assert (flags.join_address, flags.pipes_basename) == ("localhost:4000", None)


def test_a_server_that_was_stopped_before_does_not_run(tmp_path):
    from libtorchbeast import Server

    server = Server(lambda: None, f"unix:{tmp_path}/socket")
    server.stop()
    server.run()


def test_a_game_is_made_by_the_names_of_2019():
    env = atari_wrappers.make_atari("PongNoFrameskip-v4", full_action_space=True)
    made = atari_wrappers.wrap_deepmind(env, clip_rewards=False, frame_stack=True, scale=False)
    made = atari_wrappers.wrap_pytorch(made)
    assert made.observation_space.shape == (4, 84, 84)
    assert made.action_space.n == 18
    for options in ({}, {"clip_rewards": False}, {"episode_life": False}, {"scale": True}):
        with pytest.raises(ValueError, match=r"make_env|clip_rewards=False"):
            atari_wrappers.wrap_deepmind(env, **options)
    with pytest.raises(ValueError, match="max_episode_steps"):
        atari_wrappers.make_atari("PongNoFrameskip-v4", max_episode_steps=10)
