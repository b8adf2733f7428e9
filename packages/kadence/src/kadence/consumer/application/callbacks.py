"""Functions that the application provides: rebalance listeners, commit callbacks, interceptors. Application side.

All of them run on the application's thread.

`Rebalancing` takes the application's steps of a rebalance (C5): callbacks, and the commit before partitions go. The
network side asks for them (`CallbackNeeded`), and each gets a `CallbackDone`, even if the callback raised.
They run inside poll(), unsubscribe() and close().

Interceptors (KIP-42) see the returned records and the committed offsets; they are for tracing, auditing and filtering.
An exception in one is logged and does not end the call, as in Kafka's client. Positions and commits count all records
that were fetched for the poll, whatever an interceptor returns.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextvars import ContextVar
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from kadence.client.waits import Run, Waits
from kadence.clock import FOREVER, Clock
from kadence.consumer import events as m
from kadence.consumer.decoded_records import Records, intercept
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.lazy_dataclasses import replace
from kadence.logs import logger
from kadence.records import Record
from kadence.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kadence.consumer.application.commits import Commits
    from kadence.consumer.application.exchange import Exchange
    from kadence.consumer.application.known_assignment import KnownAssignment

__all__ = [
    "AsyncRebalanceListener",
    "CommitCallback",
    "Interceptor",
    "InterceptorLike",
    "Interceptors",
    "RebalanceListener",
    "Rebalancing",
    "without_void",
]

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], object]
"""A function that a consumer calls at the end of a commit, with its offsets and its error (None: it succeeded).

The result is ignored. `AsyncConsumer` also takes a coroutine function, and awaits it.
"""


class RebalanceListener(Protocol):
    """Subclass it, or write a class with all its methods, and give an object of it to ``subscribe(..., listener=)``.

    Its methods run on the thread that polls, inside poll(), unsubscribe() or close(); commit(), seek(), pause() and
    position() work inside them. If a method raises, the rebalance goes on, and that call then raises the exception.
    The time that a method takes counts as processing time (max.poll.interval.ms).
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> None:
        """These partitions are about to be revoked; they are still this member's, so a commit works."""
        del partitions

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> None:
        """These partitions were added (may be none). None of them is fetched before this returns."""
        del partitions

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> None:
        """These partitions were lost: a commit would fail. By default it calls `on_partitions_revoked`."""
        # An AsyncConsumer awaits it, should it be a coroutine function in spite of its type.
        return self.on_partitions_revoked(partitions)


