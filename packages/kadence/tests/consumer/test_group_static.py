"""Static members of classic groups (KIP-345): restarts without a rebalance, and two processes of one name."""

from __future__ import annotations

from typing import Any

import pytest
from tests.consumer.support import Cluster, has_settled, numbers, partitions, poll_until, read

from kadence import Consumer, RebalanceListener, TopicPartition
from kadence.errors import FencedInstanceIdError

pytestmark = pytest.mark.needs("groups", "classic rebalances", "static members", "admin")


def member(cluster: Cluster, group: str, instance: str, **settings: Any) -> Consumer:
    return cluster.consumer(
        group_id=group,
        group_instance_id=instance,
        **{
            "group_protocol": "classic",
            "heartbeat_interval_ms": 200,
            "session_timeout_ms": 60_000,
            **settings,
        },
    )


def heartbeats(consumer: Consumer) -> float:
    """How many were sent."""
    (count,) = [value for name, value in consumer.metrics().items() if name.name == "heartbeat-total"]
    return count


def share(one: Consumer, two: Consumer, topic: str) -> list[Any]:
    """Both join; what the first one reads on the way."""
    one.subscribe(topic)
    two.subscribe(topic)

    def shared() -> bool:
        two.poll(0)
        return len(one.assignment()) == len(two.assignment()) == 2 and has_settled(one) and has_settled(two)

    return poll_until(one, shared)


@pytest.mark.brokers("virtual")
@pytest.mark.parametrize("who", ["the leader", "a follower"])
@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_kip_345_a_restart_within_the_session_is_no_rebalance(
    cluster: Cluster, strategy: str, who: str
) -> None:
    """Of the leader neither (KIP-814), although it does not know what it assigned before."""
    restart(cluster, strategy, who)


@pytest.mark.brokers("kafka")
@pytest.mark.parametrize("who", ["the leader", "a follower"])
def test_kip_345_kafka_takes_a_restart_for_none_either(cluster: Cluster, who: str) -> None:
    restart(cluster, "cooperative-sticky", who)


def restart(cluster: Cluster, strategy: str, who: str) -> None:
    """A static member goes twice and comes back twice; nobody notices."""
    topic, group = cluster.topic(), cluster.name("g")
    one = member(cluster, group, "one", partition_assignment_strategy=strategy)
    two = member(cluster, group, "two", partition_assignment_strategy=strategy)
    share(one, two, topic)
    goes, stays = (one, two) if who == "the leader" else (two, one)
    before, generation = len(stays.rebalances()), stays.group_metadata().generation_id
    owned, name = goes.assignment(), goes.group_metadata().group_instance_id
    assert name is not None
    for _ in range(2):
        goes.close()
        assert cluster.members(group) == 2, "a static member leaves nothing when it closes"
        goes = member(cluster, group, name, partition_assignment_strategy=strategy)
        goes.subscribe(topic)
        poll_until(goes, lambda back=goes: len(back.assignment()) == 2)  # type: ignore[misc]
        stays.poll(0)
        assert goes.assignment() == owned
    assert len(stays.rebalances()) == before
    assert stays.group_metadata().generation_id == generation


@pytest.mark.brokers("virtual")
def test_kip_345_a_static_member_that_stays_away_is_replaced_when_its_session_ends(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    stays = member(cluster, group, "stays")
    goes = member(cluster, group, "goes")
    stays.subscribe(topic)
    poll_until(stays, lambda: len(stays.assignment()) == 4)  # so it leads, and knows who leaves
    share(stays, goes, topic)
    goes.close()
    poll_until(stays, lambda: len(stays.assignment()) == 4 and has_settled(stays))
    assert "; left: " in stays.rebalances()[-1].cause


class Losses(RebalanceListener):
    """What was lost."""

    def __init__(self) -> None:
        self.lost: list[TopicPartition] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        pass

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        pass

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.lost += partitions


def test_kip_345_a_second_process_of_the_same_name_fences_the_first(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 8)
    first = member(cluster, group, "one", enable_auto_commit=False)
    losses = Losses()
    first.subscribe(topic, listener=losses)
    read(first, 8)
    second = member(cluster, group, "one")
    second.subscribe(topic)
    assert sorted(numbers(read(second, 8))) == list(range(8))
    with pytest.raises(FencedInstanceIdError, match=r"group\.instance\.id = 'one'"):
        poll_until(first, lambda: False)
    assert first.assignment() == frozenset()
    # It stays fenced: coming back would fence the other one, and so on for ever.
    with pytest.raises(FencedInstanceIdError):
        first.poll(0)
    with pytest.raises(FencedInstanceIdError):
        first.commit({TopicPartition(topic, 0): 1})
    assert first.rebalances()[-1].cause.startswith("fenced: ")
    assert first.rebalances()[-1].removed == tuple(partitions(topic))
    first.close()
    second.commit()
    assert second.assignment() == set(partitions(topic)), (
        "the fenced one's close() takes nothing from the other"
    )
    assert len(second.rebalances()) == 1


@pytest.mark.brokers("virtual")
def test_kip_345_a_commit_is_where_a_fenced_member_hears_of_it(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 8)
    # Its next heartbeat is far away.
    first = member(cluster, group, "one", enable_auto_commit=False, heartbeat_interval_ms=9_000)
    first.subscribe(topic)
    read(first, 8)
    cluster.until(lambda: heartbeats(first))  # the first one of a generation comes early
    second = member(cluster, group, "one")
    second.subscribe(topic)
    read(second, 8)
    with pytest.raises(FencedInstanceIdError):
        first.commit({TopicPartition(topic, 0): 2})
    with pytest.raises(FencedInstanceIdError):
        first.poll(0)
    assert second.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)] is None
