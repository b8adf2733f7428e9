"""Records: every field of the answers that take them in and give them out, beside real Apache Kafka's."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest
from tests.broker.wire import at, fetch
from tests.interop.fields import UNKNOWN_ID, Scenario, Talk, assert_same
from tests.protocol.real_requests import IS_4_3

from kadence.protocol.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kadence.protocol.describe_producers import DescribeProducersRequest
from kadence.protocol.describe_producers import TopicRequest as ProducersOf
from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.records import encode_batch
from kadence_testing.kafka import Kafka

HOUR = 3_600_000


def batch(count: int = 1, timestamp: int = 1_000, **options: Any) -> bytes:
    return encode_batch([(timestamp + each, b"k", b"v", ()) for each in range(count)], **options)


def produce(
    talk: Talk,
    topic: str,
    *parts: tuple[int, bytes | None],
    version: int = 12,
    acks: int = -1,
    transactional_id: str | None = None,
) -> None:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(*each) for each in parts])
    if version >= 13:
        data.topic_id = talk.topic_id(topic)
    # Of most errors Kafka says no words.
    talk.ask(ProduceRequest(transactional_id, acks, 5_000, [data]), version, without=("error_message",))


def producing(talk: Talk) -> None:
    topic = talk.topic(3)
    for version in range(3, 14):
        for acks in (-1, 1):
            produce(talk, topic, (0, batch()), (1, batch(2)), version=version, acks=acks)
        produce(talk, topic, (0, batch()), (9, batch()), (-1, batch()), version=version)
        produce(talk, topic, (0, b""), (1, batch()), version=version)
        produce(talk, topic, (0, batch()), version=version, acks=2)
        produce(talk, topic, (0, batch()), version=version, acks=-2)
        produce(talk, topic, version=version)
        produce(talk, topic, (0, batch(timestamp=int(time.time() * 1000) + 2 * HOUR)), version=version)
        if version < 13:
            produce(talk, "no-such-topic", (0, batch()), version=version)
            produce(talk, "", (0, batch()), version=version)
            produce(talk, "a/b", (0, batch()), version=version)
    talk.ask(ProduceRequest(None, -1, 5_000, []))
    for topic_id in (UNKNOWN_ID, bytes(16)):
        data = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(0, batch())])
        talk.ask(ProduceRequest(None, -1, 5_000, [data]))


def producing_by_the_topics_settings(talk: Talk) -> None:
    now = int(time.time() * 1000)
    small = talk.topic(kind="small", max_message_bytes="100")
    for data in (batch(), batch(5), encode_batch([(0, None, bytes(200), ())])):
        produce(talk, small, (0, data))
        produce(talk, small, (0, data), version=8)
    strict = talk.topic(
        kind="strict",
        message_timestamp_before_max_ms=str(HOUR),
        message_timestamp_after_max_ms=str(HOUR),
    )
    for dates in (
        [now],
        [now - 2 * HOUR],
        [now + 2 * HOUR],
        [now, now - 2 * HOUR, now + 2 * HOUR],
        [-1],
        [0],
    ):
        made = encode_batch([(date, None, b"v", ()) for date in dates])
        produce(talk, strict, (0, made))
        produce(talk, strict, (0, made), version=7)
    stamped = talk.topic(kind="stamped", message_timestamp_type="LogAppendTime")
    produce(talk, stamped, (0, batch()))
    produce(talk, stamped, (0, batch(timestamp=now + 2 * HOUR)))
    compact = talk.topic(kind="plain")
    produce(talk, compact, (0, encode_batch([(0, None, None, ())])))
    for name in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        packed = talk.topic(kind=name, compression_type=name)
        produce(talk, packed, (0, batch(3)))
        talk.ask(fetch(packed, at(0)), 12, without=("records",))
    keyed = talk.topic(kind="keyed", cleanup_policy="compact")
    for key in (None, b"k"):
        produce(talk, keyed, (0, encode_batch([(now, b"k", b"v", ()), (now, key, b"v", ())])))
    for kind, policy in (("compacted", "compact"), ("both", "compact,delete")):
        kept = talk.topic(kind=kind, cleanup_policy=policy)
        produce(talk, kept, (0, encode_batch([(now, b"k", b"v", ())])))
        asked = DeleteRecordsTopic(kept, [DeleteRecordsPartition(0, 1)])
        talk.ask(DeleteRecordsRequest([asked], 5_000))
    bound = {} if IS_4_3 else {"max_decompressed_message_bytes": "107"}
    narrow = talk.topic(1, "narrow", **bound)
    for length in (100,) if IS_4_3 else (100, 101, 1_000):
        for name in ("none", "gzip", "snappy", "lz4", "zstd"):
            both = [(now, None, bytes(each), ()) for each in (100, length)]
            produce(talk, narrow, (0, encode_batch(both, compression=name)))
    for name in ("gzip", "snappy", "lz4", "zstd"):
        produce(talk, compact, (0, batch(3, compression=name)), version=6)
        produce(talk, compact, (0, batch(3, compression=name)))
    talk.ask(fetch(compact, at(0)), 12)


def producing_in_silence(talk: Talk) -> None:
    """A producer that wants no answer hears of an error by losing its connection."""
    topic = talk.topic()

    def send(version: int, data: bytes | None, name: str = topic, partition: int = 0) -> None:
        part = TopicProduceData(name=name, partition_data=[PartitionProduceData(partition, data)])
        talk.wire.send(ProduceRequest(None, 0, 5_000, [part]), version, expect=False)
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])
        talk.ask(ListOffsetsRequest(-1, topics=[asked]), 7)

    for version in (3, 7, 12):
        send(version, batch())
        send(version, batch(2))
        send(version, b"")
        send(version, batch()[:-1])
        send(version, batch(), "no-such-topic")
        send(version, batch(), topic, 9)
        send(version, batch(producer_id=5, producer_epoch=0, base_sequence=-1))


def producing_damage(talk: Talk) -> None:
    topic = talk.topic()
    good = batch(2)

    def changed(place: int, form: str, value: int, data: bytes = good) -> bytes:
        copy = bytearray(data)
        struct.pack_into(form, copy, place, value)
        return bytes(copy)

    cases = [
        good[:10], good[:-1], good + b"\0", good + good, good + good[:20], changed(0, ">q", 5), changed(8, ">i", 5),
        changed(8, ">i", -1), changed(12, ">i", 7), changed(16, ">b", 0),
        changed(16, ">b", 1), changed(16, ">b", 3), changed(16, ">b", -1), changed(17, ">I", 0), changed(57, ">i", 3),
        changed(-1, ">b", 9), b"\0" * 70, b"\xff" * 70,
    ]  # fmt: skip
    for version in (3, 9, 12):
        for data in cases:
            produce(talk, topic, (0, data), version=version)
        produce(talk, topic, (0, batch(control=True)), version=version)
        for options in (
            {"producer_id": 5}, {"producer_id": 5, "producer_epoch": 0}, {"producer_epoch": 3}, {"base_sequence": 3},
            {"producer_id": -5, "producer_epoch": 0, "base_sequence": 0}, {"transactional": True},
            {"transactional": True, "producer_id": 5, "producer_epoch": 0, "base_sequence": 0}, {"base_offset": 7},
            {"leader_epoch": 9}, {"append_time": 5},
        ):  # fmt: skip
            produce(talk, topic, (0, batch(**options)), version=version)
        produce(talk, topic, (0, batch()), version=version, transactional_id="nobody")
        produce(talk, topic, (0, batch()), version=version, transactional_id="")
    talk.ask(fetch(topic, at(0)), 12)


def idempotent(talk: Talk) -> None:
    topic = talk.topic(2)
    for sequence, count, epoch, producer in (
        (0, 1, 0, 7_000_001), (1, 2, 0, 7_000_001), (1, 2, 0, 7_000_001), (1, 1, 0, 7_000_001), (4, 1, 0, 7_000_001),
        (3, 1, 1, 7_000_001), (0, 1, 1, 7_000_001), (0, 1, 1, 7_000_001), (1, 1, 0, 7_000_001), (5, 1, 0, 7_000_002),
        (2**31 - 1, 1, 0, 7_000_003), (0, 2, 0, 7_000_003), (2, 1, 0, 7_000_003), (0, 1, 32_767, 7_000_004),
        (0, 1, -1, 7_000_005),
    ):  # fmt: skip
        made = batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        produce(talk, topic, (0, made))

    def producers(name: str, *indexes: int) -> None:
        # Kafka tells the date of the last record, we when it came.
        request = DescribeProducersRequest([ProducersOf(name, list(indexes))])
        talk.ask(request, without=("last_timestamp",))

    producers(topic, 0, 1)
    producers(topic, 9, -1)
    producers(topic, 0, 0)
    producers(topic)
    producers("no-such-topic", 0)
    producers("a/b", 0)
    producers("", 0)
    talk.ask(DescribeProducersRequest([]))
    twice = DescribeProducersRequest([ProducersOf(topic, [0]), ProducersOf(topic, [0])])
    talk.ask(twice, without=("last_timestamp",))


def filled(talk: Talk, kind: str = "topic") -> str:
    topic = talk.topic(2, kind)
    for size in (1, 2, 3):
        talk.wire.produce(topic, [b"v" * 10] * size)
    talk.wire.produce(topic, [b"w"], 1)
    return topic


def fetching(talk: Talk) -> None:
    topic, other = filled(talk), filled(talk, "other")

    def named(name: str, *partitions: FetchPartition, version: int) -> FetchTopic:
        if version < 13:
            return FetchTopic(topic=name, partitions=list(partitions))
        return FetchTopic(topic_id=talk.topic_id(name), partitions=list(partitions))

    def ask(version: int, *topics: FetchTopic, **options: Any) -> None:
        talk.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=list(topics), **options), version)

    for version in range(4, 19):
        ask(version, named(topic, at(0), at(0, 1), version=version))
        ask(version, named(topic, at(0), version=version), named(other, at(3), version=version))
        ask(version, named(topic, at(0, 9), at(0, -1), at(99), at(-5), version=version))
        ask(version, named(topic, at(6), version=version), isolation_level=1)
        ask(version, named(topic, at(0), version=version), isolation_level=1)
        ask(version)
        if version >= 9:
            for epoch in (0, 1, 2**31 - 1, -5):
                ask(version, named(topic, at(0, current_leader_epoch=epoch), version=version))
        if version >= 11:
            ask(version, named(topic, at(0), version=version), rack_id="a")
        if version < 13:
            missing = [FetchTopic(topic=name, partitions=[at(0)]) for name in ("no-such-topic", "", "a/b")]
        else:
            missing = [FetchTopic(topic_id=each, partitions=[at(0)]) for each in (UNKNOWN_ID, bytes(16))]
        for each in missing:
            ask(version, each)
            ask(version, each, named(topic, at(0), version=version))
    ask(12, named(topic, at(0), at(3), version=12))
    ask(12, named(topic, at(0), version=12), named(topic, at(3), version=12))
    ask(12, named(topic, version=12))
    ask(13, named(topic, at(0), at(3), version=13))
    for epoch in (0, 1, -2):
        ask(12, named(topic, at(3, last_fetched_epoch=epoch), version=12))
    ask(12, named(topic, at(0), version=12), cluster_id="another")


def fetching_little(talk: Talk) -> None:
    topic = filled(talk)

    def ask(*partitions: FetchPartition, **options: Any) -> None:
        options = {"max_wait_ms": 0, "min_bytes": 1, **options}
        talk.ask(FetchRequest(topics=[FetchTopic(topic=topic, partitions=list(partitions))], **options), 12)

    for limit in (0, 1, 90, 91, 200, 2**31 - 1):
        ask(at(0, max_bytes=limit), at(0, 1, max_bytes=limit))
        ask(at(0), at(0, 1), max_bytes=limit)
        ask(at(0, max_bytes=limit), at(0, 1, max_bytes=limit), max_bytes=limit)
        ask(at(0, 1), at(0), max_bytes=limit)
    for wait, least in ((0, 0), (0, -1), (0, 2**31 - 1), (5, 2**31 - 1), (-1, 1), (5, 0), (-1, 2**31 - 1)):
        ask(at(0), max_wait_ms=wait, min_bytes=least)
        ask(at(6), max_wait_ms=wait, min_bytes=least)
    ask(at(2))
    ask(at(4), max_bytes=1)


def fetching_as_a_replica(talk: Talk) -> None:
    topic = filled(talk)
    by_name = FetchTopic(topic=topic, partitions=[at(0)])
    by_id = FetchTopic(topic_id=talk.topic_id(topic), partitions=[at(0)])
    for replica in (-2, -3):
        talk.ask(FetchRequest(replica, topics=[by_name]), 12)
        talk.ask(FetchRequest(replica, topics=[by_id]), 14)
    for state in (ReplicaState(-2, -1), ReplicaState(-3, 5)):
        talk.ask(FetchRequest(replica_state=state, topics=[by_id]), 15)


def sessions(talk: Talk) -> None:
    topic = filled(talk)
    for version in (7, 12, 13, 18):
        name: dict[str, Any] = {"topic": topic} if version < 13 else {"topic_id": talk.topic_id(topic)}

        def ask(
            session: int,
            epoch: int,
            *partitions: FetchPartition,
            forget: list[int] | None = None,
            version: int = version,
            name: dict[str, Any] = name,
        ) -> int:
            asked = [FetchTopic(partitions=list(partitions), **name)] if partitions else []
            forgotten = [ForgottenTopic(partitions=forget, **name)] if forget else []
            request = FetchRequest(
                session_id=session,
                session_epoch=epoch,
                min_bytes=1,
                topics=asked,
                forgotten_topics_data=forgotten,
            )
            answer = talk.ask(request, version)
            return int(answer.session_id)

        opened = ask(0, 0, at(0), at(1, 1), at(0, 9))
        ask(opened, 1)
        ask(opened, 2, at(6), at(99, 1))
        ask(opened, 3)
        ask(opened, 3)
        ask(opened, 5)
        ask(opened, -2)
        ask(opened, 4, forget=[1, 7])
        ask(opened, 5, at(6), forget=[9])
        ask(opened, 6, forget=[0])
        ask(opened, 7)
        ask(12_345, 1)
        ask(-1, 1)
        ask(0, 1)
        ask(0, 5, at(0))
        ask(0, -2)
        ask(12_345, -1, at(0))
        ask(0, 0)
        opened = ask(0, 0, at(0))
        ask(opened, 0, at(6))
        ask(opened, 1)
        opened = ask(0, 0, at(0))
        ask(opened, -1, at(0))
        ask(opened, 1)


def sessions_by_name_and_id(talk: Talk) -> None:
    topic = filled(talk)
    by_name = FetchTopic(topic=topic, partitions=[at(6)])
    by_id = FetchTopic(topic_id=talk.topic_id(topic), partitions=[at(6)])
    opened = talk.ask(FetchRequest(session_epoch=0, topics=[by_name]), 12).session_id
    talk.ask(FetchRequest(session_id=opened, session_epoch=1), 13)
    talk.ask(FetchRequest(session_id=opened, session_epoch=1), 12)
    opened = talk.ask(FetchRequest(session_epoch=0, topics=[by_id]), 13).session_id
    talk.ask(FetchRequest(session_id=opened, session_epoch=1), 12)
    talk.ask(FetchRequest(session_id=opened, session_epoch=2), 13)
    unknown = FetchTopic(topic_id=UNKNOWN_ID, partitions=[at(0)])
    opened = talk.ask(FetchRequest(session_epoch=0, topics=[by_id, unknown]), 13).session_id
    for epoch in (1, 2):
        talk.ask(FetchRequest(session_id=opened, session_epoch=epoch), 13)
    forgotten = ForgottenTopic(topic_id=UNKNOWN_ID, partitions=[0])
    talk.ask(FetchRequest(session_id=opened, session_epoch=3, forgotten_topics_data=[forgotten]), 13)


def offsets(talk: Talk) -> None:
    topic = talk.topic(2)
    for timestamp in (100, 300, 200):
        talk.wire.produce(topic, [b"v"] * 2, timestamp=timestamp)

    def ask(
        version: int,
        *partitions: tuple[int, int, int],
        name: str = topic,
        isolation: int = 0,
        replica: int = -1,
    ) -> None:
        asked = [ListOffsetsPartition(*each) for each in partitions]
        topics = [ListOffsetsTopic(name, asked)]
        talk.ask(ListOffsetsRequest(replica, isolation, topics, 1_000), version)

    for version in range(1, 12):
        for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, 100, 101, 300, 301, 2**63 - 1, -(2**63)):
            ask(version, (0, -1, timestamp), (1, -1, timestamp))
        ask(version, (9, -1, -1), (-1, -1, -1))
        ask(version, name="no-such-topic")
        for name in ("no-such-topic", "", "a/b"):
            ask(version, (0, -1, -1), name=name)
        if version >= 2:
            ask(version, (0, -1, -1), isolation=1)
            ask(version, (0, -1, 300), isolation=1)
        if version >= 4:
            for epoch in (0, 1, -2, 2**31 - 1):
                ask(version, (0, epoch, -1))
    ask(11, (0, -1, -1), (0, -1, -1))
    ask(11, (0, -1, -1), (0, -1, -2))
    ask(11, (0, -1, -1), (0, -1, -2), (1, -1, -1))
    for replica in (-2, -3):
        ask(11, (0, -1, -1), replica=replica)
    talk.ask(ListOffsetsRequest(-1, topics=[]))
    twice = ListOffsetsTopic(topic, [ListOffsetsPartition(0, timestamp=-1)])
    talk.ask(ListOffsetsRequest(-1, topics=[twice, twice]))


def epochs(talk: Talk) -> None:
    topic = filled(talk)

    def ask(
        *partitions: tuple[int, int, int], version: int = 4, name: str = topic, replica: int = -1
    ) -> None:
        asked = [OffsetForLeaderPartition(*each) for each in partitions]
        talk.ask(OffsetForLeaderEpochRequest(replica, [OffsetForLeaderTopic(name, asked)]), version)

    for version in (2, 3, 4):
        for current in (-1, 0, 1, -2):
            for epoch in (0, 1, -1, -2, 2**31 - 1):
                ask((0, current, epoch), (1, current, epoch), version=version)
        ask((9, -1, 0), (-1, -1, 0), version=version)
        ask((0, -1, 0), name="no-such-topic", version=version)
        ask((0, -1, 0), name="", version=version)
    ask()
    ask((0, -1, 0), (0, -1, 1))
    ask((0, -1, 0), replica=-2)
    talk.ask(OffsetForLeaderEpochRequest(-1, []))


SCENARIOS: list[Scenario] = [
    producing, producing_by_the_topics_settings, producing_in_silence, producing_damage,
    idempotent, fetching, fetching_little, fetching_as_a_replica, sessions, sessions_by_name_and_id, offsets, epochs,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_every_field_is_as_kafkas(kafka: Kafka, scenario: Scenario) -> None:
    assert_same(kafka, scenario)
