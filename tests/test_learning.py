"""PolyBeast learns: the whole of it, from servers to published weights, on a small environment."""

import torch

from tests.processes import read_logs
from torchbeast.records import checkpoint

ENV = "tests.moving_target:MovingTarget-v0"


def test_learns_a_moving_target(start, tmp_path):
    code, out, err = start(
        "polybeast", "--env", ENV, "--agent_type=atari", "--savedir", tmp_path, "--xpid=run",
        "--total_steps=40000", "--num_actors=8", "--unroll_length=20", "--batch_size=4",
        "--learning_rate=0.002", "--entropy_cost=0.005", "--discounting=0.9", "--seed=1",
    ).finish()  # fmt: skip
    assert code == 0, err
    last = read_logs(tmp_path / "run")[-1]
    # Chance is -1/3; the best there is 1.
    assert float(last["mean_episode_return/MovingTarget"]) > 0.9, out


def test_a_synchronous_run_repeats_bit_for_bit(start, tmp_path):
    states = []
    for name in ("first", "second"):
        code, _, err = start(
            "polybeast", "--env=PongNoFrameskip-v4", "--agent_type=atari", "--savedir", tmp_path,
            "--xpid", name, "--total_steps=120", "--num_actors=1", "--num_learner_threads=1",
            "--unroll_length=20", "--batch_size=2", "--seed=7", "--synchronous",
        ).finish()  # fmt: skip
        assert code == 0, err
        states.append(checkpoint.load(tmp_path / name / "model.tar"))
    for parameter, value in states[0]["model_state_dict"].items():
        assert torch.equal(value, states[1]["model_state_dict"][parameter]), parameter
