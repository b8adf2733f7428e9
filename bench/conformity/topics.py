"""Topics of the parity checks, made on real Kafka by another client, and what happens to them between two runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

__all__ = ["ACTIONS", "SETUPS", "START", "World"]

SECONDS: Final = 60.0
START: Final = 1_700_000_000_000
"""The time of record 0 of a partition, ms since 1970; each next one is a second later."""


class World:
    """One Kafka, and words to change it with."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": bootstrap_servers})

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        # The records' times are long ago: Kafka would delete them when it next looks, within five minutes.
        named = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
        (future,) = self.admin.create_topics([NewTopic(topic, partitions, 1, config=named)]).values()
        future.result(SECONDS)

    def grow(self, topic: str, partitions: int) -> None:
        (future,) = self.admin.create_partitions([NewPartitions(topic, partitions)]).values()
        future.result(SECONDS)

    def delete(self, topic: str) -> None:
        """Until it is gone, so that one of its name can be made."""
        (future,) = self.admin.delete_topics([topic]).values()
        future.result(SECONDS)
        self.wait_until(lambda: self.partitions(topic) == 0)

    def partitions(self, topic: str) -> int:
        """How many the topic has; 0: there is no such topic."""
        found = self.admin.list_topics(timeout=SECONDS).topics.get(topic)
        return 0 if found is None else len(found.partitions)

    def delete_below(self, topic: str, partition: int, offset: int) -> None:
        """Repeat it while the client still asks the leader of a deleted topic of the same name."""

        def done() -> bool:
            (future,) = self.admin.delete_records([TopicPartition(topic, partition, offset)]).values()
            try:
                future.result(SECONDS)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_LEADER_FOR_PARTITION:
                    raise
                return False
            return True

        self.wait_until(done)

    def produce(
        self,
        topic: str,
        numbers: Sequence[int],
        partition: int,
        *,
        size: int = 0,
        time_of: Callable[[int], int] = lambda number: START + 1000 * number,
        settings: dict[str, Any] | None = None,
    ) -> None:
        """A record for each number; every 7th has no key, every 11th no value, every 5th headers."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5, **(settings or {})})
        for number in numbers:
            headers: list[tuple[str, str | bytes | None]] = []
            if number % 5 == 0:
                headers = [("h", str(number).encode()), ("h", None), ("", b"")]
            producer.produce(
                topic,
                None if number % 11 == 10 else f"value-{number}".encode().ljust(size, b"."),
                None if number % 7 == 6 else f"key-{number % 9}".encode(),
                partition=partition,
                timestamp=time_of(number),
                headers=headers,
            )
        producer.flush(SECONDS)

    def transactions(self, topic: str, numbers: Sequence[Sequence[int]], *, fates: Sequence[bool]) -> None:
        """One transaction for each part of the numbers, committed or aborted; ends when its markers are there."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap_servers, "transactional.id": f"{topic}-{time.time()}"}
        )
        producer.init_transactions(SECONDS)
        for part, fate in zip(numbers, fates, strict=True):
            after = self.end(topic, 0) + len(part) + 1
            producer.begin_transaction()
            for number in part:
                producer.produce(
                    topic, f"value-{number}".encode(), b"k", partition=0, timestamp=START + number
                )
            producer.flush(SECONDS)  # an abort drops what was not sent
            (producer.commit_transaction if fate else producer.abort_transaction)(SECONDS)
            self.wait_until(partial(self._ends_at, topic, after))

    def _ends_at(self, topic: str, offset: int) -> bool:
        return self.end(topic, 0) == offset

    def end(self, topic: str, partition: int) -> int:
        reader = self._reader()
        try:
            _, high = reader.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)
            return int(high)
        finally:
            reader.close()

    def records(self, topic: str, partition: int) -> int:
        """How many there are to read, which compaction makes fewer than the offsets."""
        reader = self._reader()
        try:
            end = reader.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)[1]
            reader.assign([TopicPartition(topic, partition, 0)])
            count, at = 0, 0
            while at < end:
                for message in reader.consume(1000, 1.0):
                    if message.error() is None:
                        count += 1
                (position,) = reader.position([TopicPartition(topic, partition)])
                at = max(at, position.offset)
            return count
        finally:
            reader.close()

    def time_of(self, topic: str, partition: int, offset: int) -> int:
        reader = self._reader()
        try:
            reader.assign([TopicPartition(topic, partition, offset)])
            message = reader.poll(SECONDS)
            assert message is not None
            return int(message.timestamp()[1])
        finally:
            reader.close()

    def _reader(self) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "parity",
                "enable.auto.commit": False,
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "earliest",
            }
        )

    @staticmethod
    def wait_until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit("the cluster did not become what a check needs")
            time.sleep(0.1)


