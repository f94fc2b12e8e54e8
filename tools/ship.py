"""Makes a run small enough to be given away: ``python tools/ship.py RUN models/NAME``.

Copies meta.json, logs.csv, model.tar and evenly spread intermediate checkpoints; of the checkpoints
only what is needed to play, with the weights in half precision.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from torchbeast.records import checkpoint

KEPT = (
    "agent",
    "steps",
    "learner_steps",
    "task_steps",
    "seed",
    "preprocessing",
    "frame_format",
    "frame_height",
    "frame_width",
)


def slim(contents: dict[str, Any]) -> dict[str, Any]:
    """The agent alone: weights and mean picture in float16, biases and PopArt statistics exact."""
    state = {
        name: value.half() if value.dtype == torch.float32 and value.dim() > 1 else value
        for name, value in contents["model_state_dict"].items()
    }
    return {
        **{name: contents[name] for name in KEPT if name in contents},
        "model_state_dict": state,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--intermediate", type=int, default=10, help="How many (default: 10).")
    flags = parser.parse_args()
    paths = sorted((flags.run / "intermediate").glob("model.*.tar"))
    count = min(flags.intermediate, len(paths))
    chosen = [paths[round(i * (len(paths) - 1) / max(1, count - 1))] for i in range(count)]
    for path in [flags.run / "model.tar", *chosen]:
        checkpoint.save(flags.target / path.relative_to(flags.run), slim(checkpoint.load(path)))
    shutil.copy(flags.run / "logs.csv", flags.target)
    meta = json.loads((flags.run / "meta.json").read_text())
    meta["args"].pop("savedir")  # A path of this machine, which says nothing elsewhere.
    meta["xpid"] = meta["args"]["xpid"] = flags.target.name
    (flags.target / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    size = sum(p.stat().st_size for p in flags.target.rglob("*.tar"))
    print(f"{flags.target}: {count + 1} checkpoints, {size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
