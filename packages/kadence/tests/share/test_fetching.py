"""What a share consumer fetches, how much and when, under virtual time (KIP-932, KIP-1206; Q3, Q4)."""

from __future__ import annotations

import pytest
from tests.worlds.share import LOCK_MS, NODE, OTHER, RELEASE, Loan, Requests, named, tip

from kadence.clock import FOREVER
from kadence.connection.request import Request
from kadence.protocol.share_fetch import AcquiredRecords, PartitionData, ShareFetchRequest
from kadence.share.acknowledgements import Acquired
from kadence.share.events import Sending
from kadence.share.share_state import AcquiredFetch
from kadence.types import TopicPartition


@pytest.fixture
def world() -> Requests:
    return Requests()


def test_records_reach_the_application_with_what_was_acquired(world: Requests) -> None:
    world.waits()
    loan = Loan()
    world.bring(world.fetch(), (0, 4, 1), (7, 9, 3), loan=loan)
    (fetch,) = world.state.acquired_fetches
    assert (fetch.partition, fetch.node_id, fetch.left) == (tip(), NODE, 8)
    assert fetch.acquired == (Acquired(0, 4, 1), Acquired(7, 9, 3))
    assert world.state.attention.up
    assert loan.holds == 1, "the application's, the answer itself is done with"


def test_a_long_poll_waits_only_where_nothing_is_held(world: Requests) -> None:
    world.acquired((0, 4, 1))
    world.waits()
    assert world.fetch().message.max_wait_ms == 100, "acknowledgements would wait behind it"


def test_13_13_an_answer_with_only_holes_is_not_empty(world: Requests) -> None:
    world.waits()
    holes = [
        PartitionData(
            partition_index=0,
            records=b"",
            acquired_records=[AcquiredRecords(first_offset=0, last_offset=3, delivery_count=1)],
        )
    ]
    world.answer_fetch(world.fetch(), holes)
    fetch = world.take()
    assert (fetch.acquired, len(fetch.data)) == ((Acquired(0, 3, 1),), 0)
    world.acknowledge(fetch, kind=0)
    world.waits()
    world.fetch()


def test_an_empty_answer_before_its_time_is_asked_again_but_not_for_ever(world: Requests) -> None:
    world.waits()
    for _ in range(3):
        world.answer_fetch(world.fetch())
    assert world.sent() == []
    assert world.now < world.hand.wake_at() < FOREVER


def work_off(world: Requests, first: int, last: int, took_ms: int) -> AcquiredFetch:
    """These and one more are returned, and after some time the application has that one left to work on."""
    fetch = world.acquired((first, last + 1, 1))
    world.hand.advance(took_ms)
    world.acknowledge(fetch, first, last)
    return fetch


def test_q3_nothing_is_fetched_ahead_before_the_pace_is_known(world: Requests) -> None:
    world.acquired((0, 499, 1))
    assert world.sent() == []


def test_q3_fetched_ahead_is_what_half_of_a_lock_can_work_off(world: Requests) -> None:
    work_off(world, 0, 149, 15_000 - 1)
    # 100 ms a record, and 30 s of a lock.
    message = world.fetch().message
    assert (message.max_records, message.max_wait_ms) == (150, 0)


def test_q3_who_is_as_fast_as_most_gets_two_polls_ahead_and_each_fetch_brings_one(world: Requests) -> None:
    work_off(world, 0, 999, 999)
    request = world.fetch()
    assert request.message.max_records == 500
    world.bring(request, (1001, 1500, 1))
    request = world.fetch()
    assert request.message.max_records == 500
    world.bring(request, (1501, 2000, 1))
    assert world.sent() == [], "enough lies in the buffer"


def test_q3_who_is_very_fast_gets_what_is_worked_off_within_a_moment(world: Requests) -> None:
    work_off(world, 0, 4_999, 99)
    request = world.fetch()
    assert (request.message.max_records, request.message.batch_size) == (5_000, 500)
    world.answer(request)
    world.waits()
    assert world.fetch().message.max_records == 5_000


