"""Batches by partition, their sizes and their times."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import seeds

from kadence._native.append import estimated_size
from kadence.client.gate import Gate
from kadence.clock import FOREVER
from kadence.errors import ClosedError
from kadence.producer.accumulator import Accumulator, Batch, Header
from kadence.records import encode_batch
from kadence.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def make(**settings: int) -> Accumulator:
    base = {"batch_size": 1000, "linger_ms": 5, "buffer_memory": 10_000, "delivery_timeout_ms": 1000}
    given: dict[str, Any] = base | settings
    return Accumulator(**given, gate=Gate())


def put(accumulator: Accumulator, tp: TopicPartition, size: int, now: int = 100) -> bool:
    _, news = accumulator.append(tp, 0, None, b"", (), size, now)
    if news:
        accumulator.announce()
    return news


headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=20)), max_size=3)


@given(
    st.lists(
        st.tuples(st.none() | st.binary(max_size=300), st.none() | st.binary(max_size=300), headers),
        min_size=1,
    )
)
def test_the_estimate_is_never_too_small(
    records: list[tuple[bytes | None, bytes | None, list[Header]]],
) -> None:
    estimate = 61 + sum(estimated_size(key, value, headers) for key, value, headers in records)
    batch = encode_batch([(index, *record) for index, record in enumerate(records)])
    assert len(batch) <= estimate


def test_a_batch_is_news_when_begun_and_when_full() -> None:
    accumulator = make()
    assert put(accumulator, A, 400)
    assert not put(accumulator, A, 400)
    assert put(accumulator, A, 400)
    assert [batch.size for batch in accumulator.waiting[A]] == [861, 461]


def test_a_batch_stays_news_until_the_network_thread_was_woken() -> None:
    accumulator = make()
    for _ in range(2):
        assert accumulator.append(A, 0, None, b"", (), 100, 100)[1]
    accumulator.announce()
    assert not put(accumulator, A, 100)


def test_a_record_that_cannot_be_added_leaves_no_batch_behind() -> None:
    accumulator = make()

    def cannot(size: int) -> None:
        with accumulator.gate, pytest.raises(TypeError):
            accumulator.append(A, 0, None, b"", [("n", cast(Any, "text"))], size, 100)

    for _ in range(2):
        cannot(40)
        assert accumulator.waiting == {}
        assert not accumulator.incomplete
        assert not accumulator.unnotified
        assert accumulator.used_bytes == 0
    assert put(accumulator, A, 400)
    cannot(40)
    cannot(900)
    assert [batch.count for batch in accumulator.waiting[A]] == [1]
    put(accumulator, A, 400)
    assert [batch.size for batch in accumulator.waiting[A]] == [861]
    assert accumulator.used_bytes == 861


def test_ready_after_linger_or_when_full_or_when_somebody_waits() -> None:
    accumulator = make()
    put(accumulator, A, 400)
    assert accumulator.ready_at(A) == 105
    accumulator.flushing = 1
    assert accumulator.ready_at(A) == 0
    accumulator.flushing = 0
    accumulator.blocked = 1
    assert accumulator.ready_at(A) == 0
    accumulator.blocked = 0
    put(accumulator, A, 700)
    assert accumulator.ready_at(A) == 0
    accumulator.take(A)
    assert accumulator.ready_at(A) == 105


def test_an_awaited_batch_does_not_linger_where_nothing_else_is_sent() -> None:
    accumulator, woken = make(), []
    put(accumulator, A, 100)
    put(accumulator, B, 100)
    accumulator.wakeup = lambda: woken.append(1)
    first, second = (accumulator.waiting[tp][0].delivery for tp in (A, B))
    first.awaited()
    assert not accumulator.ready(100), "the other batch may be filled while both linger"
    assert accumulator.next_ready() == 105
    assert not woken
    second.awaited()
    second.awaited()
    assert woken == [1]
    assert set(accumulator.ready(100)) == {A, B}
    assert accumulator.ready_at(A) == accumulator.ready_at(B) == 0
    assert accumulator.next_ready() == FOREVER


def test_what_is_awaited_while_others_are_on_their_way_lingers_until_they_are_acknowledged() -> None:
    """So a program that waits for many records at once keeps its batches."""
    accumulator = make()
    put(accumulator, A, 100)
    on_its_way = accumulator.take(A)
    for _ in range(3):
        put(accumulator, A, 100)
    accumulator.waiting[A][0].delivery.awaited()
    assert not accumulator.ready(100)
    with accumulator.gate:
        accumulator.release(on_its_way)
    assert set(accumulator.ready(100)) == {A}
    assert accumulator.take(A).count == 3
    assert not accumulator.ready(100)
    put(accumulator, A, 100)
    assert not accumulator.ready(100), "nobody waits for this one"


def test_a_partition_that_is_taken_from_goes_to_the_end() -> None:
    accumulator = make()
    for tp in (A, A, B):
        put(accumulator, tp, 900)
    assert list(accumulator.waiting) == [A, B]
    accumulator.take(A)
    assert list(accumulator.waiting) == [B, A]
    accumulator.take(A)
    assert list(accumulator.waiting) == [B]


def test_memory_is_bounded_and_given_back() -> None:
    accumulator = make()
    put(accumulator, A, 9_000)
    assert not accumulator.has_room(1_000)
    batch = accumulator.take(A)
    assert not accumulator.has_room(1_000)
    assert not accumulator.is_decided(batch)
    with accumulator.gate:
        accumulator.release(batch)
        accumulator.release(batch)
    assert accumulator.is_decided(batch)
    assert accumulator.used_bytes == 0
    assert accumulator.has_room(11_000), "alone, anything may come in"


def test_batches_expire_in_order() -> None:
    accumulator = make()
    put(accumulator, A, 900, 100)
    put(accumulator, A, 900, 200)
    put(accumulator, B, 900, 150)
    assert accumulator.next_deadline() == 1100
    assert accumulator.expired(1099) == []
    assert [batch.tp for batch in accumulator.expired(1150)] == [A, B]
    assert accumulator.next_deadline() == 1200


def test_split_shares_delivery_sequence_and_memory() -> None:
    accumulator = make()
    for _ in range(5):
        put(accumulator, A, 21)
    batch = accumulator.take(A)
    batch.producer_id, batch.epoch, batch.base_sequence = 7, 1, 2**31 - 2
    one, two = pieces = accumulator.pieces_of(batch)
    accumulator.split(batch, pieces)
    assert [one.count, two.count] == [2, 3]
    assert [one.first, two.first] == [0, 2]
    assert [one.base_sequence, two.base_sequence] == [2**31 - 2, 0]
    assert accumulator.used_bytes == one.size + two.size
    three, four = pieces = accumulator.pieces_of(two)
    accumulator.split(two, pieces)
    assert [three.first, four.first] == [2, 3]
    assert batch.delivery.outstanding == 3
    for piece in (one, three, four):
        with accumulator.gate:
            accumulator.release(piece)
    assert accumulator.used_bytes == 0


def test_after_a_refusal_batches_of_the_topic_are_half_as_large() -> None:
    accumulator = make(batch_size=10_000, buffer_memory=100_000)
    other = TopicPartition("other", 0)
    for tp in (A, A, A, B, other):
        put(accumulator, tp, 4_000)
    refused = accumulator.take(A)
    accumulator.refused(refused)
    assert refused.size == 8_061
    assert accumulator.waiting[B][-1].limit == 4_030, "what is being filled takes no more than that"
    assert accumulator.ready_at(B) == 0
    assert put(accumulator, B, 10)
    put(accumulator, other, 4_000)
    assert [batch.size for batch in accumulator.waiting[B]] == [4_061, 71]
    assert [batch.size for batch in accumulator.waiting[other]] == [8_061]
    accumulator.refused(refused)
    assert accumulator.batch_for(B, 4_000, 100)[0].limit == 4_030, "the same size says nothing new"
    accumulator.refused(accumulator.take(B))
    assert accumulator.batch_for(B, 4_000, 100)[0].limit == 2_030
    accumulator.forget({"t"})
    assert accumulator.batch_for(TopicPartition("t", 2), 4_000, 100)[0].limit == 10_000


def test_all_that_is_undecided_is_lost() -> None:
    accumulator = make()
    put(accumulator, A, 21, 5)
    sent: Batch = accumulator.take(A)
    put(accumulator, A, 21, 6)
    assert accumulator.lose_all(ClosedError("closed"))[0] is sent
    assert repr(accumulator) == "<Accumulator 0 batches, 0 of 10000 bytes, 0 partitions waiting>"


@pytest.mark.parametrize("seed", seeds(15))
def test_what_is_ready_is_kept_as_it_changes_and_not_looked_for(seed: int) -> None:
    """`ready` and `next_ready` say what a walk over all that waits would."""
    chance = random.Random(seed)
    accumulator = make(linger_ms=chance.choice([0, 5, 50]), buffer_memory=10**9)
    partitions = [TopicPartition(topic, number) for topic in "tu" for number in range(5)]
    now = 100
    for _ in range(400):
        now += chance.choice([0, 0, 1, 3])
        waiting = list(accumulator.waiting)
        drawn = chance.random()
        if drawn < 0.55 or not waiting:
            put(accumulator, chance.choice(partitions), chance.choice([50, 300, 1_200]), now)
        elif drawn < 0.85:
            batch = accumulator.take(chance.choice(waiting))
            if chance.random() < 0.1:
                accumulator.refused(batch)
            with accumulator.gate:
                accumulator.release(batch)
        elif drawn < 0.9:
            accumulator.flushing = 1 - accumulator.flushing
        elif drawn < 0.905:
            chance.choice(accumulator.waiting[chance.choice(waiting)]).delivery.awaited()
        elif drawn < 0.91:
            accumulator.expired(now - 900)
        elif drawn < 0.92:
            accumulator.lose_all(ClosedError("closed"))
        ready = set(accumulator.ready(now))
        walked = {tp: accumulator.ready_at(tp) for tp in accumulator.waiting}
        assert ready == {tp for tp, at in walked.items() if at <= now}
        assert accumulator.next_ready() == min((at for at in walked.values() if at > now), default=FOREVER)
        behind = {tp: len(batches) - 1 for tp, batches in accumulator.waiting.items() if len(batches) > 1}
        assert dict(accumulator.behind()) == behind
        assert len(accumulator._lingers) <= 64 + 2 * len(partitions)
