"""Kafka's ``range``: of each topic, each member gets one contiguous run of partitions.

Members with the same subscription get the same partition numbers of every topic, so two topics that are
partitioned alike can be joined by one member. The price is imbalance: the first members get one partition
more *of each topic*. Members are ordered static ones first, by instance id, then by member id, as Kafka orders
them, so that mixed groups agree whoever leads.
"""

from __future__ import annotations

from collections.abc import Mapping

from kadence.consumer.assignors.base import Assignment, Assignor, MemberSubscription, in_order
from kadence.types import TopicPartition

__all__ = ["RangeAssignor"]


class RangeAssignor(Assignor):
    """See the head of this file."""

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        result: Assignment = {member: [] for member in members}
        ordered = in_order(members)
        for topic in sorted(partitions):
            readers = [member for member in ordered if topic in members[member].topics]
            if not readers:
                continue
            each, more = divmod(partitions[topic], len(readers))
            start = 0
            for rank, member in enumerate(readers):
                end = start + each + (rank < more)
                result[member] += [TopicPartition(topic, number) for number in range(start, end)]
                start = end
        return result
