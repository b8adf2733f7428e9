"""A member whose heartbeats are not answered: its group removes it, and it says so to probes, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.virtual import VirtualCluster

from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.heartbeat import HeartbeatRequest

HEARTBEATS: dict[str, type[Any]] = {"classic": HeartbeatRequest, "consumer": ConsumerGroupHeartbeatRequest}
SETTINGS: dict[str, dict[str, Any]] = {"classic": {"session_timeout_ms": 10_000}, "consumer": {}}
SESSION_S = {"classic": 10, "consumer": 45}


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    made = VirtualCluster(config={"group.consumer.heartbeat.interval.ms": 5_000})
    made.create_topic("t", 1)
    yield made
    made.close()


def waits(cluster: VirtualCluster, consumer: Any, seconds: float) -> None:
    """Let so much time pass while the application polls, and nothing comes."""
    until = cluster.simulation.scheduler.now_ms() + seconds * 1_000
    while (left := (until - cluster.simulation.scheduler.now_ms()) / 1_000) > 0:
        assert not consumer.poll(min(left, 1))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_it_is_not_ready_once_its_session_is_over(cluster: VirtualCluster, protocol: str) -> None:
    consumer = cluster.consumer(group_id="g", group_protocol=protocol, **SETTINGS[protocol])
    consumer.subscribe("t")
    waits(cluster, consumer, 20)
    assert consumer.health() == (True, True, ())
    with cluster.virtual_broker.faults.drop(HEARTBEATS[protocol]):
        # The last one that was answered may be an interval old.
        waits(cluster, consumer, SESSION_S[protocol] - 6)
        assert consumer.health().ready
        waits(cluster, consumer, 12)
        assert cluster.members("g") == 0
        alive, ready, why = consumer.health()
        assert (alive, ready) == (True, False)
        assert why == (
            "no heartbeat has been answered for so long that group 'g' may have removed this member",
        )
    waits(cluster, consumer, 60)
    assert consumer.health() == (True, True, ())
    consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_coordinator_that_is_away_for_a_moment_is_no_matter(cluster: VirtualCluster, protocol: str) -> None:
    consumer = cluster.consumer(group_id="g", group_protocol=protocol, **SETTINGS[protocol])
    consumer.subscribe("t")
    waits(cluster, consumer, 20)
    with cluster.virtual_broker.faults.drop(HEARTBEATS[protocol]):
        waits(cluster, consumer, SESSION_S[protocol] - 6)
    waits(cluster, consumer, SESSION_S[protocol])
    assert consumer.health() == (True, True, ())
    consumer.close()


def test_who_has_assigned_by_hand_sends_no_heartbeats(cluster: VirtualCluster) -> None:
    consumer = cluster.consumer(group_id="g")
    consumer.assign_topics("t")
    waits(cluster, consumer, 600)
    assert consumer.health() == (True, True, ())
    consumer.close()
