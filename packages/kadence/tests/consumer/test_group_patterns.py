"""Patterns of classic members, matched by the client: topics come, go, and others mean nothing (pain 3)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.consumer.support import Cluster, has_settled, poll_until, read

from kadence import Consumer

pytestmark = pytest.mark.needs("groups")


def create(cluster: Cluster, *names: str, partitions: int = 2) -> None:
    for name in names:
        cluster.create_topic(name, partitions)


def member(cluster: Cluster, **settings: Any) -> Consumer:
    """A member that looks for topics ten times a second."""
    return cluster.consumer(
        **{
            "group_id": cluster.name("g"),
            "group_protocol": "classic",
            "metadata_max_age_ms": 100,
            "heartbeat_interval_ms": 100,
            **settings,
        }
    )


def topics_of(consumer: Consumer) -> set[str]:
    return {partition.topic for partition in consumer.assignment()}


@pytest.mark.brokers("virtual")
def test_a_pattern_matches_whole_names_as_javas(cluster: Cluster) -> None:
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a", f"{prefix}-b", f"{prefix}-a-more", f"x{prefix}-a")
    consumer = member(cluster)
    consumer.subscribe(re.compile(rf"{prefix}-[ab]"))
    poll_until(consumer, lambda: len(consumer.assignment()) == 4)
    assert topics_of(consumer) == {f"{prefix}-a", f"{prefix}-b"}


@pytest.mark.brokers("virtual")
def test_a_pattern_that_matches_nothing_yet_waits(cluster: Cluster) -> None:
    prefix = cluster.name("p")
    consumer = member(cluster)
    consumer.subscribe(re.compile(f"{prefix}-.*"))
    assert not consumer.poll(0.5)
    assert consumer.rebalances() == ()
    create(cluster, f"{prefix}-a")
    cluster.produce(f"{prefix}-a", 4, partitions=2)
    assert len(read(consumer, 4)) == 4


@pytest.mark.needs("admin", "topic deletion")
def test_topics_come_and_go(cluster: Cluster) -> None:
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a")
    consumer = member(cluster)
    consumer.subscribe(re.compile(f"{prefix}-.*"))
    poll_until(consumer, lambda: topics_of(consumer) == {f"{prefix}-a"})
    create(cluster, f"{prefix}-b")
    poll_until(
        consumer, lambda: topics_of(consumer) == {f"{prefix}-a", f"{prefix}-b"} and has_settled(consumer)
    )
    assert consumer.rebalances()[-1].cause == "subscription changed"
    cluster.delete_topic(f"{prefix}-a")
    # The partitions of what is gone go before the rebalance for it ends.
    poll_until(consumer, lambda: topics_of(consumer) == {f"{prefix}-b"} and has_settled(consumer))
    # The history may have another rebalance behind that one.
    assert {p.topic for each in consumer.rebalances() for p in each.removed} == {f"{prefix}-a"}
    cluster.produce(f"{prefix}-b", 4, partitions=2)
    assert len(read(consumer, 4)) == 4


@pytest.mark.needs("admin")
@pytest.mark.brokers("virtual")
def test_new_partitions_of_a_topic_are_assigned(cluster: Cluster) -> None:
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a")
    consumer = member(cluster)
    consumer.subscribe(re.compile(f"{prefix}-.*"))
    poll_until(consumer, lambda: len(consumer.assignment()) == 2)
    cluster.add_partitions(f"{prefix}-a", 3)
    poll_until(consumer, lambda: len(consumer.assignment()) == 3 and has_settled(consumer))
    assert consumer.rebalances()[-1].cause == f"metadata of subscribed topics changed: {prefix}-a"


@pytest.mark.brokers("virtual")
def test_pain_3_refreshes_and_topics_that_do_not_match_cause_no_rebalance(cluster: Cluster) -> None:
    prefix = cluster.name("p")
    create(cluster, f"{prefix}-a")
    consumer = member(cluster)
    consumer.subscribe(re.compile(f"{prefix}-.*"))
    poll_until(consumer, lambda: len(consumer.assignment()) == 2)
    create(cluster, f"other-{prefix}")
    # Once the new one is known to this client, it has been asked for and compared at least once.
    assert f"other-{prefix}" in consumer.list_topics()
    for _ in range(10):
        consumer.poll(0.1)
    assert len(consumer.rebalances()) == 1


@pytest.mark.parametrize("exclude", [True, False])
@pytest.mark.needs("admin")
def test_internal_topics_are_matched_only_when_asked_for(cluster: Cluster, exclude: bool) -> None:
    name = cluster.name("p")
    create(cluster, name)
    consumer = member(cluster, exclude_internal_topics=exclude)
    consumer.subscribe(re.compile(f"__consumer_offsets|{name}"))
    poll_until(consumer, lambda: name in topics_of(consumer))
    assert ("__consumer_offsets" in topics_of(consumer)) == (not exclude)
