"""Each line of what an attacker can do, in SECURITY.md, names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = (ROOT / "SECURITY.md").read_text().partition("\n## Who can do what\n")[2]
NAMED = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def test_each_line_has_a_test() -> None:
    rows = [line for line in TABLES.splitlines() if line.startswith(("| can |", "| cannot |"))]
    assert len(rows) > 30
    assert len(rows) == sum(line.startswith("| ") for line in TABLES.splitlines()) - TABLES.count(
        "| | what |"
    )
    assert [row for row in rows if not NAMED.search(row.rsplit("|", 2)[1])] == []


def test_each_kind_of_attacker_can_and_cannot() -> None:
    kinds = re.split(r"^\*\*(.*)\*\*$", TABLES, flags=re.MULTILINE)[1:]
    assert len(kinds[::2]) == 7
    for kind, table in zip(kinds[::2], kinds[1::2], strict=True):
        assert "\n| can |" in table, kind
        assert "\n| cannot |" in table, kind


def file_of(path: str) -> Path | None:
    """The file that SECURITY.md names as from one of the folders of tests."""
    return next(
        (file for file in (ROOT / "tests" / path, *ROOT.glob(f"packages/*/tests/{path}")) if file.is_file()),
        None,
    )


def test_the_tests_are_there() -> None:
    named = set(NAMED.findall(TABLES))
    assert len(named) > 35
    missing = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if (file := file_of(path)) is None
        or not re.search(rf"^(async )?def {name}\(", file.read_text(), re.MULTILINE)
    ]
    assert missing == []
