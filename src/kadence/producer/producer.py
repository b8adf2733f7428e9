"""The public `Producer`: checks what it is given, puts it into the accumulator, waits when it must."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from kadence.clock import FOREVER, Clock, Seconds, SystemClock, add_ms, to_ms, wait_seconds, wall_ms
from kadence.config import ProducerConfig, generated_client_id
from kadence.connection.cluster import Cluster
from kadence.errors import (
    ClosedError,
    ForkedError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kadence.producer.accumulator import Accumulator, Header, estimated_size
from kadence.producer.arrow import Chunk, chunks_of
from kadence.producer.arrow_delivery import ArrowDelivery, Share
from kadence.producer.farewell import deliver_if_abandoned
from kadence.producer.futures import RecordFuture
from kadence.producer.partitioner import StickyPartitioner, partition_for_key
from kadence.producer.thread import NetworkThread
from kadence.producer.topics import Topics
from kadence.protocol import error_codes as ec
from kadence.types import PartitionInfo, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Producer"]

_Bytes = bytes | bytearray | memoryview


class _Topic(NamedTuple):
    """What `send` needs of a topic, for as long as the cluster is the same."""

    cluster: Cluster
    partitions: tuple[TopicPartition, ...]
    available: tuple[int, ...]
    sticky: StickyPartitioner


class Producer:
    """Writes records to topics. Any number of threads may share one.

    Idempotent by default: retries neither repeat nor reorder records of a partition. Keys choose partitions as
    in Kafka's Java client, so producers of any language agree.

    Example:
        >>> with Producer(bootstrap_servers="localhost:9092") as producer:  # doctest: +SKIP
        ...     producer.send("greetings", b"hello", key=b"en")

    Args:
        config: Kafka's dotted keys. settings: the same in snake_case.

    Raises:
        ConfigError: a key or value that cannot be used.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None:
        parsed = ProducerConfig.parse(config, **settings)
        if not parsed.client_id:
            object.__setattr__(parsed, "client_id", generated_client_id("producer"))
        self._config = parsed
        self._clock: Clock = SystemClock()
        self._gate = threading.Condition(threading.Lock())
        self._accumulator = Accumulator(
            batch_size=parsed.batch_size,
            linger_ms=parsed.linger_ms,
            buffer_memory=parsed.buffer_memory,
            delivery_timeout_ms=parsed.delivery_timeout_ms,
            gate=self._gate,
        )
        self._topics = Topics(parsed, self._gate)
        self._cache: dict[str, _Topic] = {}
        self._pid = os.getpid()
        self._is_closed = False
        self._thread = NetworkThread(parsed, self._clock, self._accumulator, self._topics)
        self._finalizer = deliver_if_abandoned(self, self._thread)
        self._thread.start()

    # ------------------------------------------------------------ sending

    def send(
        self,
        topic: str,
        value: _Bytes | None = None,
        key: _Bytes | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Iterable[tuple[str, _Bytes | None]]
        | Mapping[str, _Bytes]
        | Mapping[str, _Bytes | None] = (),
    ) -> RecordFuture:
        """Hand over one record; it is sent in the background.

        Blocks only while the topic is unknown or `buffer.memory` is full, ``max.block.ms`` at most.

        Args:
            value: bytes, or None for a tombstone. key: bytes or None; chooses the partition.
            partition: overrides the choice. timestamp: ms since 1970; now when None.
            headers: (name, bytes or None) pairs in order, or a mapping.

        Returns:
            A future of the record's place in the log; its ``result()`` raises why it was not written.

        Raises:
            SerializationError: key, value or a header is not bytes.
            RecordTooLargeError: above ``max.request.size`` or ``buffer.memory``.
            UnknownTopicOrPartitionError: no such topic after ``max.block.ms``, or no such partition.
            KafkaTimeoutError: no answer about the topic, or no memory, within ``max.block.ms``.
            ClosedError, ForkedError, FatalNetworkError: this producer cannot be used (any more).
        """
        if type(value) is not bytes and value is not None:
            value = _as_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = _as_bytes("key", key)
        checked = _checked_headers(headers) if headers else ()
        size = estimated_size(key, value, checked)
        if size > self._config.max_request_size or size > self._config.buffer_memory:
            raise self._too_large(topic, size)
        # The pid is compared on each call: after fork() nobody would ever send what this call takes.
        if self._is_closed or self._thread.fatal is not None or os.getpid() != self._pid:
            raise self._unusable()
        known = self._cache.get(topic)
        if known is None or known.cluster is not self._topics.cluster:
            known = self._look_up(topic)
        if partition is not None:
            known = self._with_partition(topic, known, partition)
        elif key is not None:
            partition = partition_for_key(key, len(known.partitions))
        with self._gate:
            if partition is None:
                partition = known.sticky.choose(size, len(known.partitions), known.available)
            if not self._accumulator.has_room(size):
                self._wait_for_room(size)
            if self._is_closed:
                raise self._unusable()
            future, is_news = self._accumulator.append(
                known.partitions[partition],
                wall_ms() if timestamp is None else timestamp,
                key,
                value,
                checked,
                size,
                self._clock.now_ms(),
            )
        if is_news:
            self._thread.wakeup()
        return future

    def send_arrow(self, data: pa.Table | pa.RecordBatch, topic: str | None = None) -> ArrowDelivery:
        """Hand over all rows of a table; they are sent in the background, as those of `send`.

        Every row is looked at before the first is handed over: data with a bad row sends nothing. Rows of one
        partition keep their order. Blocks while a topic is unknown or `buffer.memory` is full, ``max.block.ms`` at
        most each time.

        Args:
            data: a pyarrow Table or RecordBatch with the columns of Spark's Kafka sink; other columns are left out.
                ``value``: binary or string; null is a tombstone. ``key``: binary or string, may be null.
                ``topic``: string. ``partition``: integer; null leaves the choice to the key, as in `send`.
                ``headers``: list<struct<key: string, value: binary>>. ``timestamp``: a timestamp, or int64 ms since
                1970; null means now.
            topic: for all rows; the column ``topic`` is not looked at then.

        Returns:
            One future for all rows. Its ``result()`` says how many rows each partition got and at which offsets.

        Raises:
            SerializationError: no such data; a column of the wrong type; a row without a topic, or with a header
                without a name.
            RecordTooLargeError: a row above ``max.request.size`` or ``buffer.memory``.
            UnknownTopicOrPartitionError: no such topic after ``max.block.ms``, or no such partition.
            KafkaTimeoutError: no answer about a topic, or no memory, within ``max.block.ms``. Rows that were handed
                over before may be written.
            MissingDependencyError: pyarrow is not installed.
            ClosedError, ForkedError, FatalNetworkError: this producer cannot be used (any more).
        """
        count, chunks = chunks_of(data, with_topic=topic is None)
        rows = [row for chunk in chunks for row in self._arrow_rows(chunk, topic)]
        shares = []
        for number, (name, row) in enumerate(rows):
            future = self.send(name, **row)
            shares.append(Share(future.delivery, future.index, 1, partial(list, (number,))))
        return ArrowDelivery(count, shares, self._gate)

    def _arrow_rows(self, chunk: Chunk, topic: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
        for at in range(chunk.rows):
            number = chunk.first_row + at
            name = topic if chunk.topic is None else chunk.topic[at].as_py()
            if not name:
                raise SerializationError(
                    f"row {number} has no topic: give send_arrow() one, or each row its own"
                )
            value = chunk.value[at].as_py()
            key = None if chunk.key is None else chunk.key[at].as_py()
            headers = []
            if chunk.headers is not None and chunk.headers.lists[at].is_valid:
                begin, end = (chunk.headers.lists.offsets[at + each].as_py() for each in (0, 1))
                for place in range(begin, end):
                    header = chunk.headers.names[place].as_py()
                    if header is None:
                        raise SerializationError(f"row {number} has a header without a name")
                    headers.append((header.decode(), chunk.headers.values[place].as_py()))
            partition = None if chunk.partition is None else chunk.partition[at].as_py()
            size = estimated_size(key, value, headers)
            if size > self._config.max_request_size or size > self._config.buffer_memory:
                raise self._too_large(name, size, f"row {number}")
            known = self._cache.get(name) or self._look_up(name)
            if partition is not None:
                self._with_partition(name, known, partition, f"row {number}: ")
            timestamp = None if chunk.timestamp is None else chunk.timestamp[at].as_py()
            yield (
                name,
                {
                    "value": value,
                    "key": key,
                    "partition": partition,
                    "timestamp": timestamp,
                    "headers": headers,
                },
            )

    def partitions_for(self, topic: str) -> list[PartitionInfo]:
        """The partitions of ``topic``. Blocks and raises as `send`."""
        if self._is_closed or self._thread.fatal is not None or os.getpid() != self._pid:
            raise self._unusable()
        return list(self._look_up(topic).cluster.partitions_for(topic))

    def flush(self, timeout: Seconds | None = None) -> None:
        """Send everything now and wait until each record sent before this call is acknowledged or has failed.

        Raises:
            KafkaTimeoutError: not all are decided within ``timeout`` seconds (None = no limit; each record's
                ``delivery.timeout.ms`` bounds it).
        """
        if self._is_closed or self._thread.fatal is not None or os.getpid() != self._pid:
            raise self._unusable()
        deadline = self._deadline(to_ms(timeout))
        with self._gate:
            pending = set(self._accumulator.incomplete)
            self._accumulator.flushing += 1
            self._thread.wakeup()
            try:
                while pending := {batch for batch in pending if not batch.delivery.done}:
                    self._wait(deadline, f"flush({timeout}): {len(pending)} batches are not acknowledged yet")
            finally:
                self._accumulator.flushing -= 1

    # ------------------------------------------------------------ the end

    def close(self, timeout: Seconds | None = None) -> None:
        """Send what is left and end. Further calls do nothing.

        Args:
            timeout: seconds; what is not acknowledged by then fails with `ClosedError`. None = no limit but
                ``delivery.timeout.ms``. 0 = drop at once.
        """
        if os.getpid() != self._pid:
            # The parent's thread and sockets; nothing here is ours to end.
            self._finalizer.detach()
            return
        wait_ms = to_ms(timeout)
        # FOREVER means "not closing" to the thread.
        deadline = min(self._deadline(wait_ms), FOREVER - 1)
        with self._gate:
            self._is_closed = True
            self._gate.notify_all()
        self._finalizer.detach()
        self._thread.begin_close(deadline)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "failed" if self._thread.fatal is not None else "open"
        return f"<Producer {self._config.client_id} {state} {self._accumulator!r}>"

    # ------------------------------------------------------------ topics

    def _look_up(self, topic: str) -> _Topic:
        """The topic as the newest cluster has it; waits for one that has it."""
        deadline = self._deadline(self._config.max_block_ms)
        with self._gate:
            topics = self._topics
            seen = topics.answers
            while True:
                infos = topics.cluster.partitions_for(topic)
                if infos:
                    break
                if topics.answers > seen:
                    self._raise_if_hopeless(topic)
                topics.want(topic)
                self._thread.wakeup()
                answers = topics.answers
                while topics.answers == answers:
                    self._wait_for_topic(topic, deadline)
            known = self._cache.get(topic)
            sticky = StickyPartitioner(self._config.batch_size) if known is None else known.sticky
            self._cache[topic] = result = _Topic(
                topics.cluster,
                tuple(TopicPartition(topic, partition) for partition in range(len(infos))),
                tuple(info.partition for info in infos if info.leader is not None),
                sticky,
            )
            return result

    def _with_partition(self, topic: str, known: _Topic, partition: int, row: str = "") -> _Topic:
        """Check an explicit partition; one that is not known may be new, so the cluster is asked once."""
        if 0 <= partition < len(known.partitions):
            return known
        if partition >= 0:
            deadline = self._deadline(self._config.max_block_ms)
            with self._gate:
                answers = self._topics.answers
                self._topics.want(topic)
                self._thread.wakeup()
                while self._topics.answers == answers:
                    self._wait_for_topic(topic, deadline)
            known = self._look_up(topic)
            if partition < len(known.partitions):
                return known
        raise UnknownTopicOrPartitionError(
            f"{row}topic {topic!r} has {len(known.partitions)} partitions, 0 to {len(known.partitions) - 1}; "
            f"{partition} is none of them"
        )

    def _raise_if_hopeless(self, topic: str) -> None:
        """Raise an error that does not pass by waiting."""
        if self._topics.failure is not None:
            raise self._topics.failure
        entry = self._topics.cluster.topics.get(topic)
        code = ec.NONE if entry is None else entry.error_code
        if code not in (ec.NONE, ec.UNKNOWN_TOPIC_OR_PARTITION) and code not in ec.RETRIABLE:
            raise for_code(code, f"topic {topic!r}: {ec.MESSAGES.get(code, 'the broker refused it')}")

    def _wait_for_topic(self, topic: str, deadline: int) -> None:
        if self._clock.now_ms() < deadline:
            self._wait(deadline, "")
            return
        entry = self._topics.cluster.topics.get(topic)
        brokers = ",".join(self._config.bootstrap_servers)
        if entry is not None and entry.error_code == ec.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} does not exist on the cluster at {brokers}, which does not create topics by "
                f"itself; create it, e.g. kadence topics create {topic} --partitions 1"
            )
        why = self._thread.trouble or self._topics.last_error or "no answer"
        raise KafkaTimeoutError(
            f"nothing is known of topic {topic!r} after max.block.ms={self._config.max_block_ms} "
            f"(brokers {brokers}): {why}"
        )

    # ------------------------------------------------------------ waiting, under the gate

    def _deadline(self, wait_ms: int | None) -> int:
        return FOREVER if wait_ms is None else add_ms(self._clock.now_ms(), wait_ms)

    def _wait(self, deadline: int, message: str) -> None:
        """Wait for a change, once. An empty message leaves the end of the time to the caller."""
        if self._is_closed or self._thread.fatal is not None:
            raise self._unusable()
        now = self._clock.now_ms()
        if message and now >= deadline:
            raise KafkaTimeoutError(message)
        self._gate.wait(wait_seconds(deadline, now))

    def _wait_for_room(self, size: int) -> None:
        deadline = self._deadline(self._config.max_block_ms)
        self._accumulator.blocked += 1
        self._thread.wakeup()
        try:
            while not self._accumulator.has_room(size):
                self._wait(
                    deadline,
                    f"no room for a record of {size} bytes within max.block.ms={self._config.max_block_ms}: "
                    f"buffer.memory={self._config.buffer_memory} is full of records that no broker has "
                    f"acknowledged yet; {self._thread.trouble or 'the brokers are slower than you'}",
                )
        finally:
            self._accumulator.blocked -= 1

    # ------------------------------------------------------------ errors

    def _unusable(self) -> KafkaError:
        if os.getpid() != self._pid:
            return ForkedError("this producer was made before fork(); make one in the child")
        if self._thread.fatal is not None:
            fatal = type(self._thread.fatal)(*self._thread.fatal.args)
            fatal.__cause__ = self._thread.fatal.__cause__
            return fatal
        return ClosedError("this producer is closed")

    def _too_large(self, topic: str, size: int, what: str = "a record") -> RecordTooLargeError:
        if size > self._config.max_request_size:
            limit = f"max.request.size={self._config.max_request_size}"
        else:
            limit = f"buffer.memory={self._config.buffer_memory}"
        return RecordTooLargeError(
            f"{what} for topic {topic!r} takes {size} bytes, more than {limit}; raise it (and the broker's "
            "message.max.bytes), or send something smaller"
        )


def _as_bytes(what: str, data: Any) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    advice = f", e.g. {what}.encode()" if isinstance(data, str) else ""
    raise SerializationError(
        f"{what} must be bytes or None, not {type(data).__name__}: encode it first{advice}"
    )


def _checked_headers(
    headers: Iterable[tuple[str, _Bytes | None]] | Mapping[str, _Bytes] | Mapping[str, _Bytes | None],
) -> Sequence[Header]:
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    checked: list[Header] = []
    for pair in map(tuple, pairs):
        if len(pair) != 2 or not isinstance(pair[0], str):
            raise SerializationError(f"a header is a pair of name (str) and bytes or None, not {pair!r}")
        name, data = pair
        checked.append((name, None if data is None else _as_bytes(f"header {name!r}", data)))
    return checked
