"""The range assignor beside other people's: kafka-python's in this process, librdkafka's in `tests/interop`."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from kadence.consumer.assignors import MemberSubscription, RangeAssignor
from kadence.types import TopicPartition

with warnings.catch_warnings():
    # It reads its message definitions in a way that Python 3.11 calls old.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka.coordinator.assignors.range import RangePartitionAssignor


def _kafka_python(
    counts: dict[str, int], members: dict[str, frozenset[str]], *, static: bool
) -> dict[str, list[TopicPartition]]:
    def partitions_for_topic(topic: str) -> set[int] | None:
        return set(range(counts[topic])) if topic in counts else None

    described = [
        SimpleNamespace(
            member_id=name,
            group_instance_id=f"i-{name}" if static else None,
            metadata=SimpleNamespace(topics=sorted(topics)),
        )
        for name, topics in members.items()
    ]
    cluster = SimpleNamespace(partitions_for_topic=partitions_for_topic)
    result = RangePartitionAssignor.assign(cluster, described)
    return {
        name: sorted(
            TopicPartition(topic, number)
            for topic, numbers in result[name].assigned_partitions
            for number in numbers
        )
        for name in members
    }


COUNTS = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 9), max_size=5)
MEMBERS = st.dictionaries(
    st.text("xyz", min_size=1, max_size=3),
    st.frozensets(st.sampled_from("abcdef"), min_size=1),
    min_size=1,
    max_size=5,
)


def assign(counts: dict[str, int], members: dict[str, frozenset[str]]) -> dict[str, list[TopicPartition]]:
    subscriptions = {name: MemberSubscription(topics) for name, topics in members.items()}
    return {name: sorted(got) for name, got in RangeAssignor().assign(counts, subscriptions).items()}


@given(COUNTS, MEMBERS, st.booleans())
def test_equals_kafka_python(
    counts: dict[str, int], members: dict[str, frozenset[str]], static: bool
) -> None:
    """All static or all dynamic: of a mixture kafka-python loses members."""
    subscriptions = {
        name: MemberSubscription(topics, instance_id=f"i-{name}" if static else None)
        for name, topics in members.items()
    }
    ours = {name: sorted(got) for name, got in RangeAssignor().assign(counts, subscriptions).items()}
    assert ours == _kafka_python(counts, members, static=static)


@given(COUNTS, MEMBERS)
def test_every_partition_exactly_once(counts: dict[str, int], members: dict[str, frozenset[str]]) -> None:
    given_out = sorted(p for got in assign(counts, members).values() for p in got)
    wanted = frozenset().union(*members.values())
    assert given_out == sorted(TopicPartition(t, n) for t in counts if t in wanted for n in range(counts[t]))


def test_first_members_get_one_more_of_each_topic() -> None:
    got = assign({"t": 5, "u": 5}, {"m1": frozenset("tu"), "m2": frozenset("tu")})
    assert [p.partition for p in got["m1"]] == [0, 1, 2, 0, 1, 2]
    assert [p.partition for p in got["m2"]] == [3, 4, 3, 4]


def test_static_members_come_first_by_instance_id() -> None:
    members = {
        "z-dynamic": MemberSubscription(frozenset("t")),
        "9": MemberSubscription(frozenset("t"), instance_id="b"),
        "1": MemberSubscription(frozenset("t"), instance_id="c"),
    }
    got = RangeAssignor().assign({"t": 3}, members)
    assert {name: [p.partition for p in parts] for name, parts in got.items()} == {
        "9": [0],
        "1": [1],
        "z-dynamic": [2],
    }
