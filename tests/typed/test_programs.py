"""mypy and pyright accept the programs in programs.py, and report exactly the lines that say so.

mypy is here always. pyright runs where basedpyright is installed, which brings a whole Node.js: ``make pyright``.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).with_name("programs.py")
EXPECTED = {
    number: said.group(1)
    for number, line in enumerate(PROGRAMS.read_text().splitlines(), 1)
    if (said := re.search(r"  # error: (.+)$", line))
}


def ran(*command: str) -> str:
    result = subprocess.run(
        [sys.executable, "-m", *command, str(PROGRAMS)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode in (0, 1), result.stderr
    return result.stdout


def mypy() -> list[tuple[int, str]]:
    """What mypy reports of the programs, under the project's strict settings and with its cache."""
    found = re.findall(r"^[^:\n]*programs\.py:(\d+): error: (.*)$", ran("mypy"), re.MULTILINE)
    return [(int(number), text) for number, text in found]


def pyright() -> list[tuple[int, str]]:
    """What pyright reports of them."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("basedpyright is not installed: make pyright installs and runs it")
    report = json.loads(
        ran("basedpyright", "--level", "error", "--project", str(PROGRAMS.parent), "--outputjson")
    )
    return [(each["range"]["start"]["line"] + 1, each["message"]) for each in report["generalDiagnostics"]]


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_mistakes_are_reported_where_they_are_and_nothing_else(
    checker: Callable[[], list[tuple[int, str]]],
) -> None:
    reported: dict[int, str] = {}
    for number, text in checker():
        reported[number] = f"{reported.get(number, '')}{text}\n"
    assert len(EXPECTED) > 20
    assert {number: reported[number] for number in reported.keys() - EXPECTED.keys()} == {}, "not expected"
    assert {number: EXPECTED[number] for number in EXPECTED.keys() - reported.keys()} == {}, "not reported"
    assert [
        (number, words, reported[number])
        for number, words in EXPECTED.items()
        if words not in reported[number]
    ] == []
