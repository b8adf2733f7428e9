"""The hand of a partition and the flag of the border: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.records import IMPLEMENTATION

__all__ = ["COMPILED", "Attention", "Hand", "Standing"]

COMPILED: bool = IMPLEMENTATION == "compiled"
"""Whether the compiled half is loaded: as the decoder's is."""

if TYPE_CHECKING or not COMPILED:
    from kadence.consumer.border._hand_py import Attention, Hand, Standing
else:
    from kadence.consumer.border._hand_c import Attention, Hand, Standing
