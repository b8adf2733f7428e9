"""What a completed fetch says of the records that it is made of, whatever these are."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.fetching import P0, Arena, World, batch

from kadence.consumer.shared_partition import SharedPartition
from kadence.consumer.shared_state import CompletedFetch, Copies
from kadence.errors import CorruptRecordError
from kadence.types import TopicPartition

WHOLE = batch(3, 5) + batch(2, 8)


def completed(records: bytes, offset: int = 5) -> CompletedFetch:
    shared_partition = SharedPartition(TopicPartition("t", 0), 1)
    return CompletedFetch(shared_partition, 1, offset, memoryview(records), Arena())


def test_it_says_what_lies_behind_it_and_how_many_records_it_has() -> None:
    fetched = completed(WHOLE, 6)
    assert (fetched.offset, fetched.next_offset, fetched.count) == (6, 10, 4)
    assert bytes(fetched.data) == WHOLE


def test_a_batch_that_is_cut_off_is_left_out() -> None:
    fetched = completed(WHOLE + batch(1, 10)[:-1])
    assert (fetched.next_offset, fetched.count, bytes(fetched.data)) == (10, 5, WHOLE)
    assert not completed(batch(1, 5)[:-1]).data


def test_of_what_cannot_be_true_it_knows_nothing() -> None:
    fetched = completed(b"\xff" * 100)
    assert (fetched.offset, fetched.next_offset, fetched.count, len(fetched.data)) == (5, 5, 0, 100)


def test_a_copy_is_counted_as_long_as_it_is_held() -> None:
    copies = Copies()
    data, loan = copies.copy(memoryview(b"records"))
    assert (data, loan.holds, copies.held) == (b"records", 1, loan.size)
    with pytest.raises(NotImplementedError, match="one holder"):
        loan.retain()
    loan.release()
    assert copies.held == 0


@pytest.mark.parametrize("size", [1, 16, 17, 20, 22, 23, 61])
@pytest.mark.parametrize("filler", [b"\0", b"\1", b"\2", b"\xff"])
def test_a_broker_that_sends_a_few_bytes_ends_nothing(size: int, filler: bytes) -> None:
    world = World(P0)
    (request,) = world.poll(0)
    arena = world.reply(request, 5, {P0: filler * size})
    fetched: Any = list(world.shared_state.completed_fetches)
    assert [each.next_offset for each in fetched] in ([], [0])
    assert arena.holds == len(fetched)
    told = [event for event in world.background_events if isinstance(event.error, CorruptRecordError)]
    assert len(told) == (not fetched)
    assert world.state(P0).retry_at > 5, "it is not fetched again at once"
