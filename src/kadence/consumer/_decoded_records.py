"""Decoded records of one partition, and whether they may be given out. One source, compiled and plain.

Both threads look at these objects, so each field has one writer, as in `shared_partition`. Compiled, a method here runs
no Python code, so no other thread and no signal handler comes between. See `uncompiled` for the two forms; the types of
the fields are in the .pxd file.
"""

from __future__ import annotations

from typing import Any

import kadence.uncompiled as cython

if cython.compiled:
    import cython

if not cython.compiled:
    from kadence.records import Record

__all__ = ["Attention", "DecodedRecords", "DeliveryState"]


@cython.final
@cython.cclass
class Attention:
    """Whether there is more to do for the application's next poll than to take the next record.

    Any thread raises it, after it has made the change that it is about. Only a poll lowers it, before it looks at
    what may have changed. So a change is seen by the poll under way or by the next one, and is never missed.
    """

    def __init__(self) -> None:
        self.up = True


@cython.final
@cython.cclass
class DecodedRecords:
    """Records of one partition that were decoded ahead, and how many of them were returned.

    The position of a partition is an index in them. Putting back what a poll took is setting ``index`` to ``began``.
    They are replaced as a whole when the next records are decoded, so other threads may read them.

    Where rows were given out as columns, where the records were let go (`Steps.let_go`), and where the position moved
    over control batches only, ``records`` is empty: then index 1 means "behind them" and 0 "before them".

    Attributes:
        fetch_epoch: the stretch of reading (see `SharedPartition`) that the records belong to.
        records: the records, in the order of their offsets. count: how many there are.
        index: how many of them were returned (application).
        began: the index at which the present poll began: what is below it is known to be processed (application).
        counted: the index up to which `Consumer.metrics` has counted them (application).
        is_last: the fetch holds nothing behind it. A step does not take its last record, for whoever does gives the
            fetch back.
        is_processed: all before index 0 was known to be processed when these were decoded.
        start, start_epoch: the position at index 0. end, end_epoch: the position behind the last of them.
    """

    def __init__(
        self,
        fetch_epoch: cython.longlong,
        records: list[Record],
        start: int,
        start_epoch: int | None,
        end: int,
        end_epoch: int | None,
    ) -> None:
        self.fetch_epoch = fetch_epoch
        self.records = records
        self.count = len(records)
        self.index = self.began = self.counted = 0
        self.is_last = self.is_processed = False
        self.start = start
        self.start_epoch = start_epoch
        self.end = end
        self.end_epoch = end_epoch

    @property
    def left(self) -> int:
        """How many records can still be returned."""
        return self.count - self.index if self.index < self.count else 0

    def position(self) -> tuple[int, int | None]:
        """The offset after what was returned, and the epoch of the last record before it."""
        offset, epoch = self.place(self.index)
        return offset, epoch

    def processed(self) -> tuple[int, int | None] | None:
        """The same of what is known to be processed; None: nothing is known yet."""
        if not self.began and not self.is_processed:
            return None
        offset, epoch = self.place(self.began)
        return offset, epoch

    @cython.cfunc
    def place(self, index: cython.Py_ssize_t) -> Any:
        """The position behind the first ``index`` of them."""
        if index == 0:
            return self.start, self.start_epoch
        if index >= self.count:
            return self.end, self.end_epoch
        record = self.records[index - 1]
        return record.offset + 1, record.leader_epoch


@cython.cclass
class DeliveryState:
    """What decides whether records of a partition may be given out. `SharedPartition` says who writes which field.

    It is the part of a shared partition that a step looks at for each record.
    """

    def __init__(self, fetch_epoch: cython.longlong) -> None:
        self.fetch_epoch = fetch_epoch
        self.paused = False
        self.revoking = False
        self.held = False
        self.end: int | None = None
        self.decoded: DecodedRecords | None = None
