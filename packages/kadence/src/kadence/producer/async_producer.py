"""`AsyncProducer`: the public API for asyncio, on the loop's own thread.

Generated from producer.py by tools/generate.py; do not edit. The rules are in tools/async_rules.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kadence.client.engine import end_if_unclosed, opened
from kadence.client.surroundings import surroundings
from kadence.clock import Seconds
from kadence.config import ProducerConfig
from kadence.errors import KafkaError
from kadence.idioms import advised, unmade
from kadence.producer.accumulator import Accumulator
from kadence.producer.arguments import Headers
from kadence.producer.arrow_delivery import ArrowDelivery
from kadence.producer.assembly import network_side
from kadence.producer.async_shell import AsyncShell
from kadence.producer.calls import Calls, Outgoing
from kadence.producer.futures import RecordFuture, RecordMetadata
from kadence.producer.network_state import FAREWELL_MS
from kadence.producer.send_checks import SendChecks
from kadence.producer.topics import Topics
from kadence.producer.transaction_calls import (
    abort_after,
    begin,
    can_abort,
    has_returned,
    not_aborted,
    send_offsets,
    settle,
    time_to_close,
)
from kadence.producer.transactions import Transactions
from kadence.types import GroupMetadata, OffsetAndMetadata, PartitionInfo, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from kadence.client.waits import Waits
    from kadence.metrics import MetricName
    from kadence.producer.settings import ProducerSettings

__all__ = ["AsyncProducer"]


@advised
class AsyncProducer:
    """`Producer` for asyncio: the same calls, awaited. It belongs to the event loop it is made on.

    A network thread of the client's own talks to the brokers, and no call below waits for them on the loop's thread.
    Any number of tasks may share one producer. If ``send()`` is cancelled, its record is not sent. Cancelling the await
    of its future does not stop the record from being sent.

    Idempotent by default: retries neither repeat nor reorder records of a partition. By default keys choose partitions
    as in Kafka's Java client.

    Example:
        >>> async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:  # doctest: +SKIP
        ...     future = await producer.send("greetings", b"hello", key=b"en")
        ...     metadata = await future

    Args:
        config: Kafka's dotted keys. settings: the same in snake_case.

    Raises:
        ConfigError: a key or value that cannot be used. RuntimeError: no event loop is running.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, **settings: Unpack[ProducerSettings]
    ) -> None:
        parsed = ProducerConfig.parse(config, **settings)
        around = surroundings("AsyncProducer", awaits=AsyncShell.AWAITS)
        if not parsed.client_id:
            object.__setattr__(parsed, "client_id", around.client_id("producer"))
        self._config = parsed
        self._clock = around.clock
        self._gate = AsyncShell.new_gate()
        self._accumulator = Accumulator(
            batch_size=parsed.batch_size,
            linger_ms=parsed.linger_ms,
            buffer_memory=parsed.buffer_memory,
            delivery_timeout_ms=parsed.delivery_timeout_ms,
            gate=self._gate,
            largest=parsed.max_request_size,
            wall_ms=around.wall_ms,
        )
        self._topics = topics = Topics(parsed, self._gate, self._accumulator.places)
        transactions = None
        if parsed.transactional_id is not None:
            self._accumulator.is_usable = False
            transactions = Transactions(parsed, self._gate, partial(setattr, self._accumulator, "is_usable"))
        self._network, self._engine = network_side(parsed, around, self._accumulator, topics, transactions)
        self._send_checks = SendChecks(
            parsed, self._clock, self._accumulator, topics, self._network, transactions
        )
        self._calls = Calls(
            parsed, self._clock, self._accumulator, topics, self._send_checks, self._network.wakeup
        )
        self._shell = AsyncShell(self._gate, self._clock)
        self._shell.guard(self._calls.short_way)
        self._put = self._calls.short_way.put
        self._finalizer = end_if_unclosed(self, "AsyncProducer", self._network, self._engine, FAREWELL_MS)
        self._engine.start()
        opened(self)

    # ------------------------------------------------------------ sending

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordFuture:
        """Queue one record. The producer sends it in the background.

        Waits until the topic's metadata are known and `buffer.memory` has room for the record, at most
        ``max.block.ms``.

        Args:
            value: bytes, or an object that ``value.serializer`` takes; None for a tombstone.
            key: bytes, an object that ``key.serializer`` takes, or None. The ``partitioner`` chooses the partition
                by it.
            partition: the partition; None: the partitioner chooses. timestamp: ms since 1970, not negative; None: now.
            headers: pairs of a name and bytes or None, in order; or a mapping.

        Returns:
            A future of the record's place in the log. Awaiting it raises why the record was not written.

        Raises:
            SerializationError: key, value or a header is not bytes, or a serialiser failed (see the cause).
            RecordTooLargeError: above ``max.request.size`` or ``buffer.memory``.
            UnknownTopicOrPartitionError: the topic does not exist after ``max.block.ms``, or has no such partition.
            TopicAuthorizationError, InvalidTopicError: this client may not write to the topic, or Kafka does not allow
                its name.
            KafkaTimeoutError: no broker answered for the topic's metadata, or no memory became free, within
                ``max.block.ms``.
            ClosedError, ForkedError, FatalNetworkError: this producer cannot be used (any more).
            IllegalStateError: the producer has a ``transactional.id``, and no transaction is open. Or a callback of
                the producer's own futures called this, and the call would have to wait.

        In a transaction each of these errors except SerializationError and IllegalStateError makes the transaction
        fail, even if you catch the error: call `abort_transaction`.
        """
        taken: RecordFuture | Outgoing | None = self._put(topic, value, key, partition, timestamp, headers)
        if isinstance(taken, RecordFuture):
            return taken
        return await self._send_looking(taken, topic, value, key, partition, timestamp, headers)

    async def _send_looking(
        self,
        record: Outgoing | None,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> RecordFuture:
        """Send on the long way: check everything, unless the short way did, and wait if necessary."""
        await self._shell.breathe()
        calls = self._calls
        try:
            if record is not None:
                return await self._shell.run(calls.send(record))
            return await self._shell.run(
                calls.look_and_send(topic, value, key, partition, timestamp, headers)
            )
        except KafkaError as error:
            calls.not_taken(error)
            raise

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """Send one record and wait until it is acknowledged.

        Sending many records in this way is slow; `send` gathers records in batches.

        Args:
            value: as for `send`; so are the other arguments.

        Returns:
            The record's partition, offset and timestamp.

        Raises:
            KafkaError: any error of `send`, or the reason why the record was not delivered.
        """
        future = await self.send(topic, value, key, partition=partition, timestamp=timestamp, headers=headers)
        return await self._shell.outcome(future)

    async def send_arrow(self, data: pa.Table | pa.RecordBatch, topic: str | None = None) -> ArrowDelivery:
        """Queue all rows of a table as records. The producer sends them in the background, as with `send`.

        Every row is checked before the first is queued: if one row is bad, none is sent. Rows of one partition
        keep their order. Waits until a topic's metadata are known, and whenever `buffer.memory` has no room, at most
        ``max.block.ms`` each time.

        Args:
            data: a pyarrow Table or RecordBatch with the columns of Spark's Kafka sink; other columns are left out.
                Serialisers are not called: keys and values are bytes or text already.
                ``value``: binary or string; null is a tombstone. ``key``: binary or string, may be null.
                ``topic``: string. ``partition``: integer; null leaves the choice to the key, as in `send`.
                ``headers``: list<struct<key: string, value: binary>>. ``timestamp``: a timestamp, or int64 ms since
                1970; null means now, and -1 none.
            topic: the topic of all rows; the column ``topic`` is then ignored.

        Returns:
            One future for all rows. Awaiting it says how many rows each partition got and at which offsets.

        Raises:
            SerializationError: ``data`` is not a Table or RecordBatch, or lacks ``value``; a column has the wrong
                type; a row has no topic, or a header without a name.
            RecordTooLargeError: a row is larger than ``max.request.size`` or ``buffer.memory``.
            UnknownTopicOrPartitionError: a topic does not exist after ``max.block.ms``, or has no such partition.
            KafkaTimeoutError: no broker answered for a topic's metadata, or no memory became free, within
                ``max.block.ms``. If some rows were queued before, the message has their number. They may be
                written, so the same call again may write them twice; an open transaction can only be aborted then.
            MissingDependencyError: pyarrow is not installed.
            IllegalStateError: ``partitioner`` is not murmur2_random, and a row has no partition.
            ClosedError, ForkedError, FatalNetworkError: this producer cannot be used (any more).
        """
        return await self._shell.run(self._calls.send_arrow(data, topic))

    async def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of ``topic``. Waits for the topic's metadata, and raises, as `send` does."""
        return await self._shell.run(self._calls.partitions_for(topic))

    async def flush(self, timeout: Seconds | None = None) -> None:
        """Send everything now and wait until each record sent before this call is acknowledged or has failed.

        The callbacks of their futures have run by then, too.

        Raises:
            KafkaTimeoutError: some records were neither acknowledged nor failed within ``timeout`` seconds, or
                callbacks still ran. None: no limit, but each record fails after ``delivery.timeout.ms``.
            IllegalStateError: a callback of the producer's own futures called this, and the call would have to wait.
        """
        await self._shell.run(self._calls.flush(timeout))

    # ------------------------------------------------------------ metrics

    def metrics(self) -> Mapping[MetricName, float]:
        """All metrics, under the names of Kafka's own client (docs/metrics.md).

        Any thread may call it; sends no request, and waits for nothing.

        Rates and averages are of the last 60 to 90 s. An average of no values is NaN.
        """
        return self._calls.metrics()

    @staticmethod
    def metric_names() -> Sequence[MetricName]:
        """Every name that `metrics` can return, with empty tag values; for tools that register names in advance."""
        from kadence.producer.metrics import catalogue

        return catalogue()

    # ------------------------------------------------------------ transactions

    async def init_transactions(self) -> None:
        """Prepare this producer for transactions. Call it once, before the first transaction.

        The brokers first abort a transaction that an earlier producer with the same ``transactional.id`` left open.

        If that producer still runs, its transactions fail with `ProducerFencedError` from then on.

        Raises:
            IllegalStateError: no ``transactional.id``, or not the first call.
            UnsupportedVersionError: the brokers do not support transactions.
            KafkaTimeoutError: not ready within ``max.block.ms``; call it again to continue.
            BrokerError: a broker refused, for example because this client may not use the ``transactional.id``.
        """
        await self._settle(settle(self._send_checks, Transactions.begin_init, "init_transactions()"))

    async def begin_transaction(self) -> None:
        """Open a transaction. All records sent until its end belong to it.

        A producer with a ``transactional.id`` can send records only within a transaction.

        Raises:
            IllegalStateError: a transaction is open already, or `init_transactions` was not called.
            ProducerFencedError: an earlier call found that another producer took over the ``transactional.id``.
        """
        begin(self._send_checks)

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int], group_metadata: GroupMetadata
    ) -> None:
        """Commit a consumer's offsets as part of the transaction.

        Either the offsets and the records of the transaction are committed together, or none of them.

        Args:
            offsets: the next offset to read for each partition. group_metadata: ``consumer.group_metadata()``.

        Raises:
            IllegalStateError: no transaction is open.
            BrokerError: the group's coordinator refused, for example because the consumer is no longer a member;
                abort the transaction. UnknownTopicOrPartitionError has the ``partitions`` whose topics were deleted.
            KafkaTimeoutError: no answer within ``max.block.ms``; abort the transaction.
            TypeError, ValueError: ``offsets`` has no offsets by partition, or ``group_metadata`` is not a
                consumer's `GroupMetadata`.
        """
        await self._shell.run(send_offsets(self._send_checks, offsets, group_metadata))

    async def commit_transaction(self) -> None:
        """Send what is left, wait until every record is acknowledged, and commit the transaction.

        Consumers with ``isolation.level=read_committed`` see its records soon afterwards.

        Raises:
            IllegalStateError: no transaction is open, or another call of `abort_transaction` has aborted it meanwhile.
            KafkaTimeoutError: not committed within ``max.block.ms``; call it again to continue. While records or
                offsets are not acknowledged, you can call `abort_transaction` instead.
            ProducerFencedError: another producer took over the ``transactional.id``, or brokers before transactions
                v2 aborted a transaction that was open for longer than ``transaction.timeout.ms``. Close this
                producer.
            KafkaError: a record was not written, or the transaction was open for too long. Call `abort_transaction`
                and begin a new transaction, unless a note of the error says otherwise.
        """
        await self._settle(settle(self._send_checks, Transactions.begin_commit, "commit_transaction()"))

    async def abort_transaction(self) -> None:
        """Drop the records that were not sent yet, and abort the transaction.

        Consumers with ``isolation.level=read_committed`` never see its records.

        Raises:
            IllegalStateError: no transaction is open, or brokers were asked already to commit it.
            KafkaTimeoutError: not aborted within ``max.block.ms``; call it again to continue.
            ProducerFencedError: another producer took over the ``transactional.id``, which has aborted the
                transaction.
        """
        await self._settle(settle(self._send_checks, Transactions.begin_abort, "abort_transaction()"))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction for an ``async with`` block, and commit it at the block's end.

        If the block or the commit raises, the transaction is aborted and the exception is raised again. If the abort
        fails, too, its error is added to the exception as a note. After Ctrl-C, or when a task is cancelled, the block
        waits one second for the abort, which continues in the background if it has not ended by then. A commit that
        times out is not aborted: it continues in the background, and `commit_transaction` waits for it.

        Example:
            >>> async with producer.transaction():  # doctest: +SKIP
            ...     await producer.send("orders", b"paid", key=b"17")

        Raises:
            KafkaError: as `begin_transaction` and `commit_transaction`.
        """
        await self.begin_transaction()
        try:
            yield
            await self.commit_transaction()
        except BaseException as error:
            if can_abort(self._send_checks):
                try:
                    await self._settle(abort_after(self._send_checks, error))
                except KafkaError as failure:
                    not_aborted(error, failure)
            raise

    async def _settle(self, step: Waits[None]) -> None:
        await self._shell.run(step)
        has_returned(self._send_checks)

    # ------------------------------------------------------------ the end

    async def close(self, timeout: Seconds | None = None) -> None:
        """Send what is left, abort an open transaction and stop. Another `close` does nothing.

        In a signal handler it may return before the producer has ended, which happens soon after: if the signal came in
        the middle of another call, that call continues first.

        Args:
            timeout: seconds. Records that are not acknowledged by then fail with `ClosedError`, and a warning has their
                number. None: each record has its ``delivery.timeout.ms``, unless `stop` gave a shorter time. 0: drop
                all unsent records at once.
        """
        if self._send_checks.is_forked:
            # The thread and the sockets are the parent's; there is nothing to end here.
            self._finalizer.detach()
            return
        deadline = self._send_checks.begin_close(timeout)
        can_wait = self._send_checks.shut()
        self._finalizer.detach()
        self._network.begin_close(deadline)
        if can_wait:
            await self._shell.end(self._network, self._engine, deadline)

    def stop(self, *, grace: Seconds | None = None) -> None:
        """Announce that the program is to end: `stopping` is now true, and ``grace`` bounds waits.

        Apart from that every call works as before, so that your program can finish its present work. Any thread and a
        signal handler may call it; `kadence.stop_on_signals` calls it when a signal comes.

        Args:
            grace: the seconds from now within which `close` must end, unless it gets a timeout of its own. A call that
                waits raises `ClosedError` two seconds before. None: no bound.
        """
        self._send_checks.stop(grace)
        return self._shell.stopped()

    @property
    def stopping(self) -> bool:
        """True once `stop` was called: for loops such as ``while not producer.stopping``."""
        return self._send_checks.is_stopping

    def _unfinished(self) -> str | None:
        """The work that is left before this producer is closed, as a sentence; None if it is closed. Any thread."""
        return self._send_checks.unfinished()

    _end_means = "takes no more records, sends the records that it has and ends"

    def _end_unfinished(self) -> None:
        """End without waiting for the application. Any thread; waits for nothing."""
        deadline = self._send_checks.end_by()
        self._send_checks.shut()
        self._network.begin_close(deadline)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(time_to_close(self._send_checks, kind))

    def __repr__(self) -> str:
        if "_finalizer" not in vars(self):
            return unmade(type(self).__name__)
        state = (
            "closed"
            if self._send_checks.is_closed
            else "failed"
            if self._network.fatal is not None
            else "ended"
            if self._network.is_shut
            else "open"
        )
        return f"<{type(self).__name__} {self._config.client_id} {state} {self._accumulator!r}>"
