"""One rank of tests/core/test_ranks.py: learns from its share of each batch, saves its state.

    python rank.py STORE OUTPUT RANK RANKS PARTS

Part p of each batch belongs to rank p % RANKS. The last rank stops all after STEPS steps.
"""

import sys

import torch
import torch.distributed as dist

from tests.core.rollouts import CONFIG, make_rollout
from torchbeast.core.batch_gate import LearnerClosed
from torchbeast.core.learner import Learner
from torchbeast.core.types import LossConfig, OptimizerConfig
from torchbeast.models import make_agent
from torchbeast.runtime.ranks import Ranks

STEPS = 4


def main(store, output, rank, count, parts):
    rank, count, parts = int(rank), int(count), int(parts)
    torch.set_num_threads(1)
    if count > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    torch.manual_seed(0)
    agent = make_agent(CONFIG._replace(use_popart=True, beta=0.01))
    stats = []
    learner = Learner(
        agent,
        LossConfig(),
        OptimizerConfig(total_steps=1000),
        parts // count,
        stats.append,
        ranks=Ranks(rank, count, rank, count),
    )
    try:
        for step in range(2 * STEPS):
            if step == STEPS - 1 and rank == count - 1:
                learner.request_stop()
            for part in range(rank, parts, count):
                # Only some ranks have rollouts of the second game.
                env, actor = make_rollout(100 * step + part, task=int(part == 1))
                learner.learn(env._replace(reward=10.0 * (part + 1) * env.reward), actor, ())
    except LearnerClosed:
        pass
    rows = [{**vars(step), "episodes": sorted(map(tuple, step.episodes))} for step in stats]
    torch.save({"state": learner.state_dict(), "stats": rows}, output)


if __name__ == "__main__":
    main(*sys.argv[1:])
