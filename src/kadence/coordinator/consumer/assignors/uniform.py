"""``uniform``: all members get equally many partitions, and keep their partitions where possible.

Balance goes before stickiness (UniformAssignor of Kafka's coordinator). This file is for groups whose members all
subscribe to the same topics; `heterogeneous` is for the others.
"""

from __future__ import annotations

from kadence.coordinator.consumer.assignors import heterogeneous
from kadence.coordinator.consumer.assignors.specification import GroupSpec, Shares
from kadence.coordinator.consumer.partitions import by_topic

__all__ = ["assign"]


def assign(spec: GroupSpec) -> Shares:
    """Numbers of partitions differ by one at most, if all members read the same topics."""
    return _assign_same_topics(spec) if spec.is_homogeneous else heterogeneous.assign(spec)


def _assign_same_topics(spec: GroupSpec) -> Shares:
    topics = next((member.topics for member in spec.members.values()), frozenset[bytes]())
    if not topics:
        return {member_id: {} for member_id in spec.members}
    free = {(topic, partition) for topic in topics for partition in range(spec.counts[topic])}
    least, more = divmod(len(free), len(spec.members))
    mine: dict[str, list[tuple[bytes, int]]] = {}
    for member_id, member in spec.members.items():
        had = [(topic, partition) for topic, partitions in member.had.items() for partition in partitions]
        mine[member_id] = sorted(each for each in had if each in free)
        free.difference_update(mine[member_id])
    # Whoever holds most keeps the partition that cannot be shared: so nothing moves needlessly.
    quotas: dict[str, int] = {}
    for member_id in sorted(mine, key=lambda member_id: -len(mine[member_id])):
        quota = quotas[member_id] = least + (more > 0)
        more -= 1
        free.update(mine[member_id][quota:])
        del mine[member_id][quota:]
    rest = iter(sorted(free))
    for member_id, held in mine.items():
        held.extend(each for _, each in zip(range(quotas[member_id] - len(held)), rest, strict=False))
    return {member_id: by_topic(held) for member_id, held in mine.items()}
