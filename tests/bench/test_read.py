"""`make bench-read` on a small scale: all ways make the same frame."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench" / "read.py"


@pytest.mark.heavy
def test_all_ways_make_the_same_frame() -> None:
    command = [sys.executable, str(BENCH), "--records", "3000", "--runs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.count("confluent-kafka and pandas") == done.stdout.count("read().to_pandas()") == 2
