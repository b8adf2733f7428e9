"""Totals over the members of a KIP-848 group, updated with each change, because each heartbeat needs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from kadence.coordinator.consumer.member import Member

__all__ = ["Census"]


class Census:
    """Counts over members, and who has which partition.

    Attributes:
        names, patterns: how many members subscribe to each topic's name and to each regular expression.
        assignors: how many members name each.
        protocols: how many classic members know each. classic: how many there are.
        owners: (topic id, partition) -> the member that has it, or is still to give it up.
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
        """A member has come, or has a new self."""
        self.names.update(member.topics)
        if member.regex:
            self.patterns[member.regex] += 1
        if member.assignor is not None:
            self.assignors[member.assignor] += 1
        if member.classic is not None:
            self.classic += 1
            # A member that names one twice still has one vote.
            self.protocols.update({name for name, _ in member.classic.protocols})
        for partitions in (member.assigned, member.revoking):
            for topic, epochs in partitions.items():
                for partition in epochs:
                    self.owners[topic, partition] = member.member_id

    def discount(self, member: Member) -> None:
        """A member is gone, or has become another."""
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
