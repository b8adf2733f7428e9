"""``uniform``: all members get equally many partitions, and keep their partitions if possible.

Balance goes before stickiness (UniformAssignor of Kafka's coordinator). This file is for groups whose members all
subscribe to the same topics; `heterogeneous` is for the others.
"""

from __future__ import annotations

from kadence_broker.coordinator.consumer.assignors import heterogeneous
from kadence_broker.coordinator.consumer.assignors.specification import GroupSpec, Shares
from kadence_broker.coordinator.partitions import by_topic

__all__ = ["assign"]


def assign(spec: GroupSpec) -> Shares:
    """The numbers of partitions differ by one at most, if all members read the same topics."""
    return _assign_same_topics(spec) if spec.is_homogeneous else heterogeneous.assign(spec)


def _assign_same_topics(spec: GroupSpec) -> Shares:
    topics = next((member.topics for member in spec.members.values()), frozenset[bytes]())
    if not topics:
        return {member_id: {} for member_id in spec.members}
    all_of_them = [(topic, partition) for topic in sorted(topics) for partition in range(spec.counts[topic])]
    least, more = divmod(len(all_of_them), len(spec.members))
    mine: dict[str, list[tuple[bytes, int]]] = {}
    wanted = set(all_of_them)
    for member_id, member in spec.members.items():
        had = [(topic, partition) for topic, partitions in member.had.items() for partition in partitions]
        mine[member_id] = sorted(each for each in had if each in wanted)
        wanted.difference_update(mine[member_id])
    free = [each for each in all_of_them if each in wanted]
    quotas: dict[str, int] = {}
    for index, (member_id, held) in enumerate(mine.items()):
        # Members that already have one more keep it, so that nothing moves needlessly; else the last members get it.
        gets_more = more > 0 and (len(held) > least or len(mine) - index <= more)
        more -= gets_more
        quotas[member_id] = least + gets_more
        free.extend(held[quotas[member_id] :])
        del held[quotas[member_id] :]
    rest = iter(free)
    for member_id, held in mine.items():
        held.extend(each for _, each in zip(range(quotas[member_id] - len(held)), rest, strict=False))
    return {member_id: by_topic(held) for member_id, held in mine.items()}
