"""KIP-320 under virtual time: who is checked, what a truncated log does, and that nothing stalls for ever."""

from __future__ import annotations

import pytest
from tests.worlds.cluster import told
from tests.worlds.positions import P0, P1, World, batch, question

from kadence.connection.request import Request
from kadence.consumer.subscription import Status
from kadence.errors import (
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    UnsupportedVersionError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataResponse
from kadence.types import OffsetAndMetadata, TopicPartition


def reading(**settings: object) -> World:
    """A world that has read records 0–9 of epoch 5 from broker 1; the application was given all of them."""
    world = World(P0, epoch=5, **settings)
    world.subscription.position(P0, 0, None)
    world.fetched(world.ask("Fetch"), batch(0, 10, epoch=5))
    world.hand_out(10, epoch=5)
    return world


# ------------------------------------------------------------ who is checked


def test_kip320_a_fetch_carries_the_epochs_of_leader_and_last_record() -> None:
    world = reading()
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert (part.fetch_offset, part.current_leader_epoch, part.last_fetched_epoch) == (10, 5, 5)


def test_kip320_a_new_leader_is_asked_before_it_is_fetched_from() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    request = world.ask("OffsetForLeaderEpoch")
    assert (request.node_id, question(request)) == (2, {0: (6, 5)})
    assert world.status() is Status.AWAIT_VALIDATION
    assert world.names() == []
    world.epoch_ends(request, 5, 10)
    (fetch,) = world.turn()
    assert (fetch.name, fetch.node_id) == ("Fetch", 2)
    assert world.state().shared_partition.fetch_epoch == 2, (
        "nothing was lost, so the reading goes on without a jump"
    )


def test_kip320_a_position_of_the_leader_s_own_epoch_needs_no_question() -> None:
    world = World(P0, epoch=5)
    world.subscription.position(P0, 3, 5)
    assert world.names() == ["Fetch"]


def test_kip320_a_committed_offset_of_an_older_epoch_is_checked_first() -> None:
    world = World(P0, epoch=5)
    world.subscription.position(P0, 3, 4)
    request = world.ask("OffsetForLeaderEpoch")
    assert question(request) == {0: (5, 4)}
    world.epoch_ends(request, 4, 3)
    assert world.names() == ["Fetch"]


def test_kip320_a_position_without_an_epoch_is_not_checked() -> None:
    world = World(P0, epoch=5)
    world.subscription.position(P0, 3, None)
    world.turn()
    world.tell_metadata(told({P0: 2}, epoch=6))
    assert world.status() is Status.FETCHING


def test_kip320_what_comes_from_the_old_leader_meanwhile_is_dropped_and_read_again() -> None:
    world = reading()
    parked = world.ask("Fetch")
    world.tell_metadata(told({P0: 2}, epoch=6))
    request = world.ask("OffsetForLeaderEpoch")
    arena = world.fetched(parked, batch(10, 5, epoch=5))
    assert (arena.holds, world.state().offset) == (0, 10)
    world.epoch_ends(request, 5, 15)
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert part.fetch_offset == 10


# ------------------------------------------------------------ truncation


def test_kip320_truncation_goes_on_where_the_logs_part_and_says_what_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 7)
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == (7, 5)
    current = world.state().shared_partition.current()
    assert current is not None
    assert (current.offset, current.leader_epoch) == (7, 5)
    assert "records 7 to 9, which were read, are no longer in the log" in caplog.text
    assert world.errors() == []


@pytest.mark.parametrize(("floor", "resumed"), [(6, (7, 5)), (8, (8, -1))])
def test_c11_truncation_leads_to_no_record_before_the_range(floor: int, resumed: tuple[int, int]) -> None:
    world = reading()
    world.subscription.limit(P0, floor, 20)
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 7)
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == resumed
    assert world.errors() == []


def test_kip320_without_a_policy_truncation_is_raised_once_and_a_seek_resolves_it() -> None:
    world = reading(auto_offset_reset="none")
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 7)
    for _ in range(50):
        assert "Fetch" not in world.names(100)
    (error,) = world.errors()
    assert isinstance(error, LogTruncationError)
    assert isinstance(error, OffsetOutOfRangeError)
    assert (error.partition, error.position, error.diverging_offset, error.leader_epoch) == (P0, 10, 7, 5)
    current = world.state().shared_partition.current()
    assert current is not None
    assert (current.offset, current.leader_epoch) == (10, 5), (
        "what a commit would say: found out again after a restart"
    )
    world.subscription.position(P0, 7, None)
    assert "Fetch" in world.names()


