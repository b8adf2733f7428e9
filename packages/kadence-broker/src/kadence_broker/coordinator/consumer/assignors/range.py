"""``range``: each reader of a topic gets one run of neighbouring partitions (RangeAssignor of Kafka's coordinator).

Members are sorted by their instance ids, then by their member ids, static ones first. So a static member that
comes back under a new member id gets the same partitions, and topics with equal partitions and readers match.
"""

from __future__ import annotations

from kadence_broker.coordinator.consumer.assignors.specification import GroupSpec, Shares

__all__ = ["assign"]


def assign(spec: GroupSpec) -> Shares:
    """The first members get one partition more of each topic that cannot be shared evenly."""
    shares: Shares = {member_id: {} for member_id in spec.members}
    readers: dict[bytes, list[str]] = {}
    for member_id in sorted(spec.members, key=lambda member_id: _rank(spec, member_id)):
        for topic in spec.members[member_id].topics:
            readers.setdefault(topic, []).append(member_id)
    for topic, members in readers.items():
        least, more = divmod(spec.counts[topic], len(members))
        start = 0
        for index, member_id in enumerate(members):
            end = start + least + (index < more)
            if start < end:
                shares[member_id][topic] = frozenset(range(start, end))
            start = end
    return shares


def _rank(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
