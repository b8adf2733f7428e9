"""Figures that pages name, held against the code that they are of."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from kadence.records import MOST_HEADERS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "page",
    [
        "SECURITY.md",
        "docs/errors.md",
        "docs/producer.md",
        "docs/broker.md",
        "docs/production.md",
        "docs/traces.md",
    ],
)
def test_the_most_headers_of_a_record(page: str) -> None:
    said = (ROOT / page).read_text()
    assert f"{MOST_HEADERS:,}" in said
    assert "10,000)" not in said


@pytest.mark.parametrize("page", ["SECURITY.md", "docs/production.md"])
def test_what_a_header_takes_beside_its_content(page: str) -> None:
    (said,) = re.findall(r"about (\d+) bytes(?: each)? and (?:its|their) content", (ROOT / page).read_text())
    name, value = "trace", b"0123456789"
    takes = sys.getsizeof((name, value)) + sys.getsizeof(name) + sys.getsizeof(value) - len(name) - len(value)
    assert abs(int(said) - takes) < 0.1 * takes
