"""What is fetched, from whom, and what the answers do, under virtual time."""

from __future__ import annotations

from tests.worlds.cluster import answer, config, lost, told
from tests.worlds.fetching import P0, P1, P2, World, asked, batch
from tests.worlds.hand import BackgroundEvents

from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.consumer.events import Failed
from kadence.consumer.positions.metadata import MetadataManager
from kadence.consumer.subscription import Status
from kadence.errors import AuthenticationError, CorruptRecordError, OffsetOutOfRangeError
from kadence.protocol import error_codes as ec


def test_each_leader_is_asked_once_for_all_its_partitions() -> None:
    world = World(P0, P1, P2)
    first, second = world.poll(0)
    assert {first.node_id: asked(first), second.node_id: asked(second)} == {1: {0: 0, 1: 0}, 2: {2: 0}}
    assert first.purpose is ConnectionPurpose.FETCH
    assert world.poll(1) == []


def test_a3_the_next_fetch_leaves_when_the_answer_is_in_and_asks_for_what_follows() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    arena = world.reply(request, 5, {P0: batch(2)})
    assert arena.holds == 1
    assert len(world.shared_state.completed_fetches) == 1
    (request,) = world.poll(5)
    assert asked(request) == {0: 2}
    assert request.message.session_id == 7
    assert request.message.session_epoch == 1


def test_an_unchanged_partition_is_not_named_again_in_its_session() -> None:
    world = World(P0, P1)
    (request,) = world.poll(0)
    world.reply(request, 5, {P0: batch(2)})
    (request,) = world.poll(5)
    assert asked(request) == {0: 2}
    assert request.message.forgotten_topics_data == []


def test_a3_a_partition_with_enough_in_the_buffer_is_left_out_until_it_is_drained() -> None:
    world = World(P0, max_partition_fetch_bytes=100)
    (request,) = world.poll(0)
    world.reply(request, 5, {P0: batch(2, size=100)})
    assert world.poll(5) == []
    assert world.drain(world.shared_state.completed_fetches.popleft()), "the network thread waits for it"
    assert len(world.poll(6)) == 1


def test_a3_buffer_memory_is_a_cap_that_the_broker_is_told() -> None:
    world = World(P0, P2, buffer_memory=1_500_000)
    (request,) = world.poll(0)
    assert 800_000 < request.message.max_bytes < 1_500_000 * 3 / 4, "a quarter is left for decompressing"
    assert world.shared_state.wake_held >= 0, "the second broker waits for room"
    world.reply(request, 5)
    assert len(world.poll(5)) == 1


def test_a3_when_nothing_is_held_one_fetch_is_let_in_whatever_the_cap() -> None:
    world = World(P0, buffer_memory=1_048_576, max_partition_fetch_bytes=1_048_576)
    world.in_use = 1_048_576
    assert world.poll(0) == []
    world.in_use = 0
    (request,) = world.poll(1)
    assert request.message.max_bytes > 500_000


def test_a_paused_revoking_or_held_partition_is_not_fetched() -> None:
    world = World(P0, P1)
    world.pause(P0)
    (request,) = world.poll(0)
    assert asked(request) == {1: 0}
    other = World(P0, P1)
    other.subscription.mark_revoking([P0])
    other.subscription.assign([P0, P1, P2], held=True)
    other.subscription.mark_revoking([P0, P1])
    assert other.poll(0) == []


def test_a_partition_that_cannot_wait_behind_a_parked_fetch_goes_on_a_second_connection() -> None:
    world = World(P0, P1)
    world.pause(P1)
    (parked,) = world.poll(0)
    assert asked(parked) == {0: 0}
    world.pause(P1, False)
    (side,) = world.poll(100)
    assert (side.purpose, asked(side)) == (ConnectionPurpose.SIDE, {1: 0})
    assert side.message.session_epoch == -1
    assert side.message.max_wait_ms == 0, "the next one is not to hang on it"
    assert world.poll(101) == []


