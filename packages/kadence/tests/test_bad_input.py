"""Bad input, end to end: each gives one clear error that names what, where and what to do; nothing is lost.

The rooms have finer tests of the same; these go through the public API, as a user meets them.
"""

from __future__ import annotations

import re
import struct
import zlib

import pytest
from tests.consumer.support import read

from kadence import Broker, Consumer, TopicPartition
from kadence.config import ConsumerConfig
from kadence.errors import ConfigError, ConnectError, CorruptRecordError, KafkaError, RecordTooLargeError
from kadence.records import BatchHeader, crc32c, encode_batch

PARTITION = TopicPartition("t", 0)
_MAGIC_AT, _CRC_AT, _CRC_FROM, _COUNT_AT = 16, 17, 21, 57


def good(count: int = 2) -> bytes:
    return encode_batch([(0, None, b"good %d" % number, ()) for number in range(count)])


def with_crc(batch: bytearray) -> bytes:
    struct.pack_into(">I", batch, _CRC_AT, crc32c(memoryview(batch)[_CRC_FROM:]))
    return bytes(batch)


def flipped() -> bytes:
    batch = bytearray(good())
    batch[-1] ^= 1
    return bytes(batch)


def lying_record_length() -> bytes:
    batch = bytearray(good())
    batch[61] = 0x7E  # the first record says that it is 63 bytes long
    return with_crc(batch)


def lying_record_count() -> bytes:
    batch = bytearray(good())
    struct.pack_into(">i", batch, _COUNT_AT, 2_000_000_000)
    return with_crc(batch)


def junk_for_gzip() -> bytes:
    batch = bytearray(good())
    struct.pack_into(">h", batch, _CRC_FROM, 1)
    return with_crc(batch)


def bomb() -> bytes:
    """64 MiB of zeros in 64 KiB of gzip."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = packer.compress(bytes(64 << 20)) + packer.flush()
    batch = bytearray(good(1)[:61]) + packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, _CRC_FROM, 1)
    return with_crc(batch)


def old_format() -> bytes:
    batch = bytearray(good())
    batch[_MAGIC_AT] = 1
    return bytes(batch)


def put(broker: Broker, batch: bytes, records: int) -> None:
    """Into the log behind the broker's back, which would refuse it."""

    def append() -> None:
        partition = broker._core.partition("t", 0)
        log = partition.log
        accepted = bytearray(batch)
        accepted[_MAGIC_AT] = 2
        log.append(memoryview(accepted), BatchHeader.parse(memoryview(good(records))), 0)
        segment = log.segments[-1]
        (stored,) = segment.views(segment.size - len(batch), segment.size)
        stored[_MAGIC_AT] = batch[_MAGIC_AT]
        partition.high_watermark = log.end_offset

    broker._on_loop(append)


@pytest.mark.parametrize(
    ("damage", "kind", "says"),
    [
        (flipped, CorruptRecordError, "checksum"),
        (lying_record_length, CorruptRecordError, "record"),
        (lying_record_count, CorruptRecordError, ""),
        (junk_for_gzip, CorruptRecordError, "gzip"),
        (bomb, RecordTooLargeError, "1048576|1 MiB|1,048,576"),
        (old_format, CorruptRecordError, "format"),
    ],
)
def test_a_batch_that_cannot_be_read_is_told_and_can_be_stepped_over(
    broker: Broker, damage: object, kind: type[KafkaError], says: str
) -> None:
    broker.create_topic("t", 1)
    put(broker, good(), 2)
    put(broker, damage(), 2)  # type: ignore[operator]
    put(broker, good(), 2)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", max_batch_bytes=1 << 20
    ) as consumer:
        consumer.assign([PARTITION])
        assert [record.offset for record in read(consumer, 2)] == [0, 1]
        for _ in range(2):
            with pytest.raises(kind) as error:
                read(consumer, 1)
            assert "t-0 at offset 2" in str(error.value)
            assert "seek" in str(error.value)
            assert re.search(says, str(error.value))
        assert consumer.position(PARTITION) == 2
        consumer.seek(PARTITION, 4)
        assert [record.offset for record in read(consumer, 2)] == [4, 5]


def test_a_truncated_first_batch_is_told(broker: Broker) -> None:
    broker.create_topic("t", 1)
    put(broker, good()[:40], 2)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([PARTITION])
        with pytest.raises(CorruptRecordError, match=r"t-0 at offset 0.*seek"):
            read(consumer, 1)


def test_a_port_in_use_names_it_and_what_to_do(broker: Broker) -> None:
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(ConnectError) as error:
        Broker(port)
    assert f"127.0.0.1:{port}" in str(error.value)
    assert "in use" in str(error.value).lower()


def test_a_wrong_key_is_refused_with_the_right_one() -> None:
    """In the way in which the keys were written: with dots, or as keywords."""
    with pytest.raises(ConfigError, match=r"did you mean 'max\.poll\.interval\.ms'"):
        ConsumerConfig.parse({"bootstrap.servers": "localhost:9092", "max.poll.intervall.ms": 5})
    with pytest.raises(
        ConfigError, match=r"key 'max_poll_intervall_ms': did you mean 'max_poll_interval_ms'"
    ):
        ConsumerConfig.parse(bootstrap_servers="localhost:9092", max_poll_intervall_ms=5)


def test_every_mistake_in_the_settings_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.parse(
            {"bootstrap.server": "b:9092", "grup.id": "g", "max.poll.records": -5, "linger.ms": 3},
            fetch_min_bytes="many",
        )
    assert str(caught.value).splitlines() == [
        "5 mistakes in the consumer's settings:",
        "- unknown consumer configuration key 'bootstrap.server': did you mean 'bootstrap.servers'?",
        "- unknown consumer configuration key 'grup.id': did you mean 'group.id'?",
        "- max.poll.records: -5 is not at least 1, -1 or auto",
        "- 'linger.ms' is a key of the producer, not of the consumer",
        "- fetch_min_bytes: 'many' is not a whole number >= 0",
    ]


def test_every_contradiction_in_the_settings_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        ConsumerConfig.parse(
            {"bootstrap.servers": "b:9092,c", "group.instance.id": "i", "session.timeout.ms": 6_000},
            heartbeat_interval_ms=6_000,
        )
    assert str(caught.value).splitlines() == [
        "3 mistakes in the consumer's settings:",
        "- bootstrap.servers: 'c' is not host:port, e.g. 'localhost:9092'",
        "- heartbeat.interval.ms (6000) must be below session.timeout.ms (6000); a third of it is usual",
        "- group.instance.id needs group.id",
    ]


def test_a_dead_bootstrap_address_does_not_stand_in_the_way_of_a_live_one(broker: Broker) -> None:
    broker.create_topic("t", 1)
    with Consumer(bootstrap_servers=f"127.0.0.1:1,{broker.bootstrap_servers}") as consumer:
        assert "t" in consumer.list_topics(timeout=10)
