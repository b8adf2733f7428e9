"""Advice in errors of groups: a member that follows it joins, or commits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from kadence import Admin, Broker, Consumer, NewTopic, Producer, SubscriptionPattern, TopicPartition
from kadence.errors import KafkaError

PARTITION = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker(topics={"t": 1}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def classic_servers() -> Iterator[str]:
    """A broker without KIP-848, as Kafka 3.7 to 3.9 by default."""
    with Broker(topics={"t": 1}, config={"group.coordinator.rebalance.protocols": "classic"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def unmoved_servers() -> Iterator[str]:
    """A broker that converts no group."""
    with Broker(topics={"t": 1}, config={"group.consumer.migration.policy": "disabled"}) as broker:
        yield broker.bootstrap_servers


class Row(NamedTuple):
    broker: str
    member: Mapping[str, Any] | None
    """The settings of a member that is there already."""
    wrong: Mapping[str, Any]
    advice: str
    right: tuple[Mapping[str, Any], ...]


CLASSIC: dict[str, Any] = {"group_protocol": "classic"}
ROWS = {
    "assignors": Row(
        "servers",
        {**CLASSIC, "partition_assignment_strategy": "range"},
        {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"},
        "name what they use in partition.assignment.strategy, e.g. 'range' or 'cooperative-sticky,range'",
        (
            {**CLASSIC, "partition_assignment_strategy": "range"},
            {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky,range"},
        ),
    ),
    "a session that is too short": Row(
        "servers",
        None,
        {**CLASSIC, "session_timeout_ms": 5000, "heartbeat_interval_ms": 1000},
        "group.min.session.timeout.ms and group.max.session.timeout.ms, 6 s to 30 min by default",
        (
            {**CLASSIC, "session_timeout_ms": 6000, "heartbeat_interval_ms": 1000},
            {**CLASSIC, "session_timeout_ms": 1_800_000},
        ),
    ),
    "a broker without KIP-848": Row(
        "classic_servers",
        None,
        {"group_protocol": "consumer"},
        "set group.protocol=classic for it",
        (CLASSIC, {"group_protocol": "auto"}),
    ),
    "a group that is not converted": Row(
        "unmoved_servers",
        CLASSIC,
        {"group_protocol": "consumer"},
        "set group.protocol=classic",
        (CLASSIC,),
    ),
    "an assignor of the broker": Row(
        "servers",
        None,
        {"group_protocol": "consumer", "group_remote_assignor": "sticky"},
        "is not one of the broker's assignors (group.consumer.assignors; uniform and range by default)",
        tuple({"group_protocol": "consumer", "group_remote_assignor": each} for each in ("uniform", "range")),
    ),
    "a name in use": Row(
        "servers",
        {"group_protocol": "consumer", "group_instance_id": "one"},
        {"group_protocol": "consumer", "group_instance_id": "one"},
        "each process needs its own",
        ({"group_protocol": "consumer", "group_instance_id": "two"},),
    ),
}


def joined(consumer: Consumer[Any, Any], topics: Any = "t") -> None:
    """Subscribe, and poll until it is a member."""
    consumer.subscribe(topics)
    while not consumer.group_metadata().member_id or consumer.group_metadata().generation_id < 1:
        consumer.poll(0.05)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_member_that_follows_the_advice_joins(row: Row, request: pytest.FixtureRequest) -> None:
    common = {
        "bootstrap_servers": request.getfixturevalue(row.broker),
        "group_id": re.sub(r"\W", "-", request.node.name),
    }
    member = None
    if row.member is not None:
        member = Consumer(**common, **row.member)
        joined(member)
    with Consumer(**common, **row.wrong) as consumer, pytest.raises(KafkaError, match=re.escape(row.advice)):
        joined(consumer)
    for settings in row.right:
        with Consumer(**common, **settings) as consumer:
            consumer.subscribe("t")
            while consumer.group_metadata().generation_id < 1:
                consumer.poll(0.05)
                if member is not None:
                    member.poll(0.05)
    if member is not None:
        member.close()


PATTERNS = {
    "a broker that cannot match": (
        "classic_servers",
        "consumer",
        "t.*",
        "works with every broker if group.protocol is auto or classic",
    ),
    "classic members": ("servers", "auto", "t.*", "subscribe(re.compile('t.*')) joins them"),
    "not in RE2": ("servers", "consumer", "(?!a)t", "subscribe(re.compile(...))"),
}


@pytest.mark.parametrize(("broker", "protocol", "pattern", "advice"), PATTERNS.values(), ids=PATTERNS)
def test_a_pattern_that_the_client_matches(
    broker: str, protocol: str, pattern: str, advice: str, request: pytest.FixtureRequest
) -> None:
    if protocol == "consumer" and broker == "servers":
        pytest.importorskip("re2")
    servers = request.getfixturevalue(broker)
    group = re.sub(r"\W", "-", request.node.name)
    member = None
    if protocol == "auto":
        member = Consumer(bootstrap_servers=servers, group_id=group, **CLASSIC)
        joined(member)
    with (
        Consumer(bootstrap_servers=servers, group_id=group, group_protocol=protocol) as consumer,
        pytest.raises(KafkaError, match=re.escape(advice)),
    ):
        joined(consumer, SubscriptionPattern(pattern))
    follows = (protocol,) if broker == "servers" else ("auto", "classic")
    for following in follows:
        with Consumer(bootstrap_servers=servers, group_id=group, group_protocol=following) as consumer:
            consumer.subscribe(re.compile(pattern))
            while consumer.group_metadata().generation_id < 1:
                consumer.poll(0.05)
                if member is not None:
                    member.poll(0.05)
    if member is not None:
        member.close()


def test_a_group_that_is_converted_takes_a_pattern_of_the_broker(servers: str) -> None:
    pytest.importorskip("re2")
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "converted"}
    with Consumer(**settings, **CLASSIC) as member:
        joined(member)
        with (
            Consumer(**settings) as consumer,
            pytest.raises(
                KafkaError, match=r"group\.protocol=consumer converts the group \(auto never does\)"
            ),
        ):
            joined(consumer, SubscriptionPattern("t.*"))
        with Consumer(**settings, group_protocol="consumer") as consumer:
            consumer.subscribe(SubscriptionPattern("t.*"))
            while not consumer.group_metadata().member_id or consumer.group_metadata().generation_id < 1:
                consumer.poll(0.05)
                member.poll(0.05)


def polled_on(consumer: Consumer[Any, Any]) -> None:
    """Until a poll raises."""
    while True:
        consumer.poll(0.1)


def test_a_topic_that_was_recreated_is_sought_in(servers: str) -> None:
    with (
        Admin(bootstrap_servers=servers) as admin,
        Producer(bootstrap_servers=servers) as producer,
        Consumer(bootstrap_servers=servers, auto_offset_reset="none", metadata_max_age_ms=100) as consumer,
    ):
        admin.create_topics([NewTopic("again", 1)])
        producer.send("again", b"old").result(10)
        again = TopicPartition("again", 0)
        consumer.assign({again: 0})
        assert [record.value for record in consumer.poll(10)] == [b"old"]
        admin.delete_topics(["again"])
        admin.create_topics([NewTopic("again", 1)])
        producer.send("again", b"new").result(10)
        with pytest.raises(
            KafkaError, match=r"auto\.offset\.reset is none: seek\(\) to where you want to go on"
        ):
            polled_on(consumer)
        consumer.seek(again, 0)
        assert [record.value for record in consumer.poll(10)] == [b"new"]
