"""Share groups: their members, places, settings and dead letter topics (KIP-932, KIP-1191). See conftest.py."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.admin.share_member import REJECT, ShareMember
from tests.configs import set_configs
from tests.patience import until

from kadence.admin import (
    Admin,
    ConfigResource,
    DeadLetterQueue,
    GroupListing,
    NewTopic,
    ShareGroupDescription,
    ShareGroupOffset,
)
from kadence.errors import BrokerError, UnknownTopicOrPartitionError
from kadence.producer import Producer
from kadence.types import TopicPartition

TOPIC_NAME = "errors.deadletterqueue.topic.name"
NO_PLACE = ShareGroupOffset(None, None)


@pytest.fixture
def name(request: pytest.FixtureRequest, admin: Admin) -> str:
    """The name of a group, and of a topic with two partitions that is there."""
    name = "share-" + str(request.node.originalname).removeprefix("test_")[:40]
    admin.create_topics({name: 2})
    return name


def fill(servers: str, topic: str, count: int) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def test_a_new_group_gets_its_place_at_once(admin: Admin, servers: str, name: str) -> None:
    fill(servers, name, 5)
    first, second = TopicPartition(name, 0), TopicPartition(name, 1)
    assert admin.alter_share_group_offsets(name, {first: 2, (name, 1): 0}) == {first: 2, second: 0}
    offsets = admin.list_share_group_offsets(name)
    assert {tp: (each.start_offset, each.lag) for tp, each in offsets.items()} == {
        first: (2, 3),
        second: (0, 0),
    }
    assert admin.list_share_group_offsets(name, [first, (name, 9), ("none", 0)]) == {
        first: offsets[first],
        TopicPartition(name, 9): NO_PLACE,
        TopicPartition("none", 0): NO_PLACE,
    }
    assert admin.list_offsets_of_share_groups([name, "none"]) == {name: dict(offsets), "none": {}}
    coordinator = admin.describe_share_groups(name)[name].coordinator
    assert admin.describe_share_groups(name) == {
        name: ShareGroupDescription(name, "Empty", "simple", coordinator, (), 1)
    }
    listing = GroupListing(name, "share", "Empty", "share")
    assert listing in admin.list_groups()
    assert listing in admin.list_groups(types="Share", states=["empty"])
    assert listing not in admin.list_groups(types=["consumer", "classic"])
    assert listing not in admin.list_groups(states="Stable")

    assert admin.delete_share_group_offsets(name, name) == {name: None}
    assert admin.list_share_group_offsets(name) == {}
    assert admin.delete_share_groups([name]) == {name: None}
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        admin.describe_share_groups(name)
    with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
        admin.delete_share_groups(name)


def test_a_group_with_members_has_a_place_after_it_accepts_a_record(
    admin: Admin, servers: str, name: str
) -> None:
    fill(servers, name, 4)
    tp = TopicPartition(name, 0)
    group = ConfigResource("group", name)
    set_configs(admin, group, {"share.auto.offset.reset": "earliest"})
    settings = admin.describe_configs(group)[group]
    assert not settings["share.auto.offset.reset"].is_default
    assert settings["share.delivery.count.limit"].value == "5"
    member = ShareMember(admin, name, name).settle(2)

    described = admin.describe_share_groups([name])[name]
    assert (described.state, described.epoch) == ("Stable", described.members[0].member_epoch)
    (seen,) = described.members
    assert (seen.member_id, seen.assignment, seen.subscription) == (
        member.member_id,
        frozenset({tp, TopicPartition(name, 1)}),
        frozenset({name}),
    )
    assert admin.list_share_group_offsets(name, tp) == {tp: NO_PLACE}
    assert member.fetch(tp) == [(offset, 1) for offset in range(4)]
    assert admin.list_share_group_offsets(name, tp) == {tp: NO_PLACE}, "records are out, and it has none"
    member.acknowledge(tp, 2, 2)
    place = admin.list_share_group_offsets(name, tp)[tp]
    assert (place.start_offset, place.lag) == (0, 3)

    with pytest.raises(BrokerError, match=r"NON_EMPTY_GROUP \(68\): .*stop its consumers first"):
        admin.alter_share_group_offsets(name, {tp: 0})
    with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
        admin.delete_share_group_offsets(name, name)
    with pytest.raises(BrokerError, match="NON_EMPTY_GROUP"):
        admin.delete_share_groups(name)
    member.leave()
    assert admin.alter_share_group_offsets(name, {tp: 3}) == {tp: 3}
    place = admin.list_share_group_offsets(name, tp)[tp]
    assert (place.start_offset, place.lag) == (3, 1)


def test_each_item_has_its_own_error(admin: Admin, name: str) -> None:
    admin.alter_share_group_offsets(name, {(name, 0): 0})
    admin.alter_consumer_group_offsets(f"{name}-consumer", {(name, 0): 0})
    outcomes = admin.alter_share_group_offsets(name, {(name, 1): 7, (name, 2): 0}, raise_errors=False)
    assert outcomes == {TopicPartition(name, 1): 7}
    assert isinstance(outcomes.errors[TopicPartition(name, 2)], UnknownTopicOrPartitionError)
    assert admin.list_consumer_group_offsets(name) == {}
    deleted = admin.delete_share_group_offsets(name, [name, "none"], raise_errors=False)
    assert (deleted, list(deleted.errors)) == ({name: None}, ["none"])
    described = admin.describe_share_groups([name, f"{name}-consumer"], raise_errors=False)
    assert list(described) == [name]
    assert "is not a share group" in str(described.errors[f"{name}-consumer"])
    for call in (
        lambda: admin.alter_share_group_offsets(f"{name}-consumer", {(name, 0): 0}),
        lambda: admin.delete_share_group_offsets(f"{name}-consumer", name),
        lambda: admin.alter_consumer_group_offsets(name, {(name, 0): 0}),
        lambda: admin.describe_consumer_groups(name),
    ):
        with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
            call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda a: a.alter_share_group_offsets("g", {("t", 0): "3"}),
            "t-0: an offset is a whole number, not '3'",
        ),
        (
            lambda a: a.alter_share_group_offsets("g", {("t", 0): -1}),
            "t-0: an offset is a whole number of 0 or",
        ),
        (
            lambda a: a.list_groups(types="shared"),
            "the type of a group is one of classic, consumer, share, stre",
        ),
        (lambda a: a.list_groups(states=["idle"]), "the state of a group is one of PreparingRebalance, "),
    ],
)
def test_what_a_call_does_not_take_is_refused_at_once(call: Any, said: str) -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as nobody, pytest.raises((TypeError, ValueError), match=said):
        call(nobody)


@pytest.mark.parametrize("servers", ["kafka"], indirect=True)
def test_dead_letter_topics_that_brokers_would_not_write_to(
    admin: Admin, servers: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    group = ConfigResource("group", name)
    if TOPIC_NAME not in admin.describe_configs(group)[group]:
        pytest.skip("Kafka before 4.4 has no dead letter topics")
    on: dict[str, str | int | float | bool] = {"errors.deadletterqueue.group.enable": True}
    topics: dict[str, dict[str, str | int | float | bool]] = {
        f"dlq.{name}-off": {},
        f"dlq.{name}-compact": {**on, "cleanup.policy": "compact"},
        f"dlq.{name}-self": on,
        f"dlq.{name}": on,
    }
    admin.create_topics([NewTopic(topic, 1, configs=configs) for topic, configs in topics.items()])
    until(lambda: topics.keys() <= admin.list_topics().keys())
    admin.alter_share_group_offsets(name, {(name, 0): 0, (f"dlq.{name}-self", 0): 0})
    assert admin.describe_dead_letter_queues(name) == {name: DeadLetterQueue(None)}
    for topic, fault in (
        (f"dlq.{name}-off", "set its errors.deadletterqueue.group.enable=true"),
        (f"dlq.{name}-compact", "it is compacted, so it refuses dead letters, which have no key"),
        (name, "its name does not begin with 'dlq.'"),
        (f"dlq.{name}-none", "it does not exist, and the brokers do not create it"),
        ("dlq. a", "no topic can have this name"),
    ):
        assert fault in admin.describe_dead_letter_queues(name, topic=topic)[name].faults[0]
        with caplog.at_level(logging.WARNING, "kadence.admin"):
            caplog.clear()
            assert admin.incremental_alter_configs({group: {TOPIC_NAME: topic}}) == {group: None}
        (line,) = caplog.messages
        assert line.startswith(
            f"group {name}: brokers would not write dead letters to {topic}, and rejected rec"
        )
        assert fault in line
        # The broker that is asked may learn of the new setting later.
        until(lambda: admin.describe_dead_letter_queues([name])[name].topic == topic)  # noqa: B023
        assert fault in admin.describe_dead_letter_queues([name])[name].faults[0]

    caplog.clear()
    own = TopicPartition(f"dlq.{name}-self", 0)
    with caplog.at_level(logging.WARNING, "kadence.admin"):
        admin.incremental_alter_configs({group: {TOPIC_NAME: own.topic}})
    until(lambda: admin.describe_dead_letter_queues(name)[name] == DeadLetterQueue(own.topic, is_read=True))
    (line,) = caplog.messages
    assert line.startswith(f"group {name}: the group reads its own dead letter topic {own.topic}: ")
    fill(servers, own.topic, 1)
    member = ShareMember(admin, name, own.topic).settle(1)
    for offset in range(3):
        assert member.fetch(own) == [(offset, 1)], "a new record, written by the broker"
        member.acknowledge(own, offset, offset, REJECT)
    member.leave()

    caplog.clear()
    admin.incremental_alter_configs({group: {TOPIC_NAME: f"dlq.{name}"}})
    assert caplog.messages == []
    until(lambda: admin.describe_dead_letter_queues(name)[name] == DeadLetterQueue(f"dlq.{name}"))
    fill(servers, name, 1)
    tp = TopicPartition(name, 0)
    member = ShareMember(admin, name, name).settle(2)
    assert member.fetch(tp) == [(0, 1)]
    member.acknowledge(tp, 0, 0, REJECT)
    letters = TopicPartition(f"dlq.{name}", 0)
    until(lambda: admin.log_ranges(letters)[letters] == (0, 1), what="the broker has written to it")
