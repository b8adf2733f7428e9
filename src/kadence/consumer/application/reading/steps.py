"""Polls that one hand alone can serve: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.compiled import compiled
from kadence.consumer.border.hand import COMPILED

__all__ = ["AsyncIteration", "Decoder", "Iteration", "Place", "Steps"]

if TYPE_CHECKING or not COMPILED or compiled("kadence.consumer.application.reading._steps_c") is None:
    from kadence.consumer.application.reading._steps_py import (
        AsyncIteration,
        Decoder,
        Iteration,
        Place,
        Steps,
    )
else:
    from kadence.consumer.application.reading._steps_c import AsyncIteration, Decoder, Iteration, Place, Steps
