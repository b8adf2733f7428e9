"""cooperative-sticky by its promises: nothing twice, nothing lost, even, sticky, safe in between (KIP-429, KIP-792)."""

from __future__ import annotations

import itertools
import random
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples

from kadence.consumer.assignors import CooperativeStickyAssignor, LastAssignment, MemberSubscription
from kadence.types import TopicPartition

ASSIGNOR = CooperativeStickyAssignor()
TOPICS = "abcd"

counts_ = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1, max_size=4)
names_ = st.lists(st.sampled_from(["m1", "m2", "m3", "m4", "m5", "m6"]), unique=True, min_size=1, max_size=6)
topics_ = st.frozensets(st.sampled_from(TOPICS), min_size=1)


class Fleet:
    """Members that do what cooperative members do: keep, give up, rejoin."""

    def __init__(self, counts: dict[str, int], members: dict[str, frozenset[str]]) -> None:
        self.counts = counts
        self.topics = dict(members)
        self.owned: dict[str, frozenset[TopicPartition]] = {name: frozenset() for name in members}
        self.generation = 1

    def subscriptions(self) -> dict[str, MemberSubscription]:
        return {
            name: MemberSubscription(
                topics,
                tuple(sorted(p for p in self.owned[name] if p.topic in topics)),
                self.generation if self.owned[name] else -1,
            )
            for name, topics in self.topics.items()
        }

    def round(self) -> bool:
        """One rebalance. True when somebody had to give something up, so another one follows."""
        before = self.subscriptions()
        got = {name: frozenset(parts) for name, parts in ASSIGNOR.assign(self.counts, before).items()}
        for name, parts in got.items():
            for other, said in before.items():
                assert other == name or not parts & frozenset(said.owned), "given away before it was given up"
        everything = list(itertools.chain(*got.values()))
        assert len(everything) == len(set(everything)), "two owners"
        revoked = any(frozenset(before[name].owned) - got[name] for name in got)
        self.owned, self.generation = got, self.generation + 1
        return revoked

    def settle(self) -> int:
        """Rebalance until nobody has to give anything up; the number of rounds."""
        for rounds in range(1, 4):
            if not self.round():
                return rounds
        raise AssertionError("no agreement after three rounds")

    def wanted(self) -> set[TopicPartition]:
        read = frozenset().union(*self.topics.values()) if self.topics else frozenset()
        return {TopicPartition(t, n) for t, count in self.counts.items() if t in read for n in range(count)}

    def loads(self) -> list[int]:
        return sorted(len(parts) for parts in self.owned.values())


@given(counts_, st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), topics_, min_size=1))
def test_everything_once_after_one_round_from_nothing(
    counts: dict[str, int], members: dict[str, frozenset[str]]
) -> None:
    fleet = Fleet(counts, members)
    assert fleet.settle() == 1
    assert set().union(*fleet.owned.values()) == fleet.wanted()
    for name, parts in fleet.owned.items():
        assert {p.topic for p in parts} <= members[name]


@given(counts_, names_)
def test_even_within_one_for_equal_subscriptions(counts: dict[str, int], names: list[str]) -> None:
    fleet = Fleet(counts, dict.fromkeys(names, frozenset(TOPICS)))
    fleet.settle()
    loads = fleet.loads()
    assert loads[-1] - loads[0] <= 1


@given(
    counts_,
    st.lists(
        st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), topics_, min_size=1),
        min_size=2,
        max_size=4,
    ),
)
def test_agreement_after_two_rounds_whatever_changed(
    counts: dict[str, int], changes: list[dict[str, frozenset[str]]]
) -> None:
    fleet = Fleet(counts, changes[0])
    fleet.settle()
    for members in changes[1:]:
        fleet.topics = dict(members)
        fleet.owned = {name: fleet.owned.get(name, frozenset()) for name in members}
        assert fleet.settle() <= 2
        assert set().union(*fleet.owned.values()) == fleet.wanted()
        kept = dict(fleet.owned)
        assert fleet.settle() == 1
        assert fleet.owned == kept, "a rebalance without a reason moves nothing"


def test_agreement_after_two_rounds_where_the_free_partitions_have_to_go_round_about() -> None:
    """a-1 to m4 and b-2 to m3: the other way round m4 gets nothing, and m2 must give up a-0 for it."""
    fleet = Fleet({"a": 2, "b": 3}, {"m1": frozenset("b"), "m2": frozenset("a")})
    assert fleet.settle() == 1
    fleet.topics |= {"m2": frozenset("ab"), "m3": frozenset("ab"), "m4": frozenset("a")}
    fleet.owned |= {"m3": frozenset(), "m4": frozenset()}
    assert fleet.settle() == 2
    assert fleet.loads() == [1, 1, 1, 2]


