"""The report: docs/report.md and docs/report.bib."""

import re
from pathlib import Path

import pytest

from tools.report_figures import MULTI, SINGLE

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "report.md").read_text()
BIBLIOGRAPHY = (ROOT / "docs" / "report.bib").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NO_RESULT = {"The agents", "References"}


@pytest.mark.parametrize("title", [title for title in SECTIONS if title not in NO_RESULT])
def test_a_section_says_what_it_shows_and_what_it_does_not(title):
    places = [
        SECTIONS[title].find(f"**{part}")
        for part in ("Question.**", "Method.**", "It shows", "It does not show")
    ]
    assert -1 not in places
    assert places == sorted(places)
    assert re.search(r"^(!\[|<!-- table )", SECTIONS[title], re.MULTILINE)


def test_the_references_are_those_of_the_bibliography():
    entries = re.findall(r"@\w+\{\w+,\n(?:  .+\n)+\}", BIBLIOGRAPHY)
    assert len(entries) == BIBLIOGRAPHY.count("@")
    identifiers = {re.search(r"eprint = \{(.+?)\}", entry)[1] for entry in entries}
    assert identifiers == set(re.findall(r"arXiv:([\d.]+)", SECTIONS["References"]))


def test_every_agent_of_the_report_is_in_its_table():
    rows = [
        line.split("|")[1].strip() for line in SECTIONS["The agents"].splitlines() if "|" in line
    ]
    assert set(rows) >= {*SINGLE, *MULTI}