class AsyncRebalanceListener(Protocol):
    """As `RebalanceListener`, for `AsyncConsumer`: each method may be a function or a coroutine function.

    Coroutine functions are awaited inside poll(), unsubscribe() or close(), on the consumer's event loop. A
    `RebalanceListener` is accepted, too.
    """

    def on_partitions_revoked(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions are about to be revoked; they are still this member's, so a commit works."""
        return None

    def on_partitions_assigned(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions were added (may be none). None of them is fetched before this returns."""
        return None

    def on_partitions_lost(self, partitions: list[TopicPartition], /) -> Awaitable[None] | None:
        """These partitions were lost: a commit would fail. By default it calls `on_partitions_revoked`."""
        return self.on_partitions_revoked(partitions)


log = logger("kadence.consumer")

_inside: Final[ContextVar[tuple[m.CallbackNeeded, ...]]] = ContextVar("inside", default=())
"""The callback that is running. Tasks that a callback creates and awaits are inside it as well."""


class Interceptor:
    """Subclass it, or write a class with some of these methods, and give it with ``interceptors=[...]``.

    The methods run on the thread that polls, inside poll(), iteration, commit() and close(); they are never coroutines.
    The tables of `Consumer.poll_arrow` are not intercepted.
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
    """An object with `on_consume`."""

    def on_consume(self, records: Records[Any, Any], /) -> Records[Any, Any] | None:
        """As `Interceptor.on_consume`; None changes nothing."""
        ...


class SeesCommits(Protocol):
    """An object with `on_commit`."""

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> object:
        """As `Interceptor.on_commit`."""
        ...


class SeesClose(Protocol):
    """An object with `close`."""

    def close(self) -> object:
        """As `Interceptor.close`."""
        ...


InterceptorLike = (
    SeesRecords | SeesCommits | SeesClose | type[SeesRecords] | type[SeesCommits] | type[SeesClose]
)
"""Items of ``interceptors``: objects with at least one of the methods, or classes that need no arguments."""


class Surplus:
    """Records that interceptors returned to a step of an iteration in addition to the one that it yields.

    The next calls return these first, and mark nothing processed meanwhile. Records that one call returned are dropped
    by the next: until then Ctrl-C can put them back. A seek or a revocation drops all of them.
    """

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._returned = 0
        self._shared_partition: SharedPartition | None = None
        self._fetch_epoch = 0

    def keep(self, records: list[Record], shared_partition: SharedPartition | None) -> None:
        """The next calls return these; earlier ones are dropped. ``shared_partition``: the partition they come from."""
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
        """The records taken by the current call did not reach the caller.

        ``polled``: it was a poll, which will be repeated.
        """
        self._returned = 0
        if polled:
            self._records = []


class Interceptors:
    """The chain of interceptors, in the order given. `intercept` calls those with `on_consume`.

    Attributes:
        consuming: those. surplus: records that an iteration has not returned yet.
    """

    def __init__(self, chain: Sequence[Any], shared_state: SharedState) -> None:
        self._chain = tuple(chain)
        self._shared_state = shared_state
        self.consuming = tuple(each for each in chain if hasattr(each, "on_consume"))
        self.surplus = Surplus()

    def on_consume(self, records: Records[Any, Any]) -> Records[Any, Any]:
        return intercept(self, self.consuming, records)

    def first(self, records: Records[Any, Any]) -> Record[Any, Any] | None:
        """The first record of a poll for one; records that interceptors added come with the next polls."""
        found = list(records)
        if len(found) > 1:
            shared_partition = self._shared_state.shared_partitions.get(
                TopicPartition(found[0].topic, found[0].partition)
            )
            self.surplus.keep(found[1:], shared_partition)
            # The next poll takes the long way, to return them first.
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
        """Log the exception of an interceptor's method."""
        log.warning(
            "interceptor %s: %s raised an error, which is ignored", type(each).__name__, name, exc_info=error
        )

    def refused(self, each: Any, result: object) -> None:
        """Log that ``on_consume`` returned something other than `Records`."""
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


class Rebalancing:
    """Runs the listener's callbacks of a rebalance, and commits before partitions are revoked.

    Attributes:
        listener: the application's own, None without.
    """

    def __init__(
        self,
        shared_state: SharedState,
        exchange: Exchange,
        commits: Commits,
        clock: Clock,
        known: KnownAssignment,
    ) -> None:
        self.listener: AsyncRebalanceListener | None = None
        self._shared_state = shared_state
        self._exchange = exchange
        self._commits = commits
        self._clock = clock
        self._known = known
        self._steps: dict[int, tuple[weakref.ref[Waits[None]], Mapping[TopicPartition, SharedPartition]]] = {}
        """The calls that run a callback, by its number, until its end is reported; and the assignment before it."""

    def serve(self, until: int = FOREVER) -> Waits[None]:
        """Run the callbacks of rebalances and of commits that are due. Raises the first exception at the end.

        Before partitions are revoked their processed records are committed. This call does not wait for that commit, so
        it alone finishes a revocation (B12): the network thread gives the partitions up when the commit has ended.

        Args:
            until: deadline of that commit; its request timeout also applies.
        """
        error: BaseException | None = None
        try:
            yield from self._commits.run_callbacks()
        except Exception as raised:  # noqa: BLE001 - raised below: the group waits for what follows
            error = raised
        while (event := self._next()) is not None:
            if isinstance(event, m.RevokePartitions) and not self._exchange.closing:
                self._commits.commit_parting(event.partitions, until)
            if isinstance(event, m.AssignPartitions):
                # Before the step begins: Ctrl-C may end a step that has begun, and it is not repeated.
                self._tell_assigned(event)
            step = self._run(event)
            self._steps[event.id] = weakref.ref(step), self._known.partitions
            try:
                yield from step
            except Exception as raised:  # noqa: BLE001 - raised below, after the other callbacks
                error = error or raised
            self._exchange.take_background_events()
        if error is not None:
            raise error

    def leave(self, until: int) -> Waits[None]:
        """As `serve`, while leaving the group.

        From within a callback: the group no longer waits for that callback's end.
        """
        for event in tuple(self._exchange.callbacks):
            if any(each is event for each in _inside.get()):
                self._tell_done(event, None)
        yield from self.serve(until)

    def is_inside(self) -> bool:
        """Whether the current call was made by a callback of this consumer."""
        return any(each is event for each in _inside.get() for event in self._exchange.callbacks)

    def _next(self) -> m.CallbackNeeded | None:
        """The first one that has not begun. Ends that Ctrl-C kept from being reported are reported now."""
        callbacks = self._exchange.callbacks
        if any(isinstance(event, m.LosePartitions) and event.instead_of for event in callbacks):
            left = without_void(callbacks, self._steps)
            kept = {event.id for event in left}
            for event in callbacks:
                if isinstance(event, m.LosePartitions) and event.id not in kept:
                    # There is no callback to run, but the network thread waits for its end.
                    self._shared_state.send(m.CallbackDone(event.id, 0, None))
                elif isinstance(event, m.AssignPartitions) and event.id not in kept and event.finished:
                    # The partitions are lost again, so no callback runs, but the rebalance took place.
                    self._exchange.add_rebalance(event.finished.rebalance)
            # In one step, so that an interruption finds either all of it done or nothing.
            callbacks[:] = left
        for event in tuple(callbacks):
            begun = self._steps.get(event.id)
            if begun is None:
                return event
            # A generator without a frame has ended. `inspect` would tell, too, but takes 10 ms of a start.
            if (step := begun[0]()) is None or cast("GeneratorType[Run]", step).gi_frame is None:
                self._tell_done(event, "interrupted")
        return None

    def _tell_assigned(self, event: m.AssignPartitions) -> None:
        """Show the application the new assignment, and the rebalance that it ends (C16)."""
        self._known.assigned(event.shared_partitions)
        if event.finished is not None:
            self._exchange.add_rebalance(event.finished.rebalance)

    def _tell_done(self, event: m.CallbackNeeded, text: str | None) -> None:
        """Notify the network thread, which ignores a repetition. The background event is kept until then."""
        if event.id not in self._steps:
            # A call that left the group meanwhile has done so.
            return
        gave_up = event.partitions if isinstance(event, m.RevokePartitions) else ()
        if not isinstance(event, m.AssignPartitions):
            self._known.gone(event.partitions, self._steps[event.id][1])
        self._shared_state.send(m.CallbackDone(event.id, 0, text, gave_up))
        self._exchange.callbacks.remove(event)
        del self._steps[event.id]

    def _run(self, event: m.CallbackNeeded) -> Waits[None]:
        """One step. Its end is always reported, even if the callback raised: the group waits for it."""
        text: str | None = "interrupted"
        try:
            if self.listener is not None:
                yield from self._timed(self.listener, event)
            text = None
        except BaseException as raised:
            text = repr(raised)
            raise
        finally:
            self._tell_done(event, text)

    def _timed(self, listener: AsyncRebalanceListener, event: m.CallbackNeeded) -> Waits[None]:
        began = self._clock.now_ms()
        outer = _inside.set((*_inside.get(), event))
        try:
            yield Run(_callback(listener, event))
        finally:
            # Not where it is collected, which may be anywhere.
            with contextlib.suppress(ValueError):
                _inside.reset(outer)
            now = self._clock.now_ms()
            self._shared_state.measures.poll_measures.called(event, now, now - began)


def without_void(callbacks: Iterable[m.CallbackNeeded], begun: Container[int] = ()) -> list[m.CallbackNeeded]:
    """Callbacks whose end is still to be reported, without those that the end of a membership made void (B11).

    Callbacks that had not begun are left out, and their partitions are reported as lost. Partitions that a callback
    revokes are reported once, by that callback, whether it is running or has ended.
    """
    left = list(callbacks)
    for lost in [event for event in left if isinstance(event, m.LosePartitions)]:
        void = {event.id for event in left if event.id in lost.instead_of and event.id not in begun}
        told = {p for callback, going in lost.instead_of.items() if callback not in void for p in going}
        still = tuple(partition for partition in lost.partitions if partition not in told)
        left = [
            replace(lost, partitions=still, instead_of={}) if event is lost else event
            for event in left
            if event.id not in void and (event is not lost or still)
        ]
    return left


def _callback(listener: AsyncRebalanceListener, event: m.CallbackNeeded) -> Callable[[], Any]:
    partitions = list(event.partitions)
    if isinstance(event, m.RevokePartitions):
        return lambda: listener.on_partitions_revoked(partitions)
    if isinstance(event, m.LosePartitions):
        return lambda: listener.on_partitions_lost(partitions)
    return lambda: listener.on_partitions_assigned(partitions)
