"""Kafka's ``roundrobin``: all partitions of all topics are dealt out to the members in turn.

Members with one and the same subscription get loads that differ by one at most. A member is passed over for
topics that it does not read, so with unequal subscriptions loads may be far apart; the sticky assignors do better
there. Members are ordered static ones first, as Kafka orders them, so that mixed groups agree whoever leads.
"""

from __future__ import annotations

from collections.abc import Mapping

from kadence.consumer.assignors.base import Assignment, Assignor, MemberSubscription, in_order
from kadence.types import TopicPartition

__all__ = ["RoundRobinAssignor"]


class RoundRobinAssignor(Assignor):
    """Kafka's ``roundrobin`` assignor: deals out the partitions of all topics to the members in turn."""

    name = "roundrobin"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        result: Assignment = {member: [] for member in members}
        ordered = in_order(members)
        turn = 0
        for topic in sorted(partitions):
            readers = {member for member in ordered if topic in members[member].topics}
            if not readers:
                continue
            for number in range(partitions[topic]):
                while ordered[turn % len(ordered)] not in readers:
                    turn += 1
                result[ordered[turn % len(ordered)]].append(TopicPartition(topic, number))
                turn += 1
        return result
