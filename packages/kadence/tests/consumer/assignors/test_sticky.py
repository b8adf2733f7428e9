"""sticky and roundrobin by their promises: all once, only to readers, even, sticky, and always an end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.consumer.assignors import (
    Assignment,
    LastAssignment,
    MemberSubscription,
    RoundRobinAssignor,
    StickyAssignor,
)
from kadence.consumer.assignors.sticky import Plan
from kadence.types import TopicPartition

STICKY = StickyAssignor()
TOPICS = "abcd"

counts_ = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7), min_size=1, max_size=4)
names_ = st.lists(st.sampled_from(["m1", "m2", "m3", "m4", "m5", "m6"]), unique=True, min_size=1, max_size=6)
topics_ = st.frozensets(st.sampled_from(TOPICS), min_size=1)
members_ = st.dictionaries(st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), topics_, min_size=1)
claims_ = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]),
    st.tuples(
        st.frozensets(st.builds(TopicPartition, st.sampled_from("abcdz"), st.integers(0, 9)), max_size=12),
        st.integers(-1, 4),
    ),
)


def rejoining(topics: Mapping[str, frozenset[str]], had: Mapping[str, LastAssignment]) -> dict[str, Any]:
    """Eager members: they own nothing any more, and say what they had."""
    return {
        name: MemberSubscription(read, user_data=STICKY.user_data(had.get(name, LastAssignment())))
        for name, read in topics.items()
    }


def check(got: Assignment, counts: Mapping[str, int], topics: Mapping[str, frozenset[str]]) -> None:
    """Everything that somebody reads is given once, to one of its readers."""
    assert set(got) == set(topics)
    for name, given_ in got.items():
        assert {p.topic for p in given_} <= topics[name]
    read = frozenset[str]().union(*topics.values())
    wanted = [TopicPartition(t, n) for t in sorted(counts) if t in read for n in range(counts[t])]
    assert sorted(p for given_ in got.values() for p in given_) == wanted


def loads(got: Assignment) -> list[int]:
    return sorted(len(given_) for given_ in got.values())


@given(counts_, members_)
def test_roundrobin_gives_everything_once(counts: dict[str, int], topics: dict[str, frozenset[str]]) -> None:
    members = {name: MemberSubscription(read) for name, read in topics.items()}
    check(RoundRobinAssignor().assign(counts, members), counts, topics)


@given(counts_, names_)
def test_roundrobin_is_even_within_one_for_equal_subscriptions(
    counts: dict[str, int], names: list[str]
) -> None:
    members = dict.fromkeys(names, MemberSubscription(frozenset(TOPICS)))
    spread = loads(RoundRobinAssignor().assign(counts, members))
    assert spread[-1] - spread[0] <= 1


def test_roundrobin_goes_on_with_the_next_member_from_topic_to_topic() -> None:
    members = {name: MemberSubscription(frozenset("ab")) for name in ("x", "y")}
    got = RoundRobinAssignor().assign({"a": 3, "b": 3}, members)
    assert got["x"] == [TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)]
    assert got["y"] == [TopicPartition("a", 1), TopicPartition("b", 0), TopicPartition("b", 2)]


@given(counts_, members_, claims_)
def test_sticky_gives_everything_once_whatever_is_claimed(
    counts: dict[str, int], topics: dict[str, frozenset[str]], claims: dict[str, Any]
) -> None:
    had = {name: LastAssignment(partitions, generation) for name, (partitions, generation) in claims.items()}
    check(STICKY.assign(counts, rejoining(topics, had)), counts, topics)


@given(counts_, members_, claims_)
def test_each_chain_of_moves_makes_it_more_even_so_balancing_ends(
    counts: dict[str, int], topics: dict[str, frozenset[str]], claims: dict[str, Any]
) -> None:
    """kafka-python's sticky assignor can swap the same partitions for ever (its issue 3164)."""

    class Watched(Plan):
        sums: list[int]

        def balance(self) -> None:
            self.sums = []
            super().balance()
            self._note()

        def _path(self, start: str) -> list[tuple[str, str, str]] | None:
            path = super()._path(start)
            if path is not None:
                self._note()
            return path

        def _note(self) -> None:
            self.sums.append(sum(load * load for load in self._load.values()))

    members = {name: MemberSubscription(read) for name, read in topics.items()}
    plan = Watched(counts, members, {name: claim for name, claim in claims.items() if name in members})
    plan.made()
    assert all(after < before for before, after in zip(plan.sums[:-1], plan.sums[1:-1], strict=False))
    assert len(plan.sums) <= sum(counts.values()) ** 2 + 1


@given(counts_, names_)
def test_sticky_when_nothing_changed_nothing_moves(counts: dict[str, int], names: list[str]) -> None:
    topics = dict.fromkeys(names, frozenset(TOPICS))
    first = STICKY.assign(counts, rejoining(topics, {}))
    had = {name: LastAssignment(frozenset(given_), 3) for name, given_ in first.items()}
    assert STICKY.assign(counts, rejoining(topics, had)) == first
    assert loads(first)[-1] - loads(first)[0] <= 1


@given(counts_, names_)
def test_sticky_when_a_member_joins_only_its_share_moves(counts: dict[str, int], names: list[str]) -> None:
    topics = dict.fromkeys(names, frozenset(TOPICS))
    first = STICKY.assign(counts, rejoining(topics, {}))
    had = {name: LastAssignment(frozenset(given_), 3) for name, given_ in first.items()}
    second = STICKY.assign(counts, rejoining({**topics, "new": frozenset(TOPICS)}, had))
    moved = sum(len(set(given_) - set(second[name])) for name, given_ in first.items())
    assert moved == len(second["new"])


P = TopicPartition("a", 0)


@pytest.mark.parametrize(
    ("one", "two", "owner"), [(4, 5, "two"), (5, 4, "one"), (-1, 0, "two")], ids=["newer", "older", "unsaid"]
)
def test_kip_341_the_claim_of_the_higher_generation_wins(one: int, two: int, owner: str) -> None:
    had = {"one": _said(P, one), "two": _said(P, two)}
    members = {name: MemberSubscription(frozenset("a"), user_data=data) for name, data in had.items()}
    members["a-third"] = MemberSubscription(frozenset("a"))
    got = STICKY.assign({"a": 1}, members)
    assert [name for name, given_ in got.items() if given_] == [owner]


def _said(partition: TopicPartition, generation: int) -> bytes | None:
    """As a member before Kafka 2.3 for generation −1: without one."""
    if generation >= 0:
        return STICKY.user_data(LastAssignment(frozenset({partition}), generation))
    data = STICKY.user_data(LastAssignment(frozenset({partition}), 0))
    assert data is not None
    return data[:-4]


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\7", b"\x7f\xff\xff\xff", b"\0\0\0\1\0\1a\x7f\xff\xff\xff"])
def test_user_data_that_cannot_be_read_claims_nothing(data: bytes) -> None:
    members = {"m": MemberSubscription(frozenset("a"), user_data=data)}
    assert STICKY.assign({"a": 1}, members) == {"m": [P]}


def test_a_claim_of_a_partition_that_there_cannot_be_counts_for_nothing() -> None:
    claims = LastAssignment(
        frozenset({TopicPartition("a", number) for number in (-1, -(2**31), 2**31 - 1)}), 1
    )
    members = {"m": MemberSubscription(frozenset("a"), user_data=STICKY.user_data(claims))}
    assert STICKY.assign({"a": 1}, members) == {"m": [P]}


def test_sticky_says_nothing_before_it_was_given_anything() -> None:
    assert STICKY.user_data(LastAssignment()) is None
