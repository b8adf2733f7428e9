"""What may move a position, under virtual time: errors of fetches, new leaders, recreated topics, reset policies."""

from __future__ import annotations

import logging

import pytest
from tests.worlds.cluster import TOPIC_ID, told
from tests.worlds.positions import NOON, P0, World, batch

from kadence.client.request_manager import RequestManager
from kadence.consumer.subscription import Status
from kadence.errors import NoOffsetForPartitionError, OffsetOutOfRangeError
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataResponse
from kadence.types import Node

OTHER_ID = b"o" * 16
HOUR_MS = 3_600_000


def reading(**settings: object) -> World:
    """A world that has read records 0–9 of epoch 5 from broker 1; the application was given all of them."""
    world = World(P0, epoch=5, **settings)
    world.subscription.position(P0, 0, None)
    world.fetched(world.ask("Fetch"), batch(0, 10, epoch=5))
    world.hand_out(10, epoch=5)
    return world


def recreated(epoch: int = 0) -> MetadataResponse:
    """Metadata of a topic of the same name with another id, led by broker 2."""
    response = told({P0: 2}, epoch=epoch)
    response.topics[0].topic_id = OTHER_ID
    return response


# ------------------------------------------------------------ KIP-951


@pytest.mark.parametrize("code", [ec.NOT_LEADER_OR_FOLLOWER, ec.FENCED_LEADER_EPOCH])
def test_kip951_the_leader_that_the_old_one_names_is_used_without_waiting_for_metadata(code: int) -> None:
    world = reading()
    told_nodes: list[Node] = []
    world.metadata.on_moved = lambda nodes: told_nodes.extend(nodes.values())
    world.fetched(world.ask("Fetch"), code=code, leader=(3, 6), endpoints=(3,))
    assert told_nodes == [Node(3, "n", 3)]
    request = world.ask("OffsetForLeaderEpoch")
    assert request.node_id == 3
    world.epoch_ends(request, 5, 10)
    (fetch,) = [each for each in world.turn() if each.name == "Fetch"]
    (part,) = fetch.message.topics[0].partitions
    assert (fetch.node_id, part.current_leader_epoch) == (3, 6)


@pytest.mark.parametrize("leader", [(3, 5), (3, 4), (-1, 6), (3, -1)])
def test_kip951_a_hint_that_is_no_news_changes_nothing(leader: tuple[int, int]) -> None:
    world = reading()
    world.fetched(world.ask("Fetch"), code=ec.NOT_LEADER_OR_FOLLOWER, leader=leader, endpoints=(3,))
    assert world.metadata.leader(P0) == 1
    assert world.status() is Status.FETCHING
    assert "Fetch" not in world.names(50), "it waits for its backoff, and for metadata"


def test_kip951_a_leader_that_nobody_can_find_is_left_to_metadata() -> None:
    world = reading()
    world.fetched(world.ask("Fetch"), code=ec.NOT_LEADER_OR_FOLLOWER, leader=(9, 6))
    assert world.metadata.leader(P0) == 1
    assert "Metadata" in world.names(100)


def test_kip951_older_metadata_does_not_take_the_hint_back() -> None:
    world = reading()
    world.fetched(world.ask("Fetch"), code=ec.NOT_LEADER_OR_FOLLOWER, leader=(2, 6))
    world.tell_metadata(told({P0: 1}, epoch=5))
    assert world.metadata.leader(P0) == 2


# ------------------------------------------------------------ offset out of range


def out_of_range(**settings: object) -> World:
    world = reading(**settings)
    refuse(world)
    return world


def refuse(world: World, later: int = 0) -> None:
    """The leader has no such offset, with or without the epoch before it."""
    for _ in range(2):
        world.fetched(world.ask("Fetch", later), code=ec.OFFSET_OUT_OF_RANGE)
        later = 0


def test_out_of_range_for_its_epoch_alone_is_not_out_of_range() -> None:
    """Kafka answers so when it cannot tell where the epoch before the offset ended; the offset may be good."""
    world = reading()
    world.fetched(world.ask("Fetch"), code=ec.OFFSET_OUT_OF_RANGE)
    request = world.ask("Fetch")
    (part,) = request.message.topics[0].partitions
    assert (part.fetch_offset, part.last_fetched_epoch) == (10, -1)
    world.fetched(request, batch(10, 5, epoch=5))
    assert world.state().offset == 15


@pytest.mark.parametrize(
    ("policy", "timestamp"), [("earliest", -2), ("latest", -1), ("by_duration:PT1H", NOON - HOUR_MS)]
)
def test_out_of_range_goes_where_the_policy_says(policy: str, timestamp: int) -> None:
    world = out_of_range(auto_offset_reset=policy)
    listed(world, 77, timestamp)
    assert (world.status(), world.state().offset) == (Status.FETCHING, 77)
    assert world.errors() == []


