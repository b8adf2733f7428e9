"""Each type of each compiled module: to copy, pickle or make one without arguments is an error, and harms no memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kadence

SOURCE = Path(kadence.__file__).parent
MODULES = sorted(
    ".".join(("kadence", *path.relative_to(SOURCE).with_suffix("").parts))
    for path in {*SOURCE.rglob("*.pyx"), *SOURCE.rglob("*.pxd")}
    if path.suffix == ".pyx" or path.with_suffix(".py").exists()
)

# Where copying goes wrong it may end the process: so all of this runs in a process of its own.
BEGIN = f"""
import copy, importlib, pickle, time
found = {{}}
for name in {MODULES}:
    module = importlib.import_module(name)
    for kind in vars(module).values():
        if isinstance(kind, type) and kind.__module__ == name:
            found[f"{{name.removeprefix('kadence.')}}.{{kind.__name__}}"] = kind
assert len(found) > 20, found
"""

COPY = """
from kadence.columns.json_rows import Column
attention = found["consumer._decoded_records.Attention"]()
steps = found["consumer.fetch._steps.Steps"](attention, time.monotonic, object())
objects = [
    attention,
    steps,
    found["consumer.fetch._iteration.AsyncIteration"](steps, None),
    found["consumer._decoded_records.Decoder"](None, None),
    found["consumer.fetch._iteration.Iteration"](steps, None),
    found["consumer._decoded_records.DecodedRecords"](1, [], 0, None, 0, None),
    found["consumer._decoded_records.Records"](),
]
session = found["_native.drain.Session"](-1, 0)
arguments = {
    "_native.drain.Intake": (session, None),
    "_native.drain.Poller": (found["_native.drain.Wake"](),),
    "_native.native_heartbeat.NativeHeartbeat": (session,),
    "_native.records.Cursor": ("t", 0),
    "_native.json.Reader": (Column(b"", 9, children=(Column(b"a", 1, 8),)), bytes(8), b"", False),
}
objects += [kind.__new__(kind, *arguments.get(name, ())) for name, kind in found.items()]
objects.append(found["_native.records.Record"]("t", 1, 2, 3, 1, b"k", None, (("h", None),), 4))
scratch = importlib.import_module("kadence._native.buffers").scratch(100_000)
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
rows = found["_native.rows.Rows"].__new__(found["_native.rows.Rows"])
for call in (rows.estimate, rows.partition, rows.topic):
    for row in (0, -1, 1 << 40):
        try:
            call(row)
        except IndexError:
            continue
        raise AssertionError((call, row))
try:
    found["consumer.fetch._iteration.Next"]().__next__()
except TypeError as error:
    print(error)
"""


def told_by(code: str) -> list[str]:
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
    assert last == "an iteration cannot be created directly; iterate over a consumer with `async for`"