def test_kip320_a_topic_that_is_read_from_its_start_needs_no_policy() -> None:
    world = reading(auto_offset_reset="none")
    world.subscription.from_start = frozenset({P0.topic})
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 7)
    assert "Fetch" in world.names(100)
    assert world.errors() == []


@pytest.mark.parametrize("policy", ["earliest", "none"])
def test_kip320_records_that_were_only_buffered_are_read_again_and_nothing_is_lost(policy: str) -> None:
    world = reading(auto_offset_reset=policy)
    world.fetched(world.ask("Fetch"), batch(10, 10, epoch=5))
    assert world.state().offset == 20
    fetch_epoch = world.state().shared_partition.fetch_epoch
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 15)
    assert world.state().shared_partition.fetch_epoch > fetch_epoch, (
        "what lies in the buffer is not handed out"
    )
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == (10, 5)
    assert world.errors() == []
    assert world.state().shared_partition.read_since == fetch_epoch, (
        "what was given to the application counts"
    )


def test_kip320_a_truncation_proves_nothing_about_what_the_application_has_in_hand() -> None:
    """Leaving `with` by an exception commits what was processed; a fetch epoch that began by itself does not count."""
    world = reading()
    world.state().shared_partition.mark_processed(4, 5)
    world.fetched(world.ask("Fetch"), batch(10, 10, epoch=5))
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 8)
    shared_partition = world.state().shared_partition
    current, processed = shared_partition.current(), shared_partition.processed_position()
    assert current is not None
    assert processed is not None
    assert (current.offset, processed.offset, processed.leader_epoch) == (8, 4, 5)
    shared_partition.mark_processed(8, 5)
    processed = shared_partition.processed_position()
    assert processed is not None
    assert processed.offset == 8


def test_kip320_a_leader_that_never_knew_the_epoch_resets_by_policy() -> None:
    world = reading(auto_offset_reset="latest")
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), -1, -1)
    request = world.ask("ListOffsets")
    assert request.message.topics[0].partitions[0].timestamp == -1
    world.listed(request, 3)
    assert (world.status(), world.state().offset) == (Status.FETCHING, 3)


def test_kip320_a_leader_that_never_knew_the_epoch_without_a_policy() -> None:
    world = reading(auto_offset_reset="none")
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), -1, -1)
    world.turn()
    (error,) = world.errors()
    assert isinstance(error, LogTruncationError)
    assert (error.position, error.diverging_offset) == (10, None)


def test_kip320_an_epoch_that_is_gone_is_a_truncation_even_if_the_log_is_longer() -> None:
    """Java compares offsets only, and would go on in the middle of records that it never saw."""
    world = reading()
    world.fetched(world.ask("Fetch"), batch(10, 5, epoch=6))
    world.hand_out(15, epoch=6)
    # Epoch 6 was lost whole: its broker is away, and the one that led in epoch 5 had more of it than we read.
    world.tell_metadata(told({P0: 2}, epoch=7))
    request = world.ask("OffsetForLeaderEpoch")
    assert question(request) == {0: (7, 6)}
    world.epoch_ends(request, 5, 20)
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == (10, 5)


def test_kip279_where_the_leader_had_another_epoch_the_question_goes_on_with_our_own() -> None:
    """One answer is not enough when logs parted twice: what was read below it may be of an epoch that is gone, too."""
    world = World(P0, epoch=5)
    world.subscription.position(P0, 0, None)
    world.fetched(world.ask("Fetch"), batch(0, 5, epoch=3) + batch(5, 5, epoch=5))
    world.hand_out(10, epoch=5)
    world.tell_metadata(told({P0: 2}, epoch=7))
    first = world.ask("OffsetForLeaderEpoch")
    assert question(first) == {0: (7, 5)}
    world.epoch_ends(first, 4, 8)
    assert world.state().offset == 5, "where our epoch 5 began"
    second = world.ask("OffsetForLeaderEpoch")
    assert question(second) == {0: (7, 3)}
    world.epoch_ends(second, 3, 2)
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == (2, 3)


def test_kip320_a_fetch_tells_of_the_divergence_by_itself() -> None:
    world = reading()
    world.fetched(world.ask("Fetch"), diverging=(5, 7))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 7)
    assert world.state().offset == 7
    (part,) = world.ask("Fetch", 100).message.topics[0].partitions
    assert part.fetch_offset == 7


