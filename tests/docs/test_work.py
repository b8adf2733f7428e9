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
