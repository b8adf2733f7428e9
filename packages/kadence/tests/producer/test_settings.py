"""What a producer's settings do to its records: serialisers, partitioners, compression levels, retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from tests.patience import PATIENCE
from tests.producer.reading import read_all
from tests.worlds.producer import World

from kadence import (
    AsyncProducer,
    Broker,
    Consumer,
    Producer,
    RecordTooLargeError,
    SerializationError,
    TopicPartition,
)
from kadence._native.append import TopicInfo
from kadence.config import ProducerConfig
from kadence.errors import ConfigError, IllegalStateError
from kadence.producer.partitioner import StickyPartitioner
from kadence.producer.partitioning import chooser
from kadence.protocol import error_codes as ec
from kadence.records import BatchHeader

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}


@pytest.fixture
def servers(broker: Broker) -> str:
    broker.create_topic("t", 4)
    return broker.bootstrap_servers


# ------------------------------------------------------------ serialisers


def test_records_are_serialised_and_read_back(servers: str) -> None:
    with Producer(bootstrap_servers=servers, key_serializer="string", value_serializer="json") as producer:
        for number in range(50):
            producer.send("t", {"number": number}, f"key {number % 5}")
        producer.send("t", None, "tombstone")
        last = producer.send("t", {"number": 50}, headers={"a": b"1"}, partition=3)
        assert last.result(PATIENCE).partition == 3
    with Consumer(
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        key_deserializer="string",
        value_deserializer="json",
    ) as consumer:
        ends = consumer.end_offsets([TopicPartition("t", each) for each in range(4)])
        consumer.assign({partition: (0, end) for partition, end in ends.items()})
        found = {
            (record.key, None if record.value is None else record.value["number"]) for record in consumer
        }
    assert found == {
        *((f"key {number % 5}", number) for number in range(50)),
        ("tombstone", None),
        (None, 50),
    }


def test_serialised_keys_choose_partitions_by_their_bytes(servers: str) -> None:
    with (
        Producer(bootstrap_servers=servers, key_serializer="string") as producer,
        Producer(bootstrap_servers=servers) as plain,
    ):
        for number in range(20):
            one = producer.send("t", b"", f"{number}").result(PATIENCE)
            assert plain.send("t", b"", b"%d" % number).result(PATIENCE).partition == one.partition


def test_a_serialiser_that_asks_where_the_record_goes(servers: str) -> None:
    seen: list[tuple[str, Any, Any]] = []

    class Own:
        def serialize(self, topic: str, headers: Sequence[tuple[str, bytes | None]], data: Any) -> bytes:
            seen.append((topic, list(headers), data))
            return b"x"

    with Producer(bootstrap_servers=servers, value_serializer=Own()) as producer:
        producer.send("t", 5, headers={"a": b"1"}).result(PATIENCE)
        producer.send("t", 6).result(PATIENCE)
        producer.send("t").result(PATIENCE)
    assert seen == [("t", [("a", b"1")], 5), ("t", [], 6)], "once for each record, never for None"


@pytest.mark.parametrize(
    ("settings", "record", "says"),
    [
        (
            {"value.serializer": "json"},
            {"value": {1}},
            "the value of a record for topic 't' cannot be serialised",
        ),
        ({"key.serializer": "long"}, {"key": "no"}, "the key of a record for topic 't' cannot be serialised"),
        ({"key.serializer": str}, {"key": 5}, "key.serializer made str of the key of a record for topic 't'"),
    ],
)
def test_a_serialiser_that_fails_is_told_with_topic_and_field(
    servers: str, settings: dict[str, Any], record: dict[str, Any], says: str
) -> None:
    with Producer({"bootstrap.servers": servers, **settings}) as producer:
        with pytest.raises(SerializationError, match=says) as caught:
            producer.send("t", **record)
        assert isinstance(caught.value.__cause__, Exception) != (says.startswith("key.serializer"))
        producer.send("t").result(PATIENCE)


def test_what_a_serialiser_makes_is_what_limits_count(servers: str) -> None:
    with (
        Producer(
            bootstrap_servers=servers, value_serializer=lambda count: b"x" * count, max_request_size=1_000
        ) as it,
        pytest.raises(RecordTooLargeError),
    ):
        it.send("t", 2_000)


def test_an_asyncio_producer_serialises_too(servers: str) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=servers, value_serializer="json") as producer:
            futures = [await producer.send("t", {"n": each}, partition=0) for each in range(100)]
            assert [each.offset for each in await asyncio.gather(*futures)] == list(range(100))
            with pytest.raises(SerializationError):
                await producer.send("t", {1})

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


# ------------------------------------------------------------ partitioners

HASHES = ["murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a"]


@pytest.mark.parametrize("name", HASHES)
def test_keys_go_where_librdkafka_puts_them(broker: Broker, name: str) -> None:
    broker.create_topic("theirs", 7)
    broker.create_topic("ours", 7)
    keys: list[bytes | None] = [b"", b"\xff" * 9, "grüß".encode(), *(b"key-%d" % each for each in range(60))]
    if name == "consistent_random":
        keys.remove(b"")
    if "random" not in name:
        keys.append(None)
    theirs = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": name})
    placed: dict[bytes | None, int] = {}

    def delivered(error: object, message: confluent_kafka.Message) -> None:
        assert error is None
        partition = message.partition()
        assert partition is not None
        placed[message.key()] = partition

    for key in keys:
        theirs.produce("theirs", b"", key, on_delivery=delivered)
    assert theirs.flush(PATIENCE) == 0
    with Producer(bootstrap_servers=broker.bootstrap_servers, partitioner=name) as producer:
        futures = {key: producer.send("ours", b"", key) for key in keys}
        assert {key: future.result(PATIENCE).partition for key, future in futures.items()} == placed


def place(count: int, available: tuple[int, ...] | None = None) -> TopicInfo:
    partitions = tuple(TopicPartition("t", each) for each in range(count))
    sticky = StickyPartitioner(1)
    return TopicInfo((), partitions, tuple(range(count)) if available is None else available, sticky)


def chosen(setting: Any, keys: Sequence[bytes | None], where: TopicInfo) -> list[int | None]:
    choose = chooser(ProducerConfig.parse(BOOTSTRAP, partitioner=setting))
    assert choose is not None
    return [choose("t", key, where) for key in keys]


def test_round_robin_goes_through_the_partitions_with_a_leader() -> None:
    java = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    assert chosen(java, [b"k", None, b"k", b"k"], place(4, (0, 2, 3))) == [0, 2, 3, 0]
    assert chosen("round_robin", [b"k"] * 3, place(2, ())) == [0, 1, 0]


def test_keys_can_be_ignored(servers: str) -> None:
    assert chosen("random", [b"k", None], place(4)) == [None, None]
    with Producer(bootstrap_servers=servers, partitioner_ignore_keys=True, linger_ms=10_000) as producer:
        futures = [producer.send("t", b"", b"%d" % each) for each in range(20)]
    assert len({future.result(PATIENCE).partition for future in futures}) == 1, "they fill one batch"
    with pytest.raises(ConfigError, match="contradict each other"):
        ProducerConfig.parse(BOOTSTRAP, partitioner_ignore_keys=True, partitioner="consistent")


def test_a_function_of_ones_own_is_called_as_kafka_python_calls_it(servers: str) -> None:
    seen: list[Any] = []

    def last(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int | None:
        seen.append((key, list(partitions), list(available)))
        return None if key is None else partitions[-1]

    with Producer(bootstrap_servers=servers, partitioner=last) as producer:
        assert producer.send("t", b"", b"k").result(PATIENCE).partition == 3
        assert producer.send("t", b"", b"k", partition=1).result(PATIENCE).partition == 1
        producer.send("t", b"").result(PATIENCE)
    assert seen == [(b"k", [0, 1, 2, 3], [0, 1, 2, 3]), (None, [0, 1, 2, 3], [0, 1, 2, 3])]


def test_a_function_that_chooses_what_is_not_there(servers: str) -> None:
    with (
        Producer(bootstrap_servers=servers, partitioner=lambda key, *_: 4) as producer,
        pytest.raises(ValueError, match="chose partition 4 of topic 't', which has 4"),
    ):
        producer.send("t", b"")


def test_what_is_no_partitioner_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a callable, or one of murmur2_random, murmur2"):
        ProducerConfig.parse(BOOTSTRAP, partitioner="murmur3")


def test_tables_name_their_partitions_where_the_partitioner_is_another_one(servers: str) -> None:
    with Producer(bootstrap_servers=servers, partitioner="consistent_random") as producer:
        with pytest.raises(IllegalStateError, match="give each row its partition"):
            producer.send_arrow(pa.table({"key": [b"k"], "value": [b"v"]}), "t")
        table = pa.table({"key": [b"k"], "value": [b"v"], "partition": [2]})
        assert producer.send_arrow(table, "t").result(PATIENCE).rows == 1
    assert read_all(servers, "t", 4, 1)[0].partition() == 2


# ------------------------------------------------------------ compression levels, retries


@pytest.mark.parametrize(("compression", "highest"), [("gzip", 9), ("lz4", 12), ("zstd", 22)])
def test_a_level_compresses_harder(compression: str, highest: int) -> None:
    sizes = []
    words = random.Random(1).choices([b"%d" % (number**3) for number in range(500)], k=8_000)
    for level in (1, highest):
        world = World(compression_type=compression, compression_level=level)
        world.warm_up()
        world.append(b" ".join(words))
        [request] = world.turn()
        [topic] = request.message.topic_data
        sizes.append(len(topic.partition_data[0].records))
        assert BatchHeader.parse(topic.partition_data[0].records).compression != 0
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize(
    ("compression", "level", "says"),
    [
        ("gzip", 10, "compression.level=10 is not 1 to 9, the levels of compression.type=gzip"),
        ("lz4", 0, "is not 1 to 12"),
        ("snappy", 1, "compression.level means nothing with compression.type=snappy"),
        ("none", 3, "means nothing with compression.type=none"),
    ],
)
def test_levels_that_there_are_not(compression: str, level: int, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ProducerConfig.parse(BOOTSTRAP, compression_type=compression, compression_level=level)
    unset = ProducerConfig.parse(BOOTSTRAP, compression_type=compression, compression_level=-1)
    assert unset.compression_type == compression


def test_retries_end_before_the_time_does() -> None:
    world = World(retries=2)
    world.warm_up()
    future = world.append()
    for _ in range(3):
        assert not future.done()
        [request] = world.turn()
        world.acknowledge(request, code=ec.NOT_ENOUGH_REPLICAS)
        world.advance(2_000)
    error = future.exception(0)
    assert error is not None
    assert "NOT_ENOUGH_REPLICAS" in str(error)
    assert "it was sent 3 times, the most that retries=2 allows" in error.__notes__
    later = world.append()
    [request] = world.turn()
    world.acknowledge(request)
    assert later.exception(0) is None, "the partition goes on"


@pytest.mark.parametrize(("linger", "ms"), [(0.5, 1), ("0.5", 1), (0, 0), ("5", 5), (5.0, 5), (7.2, 8)])
def test_a_linger_may_be_a_fraction(linger: float | str, ms: int) -> None:
    assert ProducerConfig.parse(BOOTSTRAP, linger_ms=linger).linger_ms == ms


@pytest.mark.parametrize("linger", [-0.5, float("nan"), float("inf"), "soon", True])
def test_a_linger_that_is_no_time_is_refused(linger: Any) -> None:
    with pytest.raises(ConfigError, match=r"linger_ms: .* is not a number >= 0"):
        ProducerConfig.parse(BOOTSTRAP, linger_ms=linger)


@pytest.mark.parametrize(
    ("given", "cause"), [({"acks": "1"}, "acks=1"), ({"acks": 0}, "acks=0"), ({"retries": 0}, "retries=0")]
)
def test_settings_that_turn_idempotence_off_are_told(
    given: Any, cause: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "kadence.producer"):
        assert not ProducerConfig.parse(BOOTSTRAP, **given).enable_idempotence
    assert [f"{cause} turns enable.idempotence off" in message for message in caplog.messages] == [True]
    caplog.clear()
    ProducerConfig.parse(BOOTSTRAP, enable_idempotence=False, **given)
    assert not caplog.messages, "it was said by whoever made the settings"


def test_without_retries_there_is_no_idempotence() -> None:
    assert not ProducerConfig.parse(BOOTSTRAP, retries=0).enable_idempotence
    with pytest.raises(ConfigError, match=r"enable\.idempotence needs retries above 0"):
        ProducerConfig.parse(BOOTSTRAP, retries=0, enable_idempotence=True)