@pytest.mark.parametrize("seed", range(300))
def test_agreement_after_two_rounds_whoever_owns_what(seed: int) -> None:
    """From any ownership at all, whether an assignor would have made it or not: see the head of plan.py for why."""
    rng = random.Random(seed)
    counts = {topic: rng.randint(1, 6) for topic in rng.sample("abcdefgh", rng.randint(1, 8))}
    names = [f"m{number}" for number in range(rng.randint(1, 9))]
    members = {name: frozenset(rng.sample("abcdefgh", rng.randint(1, 8))) for name in names}
    fleet = Fleet(counts, members)
    for topic, count in counts.items():
        readers = [name for name in names if topic in members[name]]
        for number in range(count):
            if readers and rng.random() < 0.8:
                owner = rng.choice(readers)
                fleet.owned[owner] |= {TopicPartition(topic, number)}
    assert fleet.settle() <= 2
    assert set().union(*fleet.owned.values()) == fleet.wanted()


@given(counts_, st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4"]), topics_, min_size=1, max_size=4))
@examples(30)
def test_as_even_as_subscriptions_permit(counts: dict[str, int], members: dict[str, frozenset[str]]) -> None:
    """No single chain of moves can make it more even: compared with exhaustive search over loads."""
    counts = {topic: min(count, 3) for topic, count in counts.items()}
    fleet = Fleet(counts, members)
    fleet.settle()
    names = sorted(members)
    reachable = {tuple(0 for _ in names)}
    for partition in sorted(fleet.wanted()):
        reachable = {
            tuple(load + (i == chosen) for i, load in enumerate(loads))
            for loads in reachable
            for chosen, name in enumerate(names)
            if partition.topic in members[name]
        }
    best = min(sum(load * load for load in loads) for loads in reachable)
    assert sum(load * load for load in fleet.loads()) == best


@given(counts_, names_)
def test_sticky_when_a_member_leaves_the_others_keep_all(counts: dict[str, int], names: list[str]) -> None:
    fleet = Fleet(counts, dict.fromkeys(names, frozenset(TOPICS)))
    fleet.settle()
    if len(names) == 1:
        return
    gone = names[0]
    before = dict(fleet.owned)
    del fleet.topics[gone], fleet.owned[gone]
    assert fleet.settle() == 1
    for name, parts in fleet.owned.items():
        assert before[name] <= parts


@given(counts_, names_)
def test_sticky_when_a_member_joins_only_its_share_moves(counts: dict[str, int], names: list[str]) -> None:
    fleet = Fleet(counts, dict.fromkeys(names, frozenset(TOPICS)))
    fleet.settle()
    before = dict(fleet.owned)
    fleet.topics["new"], fleet.owned["new"] = frozenset(TOPICS), frozenset()
    fleet.settle()
    moved = sum(len(before[name] - parts) for name, parts in fleet.owned.items() if name != "new")
    assert moved == len(fleet.owned["new"])


def _owner(assignment: dict[str, list[TopicPartition]], partition: TopicPartition) -> str | None:
    return next((name for name, parts in assignment.items() if partition in parts), None)


P = TopicPartition("a", 0)


def test_kip_792_the_higher_generation_wins() -> None:
    members = {
        "old": MemberSubscription(frozenset("a"), (P,), 4),
        "new": MemberSubscription(frozenset("a"), (P,), 5),
    }
    assert _owner(ASSIGNOR.assign({"a": 1}, members), P) == "new"


def test_kip_792_of_two_claims_of_one_generation_neither_keeps() -> None:
    members = {name: MemberSubscription(frozenset("a"), (P,), 5) for name in ("m1", "m2")}
    assert _owner(ASSIGNOR.assign({"a": 1}, members), P) is None


def test_generation_of_older_java_members_is_in_the_user_data() -> None:
    members = {
        "java": MemberSubscription(frozenset("a"), (P,), -1, user_data=struct.pack(">i", 6)),
        "ours": MemberSubscription(frozenset("a"), (P,), 5),
    }
    assert _owner(ASSIGNOR.assign({"a": 1}, members), P) == "java"
    assert ASSIGNOR.user_data(LastAssignment(frozenset(), 7)) == struct.pack(">i", 7)


def test_user_data_too_short_to_hold_a_generation_is_none() -> None:
    members = {"m": MemberSubscription(frozenset("a"), (P,), -1, user_data=b"\0")}
    assert _owner(ASSIGNOR.assign({"a": 1}, members), P) == "m"


def test_partitions_that_no_longer_exist_are_forgotten() -> None:
    members = {"m": MemberSubscription(frozenset("ab"), (TopicPartition("a", 9), TopicPartition("b", 0)), 1)}
    assert ASSIGNOR.assign({"a": 1}, members) == {"m": [P]}


def test_a_large_group_is_assigned_in_reasonable_time() -> None:
    """200 members, 5,000 partitions of 50 topics; one member had everything before. No bound that luck can break."""
    counts = {f"t{n:02}": 100 for n in range(50)}
    owned = tuple(TopicPartition(t, n) for t in counts for n in range(100))
    members = {f"m{n:03}": MemberSubscription(frozenset(counts)) for n in range(1, 200)}
    members["m000"] = MemberSubscription(frozenset(counts), owned, 3)
    start = time.process_time()
    got = ASSIGNOR.assign(counts, members)
    assert len(got["m000"]) == 25
    assert time.process_time() - start < 60
