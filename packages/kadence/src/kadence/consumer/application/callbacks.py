"""What an application gives to be called: rebalance listeners, callbacks of commits, interceptors. Application side.

All of them run on the application's thread.

`Rebalancing` takes the application's steps of a rebalance (C5): callbacks, and the commit before partitions go. The
network side asks for them (`CallbackNeeded`), and each is answered by `CallbackDone`, whatever the callback raised.
They run inside poll(), unsubscribe() and close().

Interceptors (KIP-42) see what is returned and what is committed; they are for tracing, auditing and filtering. An
exception in one is logged and does not end the call, as in Kafka's client. Positions and commits count all records
that were fetched for the poll, whatever an interceptor returns.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from inspect import GEN_CLOSED, getgeneratorstate
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.client.waits import Run, Waits
from kadence.clock import FOREVER, Clock
from kadence.consumer import events as m
from kadence.consumer.decoded_records import Records, intercept
from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import SharedState
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
    `RebalanceListener` does as well where nothing has to be awaited.
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
"""What the code that runs is called for. Tasks that a callback makes, and waits for, are inside it as well."""


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

    The calls that follow return it first, and mark nothing processed meanwhile. What one of them returned is dropped
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
            shared_partition = self._shared_state.shared_partitions.get(
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
        """By the number of its callback each call that runs one, until its end is told, and what was known before."""

    def serve(self, until: int = FOREVER) -> Waits[None]:
        """Run what is asked for, and callbacks of commits. The first exception is raised at the end.

        Before partitions are revoked what is processed of them is committed. Nobody waits for that here, so a
        revocation is finished by this one call (B12): the network thread gives the partitions up when the commit has
        ended.

        Args:
            until: when that commit has to be over; its request timeout counts, too.
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
                # Before the step begins: Ctrl-C may end one that has begun, and it is not begun again.
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
        """As `serve`, while the group is left. From within a callback: the group waits no longer for its end."""
        for event in tuple(self._exchange.callbacks):
            if any(each is event for each in _inside.get()):
                self._tell_done(event, None)
        yield from self.serve(until)

    def is_inside(self) -> bool:
        """Whether a callback of this consumer makes the present call."""
        return any(each is event for each in _inside.get() for event in self._exchange.callbacks)

    def _next(self) -> m.CallbackNeeded | None:
        """The first one that has not begun. Of those that ended untold (Ctrl-C in the telling) the end is told now."""
        callbacks = self._exchange.callbacks
        if any(isinstance(event, m.LosePartitions) and event.instead_of for event in callbacks):
            left = without_void(callbacks, self._steps)
            kept = {event.id for event in left}
            for event in callbacks:
                if isinstance(event, m.LosePartitions) and event.id not in kept:
                    # There is nothing to tell, but the network thread waits for the end of it.
                    self._shared_state.send(m.CallbackDone(event.id, 0, None))
                elif isinstance(event, m.AssignPartitions) and event.id not in kept and event.finished:
                    # The partitions are lost again, and nobody is told of them, but there was this rebalance.
                    self._exchange.add_rebalance(event.finished.rebalance)
            # In one step, so that an interruption finds all of it done or nothing.
            callbacks[:] = left
        for event in tuple(callbacks):
            begun = self._steps.get(event.id)
            if begun is None:
                return event
            if (step := begun[0]()) is None or getgeneratorstate(step) == GEN_CLOSED:
                self._tell_done(event, "interrupted")
        return None

    def _tell_assigned(self, event: m.AssignPartitions) -> None:
        """The application is shown the new assignment, and the rebalance that it ends (C16)."""
        self._known.assigned(event.shared_partitions)
        if event.finished is not None:
            self._exchange.add_rebalance(event.finished.rebalance)

    def _tell_done(self, event: m.CallbackNeeded, text: str | None) -> None:
        """Tell the network thread, which ignores a repetition. The background event is kept until it was told."""
        if event.id not in self._steps:
            # A call that left the group did, in the midst of it.
            return
        gave_up = event.partitions if isinstance(event, m.RevokePartitions) else ()
        if not isinstance(event, m.AssignPartitions):
            self._known.gone(event.partitions, self._steps[event.id][1])
        self._shared_state.send(m.CallbackDone(event.id, 0, text, gave_up))
        self._exchange.callbacks.remove(event)
        del self._steps[event.id]

    def _run(self, event: m.CallbackNeeded) -> Waits[None]:
        """One step. Its end is always told, whatever the callback raised: the group waits for it."""
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
    """Callbacks that wait for their end, without those that the end of a membership made void (B11).

    What had not begun is left out, and its partitions are told as lost. What a callback that has begun revokes is told
    once, by that; so is what one revoked that has ended, and waits no more.
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
