"""Objects that see what is returned and what is committed (KIP-42). Application side.

They are for tracing, auditing and filtering. An exception in an interceptor is logged and does not end the call, as
in Kafka's client. Positions and commits count all records that were fetched for the poll, whatever an interceptor
returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kadence.consumer.polled_records import Records, intercept
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.logs import logger
from kadence.records import Record
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = ["Interceptor", "InterceptorLike", "Interceptors"]

log = logger("kadence.consumer")


class Interceptor:
    """Subclass it, or write a class with some of these methods, and give it with ``interceptors=[...]``.

    The methods run on the thread that polls, inside poll(), iteration, commit() and close(); they are never coroutines.
    What `Consumer.poll_arrow` returns is not intercepted.
    """

    def on_consume(self, records: Records[Any, Any]) -> Records[Any, Any]:
        """Called with the records that poll() is about to return, never empty.

        Return them, or others instead (`Records.of`).
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets were committed, by a call or automatically."""

    def close(self) -> None:
        """Called once, when the consumer has been closed."""


class SeesRecords(Protocol):
    """Has the first of an interceptor's methods."""

    def on_consume(self, records: Records[Any, Any], /) -> Records[Any, Any] | None:
        """As `Interceptor.on_consume`; None changes nothing."""
        ...


class SeesCommits(Protocol):
    """Has the second one."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> object:
        """As `Interceptor.on_commit`."""
        ...


class SeesClose(Protocol):
    """Has the third one."""

    def close(self) -> object:
        """As `Interceptor.close`."""
        ...


InterceptorLike = (
    SeesRecords | SeesCommits | SeesClose | type[SeesRecords] | type[SeesCommits] | type[SeesClose]
)
"""What ``interceptors`` may hold: objects with one of the methods, or classes that are made without arguments."""


class Surplus:
    """What interceptors gave to a step of an iteration beyond the one record that it returns.

    The calls that follow return it first, and prove nothing processed meanwhile. What one of them returned is dropped
    by the next: until then Ctrl-C can put it back. A seek or a revocation drops all of it.
    """

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._returned = 0
        self._shared_partition: SharedPartition | None = None
        self._fetch_epoch = 0

    def keep(self, records: list[Record], shared_partition: SharedPartition | None) -> None:
        """The next calls return these; nothing else is kept. ``shared_partition``: the partition they come from."""
        self._returned = 0
        self._shared_partition, self._fetch_epoch = (
            shared_partition,
            0 if shared_partition is None else shared_partition.fetch_epoch,
        )
        self._records = records

    def take(self, limit: int) -> list[Record]:
        """At most ``limit`` of them."""
        if not self._records:
            return []
        if self._shared_partition is None or self._shared_partition.fetch_epoch != self._fetch_epoch:
            self._records = []
        del self._records[: self._returned]
        taken = self._records[:limit]
        self._returned = len(taken)
        return taken

    def put_back(self, *, polled: bool) -> None:
        """What the call under way took did not reach the caller. ``polled``: it was a poll, which will come again."""
        self._returned = 0
        if polled:
            self._records = []


class Interceptors:
    """The chain, in the order given. `intercept` calls those that see records.

    Attributes:
        consuming: those that do. surplus: what an iteration has not returned yet.
    """

    def __init__(self, chain: Sequence[Any], shared_state: SharedState) -> None:
        self._chain = tuple(chain)
        self._shared_state = shared_state
        self.consuming = tuple(each for each in chain if hasattr(each, "on_consume"))
        self.surplus = Surplus()

    def on_consume(self, records: Records[Any, Any]) -> Records[Any, Any]:
        return intercept(self, self.consuming, records)

    def first(self, records: Records[Any, Any]) -> Record[Any, Any] | None:
        """The first of what a poll of one returned; what interceptors added to it comes with the next polls."""
        found = list(records)
        if len(found) > 1:
            shared_partition = self._shared_state.assignment.get(
                TopicPartition(found[0].topic, found[0].partition)
            )
            self.surplus.keep(found[1:], shared_partition)
            # The next poll is no step: it returns them first.
            self._shared_state.attention.up = True
        return found[0] if found else None

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
        if error is None:
            for each in self._chain:
                self._call(each, "on_commit", offsets)

    def close(self) -> None:
        for each in self._chain:
            self._call(each, "close")

    def failed(self, each: Any, name: str, error: Exception) -> None:
        """A method of an interceptor has raised this."""
        log.warning(
            "interceptor %s: %s raised an error, which is ignored", type(each).__name__, name, exc_info=error
        )

    def refused(self, each: Any, result: object) -> None:
        """``on_consume`` has returned something else than records."""
        log.warning(
            "interceptor %s: on_consume returned %s instead of Records; the records are used unchanged",
            type(each).__name__,
            type(result).__name__,
        )

    def _call(self, each: Any, name: str, *arguments: Any) -> None:
        method = getattr(each, name, None)
        if method is not None:
            try:
                method(*arguments)
            except Exception as error:  # noqa: BLE001 - logged, as in Kafka's client
                self.failed(each, name, error)
