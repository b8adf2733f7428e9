"""`Consumer`: the public API for threads. Application side; a shell around `core.Core`."""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from kadence.clock import FOREVER, Seconds, SystemClock, add_ms, to_ms, wait_seconds
from kadence.config import ConsumerConfig
from kadence.consumer.border import messages as m
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.messages import Rebalance
from kadence.consumer.callbacks import RebalanceListener
from kadence.consumer.core import CommitCallback, Core, Engine, Run, Waits
from kadence.consumer.records import Records
from kadence.errors import (
    ClosedError,
    ConcurrentAccessError,
    ForkedError,
    IllegalStateError,
    InvalidTopicError,
    KafkaTimeoutError,
)
from kadence.records import Record
from kadence.types import (
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    TopicPartition,
)

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Consumer", "Engines"]

T = TypeVar("T")

Engines = Callable[[ConsumerConfig], tuple[Border, Engine]]
"""Makes the network side of one consumer. The front door injects it, so that no side imports the other."""

_CLOSE_MS = 30_000
_NO_CAP = 2**31 - 1
_LATEST, _EARLIEST = -1, -2

_forks = 0


def _forked() -> None:
    global _forks  # noqa: PLW0603 - the one thing a child must know is that it is a child
    _forks += 1


os.register_at_fork(after_in_child=_forked)


