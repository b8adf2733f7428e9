"""What takes records out of fetches: the collector, its readers, steps and loops. Compiled if all of it is, else plain.

A poll that one partition's decoded records can serve is a step; see `_steps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kadence.consumer.decoded_records import COMPILED as DECODED_COMPILED
from kadence.loading import compiled
from kadence.records import FetchedRecords

__all__ = [
    "COMPILED",
    "AsyncIteration",
    "FetchCollector",
    "Iteration",
    "PartitionReader",
    "ReaderState",
    "Steps",
]

_steps = compiled("kadence.consumer.fetch._steps_c") if DECODED_COMPILED else None
_iteration = compiled("kadence.consumer.fetch._iteration_c") if _steps is not None else None
_reader = (
    compiled("kadence.consumer.fetch._partition_reader_c")
    if _steps is not None and FetchedRecords.__module__.endswith("_c")
    else None
)
_collector = compiled("kadence.consumer.fetch._fetch_collector_c") if _reader is not None else None

COMPILED = _steps is not None and _iteration is not None and _collector is not None
"""Whether the compiled forms are loaded."""

if TYPE_CHECKING or not COMPILED:
    from kadence.consumer.fetch._fetch_collector import FetchCollector
    from kadence.consumer.fetch._iteration import AsyncIteration, Iteration
    from kadence.consumer.fetch._partition_reader import PartitionReader
    from kadence.consumer.fetch._steps import ReaderState, Steps
else:
    FetchCollector, PartitionReader = _collector.FetchCollector, _reader.PartitionReader
    ReaderState, Steps = _steps.ReaderState, _steps.Steps
    Iteration, AsyncIteration = _iteration.Iteration, _iteration.AsyncIteration
