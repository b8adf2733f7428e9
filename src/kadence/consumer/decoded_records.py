"""A partition's decoded records and the flag for the next poll: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.compiled import compiled
from kadence.records import IMPLEMENTATION

__all__ = ["COMPILED", "Attention", "DecodedRecords", "DeliveryState"]

COMPILED: bool = IMPLEMENTATION == "compiled" and compiled("kadence.consumer._decoded_records_c") is not None
"""Whether the compiled half is loaded."""

if TYPE_CHECKING or not COMPILED:
    from kadence.consumer._decoded_records_py import Attention, DecodedRecords, DeliveryState
else:
    from kadence.consumer._decoded_records_c import Attention, DecodedRecords, DeliveryState