class Consumer:
    """A Kafka consumer whose heartbeat does not depend on how long processing takes.

    Everything that talks to brokers happens on a network thread of its own; the calls below run on yours.
    One thread at a time may use a consumer: a second one gets `ConcurrentAccessError` at once, except for
    `wakeup`, `pause`, `resume` and `close`. Rebalances go on in the background; their callbacks run
    inside `poll`, `unsubscribe` and `close`.

    Args:
        config: Kafka's dotted keys, e.g. ``{"bootstrap.servers": "localhost:9092", "group.id": "g"}``.
        settings: the same keys in snake_case, e.g. ``group_id="g"``.

    Raises:
        ConfigError: see `kadence.config`.

    Delivery is at least once by default: auto-commit takes only what a later poll has proved processed.
    """

    _engines: Engines

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, **settings: Any
    ) -> None:
        self._config = ConsumerConfig.parse(config, **settings)
        self._clock = SystemClock()
        self._lock = threading.RLock()
        self._fork = _forks
        border, engine = type(self)._engines(self._config)
        self._border = border
        self._core = Core(self._config, border, engine, self._clock)
        self._limit = (
            _NO_CAP
            if self._config.max_poll_records < 0
            else self._config.max_poll_records
        )
        self._finalizer = weakref.finalize(self, _abandoned, border, engine)

    # ------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: str | Iterable[str] | re.Pattern[str],
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics, replacing the subscription. The join starts with the next poll.

        Args:
            topics: one name, several, or a compiled pattern that a whole topic name must match. An empty
                list is `unsubscribe`.
            listener: told of partitions that come and go; leaving it out removes an earlier one.

        Raises:
            InvalidGroupIdError: no group.id. IllegalStateError: partitions were given by `assign` before;
                unsubscribe first. InvalidTopicError: a name that Kafka does not allow.
        """
        core = self._enter()
        try:
            core.need_group("subscribe()")
            if core.manual:
                raise IllegalStateError(
                    "this consumer has partitions by assign(); unsubscribe() before subscribe()"
                )
            pattern = topics.pattern if isinstance(topics, re.Pattern) else None
            names = (
                frozenset()
                if pattern is not None
                else _topic_names(cast("str | Iterable[str]", topics))
            )
            if pattern is None and not names:
                self._run(core.unsubscribe(self._deadline(None)))
                return
            core.subscribed, core.pattern, core.listener = (
                names or None,
                pattern,
                listener,
            )
            self._border.send(
                m.Subscribe(0, 0, names or None, pattern, listener is not None)
            )
            self._border.wants_polled = True
        finally:
            self._lock.release()

    def assign(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read exactly these partitions, without a group's help; positions of those kept stay as they are.

        An empty list is `unsubscribe`. With group.id, committed offsets are used and commits work as long
        as the group has no members.

        Raises:
            IllegalStateError: topics were given by `subscribe` before; unsubscribe first.
            KafkaTimeoutError: the network thread did not answer within ``timeout`` (default.api.timeout.ms).
        """
        core = self._enter()
        try:
            if core.subscribed is not None or core.pattern is not None:
                raise IllegalStateError(
                    "this consumer has topics by subscribe(); unsubscribe() before assign()"
                )
            wanted = tuple(dict.fromkeys(TopicPartition(*p) for p in partitions))
            deadline = self._deadline(timeout)
            if not wanted:
                self._run(core.unsubscribe(deadline))
                return
            self._run(core.auto_commit_now(deadline, proved_only=True))
            self._run(
                core.call(lambda i: m.Assign(i, deadline, wanted), deadline, "assign()")
            )
            core.manual = True
        finally:
            self._lock.release()

    def unsubscribe(self, *, timeout: Seconds | None = None) -> None:
        """Leave the group (revocation callbacks run first), forget subscription and assignment."""
        core = self._enter()
        try:
            self._run(core.unsubscribe(self._deadline(timeout)))
        finally:
            self._lock.release()

    def subscription(self) -> frozenset[str]:
        """Topics given to `subscribe`; empty for a pattern or a manual assignment."""
        return self._core.subscribed or frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are this consumer's now."""
        return frozenset(self._border.assignment)

    # ------------------------------------------------------------ records

    def poll(
        self, timeout: Seconds = 0.0, *, max_records: int | None = None
    ) -> Records:
        """Records, as soon as there are any; empty when ``timeout`` (seconds) passes without.

        Args:
            max_records: the cap for this call instead of max.poll.records; -1 for none.

        Raises:
            WakeupError: `wakeup` was called. CorruptRecordError: the next batch cannot be read; the
                position stays there. NoOffsetForPartitionError, OffsetOutOfRangeError: no reset policy.
            KafkaError: whatever the network thread could not mend by itself (B6), or a callback raised.

        Source: KIP-41 (the cap), KIP-62 (polling is the sign of progress).
        """
        if not self._lock.acquire(blocking=False):
            self._refuse()
        try:
            core = self._core
            if core.closed or self._fork != _forks:
                self._refuse()
            limit = self._limit if max_records is None else _cap(max_records)
            chunks = core.poll_buffered(limit)
            if chunks is None:
                chunks = self._run(core.poll(self._until(timeout), limit))
            return Records(chunks)
        finally:
            self._lock.release()

    def poll_arrow(
        self,
        timeout: Seconds = 0.0,
        *,
        max_records: int | None = None,
        headers: bool = False,
    ) -> pyarrow.Table:
        """As `poll`, as one Arrow table with the columns of Spark's Kafka schema: key and value raw bytes.

        The same cap, fairness and position rules hold. Empty when nothing came. With ``headers`` a column
        of list<struct<key, value>> is added.

        Raises:
            MissingDependencyError: pyarrow is not installed (``pip install kadence[arrow]``).
        """
        from kadence.records import arrow

        core = self._enter()
        try:
            limit = self._limit if max_records is None else _cap(max_records)
            chunks = self._run(core.poll(self._until(timeout), limit, columns=True))
            return arrow.to_table(
                [part for _, parts in chunks for part in parts], headers=headers
            )
        finally:
            self._lock.release()

    def __iter__(self) -> Self:
        """Iterate over records for ever; each step is a poll of one, so at least once holds per record."""
        return self

    def __next__(self) -> Record:
        while True:
            for record in self.poll(FOREVER / 1000, max_records=1):
                return record

    # ------------------------------------------------------------ positions

    def seek(
        self,
        partition: TopicPartition,
        offset: int | OffsetAndMetadata,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read ``partition`` from ``offset`` on; what was fetched for the old position is dropped.

        Raises:
            IllegalStateError: the partition is not assigned. ValueError: a negative offset.
        """
        epoch = None
        if isinstance(offset, OffsetAndMetadata):
            offset, epoch = offset.offset, offset.leader_epoch
        if offset < 0:
            raise ValueError(
                f"an offset must be >= 0, not {offset}; see seek_to_beginning() and seek_to_end()"
            )
        target = offset
        core = self._enter()
        try:
            partition = TopicPartition(*partition)
            core.cell(partition)
            deadline = self._deadline(timeout)
            self._run(
                core.call(
                    lambda i: m.Seek(i, deadline, partition, target, epoch),
                    deadline,
                    "seek()",
                )
            )
        finally:
            self._lock.release()

    def seek_to_beginning(
        self,
        partitions: Iterable[TopicPartition] = (),
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read from the first offset there is. Lazy: the look-up happens in the background. None given: all assigned."""
        self._reset(partitions, _EARLIEST, timeout)

    def seek_to_end(
        self,
        partitions: Iterable[TopicPartition] = (),
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read only what comes from now on (after the last stable offset when read_committed). Lazy, as above."""
        self._reset(partitions, _LATEST, timeout)

    def _reset(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        timeout: Seconds | None,
    ) -> None:
        core = self._enter()
        try:
            chosen = tuple(TopicPartition(*p) for p in partitions) or tuple(
                self._border.assignment
            )
            for partition in chosen:
                core.cell(partition)
            deadline = self._deadline(timeout)
            make = lambda i: m.ResetPositions(i, deadline, chosen, timestamp)  # noqa: E731
            self._run(core.call(make, deadline, "seek_to_beginning() or seek_to_end()"))
        finally:
            self._lock.release()

    def position(
        self, partition: TopicPartition, *, timeout: Seconds | None = None
    ) -> int:
        """The offset of the next record that poll() returns.

        Waits for the committed offset or the reset to be looked up when there is no position yet.

        Raises:
            IllegalStateError: not assigned. KafkaTimeoutError: no position within ``timeout``.
        """
        core = self._enter()
        try:
            partition = TopicPartition(*partition)
            deadline = self._deadline(timeout)
            return self._run(_position(core, partition, deadline))
        finally:
            self._lock.release()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return nothing of these until `resume`. What is buffered stays; membership is not touched. Any thread."""
        for partition in partitions:
            self._core.cell(TopicPartition(*partition)).paused = True

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo `pause`: buffered records come with the next poll, fetching goes on at once. Any thread."""
        for partition in partitions:
            self._core.cell(TopicPartition(*partition)).paused = False
        self._border.send(m.Resumed(0, 0))

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that `pause` holds back."""
        return frozenset(
            p for p, cell in self._border.assignment.items() if cell.paused
        )

    # ------------------------------------------------------------ commits

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
        | Record
        | Iterable[Record]
        | None = None,
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Commit and wait until it is done, repeating what can be repeated.

        Args:
            offsets: *next* offsets to read by partition; or records, meaning "these are done" (the offset
                after the last of each partition); or None for everything returned by poll().

        Raises:
            CommitFailedError: the group went on without this member; the records will be read again.
            RebalanceInProgressError: poll() first, then commit again. KafkaTimeoutError. WakeupError.
        """
        core = self._enter()
        try:
            self._run(core.commit(_to_offsets(offsets), self._deadline(timeout)))
        finally:
            self._lock.release()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
        | Record
        | Iterable[Record]
        | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting: one try. ``callback(offsets, error)`` runs inside a later call, in order."""
        core = self._enter()
        try:
            core.commit_async(_to_offsets(offsets), callback)
        finally:
            self._lock.release()

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed for partitions; None where nothing was."""
        core = self._enter()
        try:
            core.need_group("committed()")
            wanted = frozenset(TopicPartition(*p) for p in partitions)
            if not wanted:
                return {}
            deadline = self._deadline(timeout)
            make = lambda i: m.FetchCommitted(i, deadline, wanted)  # noqa: E731
            return cast(
                "dict[TopicPartition, OffsetAndMetadata | None]",
                self._run(core.call(make, deadline, "committed()")),
            )
        finally:
            self._lock.release()

    # ------------------------------------------------------------ the cluster

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset there is, for each partition."""
        return self._edge_offsets(partitions, _EARLIEST, timeout)

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The offset the next record will get (high watermark; last stable offset when read_committed)."""
        return self._edge_offsets(partitions, _LATEST, timeout)

    def _edge_offsets(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        timeout: Seconds | None,
    ) -> dict[TopicPartition, int]:
        found = self._list_offsets(
            {TopicPartition(*p): timestamp for p in partitions}, timeout
        )
        return {
            partition: at.offset for partition, at in found.items() if at is not None
        }

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        timeout: Seconds | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms since 1970, UTC); None when there is none."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(
                    f"{partition}: a timestamp must be >= 0 ms, not {timestamp}"
                )
        return self._list_offsets(
            {TopicPartition(*p): t for p, t in timestamps.items()}, timeout
        )

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout: Seconds | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        core = self._enter()
        try:
            if not timestamps:
                return {}
            deadline = self._deadline(timeout)
            make = lambda i: m.ListOffsets(i, deadline, timestamps)  # noqa: E731
            return cast(
                "dict[TopicPartition, OffsetAndTimestamp | None]",
                self._run(core.call(make, deadline, "looking up offsets")),
            )
        finally:
            self._lock.release()

    def partitions_for(
        self, topic: str, *, timeout: Seconds | None = None
    ) -> list[PartitionInfo]:
        """The partitions of a topic; empty when the cluster does not know it."""
        return self._metadata((topic,), timeout).get(topic, [])

    def list_topics(
        self, *, timeout: Seconds | None = None
    ) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, with their partitions."""
        return self._metadata(None, timeout)

    def _metadata(
        self, topics: tuple[str, ...] | None, timeout: Seconds | None
    ) -> dict[str, list[PartitionInfo]]:
        core = self._enter()
        try:
            deadline = self._deadline(timeout)
            make = lambda i: m.TopicMetadata(i, deadline, topics)  # noqa: E731
            return cast(
                "dict[str, list[PartitionInfo]]",
                self._run(core.call(make, deadline, "looking up topics")),
            )
        finally:
            self._lock.release()

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end as last heard of; None while unknown. No request."""
        cell = self._core.cell(TopicPartition(*partition))
        committed = self._config.isolation_level == "read_committed"
        end = cell.last_stable_offset if committed else cell.high_watermark
        at = cell.current()
        return None if end is None or at is None else max(end - at.offset, 0)

    # ------------------------------------------------------------ the group

    def group_metadata(self) -> GroupMetadata:
        """This member's identity now, as one value.

        Raises:
            InvalidGroupIdError: no group.id.
        """
        self._core.need_group("group_metadata()")
        return self._core.group

    def rebalances(self) -> Sequence[Rebalance]:
        """The last hundred rebalances as this member saw them: cause, times, what came and went."""
        return tuple(self._core.rebalances)

    def enforce_rebalance(self, reason: str = "enforce_rebalance() was called") -> None:
        """Make the group rebalance (KIP-568)."""
        core = self._enter()
        try:
            core.need_group("enforce_rebalance()")
            self._border.send(m.EnforceRebalance(0, 0, reason))
        finally:
            self._lock.release()

    # ------------------------------------------------------------ the end

    def wakeup(self) -> None:
        """From any thread: make the blocking call under way, or the next one, raise `WakeupError`."""
        self._core.wakeup()

    def close(self, *, timeout: Seconds | None = None) -> None:
        """Commit what was returned (if auto-commit is on), leave the group, stop. Idempotent; never hangs (B7).

        Args:
            timeout: seconds for all of it, 30 by default.
        """
        if self._fork != _forks:
            self._finalizer.detach()
            return
        if not self._lock.acquire(blocking=False):
            # Another thread is inside: end its call, then close from here.
            self._core.wakeup()
            self._lock.acquire()
        try:
            self._close(to_ms(timeout), proved_only=False)
        finally:
            self._lock.release()

    def _close(self, timeout_ms: int | None, *, proved_only: bool) -> None:
        self._finalizer.detach()
        deadline = add_ms(
            self._clock.now_ms(), _CLOSE_MS if timeout_ms is None else timeout_ms
        )
        self._run(self._core.close(deadline, proved_only=proved_only))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        # After an exception the records of the last poll may be unprocessed: commit only what was proved.
        with self._lock:
            self._close(None, proved_only=kind is not None)

    def __repr__(self) -> str:
        core = self._core
        state = "closed" if core.closed else "open"
        return (
            f"<Consumer {self._config.client_id or '-'} group={self._config.group_id or '-'} {state} "
            f"member={core.group.member_id or '-'} generation={core.group.generation_id} "
            f"assigned={len(self._border.assignment)}>"
        )

    # ------------------------------------------------------------ the shell

    def _run(self, call: Waits[T]) -> T:
        """Drive a call on this thread.

        The signal is prepared before the call looks at the border again, so that nothing that comes
        between its look and our wait is missed.
        """
        signal, clock = self._border.signal, self._clock
        try:
            step = next(call)
            while True:
                while isinstance(step, Run):
                    step = self._run_user_code(call, step)
                signal.prepare()
                step = call.send(None)
                if isinstance(step, Run):
                    signal.cancel()
                    continue
                signal.wait(wait_seconds(step, clock.now_ms()))
                step = call.send(None)
        except StopIteration as stop:
            return cast("T", stop.value)
        finally:
            signal.cancel()

    def _run_user_code(self, call: Waits[T], step: Run) -> int | Run:
        progress, clock = self._border.progress, self._clock
        progress.enter_callback(clock.now_ms())
        try:
            step.work()
        except BaseException as error:
            progress.leave_callback(clock.now_ms())
            return call.throw(error)
        progress.leave_callback(clock.now_ms())
        return call.send(None)

    def _enter(self) -> Core:
        """Claim the consumer for this thread; the caller releases the lock."""
        if not self._lock.acquire(blocking=False):
            self._refuse()
        if self._core.closed or self._fork != _forks:
            self._lock.release()
            self._refuse()
        return self._core

    def _refuse(self) -> None:
        if self._fork != _forks:
            raise ForkedError(
                "this consumer was made before fork(); make a new one in the child (C8)"
            )
        if self._core.closed:
            raise ClosedError("this consumer is closed")
        raise ConcurrentAccessError(
            "another thread is inside this consumer; only wakeup, pause, resume and close may be called then (C7)"
        )

    def _deadline(self, timeout: Seconds | None) -> int:
        ms = to_ms(timeout)
        return add_ms(
            self._clock.now_ms(),
            self._config.default_api_timeout_ms if ms is None else ms,
        )

    def _until(self, timeout: Seconds) -> int:
        ms = to_ms(timeout)
        return FOREVER if ms is None else add_ms(self._clock.now_ms(), ms)


def _position(core: Core, partition: TopicPartition, deadline: int) -> Waits[int]:
    while True:
        at = core.cell(partition).current()
        if at is not None:
            return at.offset
        core.check()
        if core.clock.now_ms() >= deadline:
            raise KafkaTimeoutError(
                f"no position for {partition} yet: its committed offset or reset is still looked up"
            )
        yield deadline


def _topic_names(topics: str | Iterable[str]) -> frozenset[str]:
    names = [topics] if isinstance(topics, str) else list(topics)
    for name in names:
        if (
            not isinstance(name, str)
            or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)
            or name in (".", "..")
        ):
            raise InvalidTopicError(
                f"{name!r} is no topic name: 1 to 249 of letters, digits, '.', '_' and '-' (not '.' or '..')"
            )
    return frozenset(names)


def _to_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int]
    | Record
    | Iterable[Record]
    | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if offsets is None:
        return None
    if isinstance(offsets, Mapping):
        return {
            TopicPartition(*p): OffsetAndMetadata(o) if isinstance(o, int) else o
            for p, o in offsets.items()
        }
    records = [offsets] if isinstance(offsets, Record) else offsets
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for record in records:
        partition = TopicPartition(record.topic, record.partition)
        if partition not in found or found[partition].offset <= record.offset:
            found[partition] = OffsetAndMetadata(record.offset + 1, record.leader_epoch)
    return found


def _cap(max_records: int) -> int:
    if max_records == -1:
        return _NO_CAP
    if max_records < 1:
        raise ValueError(
            f"max_records must be at least 1, or -1 for no cap, not {max_records}"
        )
    return max_records


def _abandoned(border: Border, engine: Engine) -> None:
    """The consumer was collected, or the interpreter ends, without close(): leave the group all the same (B7)."""
    if border.ended:
        return
    if not sys.is_finalizing():
        warnings.warn(
            "a Consumer was not closed; use `with` or close()",
            ResourceWarning,
            stacklevel=2,
        )
    deadline = add_ms(SystemClock().now_ms(), 2_000)
    border.send(m.Close(0, deadline, leave=True))
    engine.join(2.5)
