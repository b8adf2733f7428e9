"""Which half of the decoder this process uses (`kadence.loading`): one for all its parts. Encoders: `builder`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kadence.loading import compiled

__all__ = [
    "IMPLEMENTATION",
    "ColumnsBuilder",
    "Cursor",
    "Record",
    "crc32c",
    "crc32c_kernel",
    "memory_slice",
    "release_idle",
    "scan",
    "scratch",
    "spare_memory",
]

_PARTS: Final = ("_records_c", "_buffers_c", "_columns_c")
"""Those that others build on come first, so that an error names the one it is about."""


IMPLEMENTATION: Final = (
    "compiled" if all(compiled(f"kadence.records.{part}") is not None for part in _PARTS) else "python"
)

if TYPE_CHECKING or IMPLEMENTATION == "python":
    from kadence.records._columns_py import ColumnsBuilder, memory_slice, release_idle, scratch, spare_memory
    from kadence.records._records_py import Cursor, Record, crc32c, crc32c_kernel, scan
else:
    from kadence.records._columns_c import ColumnsBuilder, memory_slice, release_idle, scratch, spare_memory
    from kadence.records._records_c import Cursor, Record, crc32c, crc32c_kernel, scan
