"""When a topic that was just created is known to the group coordinator."""

from __future__ import annotations

from uuid import uuid4

from tests.broker.wire import Wire

from kadence.protocol.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest

__all__ = ["coordinator_knows"]


def coordinator_knows(wire: Wire, topics: list[str]) -> bool:
    """Whether a new group of KIP-848 is assigned partitions of all these topics.

    Real Kafka tells its group coordinator of a topic last, after those who answer Metadata and ListOffsets. A member
    that joins in between is assigned nothing. The fixture's Kafka has one partition of __consumer_offsets, so one
    coordinator has all groups, and what it tells a group of ours it tells the group of a test.
    """
    group, member = f"probe-{uuid4()}", "probe"
    join = ConsumerGroupHeartbeatRequest(
        group, member, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=topics, topic_partitions=[]
    )
    # Real Kafka makes the topic of its coordinator when somebody looks for one.
    wire.call(FindCoordinatorRequest(coordinator_keys=[group]))
    given = wire.call(join, 1).assignment
    wire.call(ConsumerGroupHeartbeatRequest(group, member, -1), 1)
    return given is not None and len(given.topic_partitions) == len(topics)
