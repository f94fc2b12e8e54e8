"""TorchBeast's learner without servers: ``python -m torchbeast.polybeast_learner``.

The same as ``torchbeast.polybeast --no_start_servers --pipes_basename unix:/tmp/polybeast``. Flags
that are given win. Start the servers with ``python -m torchbeast.polybeast_env``, with the same
``--env`` and ``--num_servers``.
"""

from __future__ import annotations

import sys

from torchbeast import polybeast
from torchbeast.modes import run_mode


def main(argv: list[str] | None = None) -> int:
    """Runs PolyBeast with the defaults of 2019. Returns the exit code."""
    parser = polybeast.make_parser()
    parser.set_defaults(start_servers=False, pipes_basename="unix:/tmp/polybeast")
    return run_mode("polybeast", parser, argv, polybeast.train)


if __name__ == "__main__":
    sys.exit(main())
