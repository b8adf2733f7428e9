"""librdkafka's members of KIP-848's protocol, through confluent-kafka, unmodified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from conftest import FAST_GROUPS
from tests.interop.librdkafka import QUIET, consuming, poll_until
from tests.interop.test_confluent import RECORDS, produce
from tests.patience import PATIENCE

from kadence import Consumer as KadenceConsumer
from kadence_broker import Broker

# librdkafka loses an assignment whose answer takes longer than the interval: tests/interop/test_mixed_groups.py.
CONFIG = {**FAST_GROUPS, "group.consumer.heartbeat.interval.ms": 2_000}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=3, topics={"t": 4}, config=CONFIG) as running:
        yield running


@contextmanager
def modern(broker: Broker, *topics: str, group: str = "g", **config: Any) -> Iterator[Any]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 500,
            **QUIET,
            **config,
        }
    )
    try:
        consumer.subscribe(list(topics) or ["t"])
        yield consumer
    finally:
        consumer.close()


def has_shared(*members: Any, of: int = 4) -> bool:
    sizes = [len(member.assignment()) for member in members]
    return sum(sizes) == of and all(sizes)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_share_and_commits_are_kept(broker: Broker, assignor: str) -> None:
    produce(broker)
    seen: dict[bytes, int] = {}
    with ExitStack() as opened:
        config = {"group.remote.assignor": assignor}
        first = opened.enter_context(modern(broker, **config))
        poll_until([first], lambda: len(seen) == RECORDS, seen)
        first.commit(asynchronous=False)
        second = opened.enter_context(modern(broker, **config))
        poll_until([first, second], lambda: has_shared(first, second), seen)
        assert {each.partition for one in (first, second) for each in one.assignment()} == {0, 1, 2, 3}
    with modern(broker) as third:
        committed = third.committed([TopicPartition("t", each) for each in range(4)], timeout=PATIENCE)
        assert [each.offset for each in committed] == [end for _, end in broker.offsets("t")]
    assert set(seen.values()) == {1}


def test_a_member_that_leaves_gives_its_partitions_back(broker: Broker) -> None:
    with modern(broker) as first:
        with modern(broker) as second:
            poll_until([first, second], lambda: has_shared(first, second))
        poll_until([first], lambda: has_shared(first))


def test_a_static_member_comes_back_without_a_rebalance(broker: Broker) -> None:
    with modern(broker, **{"group.instance.id": "a"}) as member:
        poll_until([member], lambda: has_shared(member))
    before = broker.describe_groups()["g"]
    with modern(broker, **{"group.instance.id": "a"}) as member:
        poll_until([member], lambda: has_shared(member))
    assert "epoch 2," in before
    assert "epoch 2," in broker.describe_groups()["g"]


def test_a_regular_expression_is_matched_by_the_broker(broker: Broker) -> None:
    broker.create_topic("eu-1", 2)
    broker.create_topic("eu-2", 1)
    with modern(broker, "^eu-[0-9]+$") as member:
        poll_until([member], lambda: has_shared(member, of=3))
        assert {each.topic for each in member.assignment()} == {"eu-1", "eu-2"}


def test_one_group_of_both_clients_and_both_protocols(broker: Broker) -> None:
    """A classic librdkafka group takes in a modern member, a modern Kadence, and gives all back to the classic one."""
    produce(broker)
    seen: dict[bytes, int] = {}
    classic = {"partition.assignment.strategy": "cooperative-sticky"}
    with consuming(broker, **classic) as old:
        poll_until([old], lambda: len(seen) == RECORDS, seen)
        old.commit(asynchronous=False)
        with modern(broker) as new:
            poll_until([old, new], lambda: has_shared(old, new), seen)
            with KadenceConsumer(
                bootstrap_servers=broker.bootstrap_servers,
                group_id="g",
                group_protocol="consumer",
                auto_offset_reset="earliest",
            ) as ours:
                ours.subscribe("t")

                def shared() -> bool:
                    for record in ours.poll(0.02):
                        seen[record.value] = seen.get(record.value, 0) + 1
                    return has_shared(old, new, ours)

                poll_until([old, new], shared, seen)
            poll_until([old, new], lambda: has_shared(old, new), seen)
        poll_until([old], lambda: has_shared(old), seen)
    assert set(seen.values()) == {1}
