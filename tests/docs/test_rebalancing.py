"""The page about rebalancing names tests as witnesses: they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_tests_that_are_named_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "rebalancing.md").read_text()))
    assert len(named) > 10
    texts = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
    missing = {name for name in named if not any(f"def {name}(" in text for text in texts)}
    assert missing == set()
