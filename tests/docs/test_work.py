"""docs/work.md promises what tests show: each test that its table names is there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("work", "testing/simulation", "consumer/group")


def test_each_promise_names_a_test_that_is_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "work.md").read_text()))
    there = {
        name
        for room in ROOMS
        for path in (ROOT / "tests" / room).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    assert len(named) > 10
    assert named - there == set()


def test_each_cell_of_the_tables_names_its_test() -> None:
    """Or it says which other cell does, or that nothing is promised."""
    page = (ROOT / "docs" / "work.md").read_text().split("## What is promised, and what shows it")[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.split("\n## ")[0].splitlines()
        if line.startswith("| ") and not line.startswith("| what fails")
    ]
    assert len(rows) > 30
    failures = {cells[0].removeprefix("a handler ").removeprefix("the member ") for cells in rows}
    for cells in rows:
        for number, cell in enumerate(cells[1:], 1):
            if "`test_" in cell or cell.startswith("no promise"):
                continue
            if "the same test" in cell:
                assert "`test_" in " ".join(cells[1:number]), cells
            else:
                assert cell.startswith(("as when it ", "as when it is ")), cells
                assert cell.removeprefix("as when it ").removeprefix("is ") in {
                    failure.removeprefix("is ") for failure in failures
                }, cells
