"""Handlers that child processes import."""

from __future__ import annotations

import os
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
