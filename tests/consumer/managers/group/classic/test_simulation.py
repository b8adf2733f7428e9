"""Groups under random trouble: members come, go, die, stall and lose connections; afterwards all is well again.

Each seed is one history, replayable. At every step `Group` itself checks that no partition has two owners in
one generation, and that nothing spins while no time passes.
"""

from __future__ import annotations

import random

import pytest
from tests.luck import seeds
from tests.worlds.classic_group import Group
from tests.worlds.members import Member

from kadence.connection.request import Request
from kadence.consumer.border import messages as m
from kadence.protocol import error_codes as ec
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.types import TopicPartition

STRATEGIES = [
    ("cooperative-sticky",),
    ("range",),
    ("sticky",),
    ("roundrobin",),
    ("cooperative-sticky", "range"),
    ("cooperative-sticky", "sticky"),
]


class Story:
    """One random history."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.calm = False
        self.strategy = rng.choice(STRATEGIES)
        self.upgrading = rng.random() < 0.5
        self.loss = rng.choice([0.0, 0.02, 0.2])
        self.group = Group({"t": rng.randint(1, 9), "u": rng.randint(1, 4)})
        slowest = rng.choice([0, 1, 20, 300])
        self.group.delay = lambda: rng.randint(0, slowest)
        self.names = rng.random() < 0.4
        """Whether some members are static, which JoinGroup knows from version 5 on."""
        if not self.names and rng.random() < 0.3:
            self.group.versions = {
                key: rng.randint(0, top) for key, top in {11: 9, 14: 5, 12: 4, 13: 5}.items()
            }
        self.group.lose = lambda member, request: not self.calm and rng.random() < self.loss
        self.group.refuse = self.refuse
        self.add()

    def refuse(self, member: Member, request: Request) -> HeartbeatResponse | None:
        del member
        if self.calm or not isinstance(request.message, HeartbeatRequest) or self.rng.random() > self.loss:
            return None
        codes = [ec.NOT_COORDINATOR, ec.COORDINATOR_LOAD_IN_PROGRESS, ec.REBALANCE_IN_PROGRESS]
        return HeartbeatResponse(error_code=self.rng.choice(codes))

    @property
    def living(self) -> list[Member]:
        return [member for member in self.group.members if not member.dead]

    # -- what may happen

    def add(self) -> None:
        if len(self.living) < 6:
            self.group.member(
                f"m{len(self.group.members)}",
                subscribe=self.rng.choice([("t",), ("t", "u"), ("t", "u")]),
                partition_assignment_strategy=self.strategy_of_a_member(),
                has_listener=self.rng.random() < 0.5,
                max_poll_interval_ms=30_000,
                group_instance_id=self.name_of_a_member(),
                client_rack=self.rng.choice(["", "r1"]),
            )

    def name_of_a_member(self) -> str | None:
        """A new one, or that of a process that died."""
        if not self.names or self.rng.random() < 0.5:
            return None
        taken = {member.config.group_instance_id for member in self.living}
        free = sorted({str(member.config.group_instance_id) for member in self.group.members if member.dead})
        free = [name for name in free if name != "None" and name not in taken]
        return self.rng.choice(free) if free and self.rng.random() < 0.7 else f"i{len(self.group.members)}"

    def strategy_of_a_member(self) -> tuple[str, ...]:
        """In the middle of a rolling upgrade some members have both names, some the new one or the old one alone."""
        bounce = (
            self.strategy if len(self.strategy) == 1 else self.rng.choice([self.strategy, self.strategy[1:]])
        )
        return bounce if self.upgrading else self.strategy

    def kill(self, member: Member) -> None:
        if len(self.living) > 1:
            self.group.kill(member)

    def leave(self, member: Member) -> None:
        member.membership.leave(self.group.now, reason="leaves", callbacks=not member.busy)

    def work(self, member: Member) -> None:
        member.work(self.group.now)

    def poll(self, member: Member) -> None:
        member.poll(self.group.now)

    def subscribe(self, member: Member) -> None:
        member.subscribe(self.group.now, self.rng.choice([("t",), ("t", "u")]))

    def rebalance(self, member: Member) -> None:
        member.membership.rebalance(self.group.now, "any")

    def commit(self, member: Member) -> None:
        offsets = dict.fromkeys(member.owned, self.rng.randint(0, 99))
        member.commit(self.group.now, offsets, retry=self.rng.random() < 0.5)

    def happen(self) -> None:
        if not self.living or self.rng.random() < 0.25:
            self.add()
        else:
            (act,) = self.rng.choices(
                [self.kill, self.leave, self.work, self.poll, self.subscribe, self.rebalance, self.commit],
                [7, 8, 20, 20, 5, 5, 10],
            )
            act(self.rng.choice(self.living))
        self.group.advance(self.rng.choice([0, 1, 10, 100, 1_000, 5_000, 40_000]))

    def end(self) -> None:
        """Everybody polls again and nothing is lost any more: the group must come to rest."""
        self.calm = True
        self.add()
        for member in self.living:
            member.subscribe(self.group.now, ("t", "u"))
            member.poll(self.group.now)
        self.group.settle(120_000)
        self.group.advance(60_000)
        check_facts(self.group)
        # An eager member that is busy when a rebalance begins holds it up, and may be dropped for that.
        if not self.loss and self.strategy == ("cooperative-sticky",):
            causes = [cause for member in self.living for cause in member.causes]
            assert not [cause for cause in causes if cause.startswith("session lost")], (
                "lost without a reason"
            )


def check_facts(group: Group) -> None:
    for member in group.members:
        if member.dead:
            continue
        assert member.commits.pending == 0
        assert not member.of(m.Failed), member.of(m.Failed)
        held: set[TopicPartition] = set()
        for kind, told in member.history:
            names = set(told)
            if kind == "AssignPartitions":
                assert not names & held, "assigned twice"
                held |= names
            else:
                # Lost may also be what was assigned and not told of yet (B11).
                assert names <= held or kind == "LosePartitions", "given up without having had it"
                held -= names
        assert held == set(member.owned)
        assert not any(
            state.cell.revoking or state.cell.held for state in member.subscription.partitions.values()
        )
        ids = [fact.id for fact in member.of(m.CommitCompleted)]
        assert ids == sorted(ids), "results of commits out of order"


@pytest.mark.parametrize("seed", seeds(60))
def test_trouble(seed: int) -> None:
    story = Story(seed)
    for _ in range(story.rng.randint(5, 40)):
        story.happen()
    story.end()
