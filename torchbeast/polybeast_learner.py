"""TorchBeast's learner without servers: ``python -m torchbeast.polybeast_learner``.

The same as ``torchbeast.polybeast --no_start_servers --pipes_basename unix:/tmp/polybeast``. Flags
that are given win. Start the servers with ``python -m torchbeast.polybeast_env``, with the same
``--env`` and ``--num_servers``.
"""

from __future__ import annotations

import sys

from torchbeast import polybeast

# The defaults of 2019.
DEFAULTS = ["--no_start_servers", "--pipes_basename=unix:/tmp/polybeast"]


def main(argv: list[str] | None = None) -> int:
    """Runs PolyBeast with the defaults of 2019. Returns the exit code."""
    return polybeast.main([*DEFAULTS, *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    sys.exit(main())
