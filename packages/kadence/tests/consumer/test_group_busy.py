"""Classic groups with a member that processes for long; what eager and cooperative rebalances interrupt (C5)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.consumer.support import Cluster, has_settled, numbers, poll_until, read
from tests.patience import PATIENCE

from kadence import Consumer, TopicPartition

pytestmark = [pytest.mark.needs("groups", "classic rebalances"), pytest.mark.brokers("virtual")]

HEARTBEAT_MS = 2_000


def member(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    return cluster.consumer(
        **{
            "group_id": group,
            "group_protocol": "classic",
            "heartbeat_interval_ms": HEARTBEAT_MS,
            **settings,
        }
    )


def share(one: Consumer, two: Consumer) -> list[Any]:
    """Until each has half of four partitions; what the first one reads on the way."""

    def shared() -> bool:
        two.poll(0)
        return len(one.assignment()) == len(two.assignment()) == 2

    return poll_until(one, shared)


def test_c5_a_join_waits_for_no_stuck_member(cluster: Cluster) -> None:
    """The stuck one does not poll from `share` to the end, so nothing that happens can be its application's doing.

    By how much it delays a join at most is shown under virtual time, in tests/consumer/group/test_classic_busy.py.
    """
    topic, other, group = cluster.topic(), cluster.topic(2), cluster.name("g")
    cluster.produce(other, 20, partitions=2)
    stuck, flowing = member(cluster, group), member(cluster, group, max_poll_records=1)
    stuck.subscribe(topic)
    flowing.subscribe(topic)
    share(stuck, flowing)
    # Only now: alone in the group the stuck one would read them all.
    cluster.produce(topic, 4_000)
    read(flowing, 10)
    kept, rebalances = flowing.assignment(), len(flowing.rebalances())

    newcomer = member(cluster, group)
    newcomer.subscribe(other)
    came: list[Any] = []
    end = time.monotonic() + PATIENCE
    while not (newcomer.assignment() and has_settled(newcomer)):
        assert time.monotonic() < end
        came += newcomer.poll(0.01)
        assert flowing.poll(PATIENCE), "records of partitions that stay come with every poll"
    assert newcomer.rebalances()[0].cause == "first join"
    assert len(newcomer.assignment()) == 2
    assert len(came + read(newcomer, 20 - len(came))) == 20
    assert flowing.assignment() == kept
    poll_until(flowing, lambda: len(flowing.rebalances()) > rebalances)
    assert len(stuck.assignment()) == 2


@pytest.mark.brokers("virtual", "kafka")
def test_c5_what_must_move_from_a_stuck_member_waits_and_nothing_else(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    stuck = member(cluster, group, heartbeat_interval_ms=200)
    stuck.subscribe(topic)
    poll_until(stuck, lambda: len(stuck.assignment()) == 4)
    newcomer = member(cluster, group, heartbeat_interval_ms=200)
    newcomer.subscribe(topic)
    poll_until(newcomer, lambda: len(newcomer.rebalances()) > 0)
    assert newcomer.assignment() == frozenset()
    assert len(stuck.assignment()) == 4, "its application has not given them up"
    share(stuck, newcomer)


def test_peer_bug_4_after_an_eager_rebalance_kept_partitions_restart_at_the_committed_offset(
    cluster: Cluster,
) -> None:
    """What was revoked may have been thrown away by the application, so it comes again, as with Kafka's client."""
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    settings: dict[str, Any] = {
        "partition_assignment_strategy": "range",
        "enable_auto_commit": False,
        "heartbeat_interval_ms": 200,
    }
    one, two = member(cluster, group, **settings), member(cluster, group, **settings)
    one.subscribe(topic)
    read(one, 40)
    one.commit({TopicPartition(topic, number): 4 for number in range(4)})
    two.subscribe(topic)
    again = share(one, two)
    kept = {partition.partition for partition in one.assignment()}
    again += read(one, 12 - len(again))
    assert {record.offset for record in again if record.partition in kept} == set(range(4, 10))


def test_peer_bug_4_after_a_cooperative_rebalance_they_go_on_where_they_are(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    settings: dict[str, Any] = {"enable_auto_commit": False, "heartbeat_interval_ms": 200}
    one, two = member(cluster, group, **settings), member(cluster, group, **settings)
    one.subscribe(topic)
    read(one, 40)
    two.subscribe(topic)
    assert share(one, two) == []
    kept = {partition.partition for partition in one.assignment()}
    cluster.produce(topic, 4, start=40)
    assert {int(number) % 4 for number in numbers(read(one, 2))} == kept


def test_pain_17_a_pause_and_what_was_fetched_survive_a_cooperative_rebalance(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    settings: dict[str, Any] = {"heartbeat_interval_ms": 200, "enable_auto_commit": False}
    one, two = member(cluster, group, **settings), member(cluster, group, **settings)
    one.subscribe(topic)
    read(one, 4, max_records=1)
    one.pause(one.assignment())
    before = {partition: one.position(partition) for partition in one.assignment()}
    two.subscribe(topic)
    assert share(one, two) == []
    kept = one.assignment()
    assert one.paused() == kept
    assert {partition: one.position(partition) for partition in kept} == {p: before[p] for p in kept}
    one.resume(kept)
    rest = read(one, sum(10 - before[partition] for partition in kept))
    offsets: dict[int, list[int]] = {}
    for record in rest:
        offsets.setdefault(record.partition, []).append(record.offset)
    assert offsets == {p.partition: list(range(before[p], 10)) for p in kept}