def test_kip320_a_divergence_that_the_leader_denies_does_not_repeat_for_ever() -> None:
    """A broker whose fetch session keeps an epoch of long ago would take records away again and again."""
    world = reading()
    world.fetched(world.ask("Fetch"), diverging=(4, 3))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 10)
    (part,) = world.ask("Fetch", 100).message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == (10, -1)


def test_kip320_a_divergence_that_cannot_be_placed_does_not_repeat_for_ever() -> None:
    world = World(P0, epoch=6)
    world.subscription.position(P0, 10, 6)
    world.fetched(world.ask("Fetch"), diverging=(5, 20))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 20)
    (part,) = world.ask("Fetch", 100).message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == (10, -1)


# ------------------------------------------------------------ never a stall


def test_kip320_a_lost_answer_is_asked_for_again() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.lose(world.ask("OffsetForLeaderEpoch"))
    assert "OffsetForLeaderEpoch" not in world.names(50)
    world.epoch_ends(world.ask("OffsetForLeaderEpoch", 50), 5, 10)
    assert "Fetch" in world.names()


def test_kip320_a_leader_that_changes_meanwhile_is_asked_at_once_and_the_old_answer_is_void() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    first = world.ask("OffsetForLeaderEpoch")
    world.tell_metadata(told({P0: 2}, epoch=7))
    second = world.ask("OffsetForLeaderEpoch")
    assert question(second) == {0: (7, 5)}
    world.epoch_ends(first, 5, 3)
    assert world.status() is Status.AWAIT_VALIDATION
    world.epoch_ends(second, 5, 10)
    assert "Fetch" in world.names()
    assert world.state().offset == 10


def test_kip320_no_leader_for_a_while_then_one() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.lose(world.ask("OffsetForLeaderEpoch"))
    world.tell_metadata(told({P0: -1}, epoch=7))
    assert [name for name in world.names(500) if name != "Metadata"] == []
    world.tell_metadata(told({P0: 2}, epoch=8))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 10)
    assert "Fetch" in world.names()


def test_kip320_older_metadata_changes_nothing() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 10)
    world.turn()
    world.tell_metadata(told({P0: 1}, epoch=5))
    assert (world.status(), world.metadata.leader(P0)) == (Status.FETCHING, 2)


