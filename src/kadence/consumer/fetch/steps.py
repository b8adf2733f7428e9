"""Polls that one partition's decoded records can serve, and loops: compiled where that was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.consumer.decoded_records import COMPILED as DECODED_COMPILED
from kadence.loading import compiled

__all__ = ["COMPILED", "AsyncIteration", "Iteration", "ReaderState", "Steps"]

_compiled = compiled("kadence.consumer.fetch._steps_c") if DECODED_COMPILED else None
COMPILED = _compiled is not None
"""Whether the compiled form of the steps is loaded."""

_iteration = compiled("kadence.consumer.fetch._iteration_c") if _compiled is not None else None

if TYPE_CHECKING or _compiled is None:
    from kadence.consumer.fetch._steps import ReaderState, Steps
else:
    ReaderState, Steps = _compiled.ReaderState, _compiled.Steps

if TYPE_CHECKING or _iteration is None:
    from kadence.consumer.fetch._iteration import AsyncIteration, Iteration
else:
    Iteration, AsyncIteration = _iteration.Iteration, _iteration.AsyncIteration
