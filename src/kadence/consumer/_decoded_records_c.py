# mypy: ignore-errors
"""The compiled half of `decoded_records`. `_decoded_records_py`, its twin, says what things mean.

Cython in pure-Python syntax. A method here runs no Python code, so no other thread and no signal handler comes between.
"""

import cython

if not cython.compiled:
    raise ImportError("kadence.consumer._decoded_records_c is not compiled")


@cython.final
@cython.cclass
class Attention:
    """See `_decoded_records_py.Attention`."""

    def __cinit__(self):
        self.up = True


@cython.final
@cython.cclass
class DecodedRecords:
    """See `_decoded_records_py.DecodedRecords`."""

    def __cinit__(
        self,
        fetch_epoch: cython.longlong,
        records: list,
        start: object,
        start_epoch: object,
        end: object,
        end_epoch: object,
    ):
        self.fetch_epoch = fetch_epoch
        self.records = records
        self.count = len(records)
        self.start = start
        self.start_epoch = start_epoch
        self.end = end
        self.end_epoch = end_epoch

    @property
    def left(self) -> int:
        return self.count - self.index if self.index < self.count else 0

    @cython.cfunc
    def place(self, index: cython.Py_ssize_t) -> tuple:
        if index == 0:
            return (self.start, self.start_epoch)
        if index >= self.count:
            return (self.end, self.end_epoch)
        record = self.records[index - 1]
        return (record.offset + 1, record.leader_epoch)

    def position(self) -> tuple:
        return self.place(self.index)

    def processed(self) -> object:
        return self.place(self.began) if self.began or self.is_processed else None


@cython.cclass
class DeliveryState:
    """See `_decoded_records_py.DeliveryState`."""

    def __init__(self, fetch_epoch: cython.longlong):
        self.fetch_epoch = fetch_epoch
