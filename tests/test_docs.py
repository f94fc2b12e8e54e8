"""Commands of the pages parse, links lead somewhere, and the flag reference is new."""

import importlib
import re
import shlex
import textwrap

import pytest

from tests.conftest import ROOT
from tools import flag_reference
from torchbeast.records.metrics import log_fields

PAGES = [
    path
    for pattern in ("*.md", "docs/**/*.md", "models/*/README.md")
    for path in ROOT.glob(pattern)
]
PROGRAM = re.compile(
    r"^ {4}(?:[A-Z_]+=\S+ )*(?:torchrun .*-m|python -m) torchbeast\.([\w.]+)( .*)$"
)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands():
    """Programs and arguments in the pages' blocks of code."""
    found = {}
    for page in PAGES:
        for line in page.read_text().replace("\\\n", " ").splitlines():
            match = PROGRAM.match(line)
            if match:
                found.setdefault(match.groups(), page)
    for (module, arguments), page in found.items():
        name = f"{page.stem}: {module}{arguments}"[:100]
        yield pytest.param(module, arguments, id=name)


@pytest.mark.parametrize(("module", "arguments"), list(commands()))
def test_commands_parse(module, arguments):
    parser = importlib.import_module(f"torchbeast.{module}").make_parser()
    parser.parse_args(shlex.split(arguments, comments=True))


def anchors(page):
    """The anchors that GitHub and the site give to a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "", heading).lower()
        yield re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def links(page):
    """The links of a page to files, outside of code."""
    text = re.sub(r"^```.*?^```|^ {4}.*?$|`[^`]*`", "", page.read_text(), flags=re.M | re.S)
    return [link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_flag_reference_is_as_new_as_the_parsers():
    assert flag_reference.PAGE.read_text() == flag_reference.format_page(), (
        "run python tools/flag_reference.py"
    )


def test_the_page_of_runs_has_the_columns_of_logs_csv():
    rows = re.findall(r"^\| (`.*`) \|", (ROOT / "docs" / "runs.md").read_text(), re.MULTILINE)
    columns = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    for field in log_fields(["GAME", "OTHER"], use_popart=True):
        assert field in columns or field.endswith("/OTHER"), field


def test_the_code_of_the_page_of_the_api_runs(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = (ROOT / "docs" / "api.md").read_text()
    blocks = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", page, re.MULTILINE)
    assert len(blocks) == 4
    for block in blocks:
        short = block.replace("num_frames=100", "num_frames=1").replace("range(100)", "range(3)")
        exec(textwrap.dedent(short), {})
