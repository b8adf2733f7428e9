"""The plain half of the way into the accumulator: the same interface as `_append_c`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from kadence.errors import KafkaError
from kadence.errors.local import AnswerPendingError
from kadence.producer.serializing import serialized
from kadence.records import MOST_HEADERS, BatchBuilder
from kadence.types import TopicPartition

if TYPE_CHECKING:
    from kadence.client.gate import Gate
    from kadence.connection.cluster import Cluster
    from kadence.producer.futures import Delivery

__all__ = [
    "FastAppender",
    "FutureRecordMetadata",
    "OpenBatch",
    "ProduceRequestResult",
    "ShortWay",
    "Sticky",
    "TopicInfo",
    "call_back",
    "estimated_size",
    "murmur2",
]

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_INT64 = 2**63
_RECORD_OVERHEAD = 21
_HEADER_OVERHEAD = 10


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with Kafka's seed; unsigned."""
    length = len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ h >> 15


def estimated_size(
    key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> int:
    """Most bytes that a record can take in an uncompressed batch: Kafka's bound on its varints, and the data."""
    size = _RECORD_OVERHEAD
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, data in headers:
        # A character of a header name takes at most four bytes of UTF-8.
        size += _HEADER_OVERHEAD + len(name) * 4 + (0 if data is None else len(data))
    return size


class ProduceRequestResult:
    """What a batch's records have in common once they are decided, and what is called then.

    Attributes:
        gate: the producer's lock. done: whether all are decided. is_written: whether all are in the log.
    """

    __slots__ = ("_callbacks", "done", "gate", "is_written")

    def __init__(self, gate: Gate) -> None:
        self.gate: Gate = gate
        self.done: bool = False
        self.is_written: bool = False
        # Callback, future, callback, future: a record costs two places in a list, and no object.
        self._callbacks: list[Any] = []

    def add_callback(self, callback: Callable[[Any], object], future: Any) -> bool:
        """Keep a callback of a record's future for `end`. False: that has come already. Any thread."""
        if self.done:
            # Also in a forked child, where nobody may ever give the lock back.
            return False
        self.gate.check_entry()
        with self.gate:
            if not self.done:
                self._callbacks += callback, future
            return not self.done

    def end(self) -> list[Any]:
        """All are decided. Returns each callback and its future, one behind the other."""
        callbacks, self._callbacks = self._callbacks, []
        self.done = True
        return callbacks


def call_back(callbacks: list[Any], failed: Callable[[], None]) -> None:
    """Call what `ProduceRequestResult.end` gave; ``failed`` where a callback raises.

    Whatever it raises: sys.exit() must not end the network thread, which others wait for.
    """
    for at in range(0, len(callbacks), 2):
        try:
            callbacks[at](callbacks[at + 1])
        except BaseException:  # noqa: BLE001 - see above
            failed()


class FutureRecordMetadata:
    """What a record's future knows of it.

    Attributes:
        delivery: of its batch. index: its place among the batch's records. timestamp: its own (ms).
    """

    __slots__ = ("delivery", "index", "timestamp")

    def __init__(self, delivery: Delivery, index: int, timestamp: int) -> None:
        self.delivery: Delivery = delivery
        self.index: int = index
        self.timestamp: int = timestamp


class OpenBatch:
    """A batch as far as records are added to it.

    Attributes:
        builder: its records, encoded. delivery: what their futures wait for. size: estimated uncompressed bytes.
        limit: the size up to which it takes records.
        is_open: whether it takes more records; never again once it was taken to be sent.
    """

    __slots__ = ("builder", "delivery", "is_open", "limit", "size")

    def __init__(self, builder: BatchBuilder, delivery: Delivery, size: int, limit: int) -> None:
        self.builder = builder
        self.delivery = delivery
        self.size = size
        self.limit = limit
        self.is_open = True

    @property
    def count(self) -> int:
        """Records so far."""
        return self.builder.count


class Sticky:
    """The partition that records without a key stay with.

    Attributes:
        current: that partition, -1 before the first. used: bytes it got. switch_bytes: how many it may get.
    """

    __slots__ = ("current", "switch_bytes", "used")

    def __init__(self, switch_bytes: int) -> None:
        self.switch_bytes = switch_bytes
        self.current = -1
        self.used = 0

    def choose(self, size: int, partition_count: int, available: Sequence[int]) -> int:
        """The partition for a record of ``size`` bytes (`partitioner.StickyPartitioner`)."""
        raise NotImplementedError


class TopicInfo:
    """What ``send()`` needs of a topic, for as long as the cluster is the same.

    Attributes:
        cluster: where it was read. partitions, count: all of them. available: numbers of those that have a leader.
        sticky: of records without a key. open_batches: the batch that each partition fills, None where none was begun.
    """

    __slots__ = ("available", "cluster", "count", "open_batches", "partitions", "sticky")

    def __init__(
        self,
        cluster: Cluster,
        partitions: tuple[TopicPartition, ...],
        available: tuple[int, ...],
        sticky: Sticky,
    ) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.available = available
        self.sticky = sticky
        self.count = len(partitions)
        self.open_batches: list[OpenBatch | None] = [None] * self.count


class FastAppender:
    """The part of the accumulator that takes records which need nothing but a place in a batch.

    Attributes:
        gate: the producer's lock. places: by topic; emptied when the cluster changes.
        batch_size, buffer_memory: bounds. largest: most bytes of one record.
        wall_ms: the time of records that have none.
        used_bytes: bytes of all undecided batches. is_usable: False once the producer is closed, failed or forked.
    """

    def __init__(
        self,
        gate: Gate,
        future_type: type[Any],
        batch_size: int,
        buffer_memory: int,
        largest: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self.gate = gate
        self.future_type = future_type
        self.wall_ms = wall_ms
        self.places: dict[str, TopicInfo] = {}
        self.batch_size = batch_size
        self.buffer_memory = buffer_memory
        self.largest = largest
        self.used_bytes = 0
        self.is_usable = True

    def put(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Any = (),
    ) -> Any | None:
        """Add a record to the batch that its partition is filling, and give its future.

        None, and nothing is done, when anything is out of the common: a topic or a batch that must be begun, a batch
        that this record fills, no memory, arguments that must be looked at. The long way (`Producer.send`) begins anew.
        """
        return self._place(topic, value, key, partition, timestamp, headers, is_anywhere=False)

    def _place(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Any,
        *,
        is_anywhere: bool,
    ) -> Any | None:
        """As `put`; ``is_anywhere``: the key does not choose the partition."""
        if (value is not None and type(value) is not bytes) or (key is not None and type(key) is not bytes):
            return None
        if not headers:
            headers = ()
        elif not _are_plain(headers):
            return None
        size = estimated_size(key, value, headers)
        place = self.places.get(topic) if type(topic) is str else None
        if place is None or size > self.largest:
            return None
        if partition is not None:
            if type(partition) is not int or not 0 <= partition < place.count:
                return None
        elif key is not None and not is_anywhere:
            partition = (murmur2(key) & 0x7FFFFFFF) % place.count
        if timestamp is None:
            timestamp = self.wall_ms()
        elif type(timestamp) is not int or not 0 <= timestamp < _INT64:
            return None
        self.gate.check_entry()
        with self.gate:
            return self._add(place, partition, timestamp, key, value, headers, size)

    def _add(
        self,
        place: TopicInfo,
        partition: int | None,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        size: int,
    ) -> Any | None:
        sticky = place.sticky
        if partition is None and (
            sticky.used >= sticky.switch_bytes or not 0 <= sticky.current < place.count
        ):
            # The record's own bytes are counted below, or when it comes again by the long way.
            sticky.choose(0, place.count, place.available)
        number = sticky.current if partition is None else partition
        batch = place.open_batches[number]
        if (
            batch is None
            or not batch.is_open
            or not self.is_usable
            or batch.size + size >= batch.limit
            or self.used_bytes + size > self.buffer_memory
        ):
            return None
        index = batch.builder.count
        batch.builder.append(timestamp, key, value, headers)
        batch.size += size
        self.used_bytes += size
        if partition is None:
            sticky.used += size
        return self.future_type(batch.delivery, index, timestamp)


def _are_plain(headers: Any) -> bool:
    """Whether the headers of a record are pairs of text and bytes; others are looked at the long way."""
    if type(headers) not in (list, tuple) or len(headers) > MOST_HEADERS:
        return False
    for pair in headers:
        if type(pair) is not tuple or len(pair) != 2:
            return False
        name, data = pair
        if type(name) is not str or not name.isascii() or not (data is None or type(data) is bytes):
            return False
    return True


class ShortWay:
    """What most calls of ``send()`` run, once their topic is known: a record is made bytes, placed, and put in a batch.

    Args:
        appender: takes it. key_serializer, value_serializer: None takes bytes as they are.
        choose: the partition by topic, key and what is known of the topic; None for Kafka's default.
        looked_at: makes what `put` gives where the record was made bytes, and the appender did not take it.
        not_taken: told of an error of ``choose`` that is Kafka's.

    Attributes:
        held: topics whose records wait on the long way, so that none may pass them; what waits, in its order.
        is_plain: whether there are neither serialisers nor ``choose``. is_serializing: whether a serialiser is called.
    """

    def __init__(
        self,
        appender: FastAppender,
        key_serializer: Any,
        value_serializer: Any,
        choose: Callable[[str, bytes | None, Any], int | None] | None,
        looked_at: Callable[..., Any],
        not_taken: Callable[[KafkaError], None],
    ) -> None:
        self.appender = appender
        self.key_serializer = key_serializer
        self.value_serializer = value_serializer
        self.choose = choose
        self.is_plain = key_serializer is None and value_serializer is None and choose is None
        self.looked_at = looked_at
        self.not_taken = not_taken
        self.loop: Any = None
        self.running: Callable[[], Any] | None = None
        self.check: Callable[[], None] | None = None
        self.held: dict[str, dict[Any, None]] = {}
        self.is_serializing = False

    def only_on(self, loop: Any, running: Callable[[], Any], check: Callable[[], None]) -> None:
        """Call ``check`` where another event loop runs than this one."""
        self.loop = loop
        self.running = running
        self.check = check

    def put(
        self,
        topic: Any,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: int | None,
        headers: Any = (),
    ) -> Any | None:
        """Add a record to the batch that its partition is filling, and give its future.

        None, and nothing is done, when anything is out of the common, or a serialiser must wait for an answer.
        Otherwise serialisers and partitioner are called.
        What they make is given for the long way to go on with, when the appender does not take the record.

        Raises:
            SerializationError: a serialiser failed, or made no bytes.
        """
        if self.running is not None and self.running() is not self.loop:
            assert self.check is not None
            self.check()
        appender = self.appender
        if self.is_plain:
            taken = appender.put(topic, value, key, partition, timestamp, headers)
            if taken is not None or not (
                _is_alike(value) or _is_alike(key) or (headers and type(headers) is dict)
            ):
                return taken
        place = appender.places.get(topic) if type(topic) is str and appender.is_usable else None
        if (
            place is None
            or topic in self.held
            or (self.value_serializer is None and not _is_ready(value))
            or (self.key_serializer is None and not _is_ready(key))
            or (partition is not None and type(partition) is not int)
            or (timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp < _INT64))
        ):
            return None
        if not headers:
            headers = ()
        elif type(headers) is dict:
            headers = list(headers.items())
        elif type(headers) is list:
            # A serialiser may add some; the caller's own list stays as it is.
            headers = list(headers)
        if headers and not _are_plain(headers):
            return None
        self.is_serializing = True
        try:
            value = serialized("value", self.value_serializer, topic, headers, value)
            key = serialized("key", self.key_serializer, topic, headers, key)
        except AnswerPendingError:
            return None
        finally:
            self.is_serializing = False
        is_anywhere = partition is None and self.choose is not None
        if partition is None and self.choose is not None:
            try:
                partition = self.choose(topic, key, place)
            except KafkaError as error:
                self.not_taken(error)
                raise
        taken = appender._place(topic, value, key, partition, timestamp, headers, is_anywhere=is_anywhere)
        if taken is not None:
            return taken
        if timestamp is None:
            timestamp = appender.wall_ms()
        return self.looked_at(topic, value, key, partition, timestamp, headers, is_anywhere)


def _is_alike(data: Any) -> bool:
    """Whether these are bytes of another type."""
    return type(data) is bytearray or type(data) is memoryview


def _is_ready(data: Any) -> bool:
    """Whether these are bytes, or nothing."""
    return data is None or type(data) is bytes or _is_alike(data)
