"""Handlers that child processes import."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from kadence.work import ProducerRecord


def work(record: Any, context: Any) -> Any:
    """What its value says: die, hang, fail, or answer with the attempt."""
    if record.value == b"die":
        os._exit(7)
    if record.value == b"hang" and context.attempt == 1:
        time.sleep(600)
    if record.value == b"fail":
        raise ValueError("failed")
    return ProducerRecord("out", b"%s %d %d" % (record.value, context.attempt, os.getpid()))


def until_lost(record: Any, context: Any) -> None:
    """Works until its partition is gone, or until there is a file beside its own, which its value names."""
    mine = Path(record.value.decode())
    mine.touch()
    while not context.lost:
        if mine.with_name("release").exists():
            return
        time.sleep(0.01)
    mine.with_suffix(".lost").touch()


def wrong(record: Any) -> bool:
    """Returns what no handler may."""
    return True


def table(rows: Any) -> list[ProducerRecord]:
    """Gives the values of an Arrow table, unless one of them is 17."""
    values = rows.column("value").to_pylist()
    if b"17" in values:
        raise ValueError("seventeen")
    return [ProducerRecord("out", value) for value in values]


class Panic(BaseException):
    """What extensions in Rust raise."""


class UnspeakableError(Exception):
    """Says nothing of itself."""

    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


class UnpicklableError(Exception):
    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(f"{first} {second}")
        self.held = lambda: None


class BothError(UnspeakableError):
    def __reduce__(self) -> Any:
        raise ValueError("no bytes")


class OddError(Exception):
    def __reduce__(self) -> Any:
        return str, ("nonsense",)


class Nonsense:
    def __repr__(self) -> str:
        raise ValueError("no words")


ENDINGS = {
    "raises": "ValueError",
    "exits": "SystemExit",
    "interrupts": "KeyboardInterrupt",
    "ends its generator": "GeneratorExit",
    "is cancelled": "CancelledError",
    "stops": "StopIteration",
    "panics": "Panic",
    "raises midway": "ValueError",
    "exits midway": "SystemExit",
    "cannot be shown": "UnspeakableError",
    "cannot be pickled": "UnpicklableError",
    "cannot be shown or pickled": "BothError",
    "pickles to nonsense": "OddError",
    "cannot be sent": "SerializationError",
}
"""Values of records, and the class of exception with which a handler ends for each."""

NO_EXCEPTIONS = ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "CancelledError", "Panic")


def ending(given: Any) -> Any:
    """Ends as the record says, or the first record that ends in any other way than by returning."""
    for record in given if isinstance(given, list) else [given]:
        if (result := _ending(record.value.decode())) is not None:
            return result
    return None


def _ending(name: str) -> Any:
    errors: dict[str, Any] = {
        "raises": ValueError("bad"),
        "interrupts": KeyboardInterrupt(),
        "ends its generator": GeneratorExit(),
        "is cancelled": asyncio.CancelledError(),
        "stops": StopIteration(),
        "panics": Panic("panic"),
        "cannot be shown": UnspeakableError(),
        "cannot be pickled": UnpicklableError(1, 2),
        "cannot be shown or pickled": BothError(),
        "pickles to nonsense": OddError(),
    }
    if name in errors:
        raise errors[name]
    if name == "exits":
        sys.exit(3)
    if name == "exits hard":
        os._exit(3)
    if name == "is killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "cannot be sent":
        return ProducerRecord("out", 17)
    if name.endswith("midway"):
        return _midway(name)
    return None


def _midway(name: str) -> Any:
    yield ProducerRecord("out", name.encode())
    if name.startswith("exits"):
        sys.exit(3)
    raise ValueError("midway")


async def awaited_ending(given: Any) -> Any:
    """As `ending`."""
    await asyncio.sleep(0)
    return ending(given)


def nonsense(record: Any) -> Any:
    """Returns what no handler may."""
    return Nonsense()


async def awaited_nonsense(record: Any) -> Any:
    """As `nonsense`."""
    return Nonsense()
