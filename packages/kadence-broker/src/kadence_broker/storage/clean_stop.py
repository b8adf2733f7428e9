"""The file of a broker that ended in order, so that the next one notices losses: ``.kafka_cleanshutdown``.

Its first line is Kafka's, whose brokers read no further. The second is a line as in the journal: a checksum, and
JSON with the length of the journal, and for each partition the first and last offset of its log and the lengths of its
files. Files that follow from a log (indexes, snapshots, leader epochs) are not in it: they can be rebuilt.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from kadence.logs import logger
from kadence_broker.storage.files import write_durably
from kadence_broker.storage.journal import entry_of, line_of

__all__ = ["CLEAN_FILE", "CleanStop", "LeftLog", "read_clean_stop", "write_clean_stop"]

CLEAN_FILE: Final = ".kafka_cleanshutdown"
_FIRST_LINE: Final = b'{"version":0,"kadence":1}'
"""That of a broker that says no more than that it ended in order (Kafka's, an older one of ours) has no "kadence"."""

_log = logger("kadence.broker")


class LeftLog(NamedTuple):
    """The log of a partition when the broker ended.

    Attributes:
        start: its first offset, and end: the one after its last.
        segments: bytes of each ``.log`` with batches, by base offset; aborted: those of each ``.txnindex``.
    """

    start: int
    end: int
    segments: dict[int, int]
    aborted: dict[int, int]


class CleanStop(NamedTuple):
    """The state of the directory after a broker ended in order.

    Attributes:
        journal_bytes: length of the journal; None: not known.
        logs: by the name of the partition's folder; unknown ones are not there.
    """

    journal_bytes: int | None
    logs: dict[str, LeftLog]


def write_clean_stop(folder: Path, stop: CleanStop) -> None:
    """Say durably that the broker has ended in order. Raises `OSError`."""
    logs = {
        name: [each.start, each.end, list(each.segments.items()), list(each.aborted.items())]
        for name, each in stop.logs.items()
    }
    line = line_of({"journal": stop.journal_bytes, "logs": logs})
    write_durably(folder / CLEAN_FILE, _FIRST_LINE + b"\n" + line)


def read_clean_stop(folder: Path) -> CleanStop | None:
    """The state that the last broker left; None if it did not end in order, or if the file is damaged (logged)."""
    path = folder / CLEAN_FILE
    try:
        first, _, rest = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    try:
        if first == _FIRST_LINE:
            return _decoded(entry_of(rest.rstrip(b"\n")))
        if isinstance(json.loads(first), dict) and b"kadence" not in first:
            return CleanStop(None, {})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass
    _log.warning("%s is damaged: it is not known whether the broker ended in order", path)
    return None


def _decoded(entry: dict[str, Any]) -> CleanStop:
    return CleanStop(
        entry["journal"],
        {
            name: LeftLog(start, end, dict(segments), dict(aborted))
            for name, (start, end, segments, aborted) in entry["logs"].items()
        },
    )
