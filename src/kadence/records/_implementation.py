"""Which half of the decoder this process uses. KADENCE_EXTENSION decides at import, as it does at build.

auto     (default) the compiled half where it was built, else Python
require  the compiled half, or an ImportError
off      Python
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

__all__ = [
    "IMPLEMENTATION",
    "ColumnsBuilder",
    "Cursor",
    "Record",
    "RecordEncoder",
    "crc32c",
    "crc32c_kernel",
    "release_idle",
    "scan",
    "scratch",
    "spare_memory",
]

_MODES: Final = ("auto", "require", "off")


def _mode() -> str:
    mode = os.environ.get("KADENCE_EXTENSION", "auto")
    if mode not in _MODES:
        raise ImportError(f"KADENCE_EXTENSION must be one of {', '.join(_MODES)}, not {mode!r}")
    return mode


def _load() -> str:
    """Try the compiled half; returns the name of the one to use."""
    mode = _mode()
    if mode == "off":
        return "python"
    try:
        from kadence.records import _builder_c, _columns_c, _records_c  # noqa: F401
    except ImportError as error:
        if mode == "require":
            raise ImportError(
                "KADENCE_EXTENSION=require, but the extension cannot be loaded "
                f"({error}); build it with: KADENCE_EXTENSION=require pip install --no-binary kadence kadence"
            ) from error
        return "python"
    return "compiled"


IMPLEMENTATION: Final = _load()

if TYPE_CHECKING or IMPLEMENTATION == "python":
    from kadence.records._builder_py import RecordEncoder
    from kadence.records._columns_py import ColumnsBuilder, release_idle, scratch, spare_memory
    from kadence.records._records_py import Cursor, Record, crc32c, crc32c_kernel, scan
else:
    from kadence.records._builder_c import RecordEncoder
    from kadence.records._columns_c import ColumnsBuilder, release_idle, scratch, spare_memory
    from kadence.records._records_c import Cursor, Record, crc32c, crc32c_kernel, scan
