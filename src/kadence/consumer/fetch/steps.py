"""Polls that one partition's decoded records can serve: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.compiled import compiled
from kadence.consumer.decoded_records import COMPILED

__all__ = ["AsyncIteration", "Decoder", "Iteration", "ReaderState", "Steps"]

_compiled = compiled("kadence.consumer.fetch._steps_c") if COMPILED else None

if TYPE_CHECKING or _compiled is None:
    from kadence.consumer.fetch._steps import AsyncIteration, Decoder, Iteration, ReaderState, Steps
else:
    Decoder, ReaderState, Steps = _compiled.Decoder, _compiled.ReaderState, _compiled.Steps
    Iteration, AsyncIteration = _compiled.Iteration, _compiled.AsyncIteration
