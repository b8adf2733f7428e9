"""`rebalances()` of a classic member: why, for how long, and what came and went."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.consumer.support import Cluster, has_settled, partitions, poll_until

from kadence import Consumer

pytestmark = pytest.mark.needs("groups", "classic rebalances", "admin")


MOMENT = timedelta(seconds=1)


def member(cluster: Cluster, group: str, **settings: Any) -> Consumer:
    return cluster.consumer(
        group_id=group, group_protocol="classic", **{"heartbeat_interval_ms": 100, **settings}
    )


def test_each_rebalance_has_its_cause_duration_and_moves(cluster: Cluster) -> None:
    began = cluster.now()
    topic, group = cluster.topic(), cluster.name("g")
    everything = tuple(partitions(topic))
    one = member(cluster, group, client_id="one", metadata_max_age_ms=200)
    two = member(cluster, group, client_id="two")
    one.subscribe(topic)
    poll_until(one, lambda: len(one.assignment()) == 4)
    two.subscribe(topic)
    poll_until(one, lambda: not two.poll(0) and len(one.assignment()) == len(two.assignment()) == 2)
    second_round = "partitions revoked, second round (KIP-429)"
    poll_until(one, lambda: second_round in [each.cause for each in one.rebalances()])
    first, joined, *_ = one.rebalances()
    assert (first.cause, first.added, first.removed) == ("first join", everything, ())
    assert joined.cause.startswith("the coordinator asked (heartbeat); joined: two-")
    assert len(joined.removed) == 2

    moved = two.assignment()
    two.close()
    poll_until(one, lambda: len(one.assignment()) == 4 and has_settled(one))
    left = one.rebalances()[-1]
    assert left.cause.startswith("the coordinator asked (heartbeat); left: two-")
    assert (frozenset(left.added), left.assigned) == (moved, everything)

    one.enforce_rebalance("the cache is cold")
    poll_until(one, lambda: "enforced" in one.rebalances()[-1].cause)
    assert one.rebalances()[-1].cause == "enforced: the cache is cold"

    cluster.add_partitions(topic, 5)
    poll_until(one, lambda: len(one.assignment()) == 5 and has_settled(one))
    changed = one.rebalances()[-1]
    assert changed.cause == f"metadata of subscribed topics changed: {topic}"
    assert changed.added == tuple(partitions(topic, 5)[4:])

    generations = [each.generation for each in one.rebalances()]
    assert generations == sorted(generations)
    for each in one.rebalances():
        assert 0 <= each.duration == (each.ended_monotonic_ms - each.started_monotonic_ms) / 1_000
        # The two clocks are read one after the other, in milliseconds.
        assert began - MOMENT <= each.started_at <= each.ended_at <= cluster.now() + MOMENT


@pytest.mark.brokers("virtual")
def test_b4_what_was_lost_by_a_poll_timeout_is_told_with_what_came_back(cluster: Cluster) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    one = member(cluster, group, max_poll_interval_ms=60_000)
    one.subscribe(topic)
    poll_until(one, lambda: len(one.assignment()) == 4)
    cluster.until(lambda: not one._core.assigned)
    poll_until(one, lambda: len(one.assignment()) == 4 and bool(one.rebalances()[-1].removed))
    last = one.rebalances()[-1]
    assert last.cause == "poll interval exceeded"
    assert last.removed == last.added == tuple(partitions(topic))
