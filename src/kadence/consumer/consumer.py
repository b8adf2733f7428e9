"""`Consumer`: the public API for threads. Application side; a shell around `core.Core`.

`async_consumer.py` is made from this text by ``make generate`` (tools/async_rules.py): whatever differs between threads
and asyncio is said by the shell, `self._shell`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Self, TypeVar, Unpack

from kadence.clock import FOREVER, Seconds, add_ms, to_ms
from kadence.config import ConsumerConfig, generated_client_id
from kadence.consumer.application import suppliers
from kadence.consumer.application.arguments import (
    Assignable,
    Offsets,
    Partition,
    Partitions,
    StartOfTopics,
    Timestamps,
    given,
)
from kadence.consumer.application.callbacks import CommitCallback, RebalanceListener
from kadence.consumer.application.calls import EARLIEST, LATEST, Calls, Topics
from kadence.consumer.application.core import Core, Waits
from kadence.consumer.application.farewell import leave_if_abandoned
from kadence.consumer.application.reading.steps import Iteration
from kadence.consumer.application.records import Records
from kadence.consumer.application.shell import Shell
from kadence.consumer.application.state import ConsumerState
from kadence.consumer.application.stopping import opened
from kadence.idioms import refused, understood
from kadence.records import Record
from kadence.types import (
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    TopicPartition,
)
from kadence.typevars import K_co, V_co

if TYPE_CHECKING:
    import pyarrow

    from kadence.consumer.settings import SettingsWithoutDeserializers
    from kadence.deserializers import DeserializerLike

__all__ = ["Consumer"]

T = TypeVar("T")

_JOINING_MS: Final = 100
"""How often `Consumer.records` looks whether the group has given this consumer partitions."""


class Consumer(ConsumerState, Generic[K_co, V_co]):
    """A Kafka consumer whose heartbeat does not depend on how long processing takes.

    A network thread of the consumer's own talks to the brokers; the calls below run on your thread.
    One thread at a time may use a consumer: a second one gets `ConcurrentAccessError` at once, except for `stop`,
    `wakeup`, `close`, `pause`, `resume` and calls that only read state, such as `metrics` (docs/threads.md lists them).
    Rebalances go on in the background; their callbacks run inside `poll`, `unsubscribe` and `close`.

    Args:
        config: Kafka's dotted keys, e.g. ``{"bootstrap.servers": "localhost:9092", "group.id": "g"}``.
        key_deserializer, value_deserializer: these two keys, which give the records their types: with
            ``value_deserializer=Order.parse`` this is a ``Consumer[bytes, Order]``. Type checkers cannot see one in
            ``config``: annotate the consumer there, ``consumer: Consumer[bytes, Order] = Consumer(config)``.
        settings: the other keys in snake_case (`ConsumerSettings`), e.g. ``group_id="g"``.

    Raises:
        ConfigError: see `kadence.config`.

    The methods are those of Kafka's Java client in snake_case. Only its clientInstanceId and
    registerMetricForSubscription are not here: metrics are read by `metrics`, and never pushed to brokers (KIP-714).

    Delivery is at least once by default: auto-commit commits the records of a poll only when the next poll is made.
    """

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        /,
        *,
        key_deserializer: DeserializerLike[K_co] | None = None,
        value_deserializer: DeserializerLike[V_co] | None = None,
        **settings: Unpack[SettingsWithoutDeserializers],
    ) -> None:
        typed = given(key_deserializer=key_deserializer, value_deserializer=value_deserializer)
        parsed = ConsumerConfig.parse(config, **typed, **settings)
        self._config = replace(parsed, client_id=parsed.client_id or generated_client_id("consumer"))
        border, engine = suppliers.network_side(self._config, awaits=Shell.AWAITS)
        clock = border.clock
        self._border = border
        self._core = Core(self._config, border, engine, clock, suppliers.letter_producer)
        self._finalizer = leave_if_abandoned(self, "Consumer", border, engine)
        self._calls = Calls(self._config, border, self._core, clock, awaits=Shell.AWAITS)
        self._shell = Shell(self._core, border, clock)
        self._steps = self._core.steps
        opened(self)

    # ------------------------------------------------------------ what to read

    @understood
    def subscribe(self, topics: Topics, *, listener: RebalanceListener | None = None) -> None:
        """Join the group for these topics, replacing the subscription. The join starts with the next poll.

        Args:
            topics: one name, several, or a compiled pattern that a whole topic name must match; or a
                `SubscriptionPattern`, which the broker matches (KIP-848). An empty list is `unsubscribe`.
            listener: called when partitions are assigned and revoked; without it an earlier one is removed.

        Raises:
            InvalidGroupIdError: no group.id. IllegalStateError: partitions were given by `assign` before;
                unsubscribe first. InvalidTopicError: a name that Kafka does not allow. ConfigError: a
                SubscriptionPattern with group.protocol=classic. If a broker refuses the pattern, `poll` raises the
                error (InvalidRegularExpressionError, UnsupportedVersionError).
        """
        self._run(self._calls.subscribe(topics, listener))

    def assign(self, partitions: Assignable, *, timeout: Seconds | None = None) -> None:
        """Read exactly these partitions, without a group; those assigned before keep their positions.

        An empty list is `unsubscribe`. With group.id, committed offsets are used and commits work as long
        as the group has no members.

        Args:
            partitions: those to read, or a mapping with the offset where each begins, of those kept too; or with a
                range ``(start, end)``: records outside it are not returned, and hardly fetched. See `finished`.
                A range that begins where the one before it ended goes on with what is buffered. If the log ends
                before it begins, polls raise OffsetOutOfRangeError, whatever auto.offset.reset says.

        Raises:
            IllegalStateError: topics were given by `subscribe` before; unsubscribe first. ValueError: a negative
                offset, or a range that ends before it begins.
            KafkaTimeoutError: the network thread did not answer within ``timeout`` (default.api.timeout.ms).
        """
        self._run(self._calls.assign(partitions, timeout))

    def assign_topics(
        self,
        topics: str | Iterable[str],
        *,
        start: StartOfTopics | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Read all partitions of these topics without a group, those that are made later, too.

        Waits until a broker has said which partitions there are, so that `assignment` tells them afterwards. What is
        made later is found when metadata is refreshed (metadata.max.age.ms, 5 minutes by default) and read from its
        beginning, so that no record is missed. A topic that does not exist yet is waited for in the background;
        `not_fetched` names it meanwhile. An empty list is `unsubscribe`.

        Args:
            topics: one name, or several.
            start: where every partition is read from: ``"earliest"``, ``"latest"``, or a time (a datetime with a
                timezone, or ms since 1970): the first record from then on. None: as with `assign`, the committed offset
                where there is a group.id, else what auto.offset.reset says; partitions that were assigned before go on
                where they are.

        Raises:
            IllegalStateError: topics were given by `subscribe` before; unsubscribe first. InvalidTopicError: a name
                that Kafka does not allow. TopicAuthorizationError. ValueError: another ``start``, or a datetime
                without a timezone.
            KafkaTimeoutError: no broker answered within ``timeout`` (default.api.timeout.ms).
        """
        self._run(self._calls.assign_topics(topics, start, timeout))

    def incremental_assign(self, partitions: Assignable, *, timeout: Seconds | None = None) -> None:
        """Read these partitions too, beside those given by `assign`.

        Args:
            partitions: those to add, or a mapping with the offset where each begins, or its range, as for `assign`.
                One that is read already goes on where it is, or from the offset given.

        Raises:
            IllegalStateError: topics were given by `subscribe`. ValueError: a negative offset, or a range that ends
                before it begins.
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

    # ------------------------------------------------------------ records

    def poll(
        self, timeout: Seconds = 0.0, *, max_records: int | None = None, **others: Never
    ) -> Records[K_co, V_co]:
        """Wait for records, at most ``timeout`` seconds, and return them; empty when none came.

        Args:
            max_records: the cap for this call instead of max.poll.records; -1 for none.

        Raises:
            WakeupError: `wakeup` was called. CorruptRecordError: the next batch cannot be read; the
                position stays there. RecordDeserializationError: a deserialiser refused the next record; the
                position stays there, too. DeadLetterError: a bad record could not be written to the dead letter
                topic. NoOffsetForPartitionError, OffsetOutOfRangeError: auto.offset.reset says to raise it.
            KafkaError: any unrecoverable network error, or what a callback raised.

        Source: KIP-41 (the cap), KIP-62 (polling is the sign of progress).
        """
        if others:
            raise refused("poll", others)
        core, steps = self._core, self._steps
        proofs: int | None = steps.calls
        try:
            chunks = None if max_records is None or max_records < 1 else steps.several(max_records)
            if chunks is not None:
                return Records(chunks)
            proofs = None
            with self._shell.polling():
                proofs = core.proofs
                records = self._calls.poll_buffered(max_records)
                if records is None:
                    records = self._shell.run(self._calls.poll(timeout, max_records))
            steps.let_go()
            # From here to the caller nothing can come between: the interpreter looks for signals at calls only.
            return records
        except self._shell.BEFORE_TAKING:
            raise
        except BaseException:
            try:
                core.put_back(proofs)
            finally:
                # Once more, should Ctrl-C come a second time in the midst of it.
                core.put_back(proofs)
            raise

    def poll_arrow(
        self,
        timeout: Seconds = 0.0,
        *,
        max_records: int | None = None,
        headers: bool = False,
        columns: Sequence[str] | None = None,
    ) -> pyarrow.Table:
        """As `poll`, as one Arrow table with the columns of Spark's Kafka schema: key and value raw bytes.

        Fairness and positions are those of `poll`. Empty when nothing came.

        Args:
            max_records: the most rows of this table, -1 for no cap. Without it max.poll.arrow.bytes bounds the table;
                max.poll.records bounds its rows only where it is set to other than its default, 500.
            headers: add a column of list<struct<key, value>>.
            columns: make only these columns, in this order: ``key``, ``value``, ``topic``, ``partition``, ``offset``,
                ``timestamp``, ``timestampType``, ``headers``. Nothing is copied for the others. None: all but headers.

        Raises:
            ValueError: ``columns`` names none, one that there is not, or one twice.
            MissingDependencyError: pyarrow is not installed (``pip install kadence[arrow]``).
        """
        core = self._core
        proofs = None
        try:
            with self._shell.polling():
                proofs = core.proofs
                return self._shell.run(self._calls.poll_arrow(timeout, max_records, headers, columns))
        except self._shell.BEFORE_TAKING:
            raise
        except BaseException:
            try:
                core.put_back(proofs)
            finally:
                # Once more, should Ctrl-C come a second time in the midst of it.
                core.put_back(proofs)
            raise

    def __iter__(self) -> Iterator[Record[K_co, V_co]]:
        """Iterate over records until `stop`, or until all assigned ranges end; each step is a poll of one.

        So at least once holds per record.
        """
        return Iteration(self._steps, self.__next__)

    def __next__(self) -> Record[K_co, V_co]:
        # That deadline never comes. Nothing stands between the record and the caller: see `poll`.
        record = self._next(FOREVER)
        if record is None:
            raise StopIteration
        return record

    def records(self, *, idle_timeout: Seconds | None = None) -> Iterator[Record[K_co, V_co]]:
        """Iterate as over the consumer, and end, too, when nothing came for ``idle_timeout`` seconds (None: never).

        The seconds count from when this consumer has partitions: until a group has given it some, this waits for up to
        ``default.api.timeout.ms``.
        """
        ms = to_ms(idle_timeout)
        core = self._core
        clock = core.clock
        joins_until = add_ms(clock.now_ms(), self._config.default_api_timeout_ms)
        has_begun = ms is None
        while True:
            if not has_begun:
                has_begun = bool(self._calls.assignment()) or clock.now_ms() >= joins_until
            if ms is None:
                deadline = FOREVER
            else:
                deadline = add_ms(clock.now_ms(), ms if has_begun else min(ms, _JOINING_MS))
            record = self._next(deadline)
            # Nothing that looks for signals may stand between the two, so this is not the test of the loop: a jump
            # backwards looks for them.
            if record is None:
                if has_begun or core.is_finished or core.stopping:
                    return
                continue
            yield record

    def _next(self, deadline: int) -> Record[K_co, V_co] | None:
        """One record, or None at the deadline, after `stop`, or when all assigned ranges are done."""
        core, steps = self._core, self._steps
        left = deadline
        while True:
            proofs = steps.calls
            try:
                if (stepped := steps.step()) is not None:
                    return stepped
                if deadline != FOREVER:
                    left = max(deadline - core.clock.now_ms(), 0)
                records = self.poll(left / 1000, max_records=1)
                if records:
                    record = self._calls.first(records)
                    if record is not None:
                        return record
            except self._shell.BEFORE_TAKING:
                raise
            except BaseException:
                try:
                    core.put_back(proofs)
                finally:
                    # Once more, should Ctrl-C come a second time in the midst of it.
                    core.put_back(proofs)
                raise
            if left == 0 or core.is_finished or core.stopping:
                return None

    # ------------------------------------------------------------ positions

    def seek(
        self, partition: Partition, offset: int | OffsetAndMetadata, *, timeout: Seconds | None = None
    ) -> None:
        """Read ``partition`` from ``offset`` on; what was fetched for the old position is dropped.

        Raises:
            IllegalStateError: the partition is not assigned. ValueError: a negative offset.
        """
        self._run(self._calls.seek(partition, offset, timeout))

    @understood
    def seek_to_beginning(self, partitions: Partitions = (), *, timeout: Seconds | None = None) -> None:
        """Read from the first offset there is; looked up in the background. None given: all assigned."""
        self._run(self._calls.reset(partitions, EARLIEST, timeout))

    @understood
    def seek_to_end(self, partitions: Partitions = (), *, timeout: Seconds | None = None) -> None:
        """Read only what comes from now on (when read_committed, from the last stable offset). None given: all."""
        self._run(self._calls.reset(partitions, LATEST, timeout))

    def position(self, partition: Partition, *, timeout: Seconds | None = None) -> int:
        """The offset of the next record that poll() returns.

        Waits for the committed offset or the reset to be looked up when there is no position yet.

        Raises:
            IllegalStateError: not assigned. KafkaTimeoutError: no position within ``timeout``.
        """
        return self._run(self._calls.position(partition, timeout))

    # ------------------------------------------------------------ commits

    @understood
    def commit(self, offsets: Offsets | None = None, *, timeout: Seconds | None = None) -> None:
        """Commit and wait until it is done, repeating what can be repeated.

        Args:
            offsets: *next* offsets to read by partition; or records, meaning "these are done" (the offset
                after the last of each partition); or None for everything returned by poll().

        Raises:
            CommitFailedError: the group went on without this member; the records will be read again.
            RebalanceInProgressError: poll() first, then commit again. KafkaTimeoutError. WakeupError.
        """
        self._run(self._calls.commit(offsets, timeout))

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting, in one try.

        Args:
            offsets: as for `commit`.
            callback: ``callback(offsets, error)`` runs inside a later call, in the order of the commits.
        """
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
        self, timestamps: Timestamps, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each partition the first record at or after a time (ms since 1970, UTC); None when there is none."""
        return self._run(self._calls.offsets_for_times(timestamps, timeout))

    def partitions_for(self, topic: str, *, timeout: Seconds | None = None) -> list[PartitionInfo]:
        """The partitions of a topic; empty when the cluster does not know it."""
        return self._run(self._calls.partitions_for(topic, timeout))

    @understood
    def list_topics(self, *, timeout: Seconds | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics this client may see, with their partitions."""
        return self._run(self._calls.topics(None, timeout))

    # ------------------------------------------------------------ the group

    def enforce_rebalance(self, reason: str = "enforce_rebalance() was called") -> None:
        """Make the group rebalance (KIP-568); ``reason`` is told to the broker (KIP-800).

        The classic protocol only. With KIP-848 the broker decides by itself when members move: the call does
        nothing but log that it does nothing, as that of Kafka's own client.
        """
        with self._shell:
            self._calls.enforce_rebalance(reason)

    # ------------------------------------------------------------ the end

    @understood
    def close(self, *, timeout: Seconds | None = None, leave: bool | None = None) -> None:
        """Commit what was returned (if auto-commit is on), leave the group, stop. Idempotent; never hangs.

        Args:
            timeout: seconds for all of it, 30 by default.
            leave: whether to tell the group (KIP-1092). By default a dynamic member does, and a static one
                (group.instance.id) stays a member until its session ends. True: a static member goes for good.
                False: it does not tell the group, so a process that comes back soon causes one rebalance less.
        """
        self._close(timeout, proved_only=False, leave=leave)

    def _close(self, timeout: Seconds | None, *, proved_only: bool, leave: bool | None = None) -> None:
        # After fork() the sockets and the thread are the parent's: a child has nothing to say to anybody.
        if not self._shell.forked:
            deadline = self._calls.closed_by(timeout)
            self._shell.close(self._calls.close(deadline, proved_only=proved_only, leave=leave), deadline)
        # Only now: after Ctrl-C in the middle of it there is still somebody who leaves the group.
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        # After an exception the records of the last poll may be unprocessed: commit only what was proved.
        self._close(None, proved_only=kind is not None)

    def _run(self, call: Waits[T]) -> T:
        with self._shell:
            return self._shell.run(call)
