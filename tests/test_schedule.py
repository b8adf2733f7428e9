"""The lists of files that a run of all tests begins with."""

from __future__ import annotations

import re
from pathlib import Path

from tests import schedule

ROOT = Path(__file__).parent.parent


def test_each_listed_file_is_there() -> None:
    assert [path for path in schedule.LISTED if not (ROOT / path).is_file()] == []


def test_files_that_use_the_shared_session_of_spark_are_listed() -> None:
    fixture = re.compile(r"^def test_\w+\([^)]*\b(?:spark: SparkSession|runs: Runs)", re.MULTILINE)
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "tests").rglob("test_*.py")
        if fixture.search(path.read_text(encoding="utf-8"))
    }
    assert "tests/spark/pipeline/test_run.py" in found
    assert {path for path in found if not schedule.uses_shared_spark(path)} == set()
