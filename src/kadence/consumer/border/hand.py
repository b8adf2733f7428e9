"""The hand of a partition and the flag of the border: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.compiled import compiled
from kadence.records import IMPLEMENTATION

__all__ = ["COMPILED", "Attention", "Hand", "Standing"]

COMPILED: bool = IMPLEMENTATION == "compiled" and compiled("kadence.consumer.border._hand_c") is not None
"""Whether the compiled half is loaded."""

if TYPE_CHECKING or not COMPILED:
    from kadence.consumer.border._hand_py import Attention, Hand, Standing
else:
    from kadence.consumer.border._hand_c import Attention, Hand, Standing
