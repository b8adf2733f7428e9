"""`FetchedRecords`: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.loading import compiled
from kadence.records._implementation import IMPLEMENTATION

__all__ = ["MAX_BATCH_BYTES", "FetchedRecords"]

_compiled = compiled("kadence.records._fetched_c") if IMPLEMENTATION == "compiled" else None

if TYPE_CHECKING or _compiled is None:
    from kadence.records._fetched import MAX_BATCH_BYTES, FetchedRecords
else:
    MAX_BATCH_BYTES, FetchedRecords = _compiled.MAX_BATCH_BYTES, _compiled.FetchedRecords
