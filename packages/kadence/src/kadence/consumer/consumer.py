"""`Consumer`: the public API for threads. Application side; a shell around `core.Core`.

`async_consumer.py` is generated from this file by ``make generate`` (tools/async_rules.py): the shell, `self._shell`,
contains all that differs between threads and asyncio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Never, Self, TypeVar, Unpack

from kadence.client.engine import end_if_unclosed, forked_error, opened
from kadence.client.surroundings import surroundings
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Seconds, add_ms, to_ms
from kadence.config import ConsumerConfig
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
from kadence.consumer.application.shell import Shell
from kadence.consumer.application.state import ConsumerState
from kadence.consumer.assembly import aside, core_of, letter_producer, network_side
from kadence.consumer.client_state import FAREWELL_MS
from kadence.consumer.decoded_records import Records
from kadence.consumer.fetch._iteration import Iteration
from kadence.idioms import advised, refuse, takes_no_other
from kadence.lazy_dataclasses import replace
from kadence.loading import load
from kadence.records import Record
from kadence.types import (
    K_co,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionInfo,
    TopicPartition,
    V_co,
)

if TYPE_CHECKING:
    import pyarrow

    from kadence.consumer.settings import SettingsWithoutDeserializers
    from kadence.deserializers import DeserializerLike
    from kadence.work.meters import Totals
    from kadence.work.retry import Retry
    from kadence.work.scheduler import Order
    from kadence.work.settings import BatchFormat, Executor
    from kadence.work.track import Work

__all__ = ["Consumer"]

T = TypeVar("T")

_JOINING_MS: Final = 100
"""How often `Consumer.records` looks whether the group has given this consumer partitions."""


@advised
class Consumer(ConsumerState, Generic[K_co, V_co]):
    """A Kafka consumer that sends heartbeats while your code processes records, for up to max.poll.interval.ms.

    A network thread of the consumer's own talks to the brokers; the calls below run on your thread.
    One thread at a time may use a consumer: a second one gets `ConcurrentAccessError` at once, except for `stop`,
    `wakeup`, `close`, `pause`, `resume` and calls that only read state, such as `metrics` (docs/threads.md lists them).
    Rebalances take place in the background; their callbacks run inside `poll`, `unsubscribe` and `close`.

    Args:
        config: Kafka's dotted keys, e.g. ``{"bootstrap.servers": "localhost:9092", "group.id": "g"}``.
        key_deserializer, value_deserializer: the settings key.deserializer and value.deserializer. As keywords they
            also give the records their types: with ``value_deserializer=Order.parse`` this is a
            ``Consumer[bytes, Order]``. Type checkers cannot see a deserialiser in ``config``; annotate the consumer
            then: ``consumer: Consumer[bytes, Order] = Consumer(config)``.
        settings: the other keys in snake_case (`ConsumerSettings`), e.g. ``group_id="g"``.

    Raises:
        ConfigError: a key is unknown, a value is not allowed, or two values contradict each other.

    The methods have the names of Kafka's Java client in snake_case, except `commit` (commitSync). Java's calls for
    pushing metrics to brokers (KIP-714) are missing; `metrics` returns them.

    Delivery is at least once by default: auto-commit does not commit the records of a poll before the next poll or
    `close`.
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
        around = surroundings("Consumer", awaits=Shell.AWAITS)
        self._config = replace(parsed, client_id=parsed.client_id or around.client_id("consumer"))
        shared_state, engine = network_side(self._config, around)
        clock = shared_state.clock
        self._shared_state = shared_state
        self._core = core_of(self._config, shared_state, engine, clock, letter_producer, aside)
        self._finalizer = end_if_unclosed(self, "Consumer", shared_state, engine, FAREWELL_MS)
        self._calls = Calls(self._config, shared_state, self._core, clock, awaits=Shell.AWAITS)
        self._shell = Shell(self._core, shared_state, clock)
        self._steps = self._core.polls.steps
        opened(self)

    # ------------------------------------------------------------ what to read

    @takes_no_other
    def subscribe(
        self, topics: Topics, *, listener: RebalanceListener | None = None, **foreign: Never
    ) -> None:
        """Join the group for these topics, replacing the subscription. The join starts with the next poll.

        Args:
            topics: one name, several, or a compiled pattern that a whole topic name must match; or a
                `SubscriptionPattern`, which the broker matches (KIP-848). An empty list is `unsubscribe`.
            listener: called when partitions are assigned and revoked. None removes the listener of an earlier call.

        Raises:
            InvalidGroupIdError: no group.id. IllegalStateError: partitions were given by `assign` before;
                unsubscribe first. InvalidTopicError: a name that Kafka does not allow. ConfigError: a
                SubscriptionPattern with group.protocol=classic, or dead.letter.topic is among the topics. If a broker
                refuses the pattern, `poll` raises the error (InvalidRegularExpressionError, UnsupportedVersionError).
        """
        if foreign:
            refuse(self.subscribe, foreign)
        self._run(self._calls.subscribe(topics, listener))

    def assign(self, partitions: Assignable, *, timeout: Seconds | None = None) -> None:
        """Read exactly these partitions, without a group. A partition that was assigned already keeps its position.

        An empty list is `unsubscribe`. With group.id, reading begins at committed offsets, and commits work as long
        as the group has no members.

        Args:
            partitions: the partitions to read; or a mapping that gives each partition the offset to begin at, which
                also moves partitions that were assigned already; or a mapping that gives each a range
                ``(start, end)`` of offsets, without the end. Records outside a range are not returned; `finished`
                names the partitions whose range is done. If the log ends before a range begins, polls raise
                OffsetOutOfRangeError. If retention has deleted the beginning of a range, reading starts where the log
                begins now; with auto.offset.reset=none polls raise OffsetOutOfRangeError then, too.

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
        end: StartOfTopics | None = None,
        timeout: Seconds | None = None,
    ) -> None:
        """Read all partitions of these topics without a group, including partitions that are added later.

        Waits until a broker has named the partitions, so that `assignment` contains them afterwards. With
        ``start="latest"`` it also waits until the end of each is known: a record written afterwards is read. The
        consumer finds new partitions when it refreshes its metadata (metadata.max.age.ms, 5 minutes by default) and
        reads them from their beginning, so that it misses no record. It waits in the background for a topic that does
        not exist yet; `not_fetched` names the topic meanwhile. To stop reading, call `unsubscribe`.

        Args:
            topics: one name, or several; an empty list is refused.
            start: where every partition is read from: ``"earliest"``, ``"latest"``, or a time (a datetime with a
                timezone, or ms since 1970): the first record from then on. None, as with `assign`: partitions that
                were assigned already keep their positions; others begin at the committed offset if there is a
                group.id and one was committed, else where auto.offset.reset says.
            end: where every partition is read to, in the same words: ``"latest"`` is where it ends now, a time means
                the records before the first one from then on. This call looks the ends up, so that each partition
                has a range as with `assign`: records that come later are not read, even if their time is before
                ``end``, nor are partitions that are added later. `finished` names the partitions that are done, and
                iteration ends after the last one. None: reading does not end.

        Raises:
            IllegalStateError: topics were given by `subscribe` before; unsubscribe first. InvalidTopicError: a name
                that Kafka does not allow. TopicAuthorizationError: this client may not read one of the topics.
                ValueError: no topic, any other ``start`` or ``end``, or a datetime without a timezone.
            UnknownTopicOrPartitionError: with ``end``, a topic does not exist.
            KafkaTimeoutError: no broker answered within ``timeout`` (default.api.timeout.ms). If `assignment` contains
                the partitions already, the consumer goes on looking up their ends.
            ClosedError: `stop` was called before the place of a time was found. Nothing is assigned then.
        """
        self._run(self._calls.assign_topics(topics, start, end, timeout))

    def incremental_assign(self, partitions: Assignable, *, timeout: Seconds | None = None) -> None:
        """Read these partitions in addition to those given to `assign`.

        Args:
            partitions: the partitions to add, or a mapping that gives each its first offset or its range, as for
                `assign`. A partition that is assigned already keeps its position unless an offset is given.

        Raises:
            IllegalStateError: topics were given by `subscribe` or `assign_topics`. ValueError: a negative offset, or a
                range that ends before it begins.
        """
        self._run(self._calls.incremental_assign(partitions, timeout))

    def incremental_unassign(self, partitions: Partitions, *, timeout: Seconds | None = None) -> None:
        """Stop reading these partitions; the consumer goes on reading the others.

        With auto-commit, the offsets of records that polls before the last one returned are committed first. When no
        partition is left, call `unsubscribe` before you call `subscribe`.

        Raises:
            IllegalStateError: one of them is not assigned, or topics were given by `subscribe` or `assign_topics`.
        """
        self._run(self._calls.incremental_unassign(partitions, timeout))

    def unsubscribe(self, *, timeout: Seconds | None = None) -> None:
        """Leave the group and forget subscription and assignment. Revocation callbacks run first."""
        self._run(self._calls.unsubscribe(timeout))

    # ------------------------------------------------------------ records

    @takes_no_other
    def poll(
        self, timeout: Seconds = 0.0, *, max_records: int | None = None, **foreign: Never
    ) -> Records[K_co, V_co]:
        """Wait for records, at most ``timeout`` seconds, and return them; empty when none came.

        Args:
            max_records: the cap for this call instead of max.poll.records; -1 for none.

        Raises:
            IllegalStateError: neither `subscribe` nor `assign` was called. WakeupError: `wakeup` was called.
            CorruptRecordError: the next batch cannot be read; the position stays there. RecordDeserializationError: a
                deserialiser refused the next record; the position stays there, too (deserialization.errors=raise).
                DeadLetterError: a bad record could not be written to the dead letter topic.
            NoOffsetForPartitionError: a partition has no committed offset, and auto.offset.reset=none.
                OffsetOutOfRangeError: its log does not have its position, and auto.offset.reset=none; or see `assign`.
            KafkaError: another error that needs a change by you, such as a refused login.
            Exception: a callback raised it.
        """
        if foreign:
            refuse(self.poll, foreign)
        core, steps = self._core, self._steps
        begun: int | None = steps.calls
        try:
            stepped: Records[K_co, V_co] | None = steps.poll(
                steps.usual if max_records is None else max_records
            )
            if stepped is not None:
                return stepped
            begun = None
            with self._shell.polling():
                begun = steps.calls
                records = self._calls.poll_buffered(timeout, max_records)
                if records is None:
                    records = self._shell.run(self._calls.poll(timeout, max_records))
                # Here no other thread can poll, so none loses the records that it has just taken.
                steps.let_go()
            # From here to the caller no signal handler can run: the interpreter checks for signals at calls only.
            return records
        except self._shell.BEFORE_TAKING:
            raise
        except BaseException:
            try:
                core.polls.put_back(begun)
            finally:
                # Once more, should Ctrl-C come a second time in the midst of it.
                core.polls.put_back(begun)
            raise

    def poll_arrow(
        self,
        timeout: Seconds = 0.0,
        *,
        max_records: int | None = None,
        headers: bool = False,
        columns: Sequence[str] | None = None,
        value: str | None = None,
    ) -> pyarrow.Table:
        """Poll, and return one Arrow table with the columns of Spark's Kafka schema.

        Keys and values are bytes, unless ``value`` says how to decode values. It waits and moves positions as `poll`
        does. The table is empty when nothing came within ``timeout``.

        Args:
            max_records: the most rows of this table, -1 for no cap. Without it max.poll.arrow.bytes bounds the table;
                max.poll.records bounds its rows only where it is set to other than its default, 500.
            headers: add a column of list<struct<key, value>>.
            columns: make only these columns, in this order: ``key``, ``value``, ``topic``, ``partition``, ``offset``,
                ``timestamp``, ``timestampType``, ``headers``. Nothing is copied for the others. None: all but headers.
            value: ``avro`` or ``protobuf`` decodes values by the value.deserializer, an `AvroDeserializer` or
                `ProtobufDeserializer` of kadence_schemas, to a column of structs. Without a reader's schema it has the
                fields of all schemas that came so far. With deserialization.errors=raise the table ends before the
                first bad record of each partition; and always before a record whose schema the registry does not
                return, or whose dead letter is refused.

        Raises:
            ValueError: ``columns`` is empty, or names an unknown column, or one column twice.
            ConfigError: the value.deserializer does not decode the format that ``value`` names.
            RecordDeserializationError: the first value is bad; its ``record`` is None. DeadLetterError: a bad record
                could not be written to the dead letter topic.
            SchemaRegistryError: the registry does not answer; the next poll tries again.
            MissingDependencyError: pyarrow is not installed (``pip install 'kadence[arrow]'``).
        """
        core = self._core
        begun = None
        try:
            with self._shell.polling():
                begun = core.polls.begun
                return self._shell.run(self._calls.poll_arrow(timeout, max_records, headers, columns, value))
        except self._shell.BEFORE_TAKING:
            raise
        except BaseException:
            try:
                core.polls.put_back(begun)
            finally:
                # Once more, should Ctrl-C come a second time in the midst of it.
                core.polls.put_back(begun)
            raise

    def __iter__(self) -> Iterator[Record[K_co, V_co]]:
        """Iterate over records until `stop`, or until all assigned ranges end; each step is a poll of one.

        With auto-commit a record counts as processed when the loop asks for the next one, so delivery is at least
        once for each single record.
        """
        # With tracing each record has a span, which steps would leave out.
        return Iteration(self._steps, self.__next__) if self._core.tracing is None else self

    def __next__(self) -> Record[K_co, V_co]:
        # That deadline never comes. No signal handler runs between the record and the caller: see `poll`.
        record = self._next(FOREVER)
        if record is None:
            raise StopIteration
        return record

    def records(self, *, idle_timeout: Seconds | None = None) -> Iterator[Record[K_co, V_co]]:
        """Iterate as over the consumer, but also end after ``idle_timeout`` seconds without a record (None: never).

        The seconds are counted from when this consumer has partitions. In a group it waits up to
        ``default.api.timeout.ms`` for the group to assign it some.
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
            # No check for signals may come between the two, so this is not the loop's own test: a backward jump checks
            # for them.
            if record is None:
                if has_begun or core.polls.is_finished or core.stopping:
                    return
                continue
            yield record

    def _next(self, deadline: int) -> Record[K_co, V_co] | None:
        """One record, or None at the deadline, after `stop`, or when all assigned ranges are done."""
        core, steps = self._core, self._steps
        left = deadline
        while True:
            begun = steps.calls
            try:
                stepped: Record[K_co, V_co] | None = steps.step()
                if stepped is not None:
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
                    core.polls.put_back(begun)
                finally:
                    # Once more, should Ctrl-C come a second time in the midst of it.
                    core.polls.put_back(begun)
                raise
            if left == 0 or core.polls.is_finished or core.stopping:
                return None

    # ------------------------------------------------------------ positions

    def seek(
        self, partition: Partition, offset: int | OffsetAndMetadata, *, timeout: Seconds | None = None
    ) -> None:
        """Read ``partition`` from ``offset`` on. Records fetched for the old position are dropped.

        Raises:
            IllegalStateError: the partition is not assigned. ValueError: a negative offset.
        """
        self._run(self._calls.seek(partition, offset, timeout))

    def seek_to_beginning(self, partitions: Partitions = (), *, timeout: Seconds | None = None) -> None:
        """Read from the first offset of the log, which is looked up in the background.

        Without ``partitions``: all assigned ones.
        """
        self._run(self._calls.reset(partitions, EARLIEST, timeout))

    def seek_to_end(self, partitions: Partitions = (), *, timeout: Seconds | None = None) -> None:
        """Read from the end of the log, or from the last stable offset if isolation.level=read_committed.

        Without ``partitions``: all assigned ones.
        """
        self._run(self._calls.reset(partitions, LATEST, timeout))

    def position(self, partition: Partition, *, timeout: Seconds | None = None) -> int:
        """The position: the next poll returns records from this offset on.

        If there is no position yet, waits until the committed offset, or the offset of auto.offset.reset, is looked
        up.

        Raises:
            IllegalStateError: the partition is not assigned, or was lost, which the next poll reports.
            NoOffsetForPartitionError: it has no committed offset, and auto.offset.reset=none.
            KafkaTimeoutError: no position within ``timeout`` (default.api.timeout.ms).
        """
        return self._run(self._calls.position(partition, timeout))

    # ------------------------------------------------------------ commits

    @takes_no_other
    def commit(
        self, offsets: Offsets | Work | None = None, *, timeout: Seconds | None = None, **foreign: Never
    ) -> None:
        """Commit and wait for the answer; retriable errors are retried until ``timeout`` (default.api.timeout.ms).

        Args:
            offsets: the *next* offset to read for each partition; or records that are processed, which commits the
                offset after the last one of each partition; or None for all records that poll() has returned; or the
                result of `track`, for the finished ones of all tracked records.

        Raises:
            CommitFailedError: the group has removed this member, or the partitions are not assigned to it (any more).
                Their owners read the records again.
            RebalanceInProgressError: call poll() first, then commit again.
            KafkaTimeoutError: no answer within ``timeout``. WakeupError: `wakeup` was called.
        """
        if foreign:
            refuse(self.commit, foreign)
        self._run(self._calls.commit(offsets, timeout))

    def commit_async(
        self, offsets: Offsets | Work | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commit without waiting for the answer. A failed commit is not retried.

        Args:
            offsets: as for `commit`.
            callback: runs as ``callback(offsets, error)`` inside a later `poll`, `commit`, `unsubscribe` or `close`, in
                the order of the commits. ``error`` is None if the commit succeeded.
        """
        with self._shell:
            self._calls.commit_async(offsets, callback)

    def committed(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The offset that the group has committed for each partition; None where there is none."""
        return self._run(self._calls.committed(partitions, timeout))

    # ------------------------------------------------------------ work

    def process(
        self,
        handler: Callable[..., Any],
        *,
        workers: int = 16,
        order: Order = "key",
        executor: Executor | None = None,
        retry: Retry | None = None,
        dead_letter: str | None = None,
        timeout: Seconds | None = None,
        batch: tuple[int, Seconds] | None = None,
        halve: bool = False,
        batch_format: BatchFormat = "records",
        max_records: int = 20_000,
        max_bytes: int = 64 << 20,
        drain: Seconds = 20.0,
        transactional_id: str | None = None,
    ) -> Totals:
        """Call ``handler(record)`` with every record, on several workers, and commit finished records only.

        This call contains the poll loop: it polls in time even if handlers are slow, and returns after `stop` (or a
        signal, see `stop_on_signals`), or when all assigned ranges are done. A record is done when its handler has
        returned and the records that the handler returned are acknowledged, or when its dead letter or retry record
        is. The committed offset of a partition is the lowest that is not done. The offsets done above it are listed in
        the commit's metadata (4,096 bytes at most), and are not repeated after a restart or a rebalance. Delivery is at
        least once. It commits every ``auto.commit.interval.ms``, whatever ``enable.auto.commit`` is.

        Args:
            handler: a function or coroutine function that takes a record, or a list of records with ``batch``. With a
                second argument it also gets a `Context`. It returns None, or one or more `ProducerRecord` to send
                (a list, or a generator).
            workers: how many handlers run at once, at most.
            order: which records never run at the same time, and run in their order: those of one ``"key"`` (records
                without a key: of one partition), of one ``"partition"``, or ``"none"``.
            executor: where handlers run: on ``"threads"`` (the default for functions) or on an event ``"loop"`` (for
                coroutine functions; a `Consumer` has one on a thread of its own), or in ``"processes"`` (for
                Python that computes; they import the handler's module).
            retry: how a record is repeated when its handler raised; None: not at all.
            dead_letter: the topic for records whose attempts all failed. Without it the first such record ends the
                processing; of records that a deserialiser refuses ``deserialization.errors`` decides then.
            timeout: seconds that one attempt may take. A coroutine is cancelled then, which counts as a failed
                attempt, and a process is killed; a thread cannot be stopped: `Context.timed_out` and the log show it.
            batch: ``(records, seconds)``: the handler gets lists of up to that many records, and a list fills for at
                most that long.
            halve: a batch whose handler raised is split in two until the bad record is found, and the others are done.
            batch_format: the form of a ``batch``: a list of ``"records"``, or ``"arrow"``: a
                ``pyarrow.Table`` with the columns of `poll_arrow`, in bytes. Deserialisers are not called.
            max_records, max_bytes: the most that is read ahead, including records that run or wait for another attempt.
                While that keeps the workers busy, only about 1,000 records are read ahead, or twice as many as the
                workers hold at once. A partition with more than its share is paused.
            drain: seconds that running handlers get when partitions are revoked, and at the end. Choose less than the
                ``grace`` of `stop_on_signals`, and less than max.poll.interval.ms.
            transactional_id: a name that no other member of any group has, and that this one has again after a restart,
                such as ``"orders-worker-1"``. What handlers return, dead letters, retry records and the offsets
                are then committed in transactions: a consumer with isolation.level=read_committed sees the outputs of
                each record exactly once, unless you seek or brokers delete records. The consumer needs
                isolation.level=read_committed itself. A transaction is committed every ``auto.commit.interval.ms``, or
                earlier if half of what may be read ahead waits for it.

        Returns:
            How many records this call has done, retried and given up, how many came again that had been done before,
            and how many attempts failed.

        Raises:
            Exception: the exception of a handler whose record failed for good, without ``dead_letter``; finished
                records are committed.
            DeadLetterError: a dead letter can never be written to its topic; the record is not done.
            TypeError: the handler returned something other than records to send.
            MissingDependencyError: ``batch_format="arrow"``, and pyarrow is not installed.
            ProducerFencedError: another producer uses the ``transactional_id``.
            WorkerStartError: a process for handlers could not import the program or the handler's module, or one of
                these imports took longer than max.poll.interval.ms (or ``timeout``, if that is longer).
            ConfigError, ValueError, TypeError: arguments that are not allowed, or a topic of dead letters or retries
                that the cluster does not have. Or what `poll` raises.
        """
        # Most consumers do not need it.
        load("kadence.work.settings")
        from kadence.work.settings import settings_of

        settings = settings_of(
            handler,
            workers=workers,
            order=order,
            executor=executor,
            retry=retry,
            dead_letter=dead_letter,
            timeout=timeout,
            batch=batch,
            halve=halve,
            batch_format=batch_format,
            max_records=max_records,
            max_bytes=max_bytes,
            drain=drain,
            transactional_id=transactional_id,
            deserialization_errors=self._config.deserialization_errors,
            dead_letter_topic=self._config.dead_letter_topic,
        )
        return self._shell.process(self, settings, letter_producer, aside())

    def track(self, records: Iterable[Record[Any, Any]]) -> Work:
        """Track these records, which a poll returned and which your program handles in any order.

        Call it with the result of each poll, ``work.done(record)`` (on any thread) for each record that is done, and
        ``consumer.commit(work)`` now and then: this commits the lowest offset of each partition that is not done, over
        all tracked records. Partitions that are revoked are forgotten. `process` also provides a loop, workers and
        retries.

        Raises:
            ConfigError: enable.auto.commit is true: it would commit records that are not done. ForkedError.
        """
        if self._shell.forked:
            raise forked_error("consumer")
        return self._calls.track(records)

    # ------------------------------------------------------------ the cluster

    def beginning_offsets(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset in the log of each partition."""
        return self._run(self._calls.edge_offsets(partitions, EARLIEST, timeout))

    def end_offsets(
        self, partitions: Partitions, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record of each partition will get: the high watermark.

        With isolation.level=read_committed it is the last stable offset.
        """
        return self._run(self._calls.edge_offsets(partitions, LATEST, timeout))

    def offsets_for_times(
        self, timestamps: Timestamps, *, timeout: Seconds | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first offset of each partition with a timestamp at or after a time (ms since 1970, UTC), or None."""
        return self._run(self._calls.offsets_for_times(timestamps, timeout))

    def partitions_for(self, topic: str, *, timeout: Seconds | None = None) -> list[PartitionInfo]:
        """The partitions of a topic; an empty list if the cluster does not have the topic."""
        return self._run(self._calls.partitions_for(topic, timeout))

    def list_topics(self, *, timeout: Seconds | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics that this client is allowed to see, with their partitions."""
        return self._run(self._calls.topics(None, timeout))

    # ------------------------------------------------------------ the group

    def enforce_rebalance(self, reason: str = "enforce_rebalance() was called") -> None:
        """Make the group rebalance (KIP-568). The broker logs ``reason`` (KIP-800).

        Only the classic protocol has this. With group.protocol=consumer (KIP-848) the broker alone decides when to
        rebalance; the call then only logs a warning, as in Kafka's own client.
        """
        with self._shell:
            self._calls.enforce_rebalance(reason)

    # ------------------------------------------------------------ the end

    def close(self, timeout: Seconds | None = None, *, leave: bool | None = None) -> None:
        """Commit the returned records (with auto-commit), leave the group and stop. Idempotent; never hangs.

        Args:
            timeout: seconds for everything together; None: 30, or what `stop` allowed.
            leave: whether to leave the group (KIP-1092). None: a dynamic member leaves, and a static one
                (group.instance.id) stays a member until its session ends. True: a static member leaves, too. False:
                a dynamic member, too, stays until its session ends.
        """
        self._close(timeout, processed_only=False, leave=leave)

    def _close(self, timeout: Seconds | None, *, processed_only: bool, leave: bool | None = None) -> None:
        # After fork() the sockets and the thread belong to the parent: a child must not use them.
        if not self._shell.forked:
            deadline = self._calls.closed_by(timeout)
            self._shell.close(
                self._calls.close(deadline, processed_only=processed_only, leave=leave), deadline
            )
        # Only now: after Ctrl-C in the middle of close(), the finalizer still leaves the group.
        self._finalizer.detach()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        # After an exception the records of the last poll may be unprocessed: commit only what is known to be processed.
        self._close(None, processed_only=kind is not None)

    def _run(self, call: Waits[T]) -> T:
        with self._shell:
            return self._shell.run(call)
