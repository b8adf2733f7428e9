"""Reads record batches (magic 2) as records and columns, and writes them.

Callable from any thread; the objects made here belong to the thread that uses them. `scan`, `iter_batches` and
`assign_offsets` look at headers only, for the network thread and the broker; `FetchedRecords` decodes, for the
application.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence._native.buffers import release_idle, spare_memory
from kadence._native.records import Record
from kadence._native.shared import (
    ALL_COLUMNS,
    MOST_HEADERS,
    OWN_COLUMNS,
    BinaryColumn,
    Columns,
    HeaderColumn,
)
from kadence.records.batch import (
    KERNEL,
    BatchHeader,
    assign_offsets,
    crc32c,
    first_epoch,
    iter_batches,
    leader_epochs,
    scan,
    validate,
)
from kadence.records.fetched import MAX_BATCH_BYTES, FetchedRecords

if TYPE_CHECKING:
    from kadence.records.builder import BatchBuilder, encode_batch, largest_record_size

__all__ = [
    "ALL_COLUMNS",
    "KERNEL",
    "MAX_BATCH_BYTES",
    "MOST_HEADERS",
    "OWN_COLUMNS",
    "BatchBuilder",
    "BatchHeader",
    "BinaryColumn",
    "Columns",
    "FetchedRecords",
    "HeaderColumn",
    "Record",
    "assign_offsets",
    "crc32c",
    "encode_batch",
    "first_epoch",
    "iter_batches",
    "largest_record_size",
    "leader_epochs",
    "release_idle",
    "scan",
    "spare_memory",
    "validate",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports the builder when it is first used: a consumer makes no batches."""
        if name not in ("BatchBuilder", "encode_batch", "largest_record_size"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from kadence.records import builder

        found = globals()[name] = getattr(builder, name)
        return found
