"""SubscriptionPattern: the broker matches, and finds new topics by itself (KIP-848)."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import Any

import pytest
from tests.consumer.support import Cluster, partitions, poll_until, read
from tests.patience import PATIENCE, until

from kadence import AsyncConsumer, Broker, Consumer, SubscriptionPattern
from kadence.errors import ConfigError, InvalidRegularExpressionError, UnsupportedVersionError
from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

pytestmark = pytest.mark.needs("broker regex", "admin")


def topics_of(consumer: Consumer | AsyncConsumer) -> set[str]:
    return {partition.topic for partition in consumer.assignment()}


def create(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.create_topic(name, 2)
        cluster.produce(name, 4, partitions=2)


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
def test_kip_848_the_broker_matches_whole_names(cluster: Cluster, protocol: str) -> None:
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a", f"{prefix}-b", f"{prefix}-b-more", f"x{prefix}-a")
    consumer = cluster.consumer(group_id=cluster.name("g"), group_protocol=protocol)
    consumer.subscribe(SubscriptionPattern(f"{prefix}-[ab]"))
    records = read(consumer, 8)
    assert {record.topic for record in records} == {f"{prefix}-a", f"{prefix}-b"}
    assert len(records) == 8
    assert consumer.subscription() == {f"{prefix}-a", f"{prefix}-b"}
    consumer.commit()
    consumer.subscribe(SubscriptionPattern(f"{prefix}-b.*"))
    poll_until(consumer, lambda: topics_of(consumer) == {f"{prefix}-b", f"{prefix}-b-more"})
    consumer.subscribe(f"{prefix}-a")
    poll_until(consumer, lambda: topics_of(consumer) == {f"{prefix}-a"})
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()


def test_kip_848_new_topics_are_found_by_the_broker(cluster: Cluster) -> None:
    """It looks again at most every ten seconds."""
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a")
    consumer = cluster.consumer(group_id=cluster.name("g"), group_protocol="consumer")
    consumer.subscribe(SubscriptionPattern(f"{prefix}.*"))
    read(consumer, 4)
    create(cluster, f"{prefix}-b")
    assert {record.topic for record in read(consumer, 4)} == {f"{prefix}-b"}
    assert consumer.assignment() == {*partitions(f"{prefix}-a", 2), *partitions(f"{prefix}-b", 2)}
    cluster.delete_topic(f"{prefix}-a")
    poll_until(consumer, lambda: topics_of(consumer) == {f"{prefix}-b"})
    cluster.produce(f"{prefix}-b", 2, partitions=2)
    assert len(read(consumer, 2)) == 2


@pytest.mark.parametrize("pattern", ["(", "no-(?!look-ahead)"])
def test_an_invalid_pattern_is_an_error_of_poll_until_another_is_subscribed(
    cluster: Cluster, pattern: str
) -> None:
    topic = cluster.topic()
    cluster.produce(topic, 4)
    consumer = cluster.consumer(group_id=cluster.name("g"))
    consumer.subscribe(SubscriptionPattern(pattern))
    for _ in range(2):
        with pytest.raises(InvalidRegularExpressionError, match="RE2"):
            poll_until(consumer, lambda: False)
    consumer.subscribe(SubscriptionPattern(f"{topic}.*"))
    assert len(read(consumer, 4)) == 4


def test_members_with_different_patterns_share_the_topics_of_both(cluster: Cluster) -> None:
    prefix, group = cluster.name("p"), cluster.name("g")
    create(cluster, f"{prefix}-a", f"{prefix}-b")
    one = cluster.consumer(group_id=group, group_protocol="consumer")
    two = cluster.consumer(group_id=group, group_protocol="consumer")
    one.subscribe(SubscriptionPattern(f"{prefix}-a"))
    two.subscribe(SubscriptionPattern(f"{prefix}-.*"))
    found: list[object] = []

    def all_came() -> bool:
        found.extend(two.poll(0.05))
        return len(one.assignment() | two.assignment()) == 4

    found.extend(poll_until(one, all_came))
    assert topics_of(one) <= {f"{prefix}-a"}
    assert not one.assignment() & two.assignment()


@pytest.mark.brokers("virtual")
def test_a_python_pattern_is_matched_here_and_sends_names(cluster: Cluster) -> None:
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a", f"{prefix}-not")
    consumer = cluster.consumer(
        group_id=cluster.name("g"), group_protocol="consumer", metadata_max_age_ms=500
    )
    consumer.subscribe(re.compile(f"{prefix}-(?!not).*"))  # a look-ahead, which RE2 has not
    read(consumer, 4)
    create(cluster, f"{prefix}-b")
    assert {record.topic for record in read(consumer, 4)} == {f"{prefix}-b"}
    assert topics_of(consumer) == {f"{prefix}-a", f"{prefix}-b"}


@pytest.mark.brokers("embedded")
def test_asyncio(cluster: Cluster) -> None:
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a")

    async def main() -> int:
        async with AsyncConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=cluster.name("g"),
            auto_offset_reset="earliest",
        ) as consumer:
            await consumer.subscribe(SubscriptionPattern(f"{prefix}.*"))
            count = 0
            while count < 4:
                count += len(await consumer.poll(1))
            await consumer.subscribe(SubscriptionPattern("("))
            with pytest.raises(InvalidRegularExpressionError):
                await anext(consumer)
            return count

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE)) == 4


# ---------------------------------------------------------------- where the broker cannot


@pytest.mark.parametrize("protocol", ["consumer", "auto"])
def test_a_broker_that_cannot_match_is_said_with_what_to_use(broker: Broker, protocol: str) -> None:
    """Kafka 3.7 to 3.9 have KIP-848's first version, without expressions."""
    broker.faults.limit(ConsumerGroupHeartbeatRequest, 0)
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", group_protocol=protocol
    ) as consumer:
        consumer.subscribe(SubscriptionPattern("t.*"))
        with pytest.raises(UnsupportedVersionError, match=r"re\.compile\('t\.\*'\)"):
            poll_until(consumer, lambda: False)


def test_auto_does_not_convert_a_classic_group_for_a_pattern(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 4)
    classic = cluster.consumer(group_id=group, group_protocol="classic")
    classic.subscribe(topic)
    read(classic, 4)
    consumer = cluster.consumer(group_id=group, group_protocol="auto")
    consumer.subscribe(SubscriptionPattern(f"{topic}.*"))
    with pytest.raises(UnsupportedVersionError, match="has classic members"):
        poll_until(consumer, lambda: False)
    assert len(classic.rebalances()) == 1
    classic.close()

    def taken_over() -> bool:
        with suppress(UnsupportedVersionError):
            consumer.poll(0.1)
        return len(consumer.assignment()) == 4

    until(taken_over, every=0)


@pytest.mark.parametrize("settings", [{"group_protocol": "classic"}, {"session_timeout_ms": 9_000}])
def test_the_classic_protocol_refuses_a_pattern_at_once(settings: dict[str, Any]) -> None:
    with Consumer(bootstrap_servers="localhost:1", group_id="g", **settings) as consumer:
        with pytest.raises(ConfigError, match=r"re\.compile"):
            consumer.subscribe(SubscriptionPattern("t.*"))
        assert consumer.subscription() == frozenset()


def test_an_empty_pattern_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        SubscriptionPattern("")
