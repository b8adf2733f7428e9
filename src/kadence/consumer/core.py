"""The consumer's API as generators of waits: one text for every shell (G1). Application side.

Each call is a generator. It yields an absolute deadline (ms) when it must wait for something to cross the
border, or a `Run` when user code is to be run; its shell (threads: `consumer.py`) waits or runs, and resumes
it. The generator looks at the border each time it is resumed, so a wake-up that was for something else
costs one more look and nothing is ever missed.

A call sends an imperative, and its answer comes back as a fact with the same id (C2). Deadlines are enforced
by the reaper on the network thread; here they only bound the wait should that thread be late.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from kadence.clock import Clock, add_ms
from kadence.config import ConsumerConfig
from kadence.consumer.border import messages as m
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.cells import Cell
from kadence.consumer.callbacks import RebalanceListener
from kadence.consumer.collector import Collector
from kadence.errors import (
    ClosedError,
    FatalNetworkError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
)
from kadence.records import Columns, Record
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["CommitCallback", "Core", "Engine", "Run", "Waits"]

log = logging.getLogger("kadence.consumer")

T = TypeVar("T")

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], Exception | None], Any]

_GRACE_MS = 5_000
"""How much later than a call's deadline the application gives up on the network thread itself."""

_HISTORY = 100
"""Rebalances remembered."""


@dataclass(frozen=True, slots=True)
class Run:
    """User code for the shell to run: ``work()``, awaited by an asyncio shell when it returns an awaitable."""

    work: Callable[[], Any]


Waits = Generator[int | Run, None, T]
"""A call: yields deadlines to wait for or user code to run, returns the call's result."""


class Engine(Protocol):
    """The network side, as the application side sees it."""

    def start(self) -> None: ...

    def join(self, seconds: float) -> None: ...

    def is_alive(self) -> bool: ...