def plain(world: World, topic: str) -> dict[str, int]:
    """Three partitions of 100, 80 and 60 records, a second apart."""
    world.create(topic, 3)
    for partition in range(3):
        world.produce(topic, range(100 - 20 * partition), partition)
    return {"t50": START + 50_000, "t70": START + 70_000, "late": START + 10_000_000}


def empty(world: World, topic: str) -> dict[str, int]:
    world.create(topic, 2)
    return {}


def sparse(world: World, topic: str) -> dict[str, int]:
    """Four partitions, two of them empty."""
    world.create(topic, 4)
    for partition in (1, 3):
        world.produce(topic, range(20), partition)
    return {"t10": START + 10_000}


def compressed(world: World, topic: str) -> dict[str, int]:
    """A partition for each codec, and one in which all of them follow each other."""
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    world.create(topic, 6)
    for partition, codec in enumerate(codecs):
        world.produce(topic, range(60), partition, size=200, settings={"compression.type": codec})
        world.produce(topic, range(20), 5, size=200, settings={"compression.type": codec})
    return {}


def disordered(world: World, topic: str) -> dict[str, int]:
    """Times that go up and down."""
    world.create(topic, 1)
    world.produce(topic, range(100), 0, time_of=lambda number: START + 1000 * ((number * 37) % 100))
    return {"t50": START + 50_000, "t90": START + 90_000}


def appended(world: World, topic: str) -> dict[str, int]:
    """Times of the broker."""
    world.create(topic, 1, message_timestamp_type="LogAppendTime")
    for number in range(0, 60, 20):
        world.produce(topic, range(number, number + 20), 0)
    return {"middle": world.time_of(topic, 0, 30)}


def transactional(world: World, topic: str) -> dict[str, int]:
    """Committed, aborted, committed; the log ends with markers and no record."""
    world.create(topic, 1)
    parts = (range(20), range(20, 35), range(35, 50), range(50, 55))
    world.transactions(topic, parts, fates=(True, False, True, False))
    return {}


def compacted(world: World, topic: str) -> dict[str, int]:
    """Most of the offsets have lost their record."""
    world.create(
        topic,
        1,
        cleanup_policy="compact",
        segment_bytes="1048576",
        segment_ms="100",
        min_cleanable_dirty_ratio="0.01",
    )
    for start in range(0, 90, 30):
        world.produce(topic, range(start, start + 30), 0)
        time.sleep(0.2)  # the next batch rolls the segment
    world.wait_until(lambda: world.records(topic, 0) < 60)
    return {}


def large(world: World, topic: str) -> dict[str, int]:
    """Records near a megabyte, beyond what one fetch brings of a partition."""
    world.create(topic, 1)
    world.produce(topic, [1, 2, 3, 4, 5, 7, 8], 0, size=900_000)
    return {}


def one(world: World, topic: str) -> dict[str, int]:
    world.create(topic, 1)
    world.produce(topic, range(100), 0)
    return {"t30": START + 30_000}


def gap(world: World, topic: str) -> dict[str, int]:
    """The first 40 records of partition 0 were deleted."""
    plain(world, topic)
    world.delete_below(topic, 0, 40)
    return {"t10": START + 10_000}


def pair(world: World, topic: str) -> dict[str, int]:
    """Two topics whose names have a part in common, ``...-a1`` and ``...-b2``."""
    for name in ("a1", "b2"):
        world.create(f"{topic}-{name}", 2)
        for partition in range(2):
            world.produce(f"{topic}-{name}", range(15), partition)
    return {}


SETUPS: Final[dict[str, Callable[[World, str], dict[str, int]]]] = {
    made.__name__: made
    for made in (
        plain,
        empty,
        sparse,
        compressed,
        disordered,
        appended,
        transactional,
        compacted,
        large,
        one,
        gap,
        pair,
    )
}


def more(world: World, topic: str) -> None:
    world.produce(topic, range(1000, 1030), 0)


def growth(world: World, topic: str) -> None:
    """A partition more, with records."""
    world.grow(topic, 4)
    world.wait_until(lambda: len(world.admin.list_topics(topic, SECONDS).topics[topic].partitions) == 4)
    world.produce(topic, range(2000, 2020), 3)


def third(world: World, topic: str) -> None:
    """One more topic of the same kind."""
    world.create(f"{topic}-c3", 1)
    world.produce(f"{topic}-c3", range(12), 0)


def retention(world: World, topic: str) -> None:
    """Records that nobody has read are deleted."""
    world.produce(topic, range(1000, 1030), 0)
    world.delete_below(topic, 0, world.end(topic, 0) - 10)


def another_transaction(world: World, topic: str) -> None:
    world.transactions(topic, (range(60, 70), range(70, 75)), fates=(False, True))


ACTIONS: Final[dict[str, Callable[[World, str], None]]] = {
    act.__name__: act for act in (more, growth, third, retention, another_transaction)
}
