import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT
from torchbeast import polybeast
from torchbeast.core import vtrace
from torchbeast.core.losses import rollout_losses
from torchbeast.core.types import LossConfig
from torchbeast.train import TrainingConfig

FLAGS = [
    "--env=Mock", "--agent_type=atari", "--fixed_input_scale", "--unroll_length=10",
    "--batch_size=2", "--num_actors=4", "--cores=1", "--disable_cuda", "--xpid=run", "--seed=5",
    "--total_steps=40",
]  # fmt: skip


@pytest.fixture
def on_policy(monkeypatch):
    """Checks that an agent computes for a rollout what acted in it."""
    seen, compute = [], vtrace.from_logits
    monkeypatch.setattr(vtrace, "from_logits", lambda *a: seen.append(compute(*a)) or seen[-1])

    def check(agent, env, actor, state):
        rollout_losses(agent, env, actor, state, LossConfig())
        rhos = seen[-1].log_rhos
        torch.testing.assert_close(rhos, torch.zeros_like(rhos), rtol=0, atol=1e-5)

    return check


@pytest.fixture
def make_config(tmp_path):
    """Builds the configuration of a small run in ``tmp_path``; later flags win."""

    def make(*arguments):
        flags = polybeast.make_parser().parse_args([*FLAGS, f"--savedir={tmp_path}", *arguments])
        return TrainingConfig.from_flags(vars(flags))

    return make


@pytest.fixture(scope="session")
def _finished_run(tmp_path_factory):
    savedir = tmp_path_factory.mktemp("finished")
    command = [sys.executable, "-m", "torchbeast.polybeast", *FLAGS, f"--savedir={savedir}"]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, timeout=600)
    return savedir / "run"


@pytest.fixture
def finished_run(_finished_run, tmp_path):
    """The directory of a run of 40 steps that ``make_config`` configures again."""
    return Path(shutil.copytree(_finished_run, tmp_path / "run"))
