"""Totals over the members of a KIP-848 group, updated with each change, because each heartbeat needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kadence_broker.coordinator.consumer.member import Member

__all__ = ["Census"]


class Census:
    """Counts over members, and the owner of each partition.

    Attributes:
        names, patterns: the number of members that subscribe to each topic name and to each regular expression.
        assignors: the number of members that name each.
        protocols: the number of classic members that support each. classic: the number of classic members.
        owners: (topic id, partition) -> the member that has it, or is still to revoke it.
    """

    __slots__ = ("assignors", "classic", "names", "owners", "patterns", "protocols")

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self.patterns: Counter[str] = Counter()
        self.assignors: Counter[str] = Counter()
        self.protocols: Counter[str] = Counter()
        self.classic = 0
        self.owners: dict[tuple[bytes, int], str] = {}

    def count(self, member: Member) -> None:
        """Count a member that is new, or a new version of one."""
        self.names.update(member.topics)
        if member.regex:
            self.patterns[member.regex] += 1
        if member.assignor is not None:
            self.assignors[member.assignor] += 1
        if member.classic is not None:
            self.classic += 1
            # A member that lists one twice still has one vote.
            self.protocols.update({name for name, _ in member.classic.protocols})
        for partitions in (member.assigned, member.revoking):
            for topic, epochs in partitions.items():
                for partition in epochs:
                    self.owners[topic, partition] = member.member_id

    def discount(self, member: Member) -> None:
        """Take out a member that left, or the old version of one."""
        _take_away(self.names, member.topics)
        if member.regex:
            _take_away(self.patterns, [member.regex])
        if member.assignor is not None:
            _take_away(self.assignors, [member.assignor])
        if member.classic is not None:
            self.classic -= 1
            _take_away(self.protocols, {name for name, _ in member.classic.protocols})
        for partitions in (member.assigned, member.revoking):
            for topic, epochs in partitions.items():
                for partition in epochs:
                    if self.owners.get((topic, partition)) == member.member_id:
                        del self.owners[topic, partition]


def _take_away(counter: Counter[str], names: Iterable[str]) -> None:
    for name in names:
        counter[name] -= 1
        if not counter[name]:
            del counter[name]