def test_q3_no_more_is_fetched_ahead_than_was_worked_off_so_far(world: Requests) -> None:
    """One that takes a record and ends, again and again, does not use up the delivery counts of a hundred."""
    work_off(world, 0, 2, 0)
    assert world.fetch().message.max_records == 3


def test_q3_a_poll_of_few_gets_few(world: Requests) -> None:
    world.waits(1)
    assert world.fetch().message.max_records == 1


def test_q3_who_holds_nothing_gets_nothing_ahead(world: Requests) -> None:
    """It may be about to close, and what was acquired by then would count as delivered."""
    fetch = work_off(world, 0, 499, 499)
    world.bring(world.fetch(), (501, 600, 1))
    world.answer(world.fetch())
    world.hand.advance(60)
    buffered = world.state.acquired_fetches.popleft()
    world.state.took(buffered, world.now, buffered.left)
    world.acknowledge(fetch, 500, 500, sending=Sending.SYNC)
    world.acknowledge(buffered, sending=Sending.SYNC)
    world.answer(world.said())
    world.hand.advance(1_000)
    assert world.sent() == []
    world.waits()
    world.fetch()


def test_q3_the_next_fetch_leaves_before_the_poll_returns_that_waited(world: Requests) -> None:
    """The application may hold the interpreter then, and what is said would go alone, in a round trip of its own."""
    fetch = work_off(world, 0, 499, 499)
    world.answer(world.fetch())
    world.acknowledge(fetch, 500, 500)
    world.waits(100)
    request = world.fetch()
    world.bring(request, (501, 500 + request.message.max_records, 1))
    ahead = world.fetch().message
    assert (ahead.max_wait_ms, ahead.max_records) == (0, 100)


def test_records_that_come_one_by_one_are_not_each_followed_by_a_fetch_ahead(world: Requests) -> None:
    """It would bring nothing: the broker answered as soon as it had one."""
    fetch = work_off(world, 0, 499, 500)
    world.answer(world.fetch())
    waiting = ahead = 0
    for offset in range(500, 600):
        world.waits()
        request = world.fetch()
        assert request.message.max_wait_ms == 100
        waiting += 1
        world.hand.advance(2)
        world.bring(request, (offset, offset, 1))
        for request in world.sent():
            ahead += 1
            world.answer(request)
        fetch = world.take()
        world.hand.advance(10)
        world.acknowledge(fetch)
    assert waiting == 100
    assert 0 < ahead < 8


@pytest.mark.parametrize("sending", Sending)
def test_q3_who_releases_a_record_does_not_take_it_again_before_a_poll_waits(
    world: Requests, sending: Sending
) -> None:
    fetch = world.acquired((0, 10, 1))
    world.hand.advance(10)
    world.acknowledge(fetch, 0, 8)
    world.answer(world.fetch())
    world.acknowledge(fetch, 9, 9, RELEASE, sending=sending)
    world.answer(world.said())
    world.hand.advance(1_000)
    assert world.sent() == []
    world.waits()
    world.bring(world.fetch(), (11, 11, 1))
    world.take()
    assert world.fetch().message.max_wait_ms == 0, "ahead again"


def test_q3_who_has_records_of_an_earlier_delivery_gets_nothing_ahead(world: Requests) -> None:
    """The next ones may come for the last time: in the buffer of a process that is killed nobody would see them."""
    work_off(world, 0, 9, 100)
    world.bring(world.fetch(), (11, 11, 4))
    world.hand.advance(1_000)
    assert world.sent() == []
    world.take()
    world.waits()
    world.bring(world.fetch(), (12, 12, 1))
    world.take()
    assert world.fetch().message.max_wait_ms == 0, "ahead again"


def test_q3_after_stop_nothing_is_fetched(world: Requests) -> None:
    work_off(world, 0, 499, 499)
    world.waits()
    world.state.rest()
    assert not any(isinstance(each.message, ShareFetchRequest) for each in world.sent())
    world.state.unwant(world.now, found=False)
    world.waits()
    for request in tuple(world.hand._managers.owners):
        world.answer(request)
    world.fetch()


