"""How far a batch goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kadence.types import TopicPartition
from kadence_spark.source.limits import ByteEstimate, Gate, offsets_for_bytes, spread

A, B, C = (TopicPartition("t", number) for number in range(3))


def test_without_a_limit_everything() -> None:
    assert spread({A: (0, 10), B: (5, 5)}, None) == {A: 10, B: 5}
    assert spread({A: (0, 10)}, 10) == {A: 10}


def test_in_proportion_to_the_backlog_and_at_least_one() -> None:
    assert spread({A: (0, 900), B: (1000, 1100), C: (7, 8)}, 100) == {A: 89, B: 1009, C: 8}


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.just("t"), st.integers(0, 30)),
        st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)).map(lambda pair: (pair[0], sum(pair))),
    ),
    st.integers(1, 10**6),
)
def test_the_limit_holds_but_for_one_each_and_nobody_starves(
    backlog: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    ends = spread(backlog, limit)
    taken = {p: ends[p] - start for p, (start, _) in backlog.items()}
    assert all(0 <= taken[p] <= end - start for p, (start, end) in backlog.items())
    assert all(taken[p] > 0 for p, (start, end) in backlog.items() if end > start)
    assert sum(taken.values()) <= limit + len(backlog)


def test_the_gate_waits_for_volume_or_for_the_delay() -> None:
    gate = Gate(minimum=100, max_delay_ms=1000)
    assert gate.lets_pass(1, now=5)  # the first batch of a process
    gate.passed(now=5)
    assert not gate.lets_pass(99, now=1004)
    assert gate.lets_pass(100, now=6)
    assert gate.lets_pass(1, now=1005)
    assert Gate(None, 1000, last_batch=5).lets_pass(1, now=5)


def test_bytes_become_a_limit_in_offsets() -> None:
    estimate = ByteEstimate()
    backlog = {A: (0, 1000)}
    assert offsets_for_bytes(backlog, estimate, 500) is None  # nothing known yet
    estimate.learn("t", 1000, 10)
    assert offsets_for_bytes(backlog, estimate, 20_000) == 200
    assert offsets_for_bytes(backlog, estimate, 100_000) is None
    assert offsets_for_bytes(backlog, estimate, 1) == 1


def test_the_estimate_follows_slowly_and_covers_unknown_topics() -> None:
    estimate = ByteEstimate()
    estimate.learn("t", 100, 1)
    estimate.learn("t", 0, 0)  # an empty sample says nothing
    estimate.learn("t", 200, 1)
    assert estimate.bytes_of({A: (0, 2)}) == pytest.approx(300)
    other = TopicPartition("other", 0)
    assert estimate.bytes_of({other: (0, 1)}) == pytest.approx(150)
    assert estimate.per_offset([A, B, other], {B: 7.0}) == {A: 150.0, B: 7.0, other: 150.0}
    assert ByteEstimate().per_offset([A]) == {}
