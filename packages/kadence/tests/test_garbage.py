"""Bytes that compiled code is reading, or reading into, become garbage: the process lives, and says nothing."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import kadence

SOURCE = Path(kadence.__file__).parent

FETCHED = """
from kadence.records import FetchedRecords, encode_batch
root.fetched = FetchedRecords(encode_batch([(0, None, b"v", ())] * 9), "t", 0, 0)
assert len(root.fetched.take(3)) == 3
first = root.fetched._bytes
"""

CONNECTION = """
import socket
from kadence.net.arena import ArenaPool
from kadence.net.sockets import stream_of
ours, theirs = socket.socketpair()
ours.setblocking(False)
theirs.sendall((100_000).to_bytes(4) + bytes(1000))
root.stream = stream_of(ours)
first = ArenaPool(0).lend(100_000).view
root.stream.intake.advance()
assert root.stream.intake.begins() == 100_000
assert root.stream.intake.take(first) == 99_000
"""

# The collector keeps objects in the order in which it reaches them from what is alive, and clears them in that order:
# so the memoryview comes before whoever would let go of its buffer.
PROGRAM = """
import gc, sys
gc.disable()
class Root: ...
root = Root()
root.me = root
{leave}
held = [first, [[[[root]]]]]
del root, first
gc.collect()
del held
if sys.argv[1] == "collected":
    assert gc.collect() > 0
"""


@pytest.mark.parametrize("end", ["collected", "at exit"])
@pytest.mark.parametrize("leave", [FETCHED, CONNECTION], ids=["fetched", "connection"])
def test_bytes_in_use_may_become_garbage(leave: str, end: str) -> None:
    program = [sys.executable, "-c", PROGRAM.format(leave=leave), end]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_collector_does_not_know_who_holds_a_buffer() -> None:
    holders = {}
    for path in sorted((SOURCE / "_native").glob("*.p[yx][xd]")):
        text = path.read_text(encoding="utf-8")
        kinds = re.findall(r"^cdef class (\w+).*:\n(?: .*\n)*? +cdef Py_buffer ", text, re.MULTILINE)
        kinds += re.findall(r"^class (\w+).*:\n(?:(?: .*)?\n)*?    \w+: Py_buffer\n", text, re.MULTILINE)
        for kind in kinds:
            # Elsewhere what needs POSIX is not built.
            with suppress(ImportError):
                module = importlib.import_module(f"kadence._native.{path.stem}")
                holders[f"{path.stem}.{kind}"] = getattr(module, kind)
    assert set(holders) == {
        "buffers._Held",
        "builder._View",
        "drain._Target",
        "records.Cursor",
        "rows._View",
    }
    has_gc = 1 << 14
    assert [name for name, kind in holders.items() if kind.__flags__ & has_gc] == []
