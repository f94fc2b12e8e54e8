"""Every link and picture of the pages leads to a file that exists, and to a heading of it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("models/*/README.md")]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def without_code(text):
    """A page's lines without blocks of code and without code in a line."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^ {4}.*$", "", text, flags=re.MULTILINE)
    return re.sub(r"`[^`]*`", "`", text)


def anchors(page):
    """The anchors that GitHub and the site give to a page's headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\]\([^)]*\)", "", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = sum(
            re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other) is not None for other in found
        )
        found.add(f"{anchor}-{number}" if number else anchor)
    return found


def broken_links(page):
    """The links of a page that lead nowhere. Pages of the site cannot link to directories."""
    in_site = page.parent.name == "docs"
    for link in LINK.findall(without_code(page.read_text())):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        target = page.parent / path if path else page
        leads = target.is_file() or (target.is_dir() and not in_site)
        if not leads or (anchor and anchor not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    assert list(broken_links(page)) == []


def test_broken_links_are_found(tmp_path):
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "# A *first* heading: one, two\n[a](page.md#a-first-heading-one-two) [b](other.md) "
        "![c](no.png) [d](#nothing) [e](https://example.com/x.md) `[f](g.md)`\n\n    [h](i.md)\n"
        "[j](.)\n"
    )
    assert list(broken_links(page)) == ["other.md", "no.png", "#nothing", "."]


def test_every_page_is_in_the_navigation_of_the_site():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in ROOT.glob("docs/*.md"):
        assert f": {page.name}\n" in navigation, page.name