class Core:
    """One consumer's application side, without a way to wait."""

    def __init__(self, config: ConsumerConfig, border: Border, engine: Engine, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.closed = False
        self.listener: RebalanceListener | None = None
        self.subscribed: frozenset[str] | None = None
        self.pattern: str | None = None
        self.manual = False
        self.group = GroupMetadata(config.group_id or "", group_instance_id=config.group_instance_id)
        self.rebalances: list[m.Rebalance] = []
        self._border = border
        self._engine = engine
        self._collector = Collector(
            border, check_crcs=config.check_crcs, max_batch_bytes=config.max_batch_bytes
        )
        self._ids = 0
        self._answers: dict[int, m.Answer] = {}
        self._expected: set[int] = set()
        self._callbacks: list[m.CallbackNeeded] = []
        self._failures: list[m.Failed] = []
        self._commits: dict[int, CommitCallback | None] = {}
        self._committed: list[tuple[CommitCallback, m.CommitCompleted]] = []
        self._own_commit = 0
        self._next_commit_at = add_ms(clock.now_ms(), config.auto_commit_interval_ms)
        self._last_committed: dict[TopicPartition, int] = {}
        self._woken = False
        self._closing = False
        self._fatal: Exception | None = None
        engine.start()

    # ------------------------------------------------------------ reading

    def poll_buffered(self, limit: int) -> list[tuple[TopicPartition, list[Record]]] | None:
        """The fast path of a poll: records from the buffer, without a wait, a hop or a wake (C6).

        None when the ordinary path has something to do: a fact to look at, a commit that is due, a wakeup.
        """
        border = self._border
        if (
            border.facts
            or border.wants_polled
            or self._callbacks
            or self._failures
            or self._fatal is not None
            or self._committed
            or self._woken
            or border.ended
        ):
            return None
        now = self.clock.now_ms()
        if self.config.auto_commit and now >= self._next_commit_at and not self._own_commit:
            return None
        border.progress.polled(now)
        self._collector.prove()
        return self._collector.take_records(limit) or None

    def poll(self, deadline: int, limit: int) -> Waits[list[tuple[TopicPartition, list[Record]]]]:
        """Records as soon as there are any, serving the group's callbacks meanwhile."""
        return self._poll(deadline, partial(self._collector.take_records, limit))

    def poll_columns(
        self, deadline: int, limit: int, *, headers: bool
    ) -> Waits[list[tuple[TopicPartition, list[Columns]]]]:
        """As `poll`, as columns."""
        return self._poll(deadline, partial(self._collector.take_columns, limit, headers=headers))

    def _poll(self, deadline: int, take: Callable[[], list[T]]) -> Waits[list[T]]:
        if self.subscribed is None and self.pattern is None and not self.manual:
            raise IllegalStateError("nothing to poll: call subscribe() or assign() first")
        border = self._border
        border.progress.enter_poll(self.clock.now_ms())
        try:
            self._collector.prove()
            while True:
                self._take_facts()
                if border.wants_polled:
                    border.wants_polled = False
                    border.send(m.Polled(0, 0))
                self._auto_commit()
                yield from self._serve_callbacks()
                self._raise_failure()
                self._raise_wakeup()
                chunks = take()
                if chunks or self._collector.advanced:
                    return chunks
                if self.clock.now_ms() >= deadline:
                    return []
                yield self._next_wake(deadline)
        finally:
            border.progress.leave_poll(self.clock.now_ms())

    def _next_wake(self, deadline: int) -> int:
        """Waiting in poll, the next thing this side has to do by itself is the auto-commit."""
        waits_for_commit = self.config.auto_commit and not self._own_commit
        return min(deadline, self._next_commit_at) if waits_for_commit else deadline

    # ------------------------------------------------------------ calls

    def call(self, kind: type[m.Imperative], deadline: int, **fields: Any) -> Waits[Any]:
        """Send an imperative and wait for its answer.

        Raises:
            KafkaTimeoutError: the deadline passed. WakeupError: wakeup() was called. Or what the answer says.
        """
        self._take_facts()
        if self._border.ended:
            self._raise_dead()
        self._raise_wakeup()
        self._ids += 1
        call_id = self._ids
        self._expected.add(call_id)
        try:
            self._border.send(kind(call_id, deadline, **fields))
            while (answer := self._answers.pop(call_id, None)) is None:
                self._raise_wakeup()
                if self._border.ended:
                    self._raise_dead()
                if self.clock.now_ms() >= add_ms(deadline, _GRACE_MS):
                    raise KafkaTimeoutError(_unanswered(kind))
                yield add_ms(deadline, _GRACE_MS)
                self._take_facts()
        finally:
            self._expected.discard(call_id)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def unsubscribe(self, deadline: int) -> Waits[None]:
        """Leave, serving revocation callbacks; what the group answers is not waited for beyond the deadline."""
        yield from self._leave(m.Unsubscribe, deadline)
        self.subscribed = self.pattern = self.listener = None
        self.manual = False

    def _leave(self, kind: type[m.Imperative], deadline: int, **fields: Any) -> Waits[None]:
        """An imperative during which the group asks for callbacks."""
        self._ids += 1
        call_id = self._ids
        self._expected.add(call_id)
        self._border.send(kind(call_id, deadline, **fields))
        error: Exception | None = None
        while call_id not in self._answers and not self._border.ended:
            self._take_facts()
            try:
                yield from self._serve_callbacks()
            except Exception as raised:  # noqa: BLE001 - raised below, once the group is left
                error = error or raised
            if call_id in self._answers:
                break
            if self.clock.now_ms() >= add_ms(deadline, _GRACE_MS):
                raise KafkaTimeoutError(_unanswered(kind))
            yield add_ms(deadline, _GRACE_MS)
        self._expected.discard(call_id)
        answer = self._answers.pop(call_id, None)
        if answer is not None and answer.error is not None:
            log.info("%s: %s", kind.__name__, answer.error)
        if error is not None:
            raise error

    # ------------------------------------------------------------ commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None, deadline: int
    ) -> Waits[None]:
        """Commit and wait. None: everything returned (the caller says that it is processed)."""
        self.need_group("commit()")
        chosen = dict(offsets) if offsets is not None else self.consumed()
        yield from self._run_commit_callbacks()
        # Waits even for nothing: earlier asynchronous commits end first, in order.
        yield from self.call(m.Commit, deadline, offsets=chosen, retry=True)
        self._remember(chosen)
        self._take_facts()
        yield from self._run_commit_callbacks()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
    ) -> None:
        """Commit without waiting; ``callback(offsets, error)`` runs inside a later call, in order."""
        self.need_group("commit_async()")
        chosen = dict(offsets) if offsets is not None else self.consumed()
        self._send_commit(chosen, callback)

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position of every assigned partition that has one: what commit() without offsets means."""
        return _offsets(self._border.assignment.values(), Cell.current)

    def _proved(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        assignment = self._border.assignment
        cells = (
            assignment.values()
            if partitions is None
            else [assignment[p] for p in partitions if p in assignment]
        )
        return _offsets(cells, Cell.proved_position)

    def _send_commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None,
    ) -> int:
        self._ids += 1
        self._commits[self._ids] = callback
        deadline = add_ms(self.clock.now_ms(), self.config.default_api_timeout_ms)
        self._border.send(m.Commit(self._ids, deadline, offsets, retry=False))
        return self._ids

    def _auto_commit(self) -> None:
        """Commit what was proved, when the interval is over. Only ever called inside a poll (trap T4)."""
        now = self.clock.now_ms()
        if not self.config.auto_commit or self._own_commit or now < self._next_commit_at:
            return
        self._next_commit_at = add_ms(now, self.config.auto_commit_interval_ms)
        if offsets := self._changed(self._proved()):
            self._own_commit = self._send_commit(offsets, None)

    def auto_commit_now(self, deadline: int, *, proved_only: bool) -> Waits[None]:
        """Commit before something ends (close, assign). Failures are logged: the records come again."""
        if not self.config.auto_commit or (
            self.manual is False and self.subscribed is None and self.pattern is None
        ):
            return
        offsets = self._changed(self._proved() if proved_only else self.consumed())
        yield from self._commit_quietly(offsets, deadline)

    def _commit_quietly(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: int
    ) -> Waits[None]:
        if not offsets:
            return
        try:
            yield from self.call(m.Commit, deadline, offsets=offsets, retry=True)
            self._remember(offsets)
        except WakeupError:
            self._woken = True
        except KafkaError as error:
            log.warning(
                "auto-commit of %d partitions failed, their records may come again: %s",
                len(offsets),
                error,
            )

    def _changed(
        self, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        last = self._last_committed
        return {p: o for p, o in offsets.items() if last.get(p) != o.offset}

    def _remember(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are committed. What the application committed by itself is proved, or we would take it back."""
        assignment = self._border.assignment
        for partition, offset in offsets.items():
            self._last_committed[partition] = offset.offset
            cell = assignment.get(partition)
            if cell is not None:
                cell.prove(offset.offset, offset.leader_epoch)

    # ------------------------------------------------------------ close

    def close(self, deadline: int, *, proved_only: bool) -> Waits[None]:
        """Commit, leave, stop: each within the deadline, none of them able to hang (B7)."""
        if self.closed or self._closing:
            return
        self._closing = True
        self._woken = False
        error: Exception | None = None
        try:
            if not self._border.ended:
                yield from self.auto_commit_now(deadline, proved_only=proved_only)
                yield from self._leave(m.Close, deadline, leave=True)
        except Exception as raised:  # noqa: BLE001 - raised below, once everything is stopped
            error = raised
        self._take_facts()
        try:
            yield from self._run_commit_callbacks()
        except Exception as raised:  # noqa: BLE001 - as above
            error = error or raised
        self._engine.join(max(deadline - self.clock.now_ms(), 100) / 1000)
        self.closed = True
        self._collector.drop_all()
        if error is not None:
            raise error

    def wakeup(self) -> None:
        """From any thread: end the blocking call under way, or the next one."""
        self._woken = True
        self._border.signal.set()

    # ------------------------------------------------------------ what came back

    def _take_facts(self) -> None:
        facts = self._border.facts
        while facts:
            fact = facts.popleft()
            if isinstance(fact, m.Answer):
                # An answer nobody waits for belongs to a call that was ended by a wakeup or Ctrl-C.
                if fact.id in self._expected:
                    self._answers[fact.id] = fact
            elif isinstance(fact, m.CallbackNeeded):
                self._callbacks.append(fact)
            elif isinstance(fact, m.CommitCompleted):
                self._commit_completed(fact)
            elif isinstance(fact, m.IdentityChanged):
                self.group = fact.group
            elif isinstance(fact, m.RebalanceFinished):
                self.group = fact.group
                self.rebalances.append(fact.rebalance)
                del self.rebalances[:-_HISTORY]
            elif isinstance(fact, m.Failed):
                self._failed(fact)

    def _failed(self, fact: m.Failed) -> None:
        """Keep an error for the next call. What is repeated in the background is told once."""
        if fact.fatal:
            self._fatal = fact.error
        elif str(fact.error) not in (str(failure.error) for failure in self._failures):
            self._failures.append(fact)

    def _commit_completed(self, fact: m.CommitCompleted) -> None:
        callback = self._commits.pop(fact.id, None)
        if fact.id == self._own_commit:
            self._own_commit = 0
            if fact.error is not None:
                self._next_commit_at = add_ms(self.clock.now_ms(), self.config.retry_backoff_ms)
        if fact.error is None:
            self._remember(fact.offsets)
        elif callback is None:
            log.warning("commit of %d partitions failed: %s", len(fact.offsets), fact.error)
        if callback is not None:
            self._committed.append((callback, fact))

    def _run_commit_callbacks(self) -> Waits[None]:
        while self._committed:
            callback, fact = self._committed.pop(0)
            yield Run(partial(callback, fact.offsets, fact.error))

    def _serve_callbacks(self) -> Waits[None]:
        """Rebalance and commit callbacks, on the application thread (C5). The first exception is raised at the end."""
        yield from self._run_commit_callbacks()
        error: BaseException | None = None
        while self._callbacks:
            fact = self._callbacks.pop(0)
            try:
                yield from self._run_callback(fact)
            except Exception as raised:  # noqa: BLE001 - raised below, after the other callbacks
                error = error or raised
            self._take_facts()
        if error is not None:
            raise error

    def _run_callback(self, fact: m.CallbackNeeded) -> Waits[None]:
        """One step of a rebalance. Its end is always told, whatever the callback raised (trap T17)."""
        text: str | None = "interrupted"
        try:
            partitions = fact.partitions
            if isinstance(fact, m.RevokePartitions) and self.config.auto_commit:
                deadline = add_ms(self.clock.now_ms(), self.config.request_timeout_ms)
                yield from self._commit_quietly(self._changed(self._proved(partitions)), deadline)
            if self.listener is not None:
                yield Run(_callback(self.listener, fact))
            if not isinstance(fact, m.AssignPartitions):
                for partition in partitions:
                    self._last_committed.pop(partition, None)
            text = None
        except BaseException as raised:
            text = repr(raised)
            raise
        finally:
            self._border.send(m.CallbackDone(fact.id, 0, text))

    # ------------------------------------------------------------ refusals

    def forgive(self) -> None:
        """A new subscription begins anew: what ended the old membership for good is no longer raised."""
        self._fatal = None

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
        self._take_facts()
        self._raise_failure()
        self._raise_wakeup()

    def _raise_failure(self) -> None:
        while self._failures:
            failure = self._failures.pop(0)
            if self._stands(failure):
                raise failure.error
        if self._fatal is not None:
            raise copy.copy(self._fatal) from self._fatal
        if self._border.ended:
            self._raise_dead()

    def _stands(self, failure: m.Failed) -> bool:
        """Said of a position that was left meanwhile it is void: assign(), then seek() needs no reset policy."""
        if failure.partition is None:
            return True
        cell = self._border.assignment.get(failure.partition)
        return cell is not None and cell.lease == failure.lease

    def _raise_dead(self) -> None:
        cause = self._border.dead
        if cause is None:
            raise ClosedError("this consumer is closed")
        raise FatalNetworkError(
            f"the network thread ended with a bug: {cause!r}; only close() works now"
        ) from cause

    def _raise_wakeup(self) -> None:
        if self._woken:
            self._woken = False
            raise WakeupError("wakeup() was called")


def _unanswered(kind: type[m.Imperative]) -> str:
    return f"{kind.__name__}: the network thread did not answer; is something holding the interpreter?"


def _callback(listener: RebalanceListener, fact: m.CallbackNeeded) -> Callable[[], Any]:
    partitions = list(fact.partitions)
    if isinstance(fact, m.RevokePartitions):
        return lambda: listener.on_partitions_revoked(partitions)
    if isinstance(fact, m.LosePartitions):
        return lambda: listener.on_partitions_lost(partitions)
    return lambda: listener.on_partitions_assigned(partitions)


def _offsets(
    cells: Iterable[Cell], position: Callable[[Cell], Any]
) -> dict[TopicPartition, OffsetAndMetadata]:
    result = {}
    for cell in cells:
        if (at := position(cell)) is not None:
            result[cell.partition] = OffsetAndMetadata(at.offset, at.leader_epoch)
    return result
