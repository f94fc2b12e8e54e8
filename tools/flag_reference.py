"""Writes docs/flags.md, the flags of every program: ``python tools/flag_reference.py``.

The page is made from the parsers, so that it says what ``--help`` says. ``make docs`` writes it
anew; ``tests/test_docs.py`` fails if it is older than the parsers.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import torchbeast.__main__

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "flags.md"

# The learner has the parser of polybeast.
PROGRAMS = [name for name in torchbeast.__main__.PROGRAMS if name != "polybeast_learner"]

INTRODUCTION = """\
# Flags

This page lists the flags of every program with their defaults, without a few that old scripts or
`--preset 2019` need. `python tools/flag_reference.py` writes it from the programs' parsers, so
`--help` says the same. `--help` of `polybeast` and `monobeast` shows the flags that matter in the
`--mode` before it; `--help_all` shows all.

- Flags cannot be abbreviated.
- Whole numbers can be written as `3e8` or `300_000_000`, too.
- `--preset` changes some defaults; `python -m torchbeast.polybeast --preset small --help_all` lists
  those of a preset.
- Every program also has `--help` and `--version`.
- `python -m torchbeast.polybeast_learner` takes the flags of `polybeast` but `--ray_address`. Two
  defaults are those of 2019: `--no_start_servers` and `--pipes_basename unix:/tmp/polybeast`.
"""

DEFAULT = re.compile(r"\s*\(default: (.*)\)$")
# Placeholders and flags.
CODE = re.compile(r"[\w/.-]*<\w+>(?:[\w/.<>-]*[\w>])?|--\w+|\$\w+")


def make_parser(program: str) -> argparse.ArgumentParser:
    """Makes the parser of ``torchbeast.<program>``."""
    parser: argparse.ArgumentParser = importlib.import_module(f"torchbeast.{program}").make_parser()
    return parser


def describe_flag(action: argparse.Action) -> tuple[str, str, str]:
    """Describes a flag as ``--help`` does.

    Returns:
        The flag with its values, its default, and its help without the default; plain text.

    Raises:
        ValueError: the help does not name the default of a flag that takes a value.
    """
    text = (action.help or "") % vars(action)
    match = DEFAULT.search(text)
    if action.nargs == 0:
        default = "off" if match is None else match[1]
    elif not action.option_strings:
        default = "required"
    elif match is None:
        raise ValueError(f"the help of {action.option_strings[0]} does not name its default")
    else:
        default = match[1]
    name = ", ".join(action.option_strings) or str(action.metavar)
    if action.option_strings and isinstance(action.metavar, str):
        name += f" [{action.metavar}]" if action.nargs == "?" else f" {action.metavar}"
    if match:
        text = text[: match.start()]
    # Most help texts explain each choice already.
    if action.choices is not None and any(f"{choice}: " not in text for choice in action.choices):
        text += f" Values: {', '.join(map(str, action.choices))}."
    return name, default, text


def format_row(action: argparse.Action) -> str:
    """Formats a flag as a row of a Markdown table."""
    name, default, text = (cell.replace("|", "\\|") for cell in describe_flag(action))
    # Else Markdown takes a placeholder for HTML.
    default, text = (CODE.sub(r"`\g<0>`", cell) for cell in (default, text))
    return f"| `{name}` | {default} | {text} |"


def list_groups(parser: argparse.ArgumentParser) -> list[tuple[str, list[argparse.Action]]]:
    """Lists a parser's groups of flags as ``--help`` does, without that flag and ``--version``."""
    groups = []
    for group in parser._action_groups:
        actions = [
            action
            for action in group._group_actions
            if action.help is not argparse.SUPPRESS
            and not {"--help", "--help_all", "--version"} & set(action.option_strings)
        ]
        if actions:
            groups.append((group.title or "", actions))
    return groups


def format_table(actions: list[argparse.Action]) -> list[str]:
    """Formats flags as the lines of a Markdown table."""
    return ["| flag | default | what |", "| --- | --- | --- |", *map(format_row, actions), ""]


def format_program(program: str, known: dict[str, str] | None = None) -> list[str]:
    """Formats the section of a program.

    Args:
        known: rows by flag that another section has already; these are named without a table.

    Returns:
        The section's lines.
    """
    parser = make_parser(program)
    lines = [
        f"## {program}",
        "",
        f"    python -m torchbeast.{program}",
        "",
        parser.description or "",
    ]
    lines.append("")
    shared: list[str] = []
    tables: list[str] = []
    for title, actions in list_groups(parser):
        own = [a for a in actions if known is None or known.get(first_name(a)) != format_row(a)]
        shared += [first_name(a) for a in actions if a not in own]
        if own:
            heading = {"options": "general", "positional arguments": "arguments"}.get(title, title)
            tables += [f"### {program}: {heading}", "", *format_table(own)]
    if shared:
        lines += ["These flags are those of `polybeast` above, with the same defaults:", ""]
        lines += [", ".join(f"`{name}`" for name in shared) + ".", "", "The others:", ""]
    return lines + tables


def first_name(action: argparse.Action) -> str:
    """The name by which a flag is listed."""
    return action.option_strings[0] if action.option_strings else str(action.metavar)


def format_page() -> str:
    """Formats the whole page."""
    known = {
        first_name(action): format_row(action)
        for _, actions in list_groups(make_parser("polybeast"))
        for action in actions
    }
    lines = [INTRODUCTION]
    for program in PROGRAMS:
        lines += format_program(program, known if program == "monobeast" else None)
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    PAGE.write_text(format_page())
    print(PAGE.relative_to(ROOT))


if __name__ == "__main__":
    main()
