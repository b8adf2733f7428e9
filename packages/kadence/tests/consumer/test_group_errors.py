"""What a group's refusals look like to an application: raised by poll, once each, and over when the cause is (B6)."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.consumer.support import Cluster, has_settled, partitions, poll_until, read
from tests.virtual import VirtualCluster

from kadence import Consumer, RebalanceListener, TopicPartition
from kadence.errors import BrokerError, GroupAuthorizationError
from kadence.protocol import error_codes as ec
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.sync_group import SyncGroupRequest

pytestmark = [pytest.mark.needs("groups", "faults"), pytest.mark.brokers("virtual")]


def member(cluster: Cluster) -> Consumer:
    return cluster.consumer(
        group_id=cluster.name("g"),
        group_protocol="classic",
        heartbeat_interval_ms=100,
        session_timeout_ms=6_000,
    )


def test_b6_a_refusal_is_raised_once_and_the_next_poll_tries_again(cluster: Cluster) -> None:
    assert cluster.broker is not None
    topic = cluster.topic()
    cluster.produce(topic, 4)
    consumer = member(cluster)
    with cluster.broker.faults.error(JoinGroupRequest, ec.UNKNOWN_SERVER_ERROR, times=1):
        consumer.subscribe(topic)
        with pytest.raises(BrokerError) as told:
            poll_until(consumer, lambda: False)
        assert told.value.code == ec.UNKNOWN_SERVER_ERROR
        assert len(read(consumer, 4)) == 4


def test_b6_an_authorisation_error_is_raised_by_each_attempt_and_ends_when_access_is_given(
    cluster: Cluster,
) -> None:
    assert cluster.broker is not None
    topic = cluster.topic()
    cluster.produce(topic, 4)
    consumer = member(cluster)
    consumer.subscribe(topic)
    with cluster.broker.faults.error(JoinGroupRequest, ec.GROUP_AUTHORIZATION_FAILED) as fault:
        for _ in range(3):
            with pytest.raises(GroupAuthorizationError, match="not allowed to read as group"):
                poll_until(consumer, lambda: False)
        assert fault.hits >= 3
    assert len(read(consumer, 4)) == 4


@pytest.mark.parametrize(
    "code", [ec.COORDINATOR_LOAD_IN_PROGRESS, ec.REBALANCE_IN_PROGRESS, ec.NOT_COORDINATOR]
)
def test_what_passes_is_not_raised(cluster: Cluster, code: int) -> None:
    assert cluster.broker is not None
    topic = cluster.topic()
    cluster.produce(topic, 4)
    consumer = member(cluster)
    with cluster.broker.faults.error(SyncGroupRequest, code, times=2) as fault:
        consumer.subscribe(topic)
        assert len(read(consumer, 4)) == 4
        assert fault.hits == 2


@pytest.mark.parametrize("code", [ec.UNKNOWN_MEMBER_ID, ec.ILLEGAL_GENERATION])
def test_a_lost_session_is_told_by_the_lost_callback_and_the_member_comes_back(
    cluster: Cluster, code: int
) -> None:
    assert cluster.broker is not None
    topic = cluster.topic()
    cluster.produce(topic, 4)
    consumer = member(cluster)
    told: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            told.append(("assigned", len(partitions)))

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            told.append(("revoked", len(partitions)))

        def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
            told.append(("lost", len(partitions)))

    consumer.subscribe(topic, listener=Listener())
    read(consumer, 4)
    with cluster.broker.faults.error(HeartbeatRequest, code, times=1):
        poll_until(consumer, lambda: len(told) == 3)
    assert told == [("assigned", 4), ("lost", 4), ("assigned", 4)]
    last = consumer.rebalances()[-1]
    assert last.cause == f"session lost: {ec.name(code)}"
    assert last.removed == last.added == tuple(partitions(topic))


def test_a_full_group_is_said_and_the_one_that_waits_gets_in_when_there_is_room() -> None:
    with closing(VirtualCluster(config={"group.max.size": 1})) as cluster:
        cluster.create_topic("t", 4)
        one, two = (
            cluster.consumer(group_id="g", group_protocol="classic", heartbeat_interval_ms=100)
            for _ in range(2)
        )
        with one, two:
            one.subscribe("t")
            poll_until(one, lambda: len(one.assignment()) == 4 and has_settled(one))
            two.subscribe("t")
            with pytest.raises(BrokerError, match=r"group\.max\.size"):
                poll_until(two, lambda: False)
            assert len(one.rebalances()) == 1
            one.close()
            poll_until(two, lambda: len(two.assignment()) == 4)