def test_a_side_fetch_that_brings_nothing_waits_longer_each_time_but_not_for_another_partition() -> None:
    world = World(P0, P1)
    world.pause(P1)
    (parked,) = world.poll(0)
    world.pause(P1, False)
    now, waits = 100, []
    while now < parked.tag.ends_at - 10:
        (side,) = world.poll(now)
        assert asked(side) == {1: 0}
        waits.append(side.message.max_wait_ms)
        now += max(waits[-1], 1)
        world.reply(side, now)
    assert waits == [0, 10, 20, 40, 80, 160, 89], "no longer than the parked one"
    assert world.poll(now) == []
    world = World(P0, P1)
    (parked,) = world.poll(0)
    world.subscription.position(P0, 50, None)
    (side,) = world.poll(10)
    world.reply(side, 11)
    (side,) = world.poll(11)
    assert side.message.max_wait_ms == 10
    world.subscription.position(P1, 7, None)
    world.reply(side, 21)
    (side,) = world.poll(21)
    assert (asked(side), side.message.max_wait_ms) == ({0: 50, 1: 7}, 0)


def test_what_was_just_drained_waits_for_a_fetch_that_is_not_parked_yet() -> None:
    """It comes with the next answer: a fetch of its own would be a small one."""
    world = World(P0, P1, max_partition_fetch_bytes=300)
    (request,) = world.poll(0)
    world.reply(request, 5, {P0: batch(5, size=100)})
    (request,) = world.poll(5)
    assert asked(request) == {}, "of 0 there is enough"
    world.drain(world.shared_state.completed_fetches.popleft())
    poll = world.manager.poll(6)
    assert poll.requests == []
    assert 6 < poll.wake_at <= 20, "by then it would have been answered if there were data"
    (side,) = world.poll(poll.wake_at)
    assert (side.purpose, asked(side)) == (ConnectionPurpose.SIDE, {0: 5})


def test_a_seek_is_fetched_at_once_and_the_old_answer_is_dropped() -> None:
    world = World(P0)
    (parked,) = world.poll(0)
    world.subscription.position(P0, 50, None)
    (side,) = world.poll(10)
    assert asked(side) == {0: 50}
    arena = world.reply(parked, 20, {P0: batch(2)})
    assert arena.holds == 0
    assert not world.shared_state.completed_fetches
    assert world.state(P0).offset == 50


def test_an_answer_for_a_partition_that_was_taken_away_is_dropped() -> None:
    world = World(P0, P1)
    (request,) = world.poll(0)
    world.subscription.assign([P1])
    arena = world.reply(request, 5, {P0: batch(2)})
    assert arena.holds == 0
    assert not world.shared_state.completed_fetches


def test_a_lost_fetch_is_repeated_after_the_backoff_in_a_new_session() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 1, {})
    (request,) = world.poll(1)
    world.manager.on_response(10, lost(request, 10))
    assert world.poll(11) == []
    (request,) = world.poll(110)
    assert (request.message.session_id, request.message.session_epoch) == (7, 0)
    assert asked(request) == {0: 0}


def test_a_password_that_is_refused_later_is_told() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    refused = AuthenticationError("broker 1 refused SASL PLAIN of user 'alice'")
    world.manager.on_response(10, Completed(request, None, refused, -1, 10))
    assert world.background_events == [Failed(refused)]


def test_a_session_that_the_broker_forgot_is_opened_anew_at_once() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 1, {})
    (request,) = world.poll(1)
    world.reply(request, 2, code=ec.FETCH_SESSION_ID_NOT_FOUND)
    (request,) = world.poll(2)
    assert (request.message.session_id, request.message.session_epoch) == (0, 0)


def test_a_moved_leader_asks_for_metadata_and_follows_it() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 200, codes={P0: ec.NOT_LEADER_OR_FOLLOWER})
    assert len(world.metadata.poll(200).requests) == 1
    assert world.poll(250) == []
    assert len(world.poll(300)) == 1


