"""A checksum of a task's rows: equal for equal rows in the same order, independent of their batches.

It is computed from Arrow's buffers, at about a tenth of the cost of sending the rows.
"""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RowsDigest"]

_NULL: Final = -1
"""The length of a null, and the value of a null number; real ones are not below 0."""


class RowsDigest:
    """The checksum of one task's rows.

    Attributes:
        rows: their number. topic: that of the first one; "": there was none.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.topic = ""
        self._sums: dict[str, int] = {}

    def add(self, records: pa.RecordBatch, topic: str | None) -> None:
        """Add rows that are sent. ``topic`` takes precedence over their column."""
        if not self.rows:
            self.topic = topic or records.column("topic")[0].as_py()
        self.rows += records.num_rows
        for name, column in zip(records.schema.names, records.columns, strict=True):
            self._column(name, column)

    def text(self) -> str:
        """The sum of all rows so far, as 16 hexadecimal digits."""
        said = ",".join(f"{path}={value}" for path, value in sorted(self._sums.items()))
        return hashlib.blake2b(f"{self.rows},{said}".encode(), digest_size=8).hexdigest()

    def _column(self, path: str, column: Any) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        kind = column.type
        if pa.types.is_list(kind):
            self._numbers(f"{path}#", pc.list_value_length(column))
            self._column(f"{path}[]", column.flatten())
        elif pa.types.is_struct(kind):
            for field, part in zip(kind, column.flatten(), strict=True):
                self._column(f"{path}.{field.name}", part)
        elif pa.types.is_integer(kind):
            self._numbers(path, column)
        else:
            self._numbers(f"{path}#", pc.binary_length(column))
            self._bytes(path, column)

    def _numbers(self, path: str, column: Any) -> None:
        filled = column.fill_null(_NULL)
        width = filled.type.bit_width // 8
        self._sum(path, filled.buffers()[1], filled.offset * width, (filled.offset + len(filled)) * width)

    def _bytes(self, path: str, column: Any) -> None:
        _, offsets, data = column.buffers()
        if data is None or not len(column):
            return
        is_large = str(column.type).startswith("large_")
        starts = memoryview(offsets).cast("B").cast("q" if is_large else "i")
        self._sum(path, data, starts[column.offset], starts[column.offset + len(column)])

    def _sum(self, path: str, buffer: Any, start: int, end: int) -> None:
        if end > start:
            self._sums[path] = zlib.crc32(memoryview(buffer)[start:end], self._sums.get(path, 0))