def test_q3_a_fetch_ends_with_its_poll_and_none_follows_it(world: Requests) -> None:
    world.waits(timeout=800)
    request = world.fetch()
    assert request.message.max_wait_ms == 500
    world.hand.advance(500)
    world.answer_fetch(request)
    request = world.fetch()
    assert request.message.max_wait_ms == 300
    world.hand.advance(300)
    world.answer_fetch(request)
    world.state.unwant(world.now, found=False)
    assert world.sent() == []


def test_q3_an_idle_fetch_is_repeated_no_longer_than_its_poll(world: Requests) -> None:
    world.waits(timeout=10_000)
    world.hand.advance(500)
    world.answer_fetch(world.fetch())
    request = world.fetch()
    assert allowed(request)
    assert request.repeat is not None
    assert request.repeat.for_poll == (world.poll_wait, 500, 100, 500)
    assert (world.poll_wait.until, world.poll_wait.count) == (world.now + 9_500, 500)
    assert world.hand.wake_at() == FOREVER, "nothing is to be looked at meanwhile"
    wakes = world.wakes
    world.state.unwant(world.now, found=False)
    assert world.poll_wait.until == 0
    assert world.wakes == wakes
    world.answer_fetch(request)
    assert world.sent() == []


def test_q3_stop_ends_the_repetition_at_once(world: Requests) -> None:
    world.waits()
    world.fetch()
    world.state.rest()
    assert world.poll_wait.until == 0


def test_a_poll_goes_on_with_the_fetch_of_the_one_before_it(world: Requests) -> None:
    world.waits(timeout=5_000)
    request = world.fetch()
    world.state.unwant(world.now, found=False)
    wakes = world.wakes
    world.waits(timeout=5_000)
    assert world.wakes == wakes
    assert world.poll_wait.until == world.now + 5_000
    world.answer_fetch(request)
    world.fetch()


def test_a_loop_of_short_polls_wakes_nobody_for_the_fetch_under_way(world: Requests) -> None:
    world.waits(timeout=10)
    request = world.fetch()
    wakes = world.wakes
    for _ in range(5):
        world.state.unwant(world.now, found=False)
        world.waits(timeout=10)
    world.state.unwant(world.now, found=False)
    assert world.wakes == wakes
    world.hand.advance(100)
    world.answer_fetch(request)
    request = world.fetch()
    world.hand.advance(100)
    world.answer_fetch(request)
    assert world.sent() == [], "nobody has polled meanwhile"


def test_a_poll_wakes_the_network_thread_if_a_broker_has_no_fetch() -> None:
    world = Requests({0: NODE, 1: OTHER})
    world.waits()
    one, other = world.sent()
    world.state.unwant(world.now, found=False)
    world.answer_fetch(other)
    wakes = world.wakes
    world.waits()
    assert world.wakes == wakes + 1
    assert world.fetch().node_id == other.node_id
    world.state.unwant(world.now, found=False)
    world.waits()
    assert world.wakes == wakes + 1, "both have one"
    world.answer_fetch(one)


def test_a_poll_wakes_the_network_thread_if_a_broker_has_joined() -> None:
    world = Requests({0: NODE})
    world.cluster.leaders[TopicPartition("t", 1)] = OTHER
    world.waits()
    world.fetch()
    world.state.unwant(world.now, found=False)
    world.assign(0, 1)
    assert world.sent() == []
    wakes = world.wakes
    world.waits()
    assert world.wakes == wakes + 1
    assert world.fetch().node_id == OTHER


def test_a_poll_of_another_size_does_not_go_on_with_the_fetch_under_way(world: Requests) -> None:
    world.waits(500)
    request = world.fetch()
    world.state.unwant(world.now, found=False)
    world.waits(1)
    assert request.repeat is None or request.repeat.for_poll is None
    world.answer_fetch(request)
    request = world.fetch()
    assert request.message.max_records == 1
    world.hand.advance(500)
    world.answer_fetch(request)
    request = world.fetch()
    assert request.repeat is not None
    assert request.repeat.for_poll is not None
    assert request.repeat.for_poll.records == world.poll_wait.count == 1
    world.state.unwant(world.now, found=False)
    world.waits(2**70)
    assert world.poll_wait.count == 2**31 - 1, "the poller's numbers are bounded"
    assert request.repeat.for_poll.records == 1


