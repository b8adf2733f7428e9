"""Objects that see what is returned and what is committed (KIP-42). Application side.

They are for tracing, auditing and filtering, and must never harm what they look at: an exception in one is logged and
passed over, as in Kafka's client. Positions and commits follow what was taken before they saw it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from kadence.consumer.records import Records
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = ["Interceptor", "Interceptors"]

log = logging.getLogger("kadence.consumer")


class Interceptor:
    """Subclass it, or write a class with some of these methods, and give it with ``interceptors=[...]``.

    The methods run on the thread that polls, inside poll(), iteration, commit() and close(); they are never coroutines.
    What `Consumer.poll_arrow` returns is not intercepted.
    """

    def on_consume(self, records: Records) -> Records:
        """What poll() is about to return (never empty); return it, or others in its place (`Records.of`)."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed, by whatever way."""

    def close(self) -> None:
        """The consumer is closed."""


class Interceptors:
    """The chain, in the order given."""

    def __init__(self, chain: Sequence[Any]) -> None:
        self._chain = tuple(chain)

    def on_consume(self, records: Records) -> Records:
        for each in self._chain:
            result = self._call(each, "on_consume", records)
            if isinstance(result, Records):
                records = result
            elif result is not None:
                log.warning(
                    "interceptor %s: on_consume returned %s instead of Records; passed over",
                    type(each).__name__,
                    type(result).__name__,
                )
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        if error is None:
            for each in self._chain:
                self._call(each, "on_commit", offsets)

    def close(self) -> None:
        for each in self._chain:
            self._call(each, "close")

    def _call(self, each: Any, name: str, *arguments: Any) -> Any:
        method = getattr(each, name, None)
        if method is None:
            return None
        try:
            return method(*arguments)
        except Exception:
            log.warning("interceptor %s: %s failed; passed over", type(each).__name__, name, exc_info=True)
            return None