def test_out_of_range_without_a_policy_is_raised_once_and_a_seek_cures_it() -> None:
    world = out_of_range(auto_offset_reset="none")
    for _ in range(20):
        assert "ListOffsets" not in world.names(100)
    (error,) = world.errors()
    assert isinstance(error, OffsetOutOfRangeError)
    assert "t-0 has no offset 10" in str(error)
    world.subscription.position(P0, 3, None)
    assert "Fetch" in world.names()


def test_kip1106_no_record_that_young_means_the_end() -> None:
    world = out_of_range(auto_offset_reset="by_duration:PT1H")
    listed(world, -1, NOON - HOUR_MS, end=90)
    assert world.state().offset == 90


def test_kip1106_the_duration_counts_from_the_reset() -> None:
    world = World(P0, auto_offset_reset="by_duration:P1D")
    world.now = 5_000
    listed(world, 77, NOON + 5_000 - 24 * HOUR_MS)


def test_out_of_range_of_a_position_that_was_left_is_void() -> None:
    world = reading()
    request = world.ask("Fetch")
    world.subscription.position(P0, 3, None)
    world.fetched(request, code=ec.OFFSET_OUT_OF_RANGE)
    assert (world.status(), world.state().offset) == (Status.FETCHING, 3)


def test_out_of_range_at_a_follower_asks_the_leader_first() -> None:
    world = reading()
    world.fetched(world.ask("Fetch"), replica=2)
    follower = world.ask("Fetch")
    assert follower.node_id == 2
    world.fetched(follower, code=ec.OFFSET_OUT_OF_RANGE)
    leader = world.ask("Fetch")
    assert (leader.node_id, world.status()) == (1, Status.FETCHING)
    world.fetched(leader, code=ec.OFFSET_OUT_OF_RANGE)
    world.fetched(world.ask("Fetch"), code=ec.OFFSET_OUT_OF_RANGE)
    assert "ListOffsets" in world.names()


def listed(world: World, offset: int, timestamp: int = -2, end: int = 100) -> None:
    """``end``: what is told before a time is looked up."""
    if timestamp >= 0:
        request = world.ask("ListOffsets")
        assert request.message.topics[0].partitions[0].timestamp == -1
        world.listed(request, end)
    request = world.ask("ListOffsets")
    assert request.message.topics[0].partitions[0].timestamp == timestamp
    world.listed(request, offset)


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
def test_c11_no_reset_goes_below_the_range_that_is_read(policy: str) -> None:
    """Records before its start must never come: what does not reach it is raised, whatever the policy says."""
    world = reading(auto_offset_reset=policy)
    world.subscription.position(P0, 100, None)
    world.subscription.limit(P0, 100, 200)
    world.fetched(world.ask("Fetch"), code=ec.OFFSET_OUT_OF_RANGE)
    listed(world, 30)
    for _ in range(20):
        assert not {"ListOffsets", "Fetch"} & set(world.names(100))
    (error,) = world.errors()
    assert isinstance(error, OffsetOutOfRangeError)
    assert "t-0 ends before offset 100" in str(error)
    world.subscription.position(P0, 10, None)
    assert "Fetch" in world.names(), "a seek cures it"


def test_c11_a_log_that_lost_what_was_read_of_a_range_is_read_from_where_the_range_begins() -> None:
    world = reading(auto_offset_reset="earliest")
    world.subscription.position(P0, 150, None)
    world.subscription.limit(P0, 100, 200)
    world.fetched(world.ask("Fetch"), code=ec.OFFSET_OUT_OF_RANGE)
    listed(world, 0)
    (part,) = world.ask("Fetch").message.topics[0].partitions
    assert part.fetch_offset == 100
    assert world.errors() == []


@pytest.mark.parametrize(("policy", "timestamp"), [("latest", -1), ("by_duration:PT1H", NOON - HOUR_MS)])
def test_c11_a_range_of_a_log_that_was_truncated_goes_on_where_the_policy_says(
    policy: str, timestamp: int
) -> None:
    world = reading(auto_offset_reset=policy)
    world.subscription.position(P0, 150, None)
    world.subscription.limit(P0, 100, 200)
    world.fetched(world.ask("Fetch"), code=ec.OFFSET_OUT_OF_RANGE)
    listed(world, 0)
    listed(world, 120, timestamp)
    assert (world.status(), world.state().offset) == (Status.FETCHING, 120)


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize(("first", "is_finished"), [(150, False), (200, True), (300, True)])
def test_c11_a_range_whose_beginning_was_deleted_goes_on_with_the_rest_of_it(
    policy: str, first: int, is_finished: bool
) -> None:
    """Also by ``latest``: who reads a range wants the records of it that there are."""
    world = reading(auto_offset_reset=policy)
    world.subscription.position(P0, 100, None)
    world.subscription.limit(P0, 100, 200)
    world.fetched(world.ask("Fetch"), code=ec.OFFSET_OUT_OF_RANGE)
    listed(world, first)
    assert world.state().offset == first
    assert world.state().shared_partition.is_finished == is_finished
    assert ("Fetch" in world.names()) != is_finished