def test_with_record_limit_brokers_take_turns_though_nothing_comes() -> None:
    world = Requests({0: NODE, 1: OTHER}, share_acquire_mode="record_limit")
    world.waits()
    asked = []
    for _ in range(6):
        request = world.fetch()
        asked.append(request.node_id)
        assert request.repeat is None or not allowed(request)
        world.hand.advance(500)
        world.answer_fetch(request)
    assert asked == [asked[0], asked[1]] * 3
    assert asked[0] != asked[1]


def test_the_last_of_the_repeated_fetches_may_be_held_for_less(world: Requests) -> None:
    """It ends with its poll, and its answer is not early."""
    world.waits()
    world.hand.advance(500)
    world.answer_fetch(world.fetch())
    for _ in range(5):
        request = world.fetch()
        assert request.repeat is not None
        world.hand.advance(600)
        request.repeat.told(world.now, 1, world.now - 100, ())
        world.answer_fetch(request)


def test_q3_who_needs_longer_than_half_a_lock_for_a_record_gets_nothing_ahead(world: Requests) -> None:
    work_off(world, 0, 0, 20_000)
    (request,) = world.sent()
    assert not hasattr(request.message, "max_records"), "the acknowledgement goes alone"


def test_a_fetch_ahead_that_brings_nothing_is_repeated_after_growing_pauses(world: Requests) -> None:
    work_off(world, 0, 499, 9)
    pauses = []
    for _ in range(8):
        world.answer(world.fetch())
        pauses.append(world.hand.wake_at() - world.now)
        world.hand.now = world.hand.wake_at()
    assert pauses[0] <= 24
    assert 400 <= pauses[-1] <= 600


def test_the_buffer_is_counted_by_what_is_left_in_it_and_still_locked() -> None:
    world = Requests(share_lock_renewal=False)
    work_off(world, 0, 499, 499)
    world.bring(world.fetch(), (500, 1499, 1))
    assert world.sent() == []
    fetch = world.state.acquired_fetches[0]
    world.state.took(fetch, world.now, 1_000)
    assert world.wakes > 0, "an emptied fetch wakes the network thread"
    assert world.fetch().message.max_records == 500


def test_q4_a_buffer_whose_locks_ended_does_not_keep_a_poll_from_its_fetch() -> None:
    world = Requests(share_lock_renewal=False)
    work_off(world, 0, 499, 9)
    world.bring(world.fetch(), (500, 1499, 1))
    (fetch,) = world.state.acquired_fetches
    world.hand.now = fetch.lock_ends
    assert not fetch.is_locked(world.now)
    world.waits()
    assert world.fetch().message.max_wait_ms == 500
    assert world.state.measures.held() == 0


def test_without_renewals_a_poll_gets_no_more_than_a_lock_allows() -> None:
    world = Requests(share_lock_renewal=False)
    work_off(world, 0, 99, 10_000 - 1)
    world.answer(world.fetch())
    world.waits()
    assert world.fetch().message.max_records == 150


def test_memory_bounds_what_is_fetched_ahead() -> None:
    world = Requests(buffer_memory=2_000_000)
    work_off(world, 0, 999, 999)
    world.bring(world.fetch(), (1001, 1500, 1))
    world.state.measures.held_bytes = lambda: 2_000_000
    assert world.sent() == []
    world.state.measures.held_bytes = lambda: 1_999_999
    assert world.fetch().message.max_records == 500


def test_memory_bounds_what_all_fetches_of_a_poll_ask_for() -> None:
    world = Requests({0: NODE, 1: OTHER}, buffer_memory=2_000_000, fetch_max_bytes=1_500_000)
    world.state.measures.held_bytes = lambda: 100_000
    world.waits()
    first, second = world.sent()
    assert (first.message.max_bytes, second.message.max_bytes) == (1_500_000, 400_000)
    for request in (first, second):
        world.answer_fetch(request)
    world.state.measures.held_bytes = lambda: 3_000_000
    assert [each.message.max_bytes for each in world.sent()] == [1, 1], "a batch of each, so that it goes on"