def test_a_pattern_s_partition_without_a_leader_has_its_metadata_asked_for_after_the_backoff() -> None:
    """Names in a subscription are asked for until they are led; what a pattern matched is not among those names."""
    metadata = MetadataManager(config(), BackgroundEvents())
    metadata.want_matching("t")
    (request,) = metadata.poll(0).requests
    metadata.on_response(5, answer(request, told({P0: -1}), 5))
    world = World(P0, metadata=metadata)
    assert metadata.poll(5).wake_at > 1_000
    wake_at = world.manager.poll(5).wake_at
    assert 5 < wake_at <= 105
    assert len(metadata.poll(wake_at).requests) == 1


def test_out_of_range_loses_the_position_and_the_policy_is_another_manager_s() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 5, codes={P0: ec.OFFSET_OUT_OF_RANGE})
    assert world.state(P0).status is Status.AWAIT_RESET
    assert isinstance(world.state(P0).lost, OffsetOutOfRangeError)
    assert world.background_events == []
    assert world.poll(1_000) == []


def test_bytes_without_a_whole_batch_are_told() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    arena = world.reply(request, 5, {P0: batch(2)[:30]})
    (failed,) = world.background_events
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, CorruptRecordError)
    assert arena.holds == 0
    assert "seek() past this offset to go on" in str(failed.error)
    world.subscription.position(P0, 1, None)
    (request,) = world.poll(10_000)
    assert asked(request) == {0: 1}


def test_bytes_that_lead_no_further_are_not_asked_for_again_in_a_spin() -> None:
    """A batch of an older format, say: the application is told by who reads it, and has to seek past it."""
    world = World(P0)
    (request,) = world.poll(0)
    raw = bytearray(batch(2))
    raw[16] = 1
    arena = world.reply(request, 5, {P0: bytes(raw)})
    assert arena.holds == 1, "handed out, for the error"
    assert world.poll(5) == []
    assert world.poll(1_004) == []
    (request,) = world.poll(1_005)
    assert world.reply(request, 1_010, {P0: bytes(raw)}).holds == 0, "once is enough"
    assert len(world.shared_state.completed_fetches) == 1


def test_an_unknown_error_code_is_repeated_not_fatal() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 5, codes={P0: 31_999})
    assert world.background_events == []
    assert len(world.poll(105)) == 1


def test_partitions_whose_bytes_came_go_to_the_end_of_the_turn() -> None:
    world = World(P0, P1)
    (request,) = world.poll(0)
    world.reply(request, 5, {P0: batch(2)})
    assert list(world.subscription.partitions) == [P1, P0]


def test_without_topic_ids_names_are_used() -> None:
    world = World(P0)
    world.metadata.topic_id = lambda topic: bytes(16)  # type: ignore[method-assign]
    (request,) = world.poll(0)
    assert request.max_version == 12


def may_repeat(request: Request) -> bool:
    return request.repeat is not None and request.repeat.allowed


def test_a_fetch_after_nothing_may_be_repeated_until_something_changes() -> None:
    world = World(P0, P1)
    (request,) = world.poll(0)
    assert request.repeat is None, "it opens the session"
    world.reply(request, 500, {})
    (request,) = world.poll(500)
    assert (asked(request), request.message.session_epoch) == ({}, 1)
    assert may_repeat(request)
    world.pause(P1)
    assert not may_repeat(request), "the application paused a partition"
    world.poll(600)
    assert not may_repeat(request), "the next fetch takes it out of the session"


def test_repeated_fetches_are_counted_in_session_times_and_metrics() -> None:
    world = World(P0)
    (request,) = world.poll(0)
    world.reply(request, 500, {})
    (request,) = world.poll(500)
    assert request.repeat is not None
    sent_before = world.manager.requests
    assert request.repeat.told(2_000, 3, 2_000, [])
    assert world.manager.requests == sent_before + 3
    assert world.shared_state.measures.fetch_ms.count == 3
    assert request.tag.ends_at == 2_500
    world.reply(request, 2_500, {P0: batch(2)})
    (request,) = world.poll(2_500)
    assert (asked(request), request.message.session_epoch) == ({0: 2}, 5)


def test_a_fetch_that_the_broker_hardly_holds_is_not_repeated() -> None:
    world = World(P0, fetch_max_wait_ms=50)
    (request,) = world.poll(0)
    world.reply(request, 50, {})
    (request,) = world.poll(50)
    assert request.repeat is None
