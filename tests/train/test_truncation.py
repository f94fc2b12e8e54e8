"""An environment that pays with the last step of an episode that a limit ends."""

import gymnasium
import numpy as np
import torch

from torchbeast.core.learner import Learner
from torchbeast.core.losses import LossConfig
from torchbeast.core.optimizer import OptimizerConfig
from torchbeast.core.types import EnvOutput
from torchbeast.envs import EnvStream
from torchbeast.models import AgentConfig, make_agent
from torchbeast.train.monobeast_process import RolloutBuffers

T = 20


class PaysAtItsLimit(gymnasium.Env):
    """Episodes of one step, cut off: action 1 of three pays 1."""

    observation = np.zeros((1, 36, 36), np.uint8)

    def reset(self, **_):
        return self.observation, {}

    def step(self, action):
        return self.observation, float(action == 1), False, True, {}


def test_it_is_learned():
    torch.manual_seed(0)
    config = AgentConfig("atari", (1, 36, 36), num_actions=3, tasks=("PaysAtItsLimit-v0",))
    agent, steps = make_agent(config), []
    optimizer = OptimizerConfig(total_steps=10**6, learning_rate=0.002)
    learner = Learner(agent, LossConfig(discounting=0.5), optimizer, 1, steps.append)
    rollout = RolloutBuffers(config, T, 1)[0]
    stream = EnvStream(PaysAtItsLimit(), task=0)
    row, output = stream.initial(), None
    for _ in range(60):
        for t in range(T + 1):
            if t > 0:
                row = stream.step(int(output.action))
                rollout.write_agent_output(t, output)
            rollout.write_env_step(t, row)
            with torch.inference_mode():
                inputs = EnvOutput(*(field[t : t + 1] for field in rollout.env))
                output, _ = agent(inputs, (), sample=True)
        learner.learn(rollout.env, rollout.actor, ())
    paid = rollout.env.reward[1:].sum()
    assert paid >= 0.9 * T / 2  # Every second row only starts an episode.
    assert steps[-1].task_steps == [T / 2]
