"""`Consumer`: the public API for threads. Application side; a shell around `core.Core`."""

from __future__ import annotations

import re
import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from kadence.clock import FOREVER, Seconds, SystemClock, add_ms, to_ms
from kadence.config import ConsumerConfig, generated_client_id
from kadence.consumer.arguments import Offsets, cap, partitions_of, to_offsets, topic_names
from kadence.consumer.border import messages as m
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.messages import Rebalance
from kadence.consumer.callbacks import RebalanceListener
from kadence.consumer.core import CommitCallback, Core, Engine, Waits
from kadence.consumer.records import Records
from kadence.consumer.shell import Shell
from kadence.errors import IllegalStateError, KafkaTimeoutError
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

Engines = Callable[[ConsumerConfig], tuple[Border, Engine]]
"""Makes the network side of one consumer. The front door injects it, so that no side imports the other."""

_CLOSE_MS = 30_000
_LATEST, _EARLIEST = -1, -2


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

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        parsed = ConsumerConfig.parse(config, **settings)
        self._config = replace(parsed, client_id=parsed.client_id or generated_client_id("consumer"))
        self._clock = SystemClock()
        border, engine = type(self)._engines(self._config)
        self._border = border
        self._core = Core(self._config, border, engine, self._clock)
        self._shell = Shell(self._core, border, self._clock)
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
        with self._shell as core:
            core.need_group("subscribe()")
            if core.manual:
                raise IllegalStateError(
                    "this consumer has partitions by assign(); unsubscribe() before subscribe()"
                )
            pattern = topics.pattern if isinstance(topics, re.Pattern) else None
            names = frozenset() if pattern is not None else topic_names(cast("str | Iterable[str]", topics))
            if pattern is None and not names:
                self._shell.run(core.unsubscribe(self._deadline(None)))
                return
            core.subscribed, core.pattern, core.listener = (
                names or None,
                pattern,
                listener,
            )
            self._border.send(m.Subscribe(0, 0, names or None, pattern, listener is not None))
            self._border.wants_polled = True

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
        with self._shell as core:
            if core.subscribed is not None or core.pattern is not None:
                raise IllegalStateError(
                    "this consumer has topics by subscribe(); unsubscribe() before assign()"
                )
            wanted = partitions_of(partitions)
            deadline = self._deadline(timeout)
            if not wanted:
                self._shell.run(core.unsubscribe(deadline))
                return
            self._shell.run(core.auto_commit_now(deadline, proved_only=True))
            self._shell.run(core.call(m.Assign, deadline, partitions=wanted))
            core.manual = True

    def unsubscribe(self, *, timeout: Seconds | None = None) -> None:
        """Leave the group (revocation callbacks run first), forget subscription and assignment."""
        with self._shell as core:
            self._shell.run(core.unsubscribe(self._deadline(timeout)))

    def subscription(self) -> frozenset[str]:
        """Topics given to `subscribe`; empty for a pattern or a manual assignment."""
        return self._core.subscribed or frozenset()

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are this consumer's now."""
        return frozenset(self._border.assignment)

    # ------------------------------------------------------------ records

    def poll(self, timeout: Seconds = 0.0, *, max_records: int | None = None) -> Records:
        """Records, as soon as there are any; empty when ``timeout`` (seconds) passes without.

        Args:
            max_records: the cap for this call instead of max.poll.records; -1 for none.

        Raises:
            WakeupError: `wakeup` was called. CorruptRecordError: the next batch cannot be read; the
                position stays there. NoOffsetForPartitionError, OffsetOutOfRangeError: no reset policy.
            KafkaError: whatever the network thread could not mend by itself (B6), or a callback raised.

        Source: KIP-41 (the cap), KIP-62 (polling is the sign of progress).
        """
        with self._shell as core:
            limit = cap(max_records, self._config.max_poll_records)
            chunks = core.poll_buffered(limit)
            if chunks is None:
                chunks = self._shell.run(core.poll(self._shell.until(timeout), limit))
            return Records(chunks)

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

        with self._shell as core:
            limit = cap(max_records, self._config.max_poll_records)
            chunks = self._shell.run(core.poll_columns(self._shell.until(timeout), limit, headers=headers))
            return arrow.to_table([part for _, parts in chunks for part in parts], headers=headers)

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
        if isinstance(offset, OffsetAndMetadata):
            target, epoch = offset.offset, offset.leader_epoch
        elif offset < 0:
            raise ValueError(
                f"an offset must be >= 0, not {offset}; see seek_to_beginning() and seek_to_end()"
            )
        else:
            target, epoch = offset, None
        with self._shell as core:
            partition = TopicPartition(*partition)
            core.cell(partition)
            deadline = self._deadline(timeout)
            self._shell.run(
                core.call(m.Seek, deadline, partition=partition, offset=target, leader_epoch=epoch)
            )

    def seek_to_beginning(
        self,
        partitions: Iterable[TopicPartition] = (),
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read from the first offset there is; looked up in the background. None given: all assigned."""
        self._reset(partitions, _EARLIEST, timeout)

    def seek_to_end(
        self,
        partitions: Iterable[TopicPartition] = (),
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read only what comes from now on (from the last stable offset when read_committed), as above."""
        self._reset(partitions, _LATEST, timeout)

    def _reset(
        self,
        partitions: Iterable[TopicPartition],
        timestamp: int,
        timeout: Seconds | None,
    ) -> None:
        with self._shell as core:
            chosen = partitions_of(partitions) or tuple(self._border.assignment)
            for partition in chosen:
                core.cell(partition)
            deadline = self._deadline(timeout)
            self._shell.run(core.call(m.ResetPositions, deadline, partitions=chosen, timestamp=timestamp))

    def position(self, partition: TopicPartition, *, timeout: Seconds | None = None) -> int:
        """The offset of the next record that poll() returns.

        Waits for the committed offset or the reset to be looked up when there is no position yet.

        Raises:
            IllegalStateError: not assigned. KafkaTimeoutError: no position within ``timeout``.
        """
        with self._shell as core:
            partition = TopicPartition(*partition)
            deadline = self._deadline(timeout)
            return self._shell.run(_position(core, partition, deadline))

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
        return frozenset(p for p, cell in self._border.assignment.items() if cell.paused)

    # ------------------------------------------------------------ commits

    def commit(
        self,
        offsets: Offsets | None = None,
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
        with self._shell as core:
            self._shell.run(core.commit(to_offsets(offsets), self._deadline(timeout)))

    def commit_async(
        self,
        offsets: Offsets | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting: one try. ``callback(offsets, error)`` runs inside a later call, in order."""
        with self._shell as core:
            core.commit_async(to_offsets(offsets), callback)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed for partitions; None where nothing was."""
        with self._shell as core:
            core.need_group("committed()")
            wanted = frozenset(partitions_of(partitions))
            if not wanted:
                return {}
            deadline = self._deadline(timeout)
            return cast(
                "dict[TopicPartition, OffsetAndMetadata | None]",
                self._shell.run(core.call(m.FetchCommitted, deadline, partitions=wanted)),
            )

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
        found = self._list_offsets(dict.fromkeys(partitions_of(partitions), timestamp), timeout)
        return {partition: at.offset for partition, at in found.items() if at is not None}

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        timeout: Seconds | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms since 1970, UTC); None when there is none."""
        for partition, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"{partition}: a timestamp must be >= 0 ms, not {timestamp}")
        return self._list_offsets({TopicPartition(*p): t for p, t in timestamps.items()}, timeout)

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], timeout: Seconds | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._shell as core:
            if not timestamps:
                return {}
            deadline = self._deadline(timeout)
            return cast(
                "dict[TopicPartition, OffsetAndTimestamp | None]",
                self._shell.run(core.call(m.ListOffsets, deadline, timestamps=timestamps)),
            )

    def partitions_for(self, topic: str, *, timeout: Seconds | None = None) -> list[PartitionInfo]:
        """The partitions of a topic; empty when the cluster does not know it."""
        return self._metadata((topic,), timeout).get(topic, [])

    def list_topics(self, *, timeout: Seconds | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, with their partitions."""
        return self._metadata(None, timeout)

    def _metadata(
        self, topics: tuple[str, ...] | None, timeout: Seconds | None
    ) -> dict[str, list[PartitionInfo]]:
        with self._shell as core:
            deadline = self._deadline(timeout)
            return cast(
                "dict[str, list[PartitionInfo]]",
                self._shell.run(core.call(m.TopicMetadata, deadline, topics=topics)),
            )

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
        with self._shell as core:
            core.need_group("enforce_rebalance()")
            self._border.send(m.EnforceRebalance(0, 0, reason))

    # ------------------------------------------------------------ the end

    def wakeup(self) -> None:
        """From any thread: make the blocking call under way, or the next one, raise `WakeupError`."""
        self._core.wakeup()

    def close(self, *, timeout: Seconds | None = None) -> None:
        """Commit what was returned (if auto-commit is on), leave the group, stop. Idempotent; never hangs (B7).

        Args:
            timeout: seconds for all of it, 30 by default.
        """
        if self._shell.forked:
            # The sockets and the thread are the parent's; a child has nothing to say to anybody.
            self._finalizer.detach()
            return
        self._shell.claim()
        try:
            self._close(to_ms(timeout), proved_only=False)
        finally:
            self._shell.release()

    def _close(self, timeout_ms: int | None, *, proved_only: bool) -> None:
        self._finalizer.detach()
        deadline = add_ms(self._clock.now_ms(), _CLOSE_MS if timeout_ms is None else timeout_ms)
        self._shell.run(self._core.close(deadline, proved_only=proved_only))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        # After an exception the records of the last poll may be unprocessed: commit only what was proved.
        if self._shell.forked:
            self._finalizer.detach()
            return
        self._shell.claim()
        try:
            self._close(None, proved_only=kind is not None)
        finally:
            self._shell.release()

    def __repr__(self) -> str:
        core = self._core
        state = "closed" if core.closed else "open"
        return (
            f"<Consumer {self._config.client_id} group={self._config.group_id or '-'} {state} "
            f"member={core.group.member_id or '-'} generation={core.group.generation_id} "
            f"assigned={len(self._border.assignment)}>"
        )

    def _deadline(self, timeout: Seconds | None) -> int:
        return self._shell.deadline(timeout, self._config.default_api_timeout_ms)


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
