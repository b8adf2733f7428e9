"""Kafka's ``range`` and ``roundrobin``: assignors that ignore the previous owner of a partition.

*range*: of each topic, each member gets one contiguous run of partitions.
Members with the same subscription get the same partition numbers of every topic, so two topics that are
partitioned alike can be joined by one member. The price is imbalance: the first members get one partition
more *of each topic*. Where racks matter (KIP-881) members first take partitions that are near, up to their share, and
then the rest in the usual way; topics that are partitioned alike and read alike stay so: a number goes to one member in
all of them.

*roundrobin*: all partitions of all topics are dealt out to the members in turn.
Members with one and the same subscription get loads that differ by one at most. A member is skipped for topics that it
does not read, so with unequal subscriptions loads may differ widely; the sticky assignors do better there.

Both sort members as Kafka does: static ones first, by instance id, then the others by member id. So the result in a
mixed group does not depend on the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from kadence.consumer.assignors.base import Assignment, Assignor, MemberSubscription, Racks, in_order
from kadence.types import TopicPartition

__all__ = ["RangeAssignor", "RoundRobinAssignor"]


class RangeAssignor(Assignor):
    """Kafka's ``range`` assignor: gives each member one contiguous run of partitions of each topic."""

    name = "range"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignment:
        ordered = in_order(members)
        racks = Racks(partitions, members)
        shares = []
        for topic in sorted(partitions):
            readers = tuple(member for member in ordered if topic in members[member].topics)
            if readers:
                shares.append(_Shares(topic, partitions[topic], readers))
        if any(racks.matter(each.topic, each.readers) for each in shares):
            _take_what_is_near(shares, racks)
        result: Assignment = {member: [] for member in members}
        for each in shares:
            each.fill(lambda member, partition: True)
            for member, given in each.given.items():
                result[member] += sorted(given)
        return result


class _Shares:
    """One topic during the assignment.

    Attributes:
        free: partitions without an owner yet, in order. given: those of each reader.
    """

    def __init__(self, topic: str, count: int, readers: tuple[str, ...]) -> None:
        self.topic = topic
        self.count = count
        self.readers = readers
        self.free = dict.fromkeys(TopicPartition(topic, number) for number in range(count))
        self.given: dict[str, list[TopicPartition]] = {reader: [] for reader in readers}
        self._each, self._more = divmod(count, len(readers))

    def room(self, reader: str) -> int:
        """How many more it may have: its share, and one of the remainder."""
        return max(0, self._each + (self._more > 0) - len(self.given[reader]))

    def give(self, reader: str, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            del self.free[partition]
            self.given[reader].append(partition)
        if len(self.given[reader]) > self._each:
            self._more -= 1

    def fill(self, allowed: Callable[[str, TopicPartition], bool]) -> None:
        """Each reader in turn takes its run of the free partitions that it may have."""
        for reader in self.readers:
            run = [partition for partition in self.free if allowed(reader, partition)][: self.room(reader)]
            if run:
                self.give(reader, run)


def _take_what_is_near(shares: list[_Shares], racks: Racks) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_Shares]] = {}
    for each in shares:
        alike.setdefault((each.readers, each.count), []).append(each)
    for (readers, count), topics in alike.items():
        if len(topics) > 1:
            _take_in_all(topics, readers, count, racks)
        elif racks.matter(topics[0].topic, readers):
            topics[0].fill(racks.near)


def _take_in_all(topics: list[_Shares], readers: tuple[str, ...], count: int, racks: Racks) -> None:
    """Give each number to the first reader that has room in all of these topics and is near to it in all of them."""
    hungry = dict.fromkeys(readers)
    for number in range(count):
        for reader in hungry:
            if all(
                each.room(reader) and racks.near(reader, TopicPartition(each.topic, number))
                for each in topics
            ):
                for each in topics:
                    each.give(reader, [TopicPartition(each.topic, number)])
                if not any(each.room(reader) for each in topics):
                    del hungry[reader]
                break


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
