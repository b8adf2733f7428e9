"""How many bytes to ask for when a partition is fetched up to an end (C11). Network thread, sans-IO.

A broker sends what it has up to partition_max_bytes, so a fetch for the last thousand records of a range would bring a
mebibyte. What an offset takes, and a batch, is known from earlier fetches of the topic, and from any other topic before
that. Before anything is known little is asked for: whatever the bound, the broker sends at least one whole batch of the
first partition, and that teaches the rest.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Sizes"]

_UNKNOWN_OFFSET: Final = 64
_UNKNOWN_BATCH: Final = 16_384
"""A producer's batch.size, unless it says otherwise."""
_LENGTH_AT: Final = slice(8, 12)
_LOG_OVERHEAD: Final = 12


class Sizes:
    """Running means of what was fetched: bytes for an offset, and for a batch, by topic."""

    def __init__(self) -> None:
        self._by_topic: dict[str, tuple[float, float]] = {}
        self._latest: tuple[float, float] = (_UNKNOWN_OFFSET, _UNKNOWN_BATCH)

    def saw(self, topic: str, offsets: int, batches: memoryview) -> None:
        """Whole batches came, which take so many offsets."""
        size = len(batches) / max(offsets, 1)
        batch = float(int.from_bytes(batches[_LENGTH_AT], "big") + _LOG_OVERHEAD)
        before = self._by_topic.get(topic)
        if before is not None:
            size, batch = (before[0] + size) / 2, (before[1] + batch) / 2
        self._by_topic[topic] = self._latest = size, batch

    def room_for(self, topic: str, offsets: int) -> int:
        """Bytes that so many offsets should take, and what of their first and last batch lies beside them."""
        size, batch = self._by_topic.get(topic, self._latest)
        return int(offsets * size + batch)