def test_kip320_epochs_that_went_back_for_good_are_believed_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A cluster that was restored from a copy: whoever never gives in is stuck for ever."""
    world = reading()
    fetched_at = 0
    while world.now < 60_000 and not fetched_at:
        for request in world.turn(100):
            if request.name == "Metadata":
                world.answer(request, told({P0: 2}, epoch=2))
            elif request.name == "OffsetForLeaderEpoch":
                assert question(request) == {0: (2, 5)}
                world.epoch_ends(request, -1, -1)
            elif request.name == "ListOffsets":
                world.listed(request, 4)
            elif request.name == "Fetch" and request.node_id == 1:
                world.fetched(request, code=ec.UNKNOWN_LEADER_EPOCH)
            elif request.name == "Fetch":
                (part,) = request.message.topics[0].partitions
                assert (part.fetch_offset, part.current_leader_epoch) == (4, 2)
                fetched_at = world.now
    assert 10_000 <= fetched_at <= 20_000
    assert "are lower than before" in caplog.text


def test_kip320_two_stale_answers_far_apart_are_not_believed() -> None:
    world = reading()
    for _ in range(2):
        world.now += 300_000
        world.tell_metadata(told({P0: 2}, epoch=2))
    assert (world.metadata.leader(P0), world.metadata.leader_epoch(P0)) == (1, 5)


def test_kip392_a_new_leader_says_anew_which_replica_to_read() -> None:
    world = reading()
    world.fetched(world.ask("Fetch"), replica=2)
    world.turn()
    assert world.state().preferred_replica == 2
    world.tell_metadata(told({P0: 1}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 5, 10)
    assert world.state().preferred_replica is None


def test_kip320_an_epoch_ahead_of_metadata_waits_for_it_but_not_for_ever() -> None:
    world = World(P0, epoch=5)
    world.subscription.position(P0, 3, 9)
    assert "OffsetForLeaderEpoch" not in world.names()
    asked: list[Request] = []
    while not asked:
        for request in world.turn(100):
            if request.name == "Metadata":
                world.answer(request, told({P0: 1}, epoch=5))
            elif request.name == "OffsetForLeaderEpoch":
                asked.append(request)
        assert world.now <= 6_000
    world.epoch_ends(asked[0], 5, 3)
    assert "Fetch" in world.names()


def test_kip320_an_epoch_ahead_of_metadata_is_good_once_metadata_knows_it() -> None:
    world = World(P0, epoch=5)
    world.subscription.position(P0, 3, 9)
    world.turn()
    world.tell_metadata(told({P0: 2}, epoch=9))
    assert world.status() is Status.AWAIT_VALIDATION
    assert world.names(100) == ["Fetch"]


@pytest.mark.parametrize("code", [ec.FENCED_LEADER_EPOCH, ec.UNKNOWN_LEADER_EPOCH, ec.NOT_LEADER_OR_FOLLOWER])
def test_kip320_a_leader_that_refuses_is_asked_again_after_metadata(code: int) -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), -1, -1, code)
    assert "Metadata" in world.names(1_000)
    assert world.state().offset == 10


def test_kip320_what_nobody_understands_does_not_stop_the_reading() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), -1, -1, 31_999)
    assert "Fetch" in world.names()


def test_kip320_a_broker_without_the_request_is_believed() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    request = world.ask("OffsetForLeaderEpoch")
    assert request.min_version == 3, "earlier ones need a broker's rights"
    world.fail(request, UnsupportedVersionError("no version in common"))
    assert "Fetch" in world.names()


def test_kip320_not_allowed_is_told_and_tried_again() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), -1, -1, ec.TOPIC_AUTHORIZATION_FAILED)
    (error,) = world.errors()
    assert isinstance(error, TopicAuthorizationError)
    assert "OffsetForLeaderEpoch" in world.names(1_000)


def test_kip320_a_seek_meanwhile_makes_the_question_void() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    request = world.ask("OffsetForLeaderEpoch")
    world.subscription.position(P0, 2, None)
    assert "Fetch" in world.names()
    world.epoch_ends(request, 5, 1)
    assert (world.status(), world.state().offset) == (Status.FETCHING, 2)


def test_kip320_a_partition_that_was_given_up_meanwhile_is_nobody_s() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    request = world.ask("OffsetForLeaderEpoch")
    world.subscription.assign([])
    world.epoch_ends(request, 5, 1)
    assert world.names() == []


def test_kip320_a_leader_without_an_epoch_after_one_with_is_read_from() -> None:
    """Brokers of which some are too old to tell epochs, or another kind of broker behind the same names."""
    world = reading()
    parked = world.ask("Fetch")
    world.tell_metadata(told({P0: 2}, epoch=-1))
    world.lose(parked)
    world.fetched(world.ask("Fetch"), batch(10, 5, epoch=5))
    assert world.state().offset == 15


def test_kip1102_a_question_that_ended_while_no_broker_was_known_is_asked_again() -> None:
    world = reading()
    world.tell_metadata(told({P0: 2}, epoch=6))
    request = world.ask("OffsetForLeaderEpoch")
    world.tell_metadata(MetadataResponse(error_code=ec.REBOOTSTRAP_REQUIRED, brokers=[], topics=[]))
    world.turn()
    world.lose(request)  # its connection went with all the others
    world.tell_metadata(told({P0: 2}, epoch=6))
    again = world.ask("OffsetForLeaderEpoch", 1_000)
    world.epoch_ends(again, 5, 10)
    assert world.status() is Status.FETCHING


def test_kip320_partitions_of_one_leader_are_asked_about_in_one_request() -> None:
    world = World(P0, P1, epoch=5)
    for partition in (P0, P1):
        world.subscription.position(partition, 3, 4)
    assert question(world.ask("OffsetForLeaderEpoch")) == {0: (5, 4), 1: (5, 4)}


def test_nothing_is_looked_at_while_nothing_changes() -> None:
    """A thousand partitions cost nothing in a turn that changed nothing."""
    many = [TopicPartition("t", number) for number in range(1_000)]
    world = World(*many, epoch=5)
    for partition in many:
        world.subscription.position(partition, 0, None)
    world.turn()
    looked: list[object] = []
    world.validation._look = looked.append  # type: ignore[assignment, method-assign]
    world.turn(10)
    assert looked == []


def test_a_committed_offset_that_the_log_never_reached_may_be_that_of_another_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nothing was read of it here. That records were read and lost would be a guess."""
    world = World(P0, epoch=5)
    at = OffsetAndMetadata(50, 4)
    world.subscription.position(P0, at.offset, at.leader_epoch, committed=at)
    world.epoch_ends(world.ask("OffsetForLeaderEpoch"), 4, 0)
    world.turn()
    assert "50 is committed: the topic was deleted and created again since" in caplog.text
    assert "was truncated by" not in caplog.text
