"""Polls that one partition's decoded records can serve: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.compiled import compiled
from kadence.consumer.decoded_records import COMPILED

__all__ = ["AsyncIteration", "Decoder", "Iteration", "ReaderState", "Steps"]

if TYPE_CHECKING or not COMPILED or compiled("kadence.consumer.fetch._steps_c") is None:
    from kadence.consumer.fetch._steps_py import (
        AsyncIteration,
        Decoder,
        Iteration,
        ReaderState,
        Steps,
    )
else:
    from kadence.consumer.fetch._steps_c import AsyncIteration, Decoder, Iteration, ReaderState, Steps
