"""tools/killing.py: what it finds of an application, and what it says of one that fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from killing import Application

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="processes are found in /proc"
)

LEAVES = """
import os, time
ours, theirs = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(theirs, b"x")
    time.sleep(3600)
os.read(ours, 1)
print("started", flush=True)
time.sleep(3600)
"""

FAILS = """
import sys
print("started", flush=True)
sys.exit("\\n".join(f"line {number} of {sys.argv[2]}" for number in range(100)))
"""


def started(directory: Path, tool: str, *arguments: str) -> Application:
    place = directory / "tool.py"
    place.write_text(tool)
    app = Application(str(place), directory, *arguments, to_the_end=False)
    assert app.started()
    return app


def test_a_process_that_has_left_the_session_is_killed_too(tmp_path: Path) -> None:
    app = started(tmp_path, LEAVES)
    other = started(tmp_path, LEAVES)
    pids = app.processes()
    assert len(pids) == 2
    assert len({os.getsid(pid) for pid in pids}) == 2
    assert app.kill() == 2
    assert app.processes() == []
    assert other.is_alive
    assert other.kill() == 2


def test_a_failure_has_the_last_lines_of_its_own_life(tmp_path: Path) -> None:
    for life in ("one", "two"):
        app = started(tmp_path, FAILS, life)
        told = str(app.failure("round 7: a query failed")).splitlines()
        assert told[0] == f"round 7: a query failed, see {app.log}"
        assert told[1:] == [f"line {number} of {life}" for number in range(40, 100)]
        app.kill()
