"""Each type of each compiled module: to copy, pickle or make one without arguments is an error, and harms no memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import kadence
from kadence.records import IMPLEMENTATION

SOURCE = Path(kadence.__file__).parent
MODULES = sorted(
    {
        ".".join(("kadence", *path.relative_to(SOURCE).with_suffix("").parts))
        for kind in ("py", "pxd")
        for path in SOURCE.rglob(f"_*_c.{kind}")
    }
)

# Where copying goes wrong it may end the process: so all of this runs in a process of its own.
BEGIN = f"""
import copy, importlib, pickle, time
found = {{}}
for name in {MODULES}:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        assert "POSIX" in str(error), error
        continue
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == name:
            found[f"{{name.removeprefix('kadence.')}}.{{kind.__name__}}"] = kind
assert len(found) > 20, found
"""

COPY = """
from kadence.registry.columns.json_rows import Column
attention = found["consumer._decoded_records_c.Attention"]()
steps = found["consumer.fetch._steps_c.Steps"](attention, time.monotonic, object())
objects = [
    attention,
    steps,
    found["consumer.fetch._iteration_c.AsyncIteration"](steps, None),
    found["consumer._decoded_records_c.Decoder"](None, None),
    found["consumer.fetch._iteration_c.Iteration"](steps, None),
    found["consumer._decoded_records_c.DecodedRecords"](1, [], 0, None, 0, None),
    found["consumer._decoded_records_c.Records"](),
]
session = found["net._drain_c.Session"](-1, 0) if "net._drain_c.Session" in found else None
arguments = {
    "net._drain_c.Intake": (session, None),
    "net._drain_c.Poller": (found["net._drain_c.Wake"](),) if session else (),
    "net._native_heartbeat_c.NativeHeartbeat": (session,),
    "records._records_c.Cursor": ("t", 0),
    "spark.decode._json_c.Reader": (Column(b"", 9, children=(Column(b"a", 1, 8),)), bytes(8), b"", False),
}
objects += [kind.__new__(kind, *arguments.get(name, ())) for name, kind in found.items()]
objects.append(found["records._records_c.Record"]("t", 1, 2, 3, 1, b"k", None, (("h", None),), 4))
scratch = importlib.import_module("kadence.records._buffers_c").scratch(100_000)
memoryview(scratch)[:] = b"x" * 100_000
objects.append(scratch)
ways = [copy.copy, copy.deepcopy, *(lambda one, p=p: pickle.loads(pickle.dumps(one, p)) for p in range(6))]
for one in objects:
    print(type(one), end=": ", flush=True)
    for way in ways:
        try:
            made = way(one)
        except TypeError:
            continue
        assert type(made) is type(one), made
        # Records have no equality of their own.
        assert made == one or made.by_partition() == one.by_partition(), made
    print("right")
"""

BARE = """
for name, kind in found.items():
    print(name, end=": ", flush=True)
    try:
        one = kind.__new__(kind)
    except TypeError:
        print("right")
        continue
    calls = ["__next__", "__len__", "__iter__", "__aiter__", "__anext__", "__await__", "__repr__", "begins", "advance"]
    if name.startswith("consumer."):
        calls += [call for call in dir(one) if not call.startswith("_")]
    for call in (*calls, "take_columns"):
        for arguments in ((), (1,), (None,), (1, [])):
            try:
                getattr(one, call)(*arguments)
            except Exception:
                pass
    print("right")
rows = found["producer._rows_c.Rows"].__new__(found["producer._rows_c.Rows"])
for call in (rows.estimate, rows.partition, rows.topic):
    for row in (0, -1, 1 << 40):
        try:
            call(row)
        except IndexError:
            continue
        raise AssertionError((call, row))
try:
    found["consumer.fetch._iteration_c.Next"]().__next__()
except TypeError as error:
    print(error)
"""


def told_by(code: str) -> list[str]:
    if IMPLEMENTATION != "compiled":
        pytest.skip("the extension is not built here")
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_a_copy_or_a_pickle_is_refused_or_right() -> None:
    told = told_by(COPY)
    assert len(told) > 20
    assert all(line.endswith(": right") for line in told)


def test_an_object_that_was_made_without_its_arguments_harms_nothing() -> None:
    *told, last = told_by(BARE)
    assert all(line.endswith(": right") for line in told)
    assert last == "this is made by `async for` over a consumer"
