"""From one assignor to another without downtime: the two bounces of KIP-429, member by member, under virtual time."""

from __future__ import annotations

import pytest
from tests.worlds.classic_group import Group
from tests.worlds.members import Member

from kadence.consumer.border import messages as m
from kadence.consumer.managers.group.classic.states import State
from kadence.types import TopicPartition

ROADS = {
    "range to cooperative-sticky": [("range",), ("cooperative-sticky", "range"), ("cooperative-sticky",)],
    "sticky to cooperative-sticky": [("sticky",), ("cooperative-sticky", "sticky"), ("cooperative-sticky",)],
    "roundrobin to sticky": [("roundrobin",), ("sticky", "roundrobin"), ("sticky",)],
    "and back": [("cooperative-sticky",), ("cooperative-sticky", "range"), ("range",)],
    "Java's defaults": [("range",), ("range", "cooperative-sticky"), ("cooperative-sticky",)],
}


class Upgrade:
    """Three members that are replaced one by one."""

    def __init__(self, strategy: tuple[str, ...]) -> None:
        self.group = Group({"t": 6, "u": 3})
        self.count = 0
        for _ in range(3):
            self.add(strategy)
        self.settle()

    @property
    def members(self) -> list[Member]:
        return [member for member in self.group.members if not member.has_left()]

    def add(self, strategy: tuple[str, ...]) -> None:
        self.count += 1
        self.group.member(f"m{self.count}", ("t", "u"), partition_assignment_strategy=strategy)

    def settle(self) -> None:
        """Until everything is owned; no partition by two members at any moment on the way."""
        everything = [TopicPartition(t, n) for t, count in self.group.topics.items() for n in range(count)]
        for _ in range(6_000):
            self.group.advance(5)
            owned = [p for member in self.members for p in member.owned]
            assert len(owned) == len(set(owned)), f"owned twice: {[each.owned for each in self.members]}"
            stable = all(member.membership.state is State.STABLE for member in self.members)
            if stable and sorted(owned) == sorted(everything):
                return
        raise AssertionError([repr(member.membership) for member in self.members])

    def bounce(self, strategy: tuple[str, ...]) -> None:
        """Stop each member and start another in its place."""
        for member in self.members:
            member.membership.leave(self.group.now, reason="upgrade")
            self.group.advance(20)
            self.add(strategy)
            self.settle()


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_kip_429_rolling_upgrade(road: list[tuple[str, ...]]) -> None:
    start, *bounces = road
    upgrade = Upgrade(start)
    for strategy in bounces:
        upgrade.bounce(strategy)
    assert [fact for member in upgrade.group.members for fact in member.of(m.Failed)] == []
    assert not [f for member in upgrade.group.members for f in member.of(m.LosePartitions)]
    # At the end a member comes: who is cooperative gives up its share only.
    before = {member: set(member.owned) for member in upgrade.members}
    told = {member: len(member.history) for member in before}
    upgrade.add(road[-1])
    upgrade.settle()
    for member, owned in before.items():
        revoked = {
            p for name, given in member.history[told[member] :] for p in given if name == "RevokePartitions"
        }
        cooperative = road[-1] == ("cooperative-sticky",)
        assert revoked == (owned - set(member.owned) if cooperative else owned)


@pytest.mark.parametrize("strategy", [("range",), ("roundrobin",), ("sticky",)])
def test_a_direct_change_is_refused_and_the_group_goes_on(strategy: tuple[str, ...]) -> None:
    group = Group({"t": 4})
    old = group.member("old", partition_assignment_strategy=strategy)
    group.settle()
    new = group.member("new", partition_assignment_strategy=("cooperative-sticky",))
    group.advance(5_000)
    text = str(new.of(m.Failed)[0].error)
    assert "offers cooperative-sticky" in text
    assert "first with both, the new one in front" in text
    assert len(new.of(m.Failed)) < 15, "it does not knock in a tight loop"
    assert len(old.owned) == 4
