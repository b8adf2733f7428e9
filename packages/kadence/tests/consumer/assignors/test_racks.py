"""KIP-881: near where that costs no balance. `test_same_as_java` compares what `range` does with Kafka's own."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.consumer.assignors import (
    Assignment,
    Assignor,
    CooperativeStickyAssignor,
    MemberSubscription,
    RangeAssignor,
    StickyAssignor,
    Topics,
)
from kadence.types import TopicPartition

ASSIGNORS: list[Assignor] = [RangeAssignor(), StickyAssignor(), CooperativeStickyAssignor()]
RACKS = ["r1", "r2", "r3"]


@st.composite
def groups(draw: st.DrawFn) -> tuple[Topics, dict[str, MemberSubscription]]:
    counts = draw(st.dictionaries(st.sampled_from("abc"), st.integers(1, 8), min_size=1))
    racks = {
        TopicPartition(topic, n): draw(st.frozensets(st.sampled_from(RACKS), min_size=1))
        for topic, count in counts.items()
        for n in range(count)
    }
    members = draw(
        st.dictionaries(
            st.sampled_from(["m1", "m2", "m3", "m4"]),
            st.builds(
                MemberSubscription,
                topics=st.frozensets(st.sampled_from("abc"), min_size=1),
                rack=st.sampled_from([*RACKS, None, "far"]),
            ),
            min_size=1,
        )
    )
    return Topics(counts, racks), members


def near(got: Assignment, topics: Topics, members: Mapping[str, MemberSubscription]) -> int:
    return sum(members[name].rack in topics.racks(p) for name, given_ in got.items() for p in given_)


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
@given(group=groups())
def test_racks_change_who_gets_what_and_nobodys_share(
    assignor: Assignor, group: tuple[Topics, dict[str, MemberSubscription]]
) -> None:
    topics, members = group
    got, blind = assignor.assign(topics, members), assignor.assign(dict(topics), members)
    assert sorted(p for given_ in got.values() for p in given_) == sorted(
        p for given_ in blind.values() for p in given_
    )
    if assignor.name != "range":
        assert sorted(map(len, got.values())) == sorted(map(len, blind.values()))
    else:
        spread = {t: sorted(sum(p.topic == t for p in given_) for given_ in got.values()) for t in topics}
        assert spread == {
            t: sorted(sum(p.topic == t for p in given_) for given_ in blind.values()) for t in topics
        }


@pytest.mark.parametrize("assignor", ASSIGNORS, ids=lambda each: each.name)
def test_everybody_reads_near_where_that_is_possible(assignor: Assignor) -> None:
    """Six partitions with one replica each, scattered against the order of members."""
    placed = ["r3", "r1", "r2", "r2", "r3", "r1"]
    topics = Topics({"t": 6}, {TopicPartition("t", n): frozenset({rack}) for n, rack in enumerate(placed)})
    members = {f"m{n}": MemberSubscription(frozenset("t"), rack=f"r{n}") for n in (1, 2, 3)}
    got = assignor.assign(topics, members)
    assert near(got, topics, members) == 6
    assert [len(given_) for given_ in got.values()] == [2, 2, 2]


@pytest.mark.parametrize("assignor", ASSIGNORS[1:], ids=lambda each: each.name)
@pytest.mark.parametrize("copies", [1, 2])
def test_more_is_near_than_without_knowing_racks(assignor: Assignor, copies: int) -> None:
    racks = {
        TopicPartition("t", n): frozenset(RACKS[(n // 10 + more) % 3] for more in range(copies))
        for n in range(60)
    }
    topics = Topics({"t": 60}, racks)
    members = {f"m{n}": MemberSubscription(frozenset("t"), rack=RACKS[n % 3]) for n in range(6)}
    assert near(assignor.assign(topics, members), topics, members) == 60
    assert near(assignor.assign(dict(topics), members), topics, members) < 60


def test_stickiness_goes_before_nearness() -> None:
    racks = {TopicPartition("t", 0): frozenset({"r1"}), TopicPartition("t", 1): frozenset({"r2"})}
    members = {
        "m1": MemberSubscription(frozenset("t"), (TopicPartition("t", 1),), 3, rack="r1"),
        "m2": MemberSubscription(frozenset("t"), (TopicPartition("t", 0),), 3, rack="r2"),
    }
    got = CooperativeStickyAssignor().assign(Topics({"t": 2}, racks), members)
    assert got == {"m1": [TopicPartition("t", 1)], "m2": [TopicPartition("t", 0)]}
