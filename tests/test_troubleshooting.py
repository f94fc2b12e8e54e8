"""docs/troubleshooting.md has every message of an error that ends a command in one line."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text()
QUOTED = re.findall(r"`([^`\n]+)`", PAGE)
# What stands for a value in a pattern.
VALUE = "\0"
# Shorter texts are all value: the message is another error's.
LEAST = 6


def fragments(node):
    """The text of a message, with VALUE for what only a run can tell."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(fragments(part) for part in node.values)
    return VALUE


def messages():
    for path in sorted(ROOT.glob("torchbeast/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)):
                continue
            if getattr(node.exc.func, "id", "") not in ("UsageError", "RunError"):
                continue
            text = "".join(fragments(argument) for argument in node.exc.args)
            if len(text.replace(VALUE, "")) >= LEAST:
                yield pytest.param(text, id=f"{path.stem}:{text.replace(VALUE, '_')[:60]}")


MESSAGES = list(messages())


def is_quoted(text):
    pattern = ".*".join(map(re.escape, text.split(VALUE)))
    return any(re.fullmatch(f"(.*: )?{pattern}", quoted) for quoted in QUOTED)


@pytest.mark.parametrize("text", MESSAGES)
def test_the_page_quotes_the_message(text):
    assert is_quoted(text)


def test_messages_are_found_and_others_are_not_taken_for_quoted():
    assert len(MESSAGES) >= 90
    assert not is_quoted(f"Unknown game {VALUE} without the rest")
