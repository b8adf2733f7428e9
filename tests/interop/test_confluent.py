"""librdkafka through confluent-kafka, unmodified, with its own defaults."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import confluent_kafka.admin
import pytest
from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from tests.consumer.blackhole import mapped
from tests.interop.librdkafka import QUIET, consuming, poll_until
from tests.patience import PATIENCE

from kadence.protocol import error_codes as codes
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker

admin_api: Any = confluent_kafka.admin
"""Its names are re-exported without saying so, which strict typing does not accept."""

RECORDS = 400


def produce(broker: Broker, count: int = RECORDS, config: dict[str, Any] | None = None) -> None:
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET, **(config or {})})
    for number in range(count):
        producer.produce(
            "t", value=b"v%d" % number, key=b"k%d" % (number % 50), headers=[("n", b"%d" % number)],
            on_delivery=lambda error, _message: failures.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(PATIENCE) == 0
    assert failures == []


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_all_compressions_come_through(broker: Broker, compression: str) -> None:
    produce(broker, config={"compression.type": compression, "enable.idempotence": True})
    assert sum(end for _, end in broker.offsets("t")) == RECORDS
    seen: dict[bytes, int] = {}
    with consuming(broker) as consumer:
        poll_until([consumer], lambda: len(seen) == RECORDS, seen)
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_second_member_takes_its_share_and_commits_are_kept(broker: Broker, strategy: str) -> None:
    produce(broker)
    seen: dict[bytes, int] = {}
    config = {"partition.assignment.strategy": strategy}
    with ExitStack() as opened:
        first = opened.enter_context(consuming(broker, **config))
        poll_until([first], lambda: len(seen) == RECORDS, seen)
        first.commit(asynchronous=False)
        second = opened.enter_context(consuming(broker, **config))
        poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2, seen)
        assert {each.partition for one in (first, second) for each in one.assignment()} == {0, 1, 2, 3}
    with consuming(broker) as third:
        committed = third.committed([TopicPartition("t", each) for each in range(4)], timeout=PATIENCE)
        assert [each.offset for each in committed] == [end for _, end in broker.offsets("t")]
        assert all(each.leader_epoch == 0 for each in committed)
    assert set(seen.values()) == {1}


def test_a_group_works_behind_mapped_ports() -> None:
    with mapped(3) as (broker, paths):
        broker.create_topic("t", 4)
        produce(broker)
        seen: dict[bytes, int] = {}
        with consuming(broker) as member:
            poll_until([member], lambda: len(seen) == RECORDS, seen)
            member.commit(asynchronous=False)
            committed = member.committed([TopicPartition("t", each) for each in range(4)], timeout=PATIENCE)
        assert [each.offset for each in committed] == [end for _, end in broker.offsets("t")]
        assert all(each.accepted for each in paths)


def test_a_member_that_leaves_gives_its_partitions_back(broker: Broker) -> None:
    with consuming(broker) as first:
        with consuming(broker) as second:
            poll_until([first, second], lambda: len(first.assignment()) == len(second.assignment()) == 2)
        poll_until([first], lambda: len(first.assignment()) == 4)


def test_a_static_member_comes_back_without_a_rebalance(broker: Broker) -> None:
    with consuming(broker, **{"group.instance.id": "a"}) as member:
        poll_until([member], lambda: len(member.assignment()) == 4)
    with consuming(broker, **{"group.instance.id": "a"}) as member:
        poll_until([member], lambda: len(member.assignment()) == 4)
        assert "Stable generation 1," in broker.describe_groups()["g"]


def test_retries_after_lost_answers_write_nothing_twice(broker: Broker) -> None:
    """The request took effect and its answer was lost: idempotence must find the batch again."""
    fault = broker.faults.disconnect(ProduceRequest, served=True, times=3)
    with fault:
        produce(broker, config={"enable.idempotence": True, "linger.ms": 1})
    assert fault.hits == 3
    assert sum(end for _, end in broker.offsets("t")) == RECORDS


def test_leaders_that_move_are_followed(broker: Broker) -> None:
    seen: dict[bytes, int] = {}
    with consuming(broker) as consumer:
        for round_ in range(3):
            produce(broker)
            poll_until([consumer], lambda: sum(seen.values()) == RECORDS * (round_ + 1), seen)  # noqa: B023
            for partition in range(4):
                broker.move_leader("t", partition, (partition + round_) % 3 + 1)


def test_a_coordinator_that_fails_for_a_while_costs_nothing(broker: Broker) -> None:
    with consuming(broker) as consumer:
        poll_until([consumer], lambda: len(consumer.assignment()) == 4)
        with broker.faults.error(HeartbeatRequest, codes.COORDINATOR_NOT_AVAILABLE, times=2) as fault:
            poll_until([consumer], lambda: fault.hits == 2)
        with broker.faults.observe(HeartbeatRequest) as beats:
            poll_until([consumer], lambda: len(beats) >= 2)
        assert "Stable generation 1," in broker.describe_groups()["g"]


def test_a_position_that_is_gone_is_reset(broker: Broker) -> None:
    produce(broker)
    for partition, (_, end) in enumerate(broker.offsets("t")):
        broker.delete_records("t", partition, end - 5)
    seen: dict[bytes, int] = {}
    with consuming(broker) as consumer:
        consumer.unsubscribe()
        consumer.assign([TopicPartition("t", each, 0) for each in range(4)])
        poll_until([consumer], lambda: len(seen) == 20, seen)


def test_offsets_by_time_and_watermarks(broker: Broker) -> None:
    produce(broker, 40)
    with consuming(broker) as consumer:
        start, end = consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE)
        assert (start, end) == broker.offsets("t")[0]
        (found,) = consumer.offsets_for_times([TopicPartition("t", 0, 1)], timeout=PATIENCE)
        assert found.offset == 0
        (later,) = consumer.offsets_for_times([TopicPartition("t", 0, 2**42)], timeout=PATIENCE)
        assert later.offset in (-1, end)


def test_fetch_sessions_are_used(broker: Broker) -> None:
    with broker.faults.observe(FetchRequest) as fetches, consuming(broker) as consumer:
        poll_until([consumer], lambda: len(fetches) > 3)
    assert fetches.calls[0].version >= 11


def test_administration(broker: Broker) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    made = admin_api.NewTopic("made", 2, 1, config={"retention.ms": "1000"})
    assert admin.create_topics([made])["made"].result(PATIENCE) is None
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([made])["made"].result(PATIENCE)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert admin.create_partitions([admin_api.NewPartitions("made", 5)])["made"].result(PATIENCE) is None
    assert len(admin.list_topics("made", timeout=PATIENCE).topics["made"].partitions) == 5
    resource = admin_api.ConfigResource(admin_api.ResourceType.TOPIC, "made")
    config = admin.describe_configs([resource])[resource].result(PATIENCE)
    assert config["retention.ms"].value == "1000"
    cluster = admin.describe_cluster().result(PATIENCE)
    assert {each.id for each in cluster.nodes} == {1, 2, 3}
    assert admin.delete_topics(["made"])["made"].result(PATIENCE) is None


def test_administration_of_groups(broker: Broker) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    produce(broker, 40)
    with consuming(broker) as consumer:
        poll_until([consumer], lambda: len(consumer.assignment()) == 4)
        assert [each.group_id for each in admin.list_consumer_groups().result(PATIENCE).valid] == ["g"]
        described = admin.describe_consumer_groups(["g"])["g"].result(PATIENCE)
        assert described.state.name == "STABLE"
        assert len(described.members[0].assignment.topic_partitions) == 4
    moved = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 3)])
    admin.alter_consumer_group_offsets([moved])["g"].result(PATIENCE)
    listed = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("g")])["g"].result(PATIENCE)
    assert [(each.partition, each.offset) for each in listed.topic_partitions] == [(0, 3)]
    latest = admin.list_offsets({TopicPartition("t", 0): admin_api.OffsetSpec.latest()})
    assert latest[TopicPartition("t", 0)].result(PATIENCE).offset == broker.offsets("t")[0][1]
    admin.delete_consumer_groups(["g"])["g"].result(PATIENCE)
    assert admin.list_consumer_groups().result(PATIENCE).valid == []
