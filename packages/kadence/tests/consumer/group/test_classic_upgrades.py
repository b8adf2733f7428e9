"""From one assignor to another without downtime: the two bounces of KIP-429, member by member, in virtual time."""

from __future__ import annotations

import pytest
from tests.simulated import Group, revoked

from kadence import AsyncConsumer
from kadence.errors import InconsistentGroupProtocolError
from kadence_testing.simulation import Program

ROADS = {
    "range to cooperative-sticky": ["range", "cooperative-sticky,range", "cooperative-sticky"],
    "sticky to cooperative-sticky": ["sticky", "cooperative-sticky,sticky", "cooperative-sticky"],
    "roundrobin to sticky": ["roundrobin", "sticky,roundrobin", "sticky"],
    "and back": ["cooperative-sticky", "cooperative-sticky,range", "range"],
    "Java's defaults": ["range", "range,cooperative-sticky", "cooperative-sticky"],
}


class Upgrade:
    """Three members that are replaced one by one. The simulation sees to it that nothing is given to two of them."""

    def __init__(self, group: Group, strategy: str) -> None:
        self.group = group
        for _ in range(3):
            self.add(strategy)
        self.group.settle()

    def add(self, strategy: str) -> None:
        name = f"m{len(self.group.programs)}"
        self.group.member(name, ("t", "u"), partition_assignment_strategy=strategy)

    def bounce(self, strategy: str) -> None:
        """Stop each member and start another in its place."""
        for member in self.group.members:
            member.stop()
            self.group.until(lambda member=member: member.is_done)  # type: ignore[misc]
            self.add(strategy)
            self.group.settle()


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_kip_429_rolling_upgrade(road: list[str]) -> None:
    start, *bounces = road
    with Group({"t": 6, "u": 3}) as group:
        upgrade = Upgrade(group, start)
        for strategy in bounces:
            upgrade.bounce(strategy)
        assert not [
            told for program in group.programs.values() for told in program.told if told.kind == "lost"
        ]
        # At the end a member comes: who is cooperative gives up its share only.
        before = {member: (member.owned, len(revoked(member))) for member in group.members}
        upgrade.add(road[-1])
        group.settle()
        for member, (owned, told) in before.items():
            given_up = frozenset[object]().union(*revoked(member)[told:])
            assert given_up == (owned - member.owned if road[-1] == "cooperative-sticky" else owned)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky"])
def test_a_direct_change_is_refused_and_the_group_goes_on(strategy: str) -> None:
    said: list[str] = []

    async def refused(program: Program) -> None:
        async with AsyncConsumer(
            bootstrap_servers=program.bootstrap_servers,
            group_id="g",
            group_protocol="classic",
            partition_assignment_strategy="cooperative-sticky",
        ) as consumer:
            await consumer.subscribe("t", listener=program.attach(consumer))
            while not program.stopping.is_set():
                try:
                    await consumer.poll(1)
                except InconsistentGroupProtocolError as error:
                    said.append(str(error))

    with Group({"t": 4}) as group:
        old = group.member("old", partition_assignment_strategy=strategy)
        group.settle()
        new = group.start("new", refused)
        group.run(5)
        assert "offers cooperative-sticky" in said[0]
        assert "first with both, the new one in front" in said[0]
        assert "('cooperative-sticky,range')" in said[0]
        assert len(said) < 15, "it does not knock in a tight loop"
        assert len(old.owned) == 4
        new.stop()
        group.until(lambda: new.is_done)


def test_group_with_members_of_default_java_agrees_on_the_common_assignor() -> None:
    with Group({"t": 4}) as group:
        java_like = group.member("java", partition_assignment_strategy="range,cooperative-sticky")
        group.settle()
        ours = group.member("ours")
        group.settle()
        assert (len(java_like.owned), len(ours.owned)) == (2, 2)
