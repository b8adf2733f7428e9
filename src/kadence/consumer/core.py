"""One consumer's application side, without a way to wait: polls, callbacks, the end. Application side.

Each call is a generator of waits (`exchange.Waits`), one text for every shell (G1): it yields what must be
waited for or run, and its shell (threads: `shell.py`) does so and resumes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from inspect import GEN_CLOSED, getgeneratorstate
from threading import current_thread
from typing import Any, Protocol, TypeVar

from kadence.clock import Clock
from kadence.config import ConsumerConfig
from kadence.config.table import AUTO
from kadence.consumer.border import messages as m
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.cells import Cell
from kadence.consumer.callbacks import RebalanceListener
from kadence.consumer.collector import Collector
from kadence.consumer.commits import CommitCallback, Commits
from kadence.consumer.dead_letters import DeadLetters, Outboxes
from kadence.consumer.decoding import Decoding
from kadence.consumer.exchange import Exchange, Run, Waits
from kadence.consumer.interceptors import Interceptors
from kadence.consumer.pace import Pace
from kadence.consumer.stall import Stalls
from kadence.errors import IllegalStateError, InvalidGroupIdError
from kadence.records import Columns, Record
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["CommitCallback", "Core", "Engine", "Run", "Waits"]

T = TypeVar("T")


class Engine(Protocol):
    """The network side, as the application side sees it."""

    def start(self) -> None: ...

    def join(self, seconds: float) -> None: ...

    def is_alive(self) -> bool: ...


class Core:
    """One consumer's application side."""

    def __init__(
        self, config: ConsumerConfig, border: Border, engine: Engine, clock: Clock, outboxes: Outboxes
    ) -> None:
        self.config = config
        self.clock = clock
        self.closed = False
        self.listener: RebalanceListener | None = None
        self.subscribed: frozenset[str] | None = None
        self.pattern: str | None = None
        self.manual = False
        self._border = border
        self._engine = engine
        self._exchange = Exchange(
            border,
            clock,
            GroupMetadata(config.group_id or "", group_instance_id=config.group_instance_id),
        )
        self.interceptors = Interceptors(config.interceptors) if config.interceptors else None
        self._commits = Commits(config, border, self._exchange, clock, self.interceptors)
        self._collector = Collector(
            border,
            check_crcs=config.check_crcs,
            max_batch_bytes=config.max_batch_bytes,
            unpack_bytes=config.unpack_bytes,
            counts=config.prefetch_heuristic != "bytes",
        )
        self._dead_letters: DeadLetters | None = None
        self.decoding: Decoding | None = None
        self._take = self._collector.take_records
        if config.dead_letter_topic is not None:
            self._dead_letters = DeadLetters(
                config.dead_letter_topic, config.group_id, lambda: outboxes(config), border.signal.set
            )
        if config.key_deserializer is not None or config.value_deserializer is not None:
            self.decoding = Decoding(config, border, self._collector, self._dead_letters)
            self._take = self.decoding.take
        self.stalls = Stalls(
            config.group_id,
            lambda: (self._collector.returned, self._collector.in_hand()),
            config.stall_report_callback,
        )
        border.on_stall = self.stalls.noticed
        self.pace: Pace | None = None
        if config.max_poll_records == AUTO:
            self.pace = Pace(int(config.max_poll_interval_ms * config.max_poll_records_share))
        self._closing = False
        self._steps: dict[int, weakref.ref[Waits[None]]] = {}
        """By the number of its callback each call that runs one, until its end is told."""
        self._intake = border.measures.intake
        self._is_counted = False
        """The poll under way was counted on the fast path, which had nothing for it."""
        self.call = self._exchange.call
        self.wakeup = self._exchange.wakeup
        engine.start()

    @property
    def group(self) -> GroupMetadata:
        """This member's identity, as last told."""
        return self._exchange.group

    @property
    def rebalances(self) -> list[m.Rebalance]:
        """The last rebalances, oldest first."""
        return self._exchange.rebalances

    # ------------------------------------------------------------ reading

    def poll_buffered(self, limit: int) -> list[tuple[TopicPartition, list[Record]]] | None:
        """The fast path of a poll: records from the buffer, without a wait, a hop or a wake (C6).

        None when the ordinary path has something to do: a fact to look at, a commit that is due, a wakeup.
        """
        border, exchange = self._border, self._exchange
        if (
            border.facts
            or border.wants_polled
            or exchange.callbacks
            or exchange.failures
            or exchange.fatal is not None
            or self._commits.completed
            or exchange.woken
            or border.ended
        ):
            return None
        now = self.clock.now_ms()
        if self._commits.due(now):
            return None
        border.progress.polled(now)
        self.stalls.thread = current_thread()
        self._intake.polled(now)
        self._collector.prove()
        # A position that moved without a record ends a poll too; None would go on waiting for one.
        chunks = self._take(limit) or ([] if self._collector.advanced else None)
        self._is_counted = chunks is None
        if self.pace is not None:
            self.pace.returns(now, self._collector.returned)
        return chunks

    def poll(self, deadline: int, limit: int) -> Waits[list[tuple[TopicPartition, list[Record]]]]:
        """Records as soon as there are any, serving the group's callbacks meanwhile."""
        take = self._take if self.decoding is None else self._take_decoded
        return self._poll(deadline, partial(take, limit))

    def poll_columns(
        self, deadline: int, limit: int, *, headers: bool
    ) -> Waits[list[tuple[TopicPartition, list[Columns]]]]:
        """As `poll`, as columns of bytes."""
        if self.decoding is not None:
            self.decoding.release()
        return self._poll(deadline, partial(self._collector.take_columns, limit, headers=headers))

    def _poll(self, deadline: int, take: Callable[[], list[T]]) -> Waits[list[T]]:
        if self.subscribed is None and self.pattern is None and not self.manual:
            raise IllegalStateError("nothing to poll: call subscribe() or assign() first")
        border, exchange = self._border, self._exchange
        now = self.clock.now_ms()
        border.progress.enter_poll(now)
        if not self._is_counted:
            self._intake.polled(now)
        self._is_counted = False
        self.stalls.thread = current_thread()
        returned = 0
        try:
            self._collector.prove()
            while True:
                exchange.take_facts()
                if exchange.stalled is not None:
                    self.stalls.over(self.clock.now_ms(), exchange.stalled)
                    exchange.stalled = None
                if border.wants_polled:
                    border.wants_polled = False
                    border.send(m.Polled(0, 0))
                self._commits.commit_due()
                yield from self._serve_callbacks()
                exchange.raise_failure()
                exchange.raise_wakeup()
                chunks = take()
                returned = self._collector.returned
                if chunks or self._collector.advanced:
                    return chunks
                if self.clock.now_ms() >= deadline:
                    return []
                yield self._commits.next_wake(deadline)
        finally:
            now = self.clock.now_ms()
            border.progress.leave_poll(now)
            self._intake.waited(now)
            if self.pace is not None:
                self.pace.returns(now, returned)

    def _take_decoded(self, limit: int) -> list[tuple[TopicPartition, list[Record]]]:
        """Deserialisers are user code: one that hangs is processing that hangs (B4), though it runs inside poll()."""
        progress = self._border.progress
        progress.enter_callback(self.clock.now_ms())
        try:
            return self._take(limit)
        finally:
            progress.leave_callback(self.clock.now_ms())

    @property
    def proofs(self) -> int:
        """How many polls have begun; see `put_back`."""
        return self._collector.proofs

    def put_back(self, proofs: int) -> None:
        """The poll that began after ``proofs`` was read did not return: what it took comes with the next one (C7)."""
        if self._collector.proofs != proofs:
            put_back = self._collector.put_back()
            if self.pace is not None:
                self.pace.returns(self.clock.now_ms(), 0)
            if self.decoding is not None:
                self.decoding.drop(put_back)

    # ------------------------------------------------------------ commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, deadline: int
    ) -> Waits[None]:
        """Commit and wait. None: everything returned (the caller says that it is processed)."""
        self.need_group("commit()")
        return self._commits.commit(offsets, deadline)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> None:
        """Commit without waiting; ``callback(offsets, error)`` runs inside a later call, in order."""
        self.need_group("commit_async()")
        self._commits.commit_async(offsets, callback)

    def auto_commit_now(self, deadline: int, *, proved_only: bool) -> Waits[None]:
        """Commit before something ends (close, assign), if there is anything to read at all."""
        if self.manual or self.subscribed is not None or self.pattern is not None:
            yield from self._commits.commit_now(deadline, proved_only=proved_only)

    # ------------------------------------------------------------ the end

    def unsubscribe(self, deadline: int) -> Waits[None]:
        """Leave, serving revocation callbacks; what the group answers is not waited for beyond the deadline."""
        error: Exception | None = None
        try:
            yield from self._exchange.leave(m.Unsubscribe, deadline, self._serving_until(deadline))
        except Exception as raised:  # noqa: BLE001 - raised below: whatever a callback raised, the group is left
            error = raised
        self.subscribed = self.pattern = self.listener = None
        self.manual = False
        if error is not None:
            raise error

    def close(self, deadline: int, *, proved_only: bool, leave: bool | None) -> Waits[None]:
        """Commit, leave, stop: each within the deadline, none of them able to hang (B7)."""
        if self.closed or self._closing:
            return
        self._closing = True
        self._exchange.woken = False
        error: Exception | None = None
        try:
            try:
                if not self._border.ended:
                    yield from self.auto_commit_now(self._half_way(deadline), proved_only=proved_only)
                    yield from self._exchange.leave(
                        m.Close, deadline, self._serving_until(deadline), leave=leave
                    )
            except Exception as raised:  # noqa: BLE001 - raised below, once everything is stopped
                error = raised
            self._exchange.take_facts()
            try:
                yield from self._commits.run_callbacks()
            except Exception as raised:  # noqa: BLE001 - as above
                error = error or raised
            if self._dead_letters is not None:
                closing = self._dead_letters.close(max(deadline - self.clock.now_ms(), 100) / 1000)
                while not closing.done and self.clock.now_ms() < deadline:
                    yield deadline
            self._engine.join(max(deadline - self.clock.now_ms(), 100) / 1000)
        except BaseException:
            # Ctrl-C, or a task that was cancelled: not closed, so close() may be called again.
            self._closing = False
            raise
        self.closed = True
        self._border.assignment = {}
        self._collector.drop_all()
        if self.interceptors is not None:
            self.interceptors.close()
        if error is not None:
            raise error

    def abandon(self, deadline: int) -> None:
        """From another thread, while the one inside does not come back: leave the group, and be closed."""
        self._border.send(m.Close(0, deadline, leave=None))
        self._engine.join(max(deadline - self.clock.now_ms(), 100) / 1000)
        self.closed = True

    # ------------------------------------------------------------ callbacks

    def _half_way(self, deadline: int) -> int:
        """Half of the time that is left is for a commit: the other half is for leaving the group."""
        now = self.clock.now_ms()
        return now + max(deadline - now, 0) // 2

    def _serving_until(self, deadline: int) -> Callable[[], Waits[None]]:
        return partial(self._serve_callbacks, self._half_way(deadline))

    def _serve_callbacks(self, until: int | None = None) -> Waits[None]:
        """Rebalance and commit callbacks, on the application thread (C5). The first exception is raised at the end.

        Before partitions are revoked what was proved of them is committed. A poll does not wait for that: its later
        turns, or later polls, go on.

        Args:
            until: how long to wait for such a commit when there is no later; None in a poll.
        """
        yield from self._commits.run_callbacks()
        error: BaseException | None = None
        while (fact := self._next_callback()) is not None:
            if (
                isinstance(fact, m.RevokePartitions)
                and not self._closing
                and not self._commits.settled(fact.partitions)
            ):
                if until is None:
                    break
                if self.clock.now_ms() < until:
                    yield until
                    self._exchange.take_facts()
                    continue
                self._commits.give_up_parting()
            step = self._run_callback(fact)
            self._steps[fact.id] = weakref.ref(step)
            try:
                yield from step
            except Exception as raised:  # noqa: BLE001 - raised below, after the other callbacks
                error = error or raised
            self._exchange.take_facts()
        if error is not None:
            raise error

    def _next_callback(self) -> m.CallbackNeeded | None:
        """The first one that has not begun. Of those that ended untold (Ctrl-C in the telling) the end is told now."""
        for fact in tuple(self._exchange.callbacks):
            known = self._steps.get(fact.id)
            if known is None:
                return fact
            if (step := known()) is None or getgeneratorstate(step) == GEN_CLOSED:
                self._tell_done(fact, "interrupted")
        return None

    def _tell_done(self, fact: m.CallbackNeeded, text: str | None) -> None:
        """Said twice does no harm; it stays to be said until it was (trap T17)."""
        self._border.send(m.CallbackDone(fact.id, 0, text))
        self._exchange.callbacks.remove(fact)
        del self._steps[fact.id]

    def _run_callback(self, fact: m.CallbackNeeded) -> Waits[None]:
        """One step of a rebalance. Its end is always told, whatever the callback raised (trap T17)."""
        text: str | None = "interrupted"
        try:
            partitions = fact.partitions
            if self.listener is not None:
                yield from self._timed_callback(self.listener, fact)
            if not isinstance(fact, m.AssignPartitions):
                self._commits.forget(partitions)
            text = None
        except BaseException as raised:
            text = repr(raised)
            raise
        finally:
            self._tell_done(fact, text)

    def _timed_callback(self, listener: RebalanceListener, fact: m.CallbackNeeded) -> Waits[None]:
        began = self.clock.now_ms()
        try:
            yield Run(_callback(listener, fact))
        finally:
            now = self.clock.now_ms()
            self._intake.called(fact, now, now - began)

    # ------------------------------------------------------------ refusals

    def forgive(self) -> None:
        """A new subscription begins anew: what ended the old membership for good is no longer raised."""
        self._exchange.fatal = None

    def need_group(self, what: str) -> None:
        if self.config.group_id is None:
            raise InvalidGroupIdError(f"{what} needs group.id")

    def cell(self, partition: TopicPartition) -> Cell:
        """The cell of an assigned partition.

        Raises:
            IllegalStateError: it is not assigned to this consumer.
        """
        cell = self._border.assignment.get(partition)
        if cell is None:
            raise IllegalStateError(f"{partition} is not assigned to this consumer")
        return cell

    def check(self) -> None:
        """Inside a wait: raise what must end it."""
        self._exchange.take_facts()
        self._exchange.raise_failure()
        self._exchange.raise_wakeup()


def _callback(listener: RebalanceListener, fact: m.CallbackNeeded) -> Callable[[], Any]:
    partitions = list(fact.partitions)
    if isinstance(fact, m.RevokePartitions):
        return lambda: listener.on_partitions_revoked(partitions)
    if isinstance(fact, m.LosePartitions):
        return lambda: listener.on_partitions_lost(partitions)
    return lambda: listener.on_partitions_assigned(partitions)
