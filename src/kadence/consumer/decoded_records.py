"""A partition's decoded records and the flag for the next poll: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.compiled import compiled
from kadence.records import IMPLEMENTATION

__all__ = ["COMPILED", "Attention", "DecodedRecords", "DeliveryState"]

_compiled = compiled("kadence.consumer._decoded_records_c") if IMPLEMENTATION == "compiled" else None

COMPILED: bool = _compiled is not None
"""Whether the compiled form is loaded."""

if TYPE_CHECKING or _compiled is None:
    from kadence.consumer._decoded_records import Attention, DecodedRecords, DeliveryState
else:
    Attention, DecodedRecords = _compiled.Attention, _compiled.DecodedRecords
    DeliveryState = _compiled.DeliveryState
