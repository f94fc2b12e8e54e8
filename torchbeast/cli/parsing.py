"""Command lines: a parser that is brief about mistakes, and types that say what is wrong."""

from __future__ import annotations

import argparse
import difflib
import logging
import math
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torchbeast
from torchbeast.cli.presets import PRESETS
from torchbeast.runtime.text import escape

log = logging.getLogger("torchbeast")

# Agents of this program, and the other names that they had in 2019.
AGENT_TYPES = {
    "resnet": ("rn", "res", "res_net"),
    "atari": ("default", "shallow"),
    "aaa": ("attention_augmented", "attention_augmented_agent"),
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without reciting all flags. No abbreviations.

    Args:
        shown: the flags that ``--help`` shows, by the value of ``--mode``, and for any other mode
            under "". ``--help_all`` shows all. Without this ``--help`` does.
    """

    def __init__(
        self, prog: str, description: str, shown: Mapping[str, Collection[str]] | None = None
    ) -> None:
        super().__init__(
            prog=f"python -m torchbeast.{prog}",
            description=description,
            allow_abbrev=False,
            add_help=False,
        )
        self._name = prog
        self._shown = shown
        self._given: dict[str, str] = {}  # Destinations by spelling.
        what = "all" if shown is None else "the most used"
        self.add_argument("-h", "--help", action=_Help, help=f"Show {what} flags.")
        if shown is not None:
            self.add_argument("--help_all", action=_Help, help="Show all flags.")
        self.add_argument(
            "--version",
            action="version",
            version=f"TorchBeast PopArt {torchbeast.__version__}",
            help="Show the version.",
        )

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, with the defaults of ``--preset`` if that is given.

        For parsers without positional arguments ``given`` then has the flags that were named.
        """
        words = {word.partition("=")[0] for word in (sys.argv[1:] if args is None else args)}
        flags = self._option_string_actions
        self._given = {word: flags[word].dest for word in words & flags.keys()}
        first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        first.add_argument("--preset", nargs="?")
        preset = first.parse_known_args(args)[0].preset
        self.set_defaults(**PRESETS.get(preset, {}))
        return super().parse_known_args(args, namespace)

    @property
    def given(self) -> set[str]:
        """The destinations of the flags that the last command line named."""
        return set(self._given.values())

    def warn_of_unused(self, names: Collection[str], where: str) -> None:
        """Warns of flags, by their destinations, that were given and have no effect ``where``."""
        for flag, name in sorted(self._given.items()):
            if name in names:
                log.warning("%s has no effect %s", flag, where)

    def format_help(self) -> str:
        """Formats the help of all flags that are not hidden. The usage does not name them."""
        arguments = [str(a.metavar) for a in self._actions if not a.option_strings]
        self.usage = " ".join(["%(prog)s", *arguments, "[flags]"])
        return super().format_help()

    def print_shown_help(self, mode: str) -> None:
        """Prints the help of the flags that matter most in a mode."""
        if self._shown is None:
            return self.print_help()
        shown = {"help", "help_all", *self._shown.get(mode, self._shown[""])}
        for action in self._actions:
            if action.dest not in shown:
                action.help = argparse.SUPPRESS
        return self.print_help()

    def error(self, message: str) -> NoReturn:
        """Prints a mistake in one line and ends the program with exit code 2."""
        unknown = message.removeprefix("unrecognized arguments: ")
        if unknown != message:
            message += self._suggest(unknown.split(" ")[0].partition("=")[0])
        self.exit(2, f"{self._name}: error: {escape(message)} (see --help)\n")

    def _suggest(self, argument: str) -> str:
        """Says what an argument that no flag takes may have meant."""
        mode = self._option_string_actions.get("--mode")
        if mode is not None and argument in (mode.choices or ()):
            return f" (perhaps you meant --mode {argument})"
        if not argument.startswith("-"):
            return "; names of games are separated by commas" if "env" in self._names() else ""
        name = argument.lstrip("-").replace("-", "_")
        near = difflib.get_close_matches(name, self._names(), n=1, cutoff=0.8)
        return f" (perhaps you meant --{near[0]})" if near else ""

    def _names(self) -> list[str]:
        return [name[2:] for name in self._option_string_actions if name.startswith("--")]


class _Help(argparse.Action):
    """``--help`` of the mode that the command line names before it, and ``--help_all``."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments, nargs=0, default=argparse.SUPPRESS)

    def __call__(self, parser: Any, namespace: Any, values: Any, option: str | None = None) -> None:
        if option == "--help_all":
            parser.print_help()
        else:
            parser.print_shown_help(getattr(namespace, "mode", ""))
        parser.exit()


def natural(text: str, least: int = 0) -> int:
    """Parses an integer from ``least`` on, also written 3e8 or 300_000_000: an argparse type."""
    try:
        value = int(text)
    except ValueError:
        try:
            value = int(float(text))
            if value != float(text):
                raise argparse.ArgumentTypeError(f"not a whole number: {text}")
        except (ValueError, OverflowError):
            raise argparse.ArgumentTypeError(f"not a number: {text}") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {text}")
    if value >= 2**63:
        raise argparse.ArgumentTypeError(f"must be less than 2^63, got {text}")
    return value


def positive(text: str) -> int:
    """Parses an integer from 1 on: an argparse type."""
    return natural(text, least=1)


def amount(text: str) -> float:
    """Parses a finite number from 0 on: an argparse type."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text}") from None
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number from 0 on, got {text}")
    return value


def positive_amount(text: str) -> float:
    """Parses a finite number above 0: an argparse type."""
    value = amount(text)
    if value == 0:
        raise argparse.ArgumentTypeError(f"must be above 0, got {text}")
    return value


def file(*suffixes: str) -> Callable[[str], Path]:
    """Returns an argparse type: the path of a file whose name ends with one of ``suffixes``."""

    def parse(text: str) -> Path:
        path = Path(text).expanduser()
        if path.suffix not in suffixes:
            raise argparse.ArgumentTypeError(f"must end with {' or '.join(suffixes)}, got {text}")
        return path

    return parse


def fraction(text: str) -> float:
    """Parses a number from 0 to 1: an argparse type."""
    value = amount(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {text}")
    return value


def agent_type(text: str) -> str:
    """Parses an agent of this program or ``package.module:Class``: an argparse type.

    The names of 2019 are accepted, too.
    """
    if text.partition(":")[2]:
        return text
    for name, aliases in AGENT_TYPES.items():
        if text.lower() in (name, *aliases):
            return name
    raise argparse.ArgumentTypeError(
        f"choose {', '.join(AGENT_TYPES)} or package.module:Class, not {text}"
    )


def not_empty(text: str) -> str:
    """Parses a text of at least one character: an argparse type."""
    if not text:
        raise argparse.ArgumentTypeError("is empty: is a variable not set?")
    return text


def directory(text: str) -> str:
    """Parses a path, in which ``~`` and environment variables are expanded: an argparse type."""
    path = os.path.expandvars(os.path.expanduser(not_empty(text)))
    unknown = re.search(r"\$\w+|\$\{[^}]*\}", path)
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no environment variable {unknown[0]}")
    return path
