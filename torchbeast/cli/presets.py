"""Sets of flags that go together: ``--preset``. A flag that is given wins over the preset's."""

from __future__ import annotations

from typing import Any

# For two cores: a shallow network, and small, frequent updates.
_SMALL: dict[str, Any] = {
    "agent_type": "atari",
    "total_steps": 2_000_000,
    "unroll_length": 20,
    "batch_size": 4,
    "learning_rate": 0.0005,
    "entropy_cost": 0.003,
}

PRESETS: dict[str, dict[str, Any]] = {
    # The flags' own defaults: the IMPALA ResNet, for a machine with many cores or a GPU.
    "default": {},
    "small": _SMALL,
    # The same for several games.
    "many": {**_SMALL, "use_popart": True, "total_steps": 6_000_000},
    # What flags can bring back of 2019; docs/migrating.md lists what else differs.
    "2019": {
        "fixed_input_scale": True,
        "torch_initial_weights": True,
        "unit_statistics": True,
        "beta": 0.0003,
        "beta_per": "batch",
        "sigma_floor": 0.0,
    },
}

# For --help; docs/quickstart.md and docs/migrating.md say more.
DESCRIPTIONS = {
    "default": "the IMPALA ResNet, for many cores or a GPU.",
    "small": "a shallow network with small, frequent updates, 2 million steps; for two cores.",
    "many": "the same for many games, with PopArt, 6 million steps.",
    "2019": "some settings of 2019.",
}
