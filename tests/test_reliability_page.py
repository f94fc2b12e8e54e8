import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "reliability.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| fault", "| ---"))
]


def test_the_page_has_its_tables():
    assert len(ROWS) >= 30


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_every_fault_has_a_test(row):
    _fault, seen, lost, reference = row
    assert seen
    assert lost
    path, _, name = reference.strip("`| ").partition("::")
    pattern = rf"TEST(_F)?\(\w+, {name}\)" if path.endswith(".cc") else rf"def {name}\("
    assert re.search(pattern, (ROOT / path).read_text())
