"""``python -m torchbeast``: the programs of this package, and a way to start them."""

from __future__ import annotations

import importlib
import sys

import torchbeast

PROGRAMS = {
    "polybeast": "train, test, watch and film agents; environments behind a C++ actor pool",
    "polybeast_learner": "polybeast --no_start_servers, under its name of 2019",
    "polybeast_env": "serve environments to a learner, here or on another machine",
    "monobeast": "the same as polybeast on one machine, without compiled code",
    "saliency": "show where an agent looks",
    "analysis.plot_runs": "draw the learning curves of runs",
    "analysis.compare": "compare runs: means and intervals over seeds, in the same games",
    "analysis.analyze_resnet": "compare and show the filters of ResNet agents",
    "analysis.visualize_aaa": "show where the queries of an attention agent look",
}


def usage() -> str:
    """Formats the list of programs, one line each."""
    width = max(map(len, PROGRAMS))
    lines = [f"  {name:{width}}  {text}" for name, text in PROGRAMS.items()]
    return "\n".join(
        [
            f"TorchBeast PopArt {torchbeast.__version__}: one agent that learns many Atari games.",
            "",
            "usage: python -m torchbeast PROGRAM ...    (or python -m torchbeast.PROGRAM ...)",
            "",
            *lines,
            "",
            "python -m torchbeast PROGRAM --help lists the flags of a program.",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Runs the program that the first argument names. Returns its exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help"):
        print(usage())
        return 0
    if arguments[0] == "--version":
        print(f"TorchBeast PopArt {torchbeast.__version__}")
        return 0
    name = arguments[0]
    if name not in PROGRAMS:
        print(
            f"torchbeast: error: no program '{name}': choose from {', '.join(PROGRAMS)}",
            file=sys.stderr,
        )
        return 2
    return int(importlib.import_module(f"torchbeast.{name}").main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main())
