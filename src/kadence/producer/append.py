"""The way into the accumulator: compiled where the extension was built, else plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kadence.loading import compiled
from kadence.records import IMPLEMENTATION

__all__ = [
    "COMPILED",
    "FastAppender",
    "FutureRecordMetadata",
    "OpenBatch",
    "ProduceRequestResult",
    "ShortWay",
    "Sticky",
    "TopicInfo",
    "call_back",
    "estimated_size",
    "murmur2",
]


_PARTS: Final = ("_append_c", "_rows_c")

COMPILED: Final = IMPLEMENTATION == "compiled" and all(
    compiled(f"kadence.producer.{part}") is not None for part in _PARTS
)
"""Whether records are added outside Python."""

if TYPE_CHECKING or not COMPILED:
    from kadence.producer._append_py import (
        FastAppender,
        FutureRecordMetadata,
        OpenBatch,
        ProduceRequestResult,
        ShortWay,
        Sticky,
        TopicInfo,
        call_back,
        estimated_size,
        murmur2,
    )
else:
    from kadence.producer._append_c import (
        FastAppender,
        FutureRecordMetadata,
        OpenBatch,
        ProduceRequestResult,
        ShortWay,
        Sticky,
        TopicInfo,
        call_back,
        estimated_size,
        murmur2,
    )