def test_record_limit_asks_one_broker_at_a_time_and_fetches_nothing_ahead() -> None:
    world = Requests({0: NODE, 1: OTHER}, share_acquire_mode="record_limit", max_poll_records=10)
    world.waits(10)
    first = world.fetch()
    assert (first.message.share_acquire_mode, first.message.max_records) == (1, 10)
    world.hand.advance(500)
    world.answer_fetch(first)
    second = world.fetch()
    assert second.node_id != first.node_id, "the other's turn"
    world.bring(second, (0, 9, 1), number=named(second)[0])
    fetch = world.take()
    world.hand.advance(10)
    world.acknowledge(fetch)
    (request,) = world.sent()
    assert not hasattr(request.message, "max_records")


def test_the_lock_is_the_brokers_to_say(world: Requests) -> None:
    world.waits()
    request = world.fetch()
    sent_at = world.now
    world.answer_fetch(
        request,
        [
            PartitionData(
                partition_index=0,
                records=b"",
                acquired_records=[AcquiredRecords(first_offset=0, last_offset=3, delivery_count=1)],
            )
        ],
        lock_ms=15_000,
    )
    assert world.state.lock_timeout_ms == 15_000 != LOCK_MS
    assert world.take().lock_ends == sent_at + 15_000


def test_a_long_poll_takes_a_quarter_of_the_lock_at_most() -> None:
    """Locks are counted from when the fetch leaves: one that waits for as long would bring nothing of use."""
    world = Requests(fetch_max_wait_ms=60_000)
    world.waits()
    assert world.fetch().message.max_wait_ms == LOCK_MS // 4


def test_polls_that_do_not_wait_get_records_too_by_one_fetch_each(world: Requests) -> None:
    for _ in range(3):
        world.waits(timeout=0)
        world.state.unwant(world.now, found=False)
        world.hand.advance(20)
        request = world.fetch()
        assert request.message.max_wait_ms == 100
        world.hand.advance(100)
        world.answer_fetch(request)
        assert world.sent() == [], "the poll may have been the last"


def test_q3_a_poll_of_process_without_room_fetches_nothing(world: Requests) -> None:
    fetch = world.acquired((0, 1, 1))
    world.hand.advance(LOCK_MS)
    world.acknowledge(fetch, 0, 0)
    world.sent()
    # Its handlers take long: who has no room would keep records from others.
    for _ in range(3):
        world.waits(0, timeout=20)
        assert not any(isinstance(each.message, ShareFetchRequest) for each in world.sent())
        world.hand.advance(20)
        world.state.unwant(world.now, found=False)


def test_an_idle_fetch_is_left_to_be_repeated(world: Requests) -> None:
    world.waits()
    first = world.fetch()
    assert first.repeat is None, "it names partitions"
    world.hand.advance(500)
    world.answer_fetch(first)
    request = world.fetch()
    assert request.repeat is not None
    assert request.repeat.allowed
    sent_at = world.now + 1_500
    assert request.repeat.told(sent_at, 3, sent_at, ())
    world.hand.now = sent_at
    world.bring(request, (0, 4, 1))
    assert world.take().lock_ends == sent_at + LOCK_MS, "counted from the last of them"
    world.waits()
    assert world.fetch().message.share_session_epoch == 5


def allowed(request: Request) -> bool:
    assert request.repeat is not None
    return request.repeat.allowed


def test_an_idle_fetch_is_not_repeated_once_something_is_to_be_said_or_read(world: Requests) -> None:
    world.waits()
    world.hand.advance(500)
    world.answer_fetch(world.fetch())
    request = world.fetch()
    assert allowed(request)
    world.manager.assigned(world.now, {})
    world.hand.turn()
    assert not allowed(request)


def test_where_records_are_held_no_fetch_is_left_to_be_repeated(world: Requests) -> None:
    world.acquired((0, 4, 1))
    world.waits()
    assert world.fetch().repeat is None
