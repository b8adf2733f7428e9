"""Server-side assignors by their promises: each partition once, to a reader, evenly, and sticky (KIP-848)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples

from kadence_broker.coordinator.consumer.assignors import ASSIGNORS, GroupSpec, MemberSpec, Shares

TOPICS = [bytes([number]) * 16 for number in range(1, 5)]
A, B, C, D = TOPICS

uniform, range_ = ASSIGNORS["uniform"], ASSIGNORS["range"]

counts_ = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
names_ = st.lists(st.sampled_from([f"m{number}" for number in range(1, 9)]), unique=True, min_size=1)
topics_ = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def specs_(draw: st.DrawFn, same: bool = False) -> GroupSpec:
    """Any group; what its members had comes from an earlier assignment of other members and topics."""
    names = draw(names_)
    counts = draw(counts_)
    common = draw(topics_)
    before = _spec(draw(counts_), {name: draw(topics_) for name in draw(names_)})
    had = uniform(before)
    return _spec(counts, {name: common if same else draw(topics_) for name in names}, had)


def _spec(
    counts: dict[bytes, int], members: dict[str, frozenset[bytes]], had: Shares | None = None
) -> GroupSpec:
    return GroupSpec(
        {name: MemberSpec(None, topics, (had or {}).get(name, {})) for name, topics in members.items()},
        counts,
    )


def sizes(shares: Shares) -> dict[str, int]:
    return {name: sum(map(len, topics.values())) for name, topics in shares.items()}


def check(spec: GroupSpec, shares: Shares) -> None:
    assert shares.keys() == spec.members.keys()
    given_out = [(t, p) for topics in shares.values() for t, numbers in topics.items() for p in numbers]
    read = {topic for member in spec.members.values() for topic in member.topics}
    assert sorted(given_out) == sorted((topic, p) for topic in read for p in range(spec.counts[topic]))
    for name, topics in shares.items():
        assert topics.keys() <= spec.members[name].topics
        assert all(topics.values()), "a topic without partitions is left out"


@examples(75)
@given(specs_())
def test_each_partition_goes_once_to_a_reader(spec: GroupSpec) -> None:
    for assign in ASSIGNORS.values():
        check(spec, assign(spec))


@examples(50)
@given(specs_(same=True))
def test_uniform_is_even_to_one_partition(spec: GroupSpec) -> None:
    loads = sizes(uniform(spec)).values()

    assert max(loads) - min(loads) <= 1


@examples(75)
@given(specs_())
def test_uniform_leaves_no_reader_of_a_topic_two_behind_one_that_could_give(spec: GroupSpec) -> None:
    shares = uniform(spec)
    loads = sizes(shares)

    for topic in TOPICS:
        readers = [name for name, member in spec.members.items() if topic in member.topics]
        givers = [loads[name] for name in readers if topic in shares[name]]
        if givers:
            assert max(givers) - min(loads[name] for name in readers) <= 1


@examples(50)
@given(specs_(same=True))
def test_uniform_moves_no_more_than_it_must(spec: GroupSpec) -> None:
    """What moves is what nobody had, what its reader may not keep, and what is beyond the quotas."""
    shares = uniform(spec)
    topics = next(iter(spec.members.values())).topics
    total = sum(spec.counts[topic] for topic in topics)
    least, more = divmod(total, len(spec.members))
    had = sorted(
        (
            sum(p < spec.counts[t] for t, numbers in member.had.items() if t in topics for p in numbers)
            for member in spec.members.values()
        ),
        reverse=True,
    )
    may_stay = sum(min(held, least + (index < more)) for index, held in enumerate(had))
    stayed = sum(
        len(member.had.get(topic, frozenset()) & numbers)
        for name, member in spec.members.items()
        for topic, numbers in shares[name].items()
    )

    assert stayed == may_stay


@examples(25)
@given(specs_())
def test_an_assignment_that_is_done_stays(spec: GroupSpec) -> None:
    shares = uniform(spec)
    again = GroupSpec(
        {name: MemberSpec(None, member.topics, shares[name]) for name, member in spec.members.items()},
        spec.counts,
    )

    assert uniform(again) == shares


def test_uniform_gives_one_partition_more_to_who_has_it_or_to_the_last_as_kafka_does() -> None:
    same = frozenset({A})
    fresh = _spec({A: 4}, dict.fromkeys(["m1", "m2", "m3"], same))
    assert sizes(uniform(fresh)) == {"m1": 1, "m2": 1, "m3": 2}
    had = {"m1": {A: frozenset({0, 1})}, "m2": {A: frozenset({2})}}
    assert uniform(_spec({A: 4}, dict.fromkeys(["m1", "m2", "m3"], same), had)) == {
        "m1": {A: frozenset({0, 1})},
        "m2": {A: frozenset({2})},
        "m3": {A: frozenset({3})},
    }


def test_uniform_where_subscriptions_overlap() -> None:
    """Each topic's readers differ by one at most; Kafka's own stops there too."""
    had: Shares = {"a": {A: frozenset(range(9))}, "b": {B: frozenset(range(9))}}
    spec = _spec({A: 9, B: 9}, {"a": frozenset({A}), "b": frozenset({A, B}), "c": frozenset({B})}, had)

    assert sizes(uniform(spec)) == {"a": 7, "b": 6, "c": 5}


def test_range_gives_neighbours_and_puts_topics_together() -> None:
    spec = _spec({A: 5, B: 5}, {"b": frozenset({A, B}), "a": frozenset({A, B})})

    assert range_(spec) == {
        "a": {A: frozenset({0, 1, 2}), B: frozenset({0, 1, 2})},
        "b": {A: frozenset({3, 4}), B: frozenset({3, 4})},
    }


def test_range_ranks_static_members_first_and_by_their_instance() -> None:
    topics = frozenset({A})

    def spec(first: str) -> GroupSpec:
        instances = {first: "i1", "y": "i2", "a": None}
        return GroupSpec(
            {name: MemberSpec(instance, topics, {}) for name, instance in instances.items()}, {A: 3}
        )

    assert range_(spec("z")) == {"z": {A: frozenset({0})}, "y": {A: frozenset({1})}, "a": {A: frozenset({2})}}
    assert range_(spec("q"))["q"] == {A: frozenset({0})}
