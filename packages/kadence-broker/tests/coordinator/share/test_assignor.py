"""``simple``, the assignor of share groups: the same as Kafka's class, and its promises (KIP-932)."""

from __future__ import annotations

import json

import pytest
from tests.coordinator.share.simple_oracle import CASES, Case, Shares, life

from kadence_broker.coordinator.java_tables import (
    JavaMap,
    in_set,
    number_hash,
    partition_hash,
    string_hash,
    topic_hash,
)


def test_the_same_as_kafkas_own_class() -> None:
    """Groups that were given to SimpleAssignor of Kafka 4.4.0; `simple_oracle` compares thousands of others."""
    cases = json.loads(CASES.read_text())
    assert len(cases) > 50
    for topics, members, had, shares in cases:
        assert Case(topics, members, had).ours() == shares


def check(case: Case, shares: Shares) -> None:
    for name, (topic, _, assignable) in case.topics.items():
        readers = [member for member, names in case.members.items() if name in names]
        for number in assignable if readers else ():
            held = sum(number in shares[member].get(topic, ()) for member in readers)
            assert held >= 1, f"{name}-{number} has no reader"


@pytest.mark.parametrize("seed", range(40))
def test_each_initialised_partition_has_a_reader(seed: int) -> None:
    for case, shares in life(seed, Case.ours):
        assert shares.keys() == case.members.keys()
        check(case, shares)


@pytest.mark.parametrize(
    ("members", "partitions"), [(5, 1), (1, 5), (2, 5), (5, 2), (4, 4), (7, 3), (200, 30)]
)
def test_members_and_partitions_are_balanced(members: int, partitions: int) -> None:
    topic = "11" * 16
    case = Case({"t": (topic, partitions, list(range(partitions)))}, {f"m{n}": ["t"] for n in range(members)})
    shares = case.ours()
    sizes = [len(held.get(topic, ())) for held in shares.values()]
    assert max(sizes) - min(sizes) <= 1
    readers = [sum(n in held.get(topic, ()) for held in shares.values()) for n in range(partitions)]
    assert set(readers) == {-(-members // partitions)} if members >= partitions else {1}


def test_what_nobody_has_to_give_up_is_kept() -> None:
    topic = "11" * 16
    case = Case({"t": (topic, 6, list(range(6)))}, {"a": ["t"], "b": ["t"]})
    before = case.ours()
    case = Case(case.topics, {**case.members, "c": ["t"]}, before)
    after = case.ours()
    assert all(set(after[each][topic]) < set(before[each][topic]) for each in ("a", "b"))


def test_javas_hash_codes_and_tables() -> None:
    assert (string_hash("Ab"), string_hash("BA"), string_hash("")) == (2_113, 2_111, 0)
    assert number_hash(-1) == 0xFFFFFFFF
    assert topic_hash(bytes(8) + (5).to_bytes(8, "big")) == 5
    assert partition_hash((bytes(16), 7)) == 7
    assert in_set(number_hash, [16, 1, 0, 33]) == [16, 0, 1, 33], (
        "buckets of 16; one bucket in the order of adding"
    )
    table: JavaMap[int, None] = JavaMap(number_hash)
    for number in (0, 16, 32):
        table.compute(number, None)
    assert table.in_order() == [32, 16, 0], "computeIfAbsent adds at the head of a bucket"
    for number in range(1, 12):
        table.put(number, None)
    assert table.in_order()[:2] == [32, 0], "grown to 32 buckets"
