"""`Consumer`: the public API for threads. Application side; a shell around `core.Core`."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from kadence.clock import FOREVER, Seconds, SystemClock, add_ms, to_ms
from kadence.config import ConsumerConfig, generated_client_id
from kadence.consumer.arguments import Offsets
from kadence.consumer.border.buffer import Border
from kadence.consumer.border.lateness import NetworkLateness
from kadence.consumer.border.messages import Rebalance
from kadence.consumer.border.reasons import NotFetched
from kadence.consumer.callbacks import RebalanceListener
from kadence.consumer.calls import EARLIEST, LATEST, Calls, Partitions, Topics
from kadence.consumer.core import CommitCallback, Core, Engine, Waits
from kadence.consumer.dead_letters import Outboxes
from kadence.consumer.metrics import catalogue
from kadence.consumer.records import Records
from kadence.consumer.shell import Shell, abandoned
from kadence.consumer.stall import Stall
from kadence.errors import KafkaError
from kadence.metrics import MetricName
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

T = TypeVar("T")


class Consumer:
    """A Kafka consumer whose heartbeat does not depend on how long processing takes.

    Everything that talks to brokers happens on a network thread of its own; the calls below run on yours.
    One thread at a time may use a consumer: a second one gets `ConcurrentAccessError` at once, except for
    `wakeup`, `pause`, `resume`, `metrics` and `close`. Rebalances go on in the background; their callbacks run
    inside `poll`, `unsubscribe` and `close`.

    Args:
        config: Kafka's dotted keys, e.g. ``{"bootstrap.servers": "localhost:9092", "group.id": "g"}``.
        settings: the same keys in snake_case, e.g. ``group_id="g"``.

    Raises:
        ConfigError: see `kadence.config`.

    The methods are those of Kafka's Java client in snake_case. Only its clientInstanceId and
    registerMetricForSubscription are not here: metrics are read by `metrics`, and never pushed to brokers (KIP-714).

    Delivery is at least once by default: auto-commit takes only what a later poll has proved processed.
    """

    _engines: Engines
    _outboxes: Outboxes

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        parsed = ConsumerConfig.parse(config, **settings)
        self._config = replace(parsed, client_id=parsed.client_id or generated_client_id("consumer"))
        clock = SystemClock()
        border, engine = type(self)._engines(self._config)
        self._border = border
        self._core = Core(self._config, border, engine, clock, type(self)._outboxes)
        self._calls = Calls(self._config, border, self._core, clock)
        self._shell = Shell(self._core, border, clock)
        self._finalizer = weakref.finalize(self, abandoned, "Consumer", border, engine)

    # ------------------------------------------------------------ what to read

    def subscribe(
        self,
        topics: Topics,
        *,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Join the group for these topics, replacing the subscription. The join starts with the next poll.

        Args:
            topics: one name, several, or a compiled pattern that a whole topic name must match; or a
                `SubscriptionPattern`, which the broker matches (KIP-848). An empty list is `unsubscribe`.
            listener: told of partitions that come and go; leaving it out removes an earlier one.

        Raises:
            InvalidGroupIdError: no group.id. IllegalStateError: partitions were given by `assign` before;
                unsubscribe first. InvalidTopicError: a name that Kafka does not allow. ConfigError: a
                SubscriptionPattern with group.protocol=classic. What a broker does not like about one is
                raised by `poll` (InvalidRegularExpressionError, UnsupportedVersionError).
        """
        self._run(self._calls.subscribe(topics, listener))

    def assign(
        self,
        partitions: Partitions,
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
        self._run(self._calls.assign(partitions, timeout))

    def incremental_assign(
        self,
        partitions: Partitions | Mapping[TopicPartition, int | OffsetAndMetadata],
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read these partitions too, beside those given by `assign`.

        Args:
            partitions: those to add, or a mapping with the offset where each begins. One that is read already goes
                on where it is, or from the offset given.

        Raises:
            IllegalStateError: topics were given by `subscribe`. ValueError: a negative offset.
        """
        self._run(self._calls.incremental_assign(partitions, timeout))

    def incremental_unassign(self, partitions: Partitions, *, timeout: Seconds | None = None) -> None:
        """Stop reading these; the others go on undisturbed, even when none is left.

        With auto-commit what was proved processed is committed first.

        Raises:
            IllegalStateError: one of them is not assigned, or topics were given by `subscribe`.
        """
        self._run(self._calls.incremental_unassign(partitions, timeout))

    def unsubscribe(self, *, timeout: Seconds | None = None) -> None:
        """Leave the group (revocation callbacks run first), forget subscription and assignment."""
        self._run(self._calls.unsubscribe(timeout))

    def subscription(self) -> frozenset[str]:
        """Topics given to `subscribe`; empty for a pattern or a manual assignment."""
        return self._calls.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are this consumer's now."""
        return self._calls.assignment()

    # ------------------------------------------------------------ records

    def poll(self, timeout: Seconds = 0.0, *, max_records: int | None = None) -> Records:
        """Records, as soon as there are any; empty when ``timeout`` (seconds) passes without.

        Args:
            max_records: the cap for this call instead of max.poll.records; -1 for none.

        Raises:
            WakeupError: `wakeup` was called. CorruptRecordError: the next batch cannot be read; the
                position stays there. RecordDeserializationError: a deserialiser refused the next record, as above.
                DeadLetterError: it could not be written away. NoOffsetForPartitionError, OffsetOutOfRangeError: no
                reset policy.
            KafkaError: whatever the network thread could not mend by itself (B6), or a callback raised.

        Source: KIP-41 (the cap), KIP-62 (polling is the sign of progress).
        """
        core = self._core
        proofs = core.proofs
        try:
            with self._shell:
                records = self._calls.poll_buffered(max_records)
                if records is None:
                    records = self._shell.run(self._calls.poll(timeout, max_records))
            # From here to the caller nothing can come between: the interpreter looks for signals at calls only.
            return records
        except KafkaError:
            # What a poll says by itself it says before it has taken anything.
            raise
        except BaseException:
            core.put_back(proofs)
            raise

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
        core = self._core
        proofs = core.proofs
        try:
            return self._run(self._calls.poll_arrow(timeout, max_records, headers))
        except KafkaError:
            raise
        except BaseException:
            core.put_back(proofs)
            raise

    def __iter__(self) -> Self:
        """Iterate over records for ever; each step is a poll of one, so at least once holds per record."""
        return self

    def __next__(self) -> Record:
        while (record := self._next(FOREVER)) is None:
            pass
        return record

    def records(self, *, idle_timeout: Seconds | None = None) -> Iterator[Record]:
        """Iterate as over the consumer, and end when nothing came for ``idle_timeout`` seconds (None: never)."""
        ms = to_ms(idle_timeout)
        clock = self._core.clock
        while (record := self._next(FOREVER if ms is None else add_ms(clock.now_ms(), ms))) is not None:
            yield record

    def _next(self, deadline: int) -> Record | None:
        """One record, or None at the deadline."""
        core = self._core
        left = deadline
        while True:
            proofs = core.proofs
            if deadline != FOREVER:
                left = max(deadline - core.clock.now_ms(), 0)
            try:
                for record in self.poll(left / 1000, max_records=1):
                    return record
            except KafkaError:
                raise
            except BaseException:
                core.put_back(proofs)
                raise
            if left == 0:
                return None

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
        self._run(self._calls.seek(partition, offset, timeout))

    def seek_to_beginning(
        self,
        partitions: Partitions = (),
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read from the first offset there is; looked up in the background. None given: all assigned."""
        self._run(self._calls.reset(partitions, EARLIEST, timeout))

    def seek_to_end(
        self,
        partitions: Partitions = (),
        *,
        timeout: Seconds | None = None,
    ) -> None:
        """Read only what comes from now on (from the last stable offset when read_committed), as above."""
        self._run(self._calls.reset(partitions, LATEST, timeout))

    def position(self, partition: TopicPartition, *, timeout: Seconds | None = None) -> int:
        """The offset of the next record that poll() returns.

        Waits for the committed offset or the reset to be looked up when there is no position yet.

        Raises:
            IllegalStateError: not assigned. KafkaTimeoutError: no position within ``timeout``.
        """
        return self._run(self._calls.position(partition, timeout))

    def pause(self, partitions: Partitions) -> None:
        """Return nothing of these until `resume`. What is buffered stays; membership is not touched. Any thread."""
        self._calls.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        """Undo `pause`: buffered records come with the next poll, fetching goes on at once. Any thread."""
        self._calls.resume(partitions)

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that `pause` holds back."""
        return self._calls.paused()

    def not_fetched(self) -> dict[TopicPartition, NotFetched]:
        """Each assigned partition that is not being fetched now, with the one reason and since when. Any thread.

        A partition that is not in it has a fetch on its way. No request is sent.
        """
        return self._calls.not_fetched()

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
        self._run(self._calls.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Offsets | None = None,
        callback: CommitCallback | None = None,
    ) -> None:
        """Commit without waiting: one try. ``callback(offsets, error)`` runs inside a later call, in order."""
        with self._shell:
            self._calls.commit_async(offsets, callback)

    def committed(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group committed for partitions; None where nothing was."""
        return self._run(self._calls.committed(partitions, timeout))

    # ------------------------------------------------------------ the cluster

    def beginning_offsets(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset there is, for each partition."""
        return self._run(self._calls.edge_offsets(partitions, EARLIEST, timeout))

    def end_offsets(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The offset the next record will get (high watermark; last stable offset when read_committed)."""
        return self._run(self._calls.edge_offsets(partitions, LATEST, timeout))

    def offsets_for_times(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        timeout: Seconds | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms since 1970, UTC); None when there is none."""
        return self._run(self._calls.offsets_for_times(timestamps, timeout))

    def partitions_for(self, topic: str, *, timeout: Seconds | None = None) -> list[PartitionInfo]:
        """The partitions of a topic; empty when the cluster does not know it."""
        return self._run(self._calls.partitions_for(topic, timeout))

    def list_topics(self, *, timeout: Seconds | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, with their partitions."""
        return self._run(self._calls.topics(None, timeout))

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end as last heard of; None while unknown. No request."""
        return self._calls.current_lag(partition)

    # ------------------------------------------------------------ the group

    def group_metadata(self) -> GroupMetadata:
        """This member's identity now, as one value.

        Raises:
            InvalidGroupIdError: no group.id.
        """
        return self._calls.group_metadata()

    def rebalances(self) -> Sequence[Rebalance]:
        """The last hundred rebalances as this member saw them: cause, times, what came and went."""
        return self._calls.rebalances()

    def network_lateness(self) -> NetworkLateness:
        """How late the network thread came to its work: what holds the interpreter delays heartbeats (B9)."""
        return self._calls.network_lateness()

    def stalls(self) -> Sequence[Stall]:
        """The last hundred times that nothing was polled for long (stall.report.share): where, and what was in hand."""
        return self._calls.stalls()

    def enforce_rebalance(self, reason: str = "enforce_rebalance() was called") -> None:
        """Make the group rebalance (KIP-568); ``reason`` is told to the broker (KIP-800).

        The classic protocol only. With KIP-848 the broker decides by itself when members move: the call does
        nothing but log that it does nothing, as that of Kafka's own client.
        """
        with self._shell:
            self._calls.enforce_rebalance(reason)

    def metrics(self) -> Mapping[MetricName, float]:
        """What was measured so far, under the names of Kafka's own client (docs/metrics.md). Any thread, no request.

        Rates and averages are of the last 30 to 60 s; a value that was never measured is NaN, or -1 for times ago.
        """
        return self._calls.metrics()

    @staticmethod
    def metric_names() -> Sequence[MetricName]:
        """Every name that `metrics` can have, with tags whose values are empty: for what must know them before."""
        return catalogue()

    # ------------------------------------------------------------ the end

    def wakeup(self) -> None:
        """From any thread: make the blocking call under way, or the next one, raise `WakeupError`."""
        self._core.wakeup()

    def close(self, *, timeout: Seconds | None = None, leave: bool | None = None) -> None:
        """Commit what was returned (if auto-commit is on), leave the group, stop. Idempotent; never hangs (B7).

        Args:
            timeout: seconds for all of it, 30 by default.
            leave: whether to tell the group (KIP-1092). By default a dynamic member does, and a static one
                (group.instance.id) stays a member until its session ends. True: a static member goes for good.
                False: nobody is told, so a process that comes back soon causes one rebalance less.
        """
        self._close(timeout, proved_only=False, leave=leave)

    def _close(self, timeout: Seconds | None, *, proved_only: bool, leave: bool | None = None) -> None:
        if self._shell.forked:
            # The sockets and the thread are the parent's; a child has nothing to say to anybody.
            self._finalizer.detach()
            return
        deadline = self._calls.closed_by(timeout)
        if self._shell.claim(deadline):
            try:
                self._shell.run(self._calls.close(deadline, proved_only=proved_only, leave=leave))
            finally:
                self._shell.release()
        # Only now: after Ctrl-C in the middle of it there is still somebody who leaves the group.
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        # After an exception the records of the last poll may be unprocessed: commit only what was proved.
        self._close(None, proved_only=kind is not None)

    def __repr__(self) -> str:
        return self._calls.describe("Consumer")

    def _run(self, call: Waits[T]) -> T:
        with self._shell:
            return self._shell.run(call)
