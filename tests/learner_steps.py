"""A learner step of two games, whose numbers tests change with ``dataclasses.replace``."""

from torchbeast.core.stats import StepStats

STEP = StepStats(
    steps=20, learner_steps=1, total_loss=2.0, pg_loss=40.0, baseline_loss=0.5, entropy_loss=-0.5,
    value_loss=0.25, entropy=1.5, grad_norm=3.0, learning_rate=1e-3, policy_lag=0.5, episodes=[],
    task_steps=[20, 0], task_entropies={0: 1.5},
)  # fmt: skip