def test_out_of_range_ahead_of_the_application_leaves_it_what_was_fetched() -> None:
    """The log went on without us, but the bytes in the buffer may be the last copy of those records."""
    world = reading()
    fetch_epoch = world.state().shared_partition.fetch_epoch
    world.fetched(world.ask("Fetch"), batch(10, 5, epoch=5))
    refuse(world)
    assert "ListOffsets" not in world.names()
    assert world.state().shared_partition.fetch_epoch == fetch_epoch, (
        "what lies in the buffer is still handed out"
    )
    world.hand_out(15, epoch=5)
    world.fetched(world.ask("Fetch", 1_000), code=ec.OFFSET_OUT_OF_RANGE)
    assert "ListOffsets" in world.names()


def test_no_committed_offset_and_no_policy_names_what_to_do() -> None:
    world = World(P0, auto_offset_reset="none")
    world.turn()
    (error,) = world.errors()
    assert isinstance(error, NoOffsetForPartitionError)


# ------------------------------------------------------------ deleted and made again


def test_kip516_a_topic_made_again_is_never_read_at_the_old_one_s_offset(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = reading(auto_offset_reset="earliest")
    world.turn()
    world.tell_metadata(recreated(epoch=0))
    request = world.ask("ListOffsets")
    assert request.message.topics[0].partitions[0].timestamp == -2
    world.listed(request, 0)
    (fetch,) = [each for each in world.turn() if each.name == "Fetch"]
    (topic,) = fetch.message.topics
    (part,) = topic.partitions
    assert (topic.topic_id, part.fetch_offset, part.last_fetched_epoch) == (OTHER_ID, 0, -1)
    assert "was deleted and created again" in caplog.text


def test_kip516_without_a_policy_a_topic_made_again_is_told() -> None:
    world = reading(auto_offset_reset="none")
    world.tell_metadata(recreated())
    world.turn()
    (error,) = world.errors()
    assert isinstance(error, OffsetOutOfRangeError)
    assert "was deleted and created again" in str(error)


def test_kip516_records_of_the_old_topic_that_come_late_are_dropped() -> None:
    world = reading()
    parked = world.ask("Fetch")
    world.tell_metadata(recreated())
    request = world.ask("ListOffsets")
    assert world.fetched(parked, batch(10, 5, epoch=5)).holds == 0
    world.listed(request, 0)
    assert world.state().offset == 0
    assert not [
        each
        for each in world.shared_state.completed_fetches
        if each.fetch_epoch == world.state().shared_partition.fetch_epoch
    ]


def test_kip516_a_broker_that_is_behind_does_not_move_the_position_again() -> None:
    world = reading()
    world.tell_metadata(recreated())
    world.listed(world.ask("ListOffsets"), 0)
    world.turn()
    world.tell_metadata(told({P0: 1}, epoch=5))
    assert world.metadata.topic_id("t") == TOPIC_ID
    world.turn()
    assert (world.status(), world.state().offset) == (Status.FETCHING, 0)
    world.tell_metadata(recreated())
    world.turn()
    assert (world.status(), world.state().offset) == (Status.FETCHING, 0)


@pytest.mark.parametrize(
    "code", [ec.UNKNOWN_TOPIC_ID, ec.INCONSISTENT_TOPIC_ID, ec.UNKNOWN_TOPIC_OR_PARTITION]
)
def test_kip516_an_id_that_the_broker_does_not_know_asks_for_metadata_and_goes_on(code: int) -> None:
    world = reading()
    world.fetched(world.ask("Fetch"), code=code)
    assert world.names(100) == ["Metadata", "Fetch"], "the same again: the broker may have been behind"
    assert world.status() is Status.FETCHING


def test_a_topic_that_is_away_for_a_while_is_read_again_when_it_is_back() -> None:
    world = reading()
    world.turn()
    world.tell_metadata(told({}, errors={"t": ec.UNKNOWN_TOPIC_OR_PARTITION}))
    for _ in range(5):
        world.turn(100)
    world.tell_metadata(recreated())
    world.listed(world.ask("ListOffsets"), 0)
    assert "Fetch" in world.names()


# ------------------------------------------------------------ the order of a turn


def test_what_is_found_lost_is_looked_up_in_the_same_turn() -> None:
    """A turn later would do, but each turn waits for something to happen."""
    order: list[type[RequestManager]] = []
    world = reading()
    world.tell_metadata(recreated())
    order += [type(world._managers.owners[request]) for request in world.turn()]
    assert [each.__name__ for each in order] == ["OffsetsRequestManager"]


def test_a_reset_by_policy_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        world = out_of_range(auto_offset_reset="latest")
        world.turn()
    assert ", its position, is not in the log; applying auto.offset.reset=latest" in caplog.text
