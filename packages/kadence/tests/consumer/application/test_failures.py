"""Errors that no call caused: in their place among the records, and for as long as they are true (B6)."""

from __future__ import annotations

import pytest
from tests.consumer.application.test_interrupted_callbacks import Subject
from tests.consumer.fetch.test_fetch_collector import put, shared_partition

from kadence.consumer import events as m
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.errors import OffsetOutOfRangeError, TopicAuthorizationError


def subject(*shared_partitions: SharedPartition) -> Subject:
    made = Subject()
    made.shared_state.shared_partitions = {one.partition: one for one in shared_partitions}
    return made


def lost(one: SharedPartition) -> m.Failed:
    error = OffsetOutOfRangeError(f"{one.partition} is out of range")
    return m.Failed(error, partition=one.partition, fetch_epoch=one.fetch_epoch)


def polled(subject: Subject, limit: int) -> list[tuple[int, int]]:
    """(partition, offset) of what a poll returns."""
    with subject.shell:
        chunks = subject.core.polls.poll_buffered(limit)
        if chunks is None:
            chunks = subject.shell.run(subject.core.polls.poll(0, limit, list))
    return [(record.partition, record.offset) for _, records in chunks for record in records]


def test_an_error_of_a_partition_waits_for_the_records_that_were_fetched_before_it() -> None:
    one, other = shared_partition(0), shared_partition(1)
    world = subject(one, other)
    put(world.shared_state, one, 3)
    world.shared_state.tell(lost(one))
    assert polled(world, 2) == [(0, 0), (0, 1)]
    put(world.shared_state, other, 1)
    assert polled(world, 2) == [(0, 2), (1, 0)]
    with pytest.raises(OffsetOutOfRangeError):
        polled(world, 2)


def test_an_error_of_one_partition_does_not_wait_for_records_of_another() -> None:
    one, other = shared_partition(0), shared_partition(1)
    world = subject(one, other)
    put(world.shared_state, other, 3)
    world.shared_state.tell(lost(one))
    with pytest.raises(OffsetOutOfRangeError):
        polled(world, 2)


def test_an_error_of_a_partition_that_waits_holds_up_no_other_error() -> None:
    one = shared_partition(0)
    world = subject(one)
    put(world.shared_state, one, 3)
    world.shared_state.tell(lost(one))
    world.shared_state.tell(m.Failed(TopicAuthorizationError("not allowed")))
    with pytest.raises(TopicAuthorizationError):
        polled(world, 10)
    assert len(polled(world, 10)) == 3


def test_b6_a_member_that_gave_up_hears_of_the_poll_after_the_one_that_tells_why() -> None:
    """Else it joins again, though the application may never poll any more, and may be given partitions."""
    one = shared_partition(0)
    world = subject(one)
    # This one is told again and again, and does not keep the member out.
    world.shared_state.tell(lost(one))
    world.shared_state.tell(m.Failed(TopicAuthorizationError("not allowed"), gave_up=True))
    world.shared_state.wants_polled = True
    with pytest.raises(OffsetOutOfRangeError):
        polled(world, 10)
    with pytest.raises(TopicAuthorizationError):
        polled(world, 10)
    assert not world.shared_state.application_events
    with pytest.raises(OffsetOutOfRangeError):
        polled(world, 10)
    assert list(world.shared_state.application_events) == [m.Polled(0, 0)]


def test_b6_a_member_that_gives_up_while_a_poll_looks_does_not_hear_of_that_poll() -> None:
    """It gave up after the poll had taken the background events, and before it looked whether a member waits for it."""
    world = subject(shared_partition(0))
    exchange, shared_state = world.core.exchange, world.shared_state
    take = exchange.take_background_events

    def taken() -> None:
        exchange.take_background_events = take  # type: ignore[method-assign]
        take()
        shared_state.tell(m.Failed(TopicAuthorizationError("not allowed"), gave_up=True))
        shared_state.wants_polled = True

    exchange.take_background_events = taken  # type: ignore[method-assign]
    # The fast path of a poll takes nothing.
    with world.shell:
        assert world.shell.run(world.core.polls.poll(0, 10, list)) == []
    with pytest.raises(TopicAuthorizationError):
        polled(world, 10)
    assert not shared_state.application_events
    assert polled(world, 10) == []
    assert list(shared_state.application_events) == [m.Polled(0, 0)]


def test_an_error_that_each_poll_raises_keeps_no_member_out() -> None:
    """It waits for a poll since subscribe() was called, and did not give up: nobody knows when the error will end."""
    world = subject(shared_partition(0))
    for wants_polled in (True, False):
        world.shared_state.wants_polled = wants_polled
        world.shared_state.tell(m.Failed(TopicAuthorizationError("not allowed")))
        with pytest.raises(TopicAuthorizationError):
            polled(world, 10)
        assert list(world.shared_state.application_events) == [m.Polled(0, 0)]


def test_a_lost_position_is_raised_by_each_poll_until_a_seek_answers_it() -> None:
    one = shared_partition(0)
    world = subject(one)
    world.shared_state.tell(lost(one))
    for _ in range(3):
        with pytest.raises(OffsetOutOfRangeError, match="t-0 is out of range"):
            polled(world, 10)
    # A seek: the network thread begins another fetch epoch.
    one.fetch_epoch, one.origin = 2, Origin(2, 5, None)
    put(world.shared_state, one, 2, offset=5, fetch_epoch=2)
    assert polled(world, 10) == [(0, 5), (0, 6)]


def test_each_of_several_lost_positions_is_told() -> None:
    shared_partitions = [shared_partition(number) for number in range(3)]
    world = subject(*shared_partitions)
    for one in shared_partitions:
        world.shared_state.tell(lost(one))
    told = set()
    for _ in range(6):
        with pytest.raises(OffsetOutOfRangeError) as error:
            polled(world, 10)
        told.add(str(error.value))
    assert len(told) == 3


def test_a_lost_position_of_a_partition_that_went_away_is_forgotten() -> None:
    one = shared_partition(0)
    world = subject(one)
    world.shared_state.tell(lost(one))
    with pytest.raises(OffsetOutOfRangeError):
        polled(world, 10)
    world.shared_state.shared_partitions = {}
    assert polled(world, 10) == []


def test_a_position_that_is_lost_again_is_told_though_the_last_time_was_told_in_the_same_words() -> None:
    one = shared_partition(0)
    world = subject(one)
    world.shared_state.tell(lost(one))
    with pytest.raises(OffsetOutOfRangeError):
        polled(world, 10)
    # Assigned again at the same offset; the error comes before the next poll.
    one.fetch_epoch = 2
    world.shared_state.tell(lost(one))
    for _ in range(2):
        with pytest.raises(OffsetOutOfRangeError):
            polled(world, 10)
