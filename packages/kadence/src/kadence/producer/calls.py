"""The producer's calls: one text for the thread and the asyncio shell.

Calls that may wait are generators of waits (`waits`); the others are done when they return. The public classes document
the calls and have their shells carry them out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from kadence._native.append import ShortWay, TopicInfo, estimated_size
from kadence.client.waits import Waits
from kadence.clock import Clock, Seconds, to_ms
from kadence.config import ProducerConfig
from kadence.errors import IllegalStateError, KafkaError, SerializationError
from kadence.producer.accumulator import Accumulator, Header
from kadence.producer.arguments import (
    Headers,
    checked_headers,
    checked_partition,
    checked_timestamp,
    checked_topic,
)
from kadence.producer.arrow_delivery import ArrowDelivery
from kadence.producer.arrow_sending import ArrowSending
from kadence.producer.futures import RecordFuture, runs_callbacks
from kadence.producer.partitioner import partition_for_key
from kadence.producer.partitioning import chooser
from kadence.producer.send_checks import SendChecks
from kadence.producer.serializing import Serializing
from kadence.producer.topics import Topics
from kadence.types import PartitionInfo

if TYPE_CHECKING:
    from kadence.metrics import MetricName
    from kadence.producer.metrics import Metrics

__all__ = ["Calls", "Outgoing"]


class Outgoing(NamedTuple):
    """A record that was checked and can be sent, in the order of `Producer.send`.

    Attributes:
        is_anywhere: a custom partitioner was asked already, and left the choice to the default where ``partition``
            is None.
    """

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int | None
    timestamp: int
    headers: Sequence[Header]
    is_anywhere: bool = False


class Calls:
    """Does the work of the producer's public calls, for threads and for asyncio.

    Args:
        wakeup: wakes the network thread.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        accumulator: Accumulator,
        topics: Topics,
        send_checks: SendChecks,
        wakeup: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._accumulator = accumulator
        self._topics = topics
        self._send_checks = send_checks
        self._gate = accumulator.gate
        self._wakeup = wakeup
        self._key_serializer = config.key_serializer
        self._value_serializer = config.value_serializer
        self._chooser = chooser(config)
        self._metrics: Metrics | None = None
        self.short_way = ShortWay(
            accumulator,
            self._key_serializer,
            self._value_serializer,
            self._chooser,
            Outgoing,
            self.not_taken,
        )
        """The first attempt for each record."""
        self._serializing = Serializing(send_checks, self.short_way)

    # ------------------------------------------------------------ sending

    def look_and_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Headers,
    ) -> Waits[RecordFuture]:
        """Serialise the arguments of ``send()``, and queue the record.

        Raises the error of the producer or of the record.
        """
        # First: in a forked child the lock may be held for ever.
        self._send_checks.check_usable()
        topic = checked_topic(topic)
        checked = checked_headers(headers) if headers else []
        if partition is not None:
            partition = checked_partition(partition)
        if timestamp is not None:
            timestamp = checked_timestamp(timestamp)
        return self._look_and_send(topic, value, key, partition, timestamp, checked)

    def _look_and_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        checked: Sequence[Header],
    ) -> Waits[RecordFuture]:
        serializing = self._serializing
        with serializing.record(topic) as turn:
            if type(value) is not bytes or self._value_serializer is not None:
                value = yield from serializing.made(
                    "value", self._value_serializer, topic, checked, value, turn
                )
            if type(key) is not bytes or self._key_serializer is not None:
                key = yield from serializing.made("key", self._key_serializer, topic, checked, key, turn)
            yield from serializing.is_next(topic, turn)
            if timestamp is None:
                timestamp = self._accumulator.wall_ms()
            return (yield from self.send(Outgoing(topic, value, key, partition, timestamp, checked)))

    def send(self, record: Outgoing) -> Waits[RecordFuture]:
        """Queue a record, as soon as its topic is known and there is room."""
        send_checks, accumulator = self._send_checks, self._accumulator
        topic, value, key, partition, timestamp, headers, is_anywhere = record
        deadline = send_checks.block_until()
        if send_checks.is_in_doubt:
            yield from send_checks.know_why(deadline)
        send_checks.check()
        if self._chooser is None or partition is not None:
            taken: RecordFuture | None = accumulator.put(topic, value, key, partition, timestamp, headers)
            if taken is not None:
                return taken
        if headers:
            # Serialisers may have added some; check them, too.
            headers = checked_headers(headers)
        size = estimated_size(key, value, headers)
        if size > accumulator.largest:
            raise send_checks.too_large(topic, size)
        place = accumulator.places.get(topic) or (yield from send_checks.look_up(topic, deadline))
        if partition is not None:
            place = yield from send_checks.with_partition(topic, place, partition, deadline)
        elif not is_anywhere:
            partition = self._partition(topic, key, place)
        with self._gate:
            if send_checks.must_wait_for_room(size):
                yield from send_checks.wait_for_room(size, deadline)
            if not accumulator.is_usable:
                # The producer was closed, or the transaction failed, while this call waited.
                send_checks.check()
            if partition is None:
                partition = self._topics.sticky(topic).choose(size, place.count, place.available)
            future, is_news = accumulator.append(
                place.partitions[partition], timestamp, key, value, headers, size, self._clock.now_ms()
            )
        if is_news:
            accumulator.announce()
        return future

    def not_taken(self, error: KafkaError) -> None:
        """A call raises ``error`` and queues nothing: an open transaction lacks its records, and fails.

        Not if the argument is invalid or the call came at the wrong time; as in Java.
        """
        transactions = self._send_checks.transactions
        if transactions is None or isinstance(error, SerializationError | IllegalStateError):
            return
        with self._gate:
            transactions.not_taken(error)
        self._wakeup()

    def _partition(self, topic: str, key: bytes | None, place: TopicInfo) -> int | None:
        """The partition by the key; None where any will do."""
        if self._chooser is not None:
            return self._chooser(topic, key, place)
        return None if key is None else partition_for_key(key, place.count)

    def send_arrow(self, data: Any, topic: str | None) -> Waits[ArrowDelivery]:
        if self._chooser is not None and not _names_partitions(data):
            raise IllegalStateError(
                "send_arrow() supports only the partitioner murmur2_random; give each row its partition, by a column "
                "'partition' without nulls"
            )
        return self._all_of(
            ArrowSending(self._send_checks, self._accumulator, self._clock.now_ms, data, topic).run()
        )

    def _all_of(self, sending: Waits[ArrowDelivery]) -> Waits[ArrowDelivery]:
        try:
            return (yield from sending)
        except KafkaError as error:
            self.not_taken(error)
            raise

    # ------------------------------------------------------------ the rest

    def partitions_for(self, topic: str) -> Waits[list[PartitionInfo]]:
        topic = checked_topic(topic)
        self._send_checks.check_usable()
        place = yield from self._send_checks.look_up(topic, self._send_checks.block_until())
        return list(place.infos)

    def flush(self, timeout: Seconds | None) -> Waits[None]:
        accumulator, send_checks = self._accumulator, self._send_checks
        send_checks.check_usable()
        deadline, began = send_checks.deadline(to_ms(timeout)), self._clock.now_ms()
        with self._gate:
            pending = {batch.delivery for batch in accumulator.incomplete}
            if not runs_callbacks(self._gate):
                # A callback cannot wait for itself and the callbacks after it.
                pending |= accumulator.unnotified
            accumulator.flushing += 1
            try:
                self._wakeup()
                while pending := {
                    each for each in pending if not each.done or each in accumulator.unnotified
                }:
                    count = sum(not each.done for each in pending)
                    yield from send_checks.wait(
                        deadline,
                        f"flush({timeout}): {count} batches are not acknowledged yet"
                        if count
                        else f"flush({timeout}): all records are acknowledged, but callbacks of futures still run",
                    )
            finally:
                accumulator.flushing -= 1
                accumulator.measures.flush_ms += self._clock.now_ms() - began

    def metrics(self) -> Mapping[MetricName, float]:
        metrics = self._metrics
        if metrics is None:
            # Loaded at the first call: most producers never ask for metrics.
            from kadence.producer.metrics import Metrics

            metrics = self._metrics = Metrics(self._config.client_id, self._accumulator)
        return metrics.read(self._clock.now_ms())


def _names_partitions(data: Any) -> bool:
    """True if each row of a table has its partition, or if it is not a table, which is refused elsewhere."""
    names = getattr(data, "schema", None)
    return names is None or ("partition" in names.names and not data.column("partition").null_count)
