"""Kafka's partitioning, against Kafka's own vectors and other people's clients."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as theirs
from hypothesis import given
from hypothesis import strategies as st

from kadence.producer.partitioner import StickyPartitioner, murmur2, partition_for_key, shares_of


@pytest.mark.parametrize(
    ("data", "signed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_kafkas_vectors(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


@given(st.binary(max_size=200))
def test_same_as_aiokafka(data: bytes) -> None:
    assert murmur2(data) == theirs(data) & 0xFFFFFFFF
    assert partition_for_key(data, 7) == (theirs(data) & 0x7FFFFFFF) % 7


def test_sticky_stays_for_a_batch_and_then_moves() -> None:
    sticky = StickyPartitioner(100, random.Random(1))
    first = [sticky.choose(10, 4, (0, 1, 2, 3)) for _ in range(10)]
    assert len(set(first)) == 1
    assert sticky.choose(10, 4, (0, 1, 2, 3)) != first[0]


def test_sticky_takes_partitions_with_a_leader() -> None:
    sticky = StickyPartitioner(1, random.Random(1))
    assert {sticky.choose(10, 4, (1, 3)) for _ in range(20)} == {1, 3}
    assert {sticky.choose(10, 4, ()) for _ in range(50)} == {0, 1, 2, 3}
    assert sticky.choose(10, 1, (0,)) == 0


def test_sticky_spreads_evenly() -> None:
    sticky = StickyPartitioner(10, random.Random(1))
    counts = [0] * 4
    for _ in range(4000):
        counts[sticky.choose(10, 4, (0, 1, 2, 3))] += 1
    assert min(counts) > 800


def test_sticky_survives_a_topic_that_shrank() -> None:
    sticky = StickyPartitioner(1_000, random.Random(1))
    sticky.choose(1, 8, (7,))
    assert sticky.choose(1, 2, (0, 1)) in (0, 1)


def test_what_waits_for_a_partition_lowers_its_share() -> None:
    """KIP-794's own example: queues of 0, 3 and 1 batches weigh 4, 1 and 3."""
    shares = shares_of({0: 0, 1: 3, 2: 1})
    assert shares == ([0, 1, 2], [4, 5, 8])
    sticky = StickyPartitioner(1, random.Random(1))
    sticky.shares = shares
    counts = Counter(sticky.choose(1, 3, (0, 1, 2)) for _ in range(8000))
    assert all(abs(counts[number] - 1000 * weight) < 150 for number, weight in enumerate((4, 1, 3)))


def test_kip1123_near_partitions_get_all_records_while_there_are_any() -> None:
    sticky = StickyPartitioner(1, random.Random(1))
    sticky.near = (1, 2)
    assert {sticky.choose(1, 4, (0, 1, 2, 3)) for _ in range(40)} == {1, 2}
    sticky.near = ()
    assert {sticky.choose(1, 4, (0, 1, 2, 3)) for _ in range(80)} == {0, 1, 2, 3}


def test_kip1123_a_partition_that_is_not_near_any_more_is_left_at_once() -> None:
    sticky = StickyPartitioner(1_000, random.Random(1))
    first = sticky.choose(1, 3, (0, 1, 2))
    sticky.near = tuple({0, 1, 2} - {first})
    sticky.leave_unless((0, 1, 2))
    assert sticky.choose(1, 3, (0, 1, 2)) in sticky.near


def test_a_partition_without_a_leader_is_left_at_once() -> None:
    sticky = StickyPartitioner(1_000, random.Random(1))
    first = sticky.choose(1, 3, (0, 1, 2))
    others = tuple({0, 1, 2} - {first})
    sticky.leave_unless((0, 1, 2))
    assert sticky.choose(1, 3, (0, 1, 2)) == first
    sticky.leave_unless(others)
    assert sticky.choose(1, 3, others) in others
