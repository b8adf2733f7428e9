"""Where to start, under virtual time: committed, reset, moved meanwhile, asked by time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.worlds.cluster import answer, config, knowing, lost, told
from tests.worlds.hand import BackgroundEvents

from kadence.connection.request import Request
from kadence.consumer.events import Answer, Failed, ListOffsets
from kadence.consumer.positions.offsets import OffsetsRequestManager
from kadence.consumer.subscription import Status, Subscription
from kadence.errors import (
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationError,
    UnknownTopicOrPartitionError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
Done = Callable[[int, dict[TopicPartition, OffsetAndMetadata | None] | Exception], None]


class Commits:
    """Stands in for the commit manager: keeps what is looked up until the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[frozenset[TopicPartition], Done]] = []

    def lookup(self, now: int, partitions: frozenset[TopicPartition], done: Done) -> None:
        self.asked.append((partitions, done))


def offsets_told(request: Request, offset: int, code: int = 0, timestamp: int = -1) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(
                    partition_index=part.partition_index, error_code=code, offset=offset, timestamp=timestamp
                )
                for part in topic.partitions
            ],
        )
        for topic in request.message.topics
    ]
    return ListOffsetsResponse(topics=topics)


class World:
    """An offsets manager with all that it stands on."""

    def __init__(self, *, group: bool = True, clock_ms: int = 0, **settings: object) -> None:
        self.background_events = BackgroundEvents()
        self.subscription = Subscription()
        self.commits = Commits()
        self.metadata = knowing({P0: 1, P1: 2}, self.background_events)
        self.manager = OffsetsRequestManager(
            config(**settings),
            self.subscription,
            self.metadata,
            self.commits if group else None,
            self.background_events,
            lambda: clock_ms,
        )

    def status(self, partition: TopicPartition) -> Status:
        return self.subscription.partitions[partition].status

    def offset(self, partition: TopicPartition) -> int:
        return self.subscription.partitions[partition].offset


def test_a_committed_offset_is_where_it_starts() -> None:
    world = World()
    world.subscription.assign([P0])
    assert world.manager.poll(0).requests == []
    ((partitions, done),) = world.commits.asked
    assert partitions == {P0}
    done(5, {P0: OffsetAndMetadata(42, 3)})
    assert (world.status(P0), world.offset(P0)) == (Status.FETCHING, 42)
    assert world.manager.poll(6).requests == []


def test_what_is_to_be_looked_up_is_asked_in_the_next_turn_which_is_at_once() -> None:
    """The manager of commits had its turn already: it must have another, or nothing is asked until something comes."""
    world = World()
    world.subscription.assign([P0])
    assert world.manager.poll(7).wake_at == 7
    assert world.manager.poll(7).wake_at > 7, "not in a spin"


def test_without_one_the_policy_says() -> None:
    world = World()
    world.subscription.assign([P0, P1])
    world.manager.poll(0)
    world.commits.asked[0][1](5, {P0: None, P1: None})
    requests = world.manager.poll(6).requests
    assert sorted(request.node_id for request in requests) == [1, 2]
    assert requests[0].message.topics[0].partitions[0].timestamp == -2
    for request in requests:
        world.manager.on_response(7, answer(request, offsets_told(request, 17), 7))
    assert world.offset(P0) == world.offset(P1) == 17


def test_without_a_group_nothing_committed_is_asked() -> None:
    world = World(group=False)
    world.subscription.assign([P0])
    assert len(world.manager.poll(0).requests) == 1


def test_policy_none_is_told_and_a_seek_cures_it() -> None:
    subject = World(group=False, auto_offset_reset="none")
    subject.subscription.assign([P0])
    subject.manager.poll(0)
    (failed,) = subject.background_events
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, NoOffsetForPartitionError)
    assert "has no committed offset, for there is no group.id, and" in str(failed.error)
    assert subject.manager.poll(1).requests == []
    subject.subscription.position(P0, 5, None)
    assert subject.status(P0) is Status.FETCHING


@pytest.mark.parametrize("policy", ["none", "latest", "by_duration:PT1H"])
def test_a_topic_that_is_read_from_its_start_is_so_wherever_a_policy_is_asked(policy: str) -> None:
    """Nothing is committed, the offset is gone, and the topic was made anew: its records are nowhere else."""
    world = World(auto_offset_reset=policy)
    world.subscription.from_start = frozenset({P0.topic})
    world.subscription.assign([P0])
    world.manager.poll(0)
    world.commits.asked[0][1](5, {P0: None})
    for start in (3, 8):
        (request,) = world.manager.poll(6).requests
        assert request.message.topics[0].partitions[0].timestamp == -2
        world.manager.on_response(7, answer(request, offsets_told(request, start), 7))
        assert (world.status(P0), world.offset(P0)) == (Status.FETCHING, start)
        world.subscription.lose(P0, OffsetOutOfRangeError("it is gone"))
    assert world.background_events == []


def test_a_partition_that_joins_while_others_are_looked_up_is_looked_up_itself() -> None:
    world = World()
    world.subscription.assign([P0])
    world.manager.poll(0)
    world.subscription.assign([P0, P1])
    world.manager.poll(1)
    world.commits.asked[0][1](2, {P0: None})
    assert world.status(P0) is Status.AWAIT_RESET
    assert world.status(P1) is Status.INITIALIZING
    assert world.commits.asked[1][0] == {P1}


def test_a_seek_meanwhile_wins_over_the_answer() -> None:
    world = World(group=False)
    world.subscription.assign([P0])
    (request,) = world.manager.poll(0).requests
    world.subscription.position(P0, 99, None)
    world.manager.on_response(5, answer(request, offsets_told(request, 17), 5))
    assert world.offset(P0) == 99


def test_an_answer_for_a_partition_that_is_gone_changes_nothing() -> None:
    world = World(group=False)
    world.subscription.assign([P0])
    (request,) = world.manager.poll(0).requests
    world.subscription.assign([P1])
    world.manager.on_response(5, answer(request, offsets_told(request, 17), 5))
    assert world.status(P1) is Status.INITIALIZING


def test_a_failed_reset_is_tried_again_after_the_backoff() -> None:
    world = World(group=False)
    world.subscription.assign([P0])
    (request,) = world.manager.poll(0).requests
    world.manager.on_response(5, lost(request, 5))
    poll = world.manager.poll(6)
    assert (poll.requests, poll.wake_at) == ([], 105)
    (request,) = world.manager.poll(105).requests
    response = offsets_told(request, -1, ec.NOT_LEADER_OR_FOLLOWER)
    world.manager.on_response(110, answer(request, response, 110))
    assert world.manager.poll(210).requests


def test_a_partition_that_does_not_exist_is_told_after_a_while() -> None:
    world = World(group=False)
    world.subscription.assign([TopicPartition("t", 9)])
    for now in range(0, 6_000, 100):
        world.manager.poll(now)
    (failed,) = world.background_events
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, UnknownTopicOrPartitionError)
    text = str(failed.error)
    assert "t-9 does not exist: topic 't' has 2 partitions on the cluster at " in text
    assert "create" not in text, "what cannot help"


def test_a_partition_that_is_unknown_for_a_moment_now_and_then_is_no_error() -> None:
    world = World(group=False)
    world.subscription.assign([P0])
    world.subscription.position(P0, 5, None)
    for now in (0, 3_600_000):
        for at, news in (
            (now, told({}, errors={"t": ec.UNKNOWN_TOPIC_OR_PARTITION})),
            (now + 500, told({P0: 1})),
        ):
            world.metadata.request_update(at)
            (request,) = world.metadata.poll(at + 300).requests
            world.metadata.on_response(at + 300, answer(request, news, at + 300))
            world.manager.poll(at + 300)
    assert world.background_events == []


def test_offsets_by_time_fan_out_and_are_answered_together() -> None:
    world = World(group=False)
    world.manager.list_offsets(ListOffsets(7, 1_000, {P0: 5, P1: 6}))
    first, second = world.manager.poll(0).requests
    world.manager.on_response(1, answer(first, offsets_told(first, 3, timestamp=5), 1))
    assert world.background_events == []
    world.manager.on_response(2, answer(second, offsets_told(second, -1), 2))
    (done,) = world.background_events
    assert isinstance(done, Answer)
    assert done.id == 7
    found = done.value
    assert isinstance(found, dict)
    assert sorted(found.values(), key=repr) == [None, OffsetAndTimestamp(3, 5)]


def test_a_lost_look_up_is_repeated_for_what_is_missing_only() -> None:
    world = World(group=False)
    world.manager.list_offsets(ListOffsets(7, 1_000, {P0: -1, P1: -1}))
    first, second = world.manager.poll(0).requests
    world.manager.on_response(1, answer(first, offsets_told(first, 3), 1))
    world.manager.on_response(1, lost(second, 1))
    assert world.manager.poll(50).requests == []
    (again,) = world.manager.poll(101).requests
    assert again.node_id == second.node_id


def test_a_leader_that_metadata_just_named_is_asked_at_once() -> None:
    world = World(group=False)
    later = TopicPartition("later", 0)
    world.subscription.assign([later])
    assert world.manager.poll(0).requests == []
    world.metadata.need("subscription", frozenset({"later"}))
    (request,) = world.metadata.poll(200).requests
    world.metadata.on_response(201, answer(request, told({later: 1}), 201))
    assert len(world.manager.poll(201).requests) == 1


def test_a_call_for_a_topic_that_was_made_since_the_last_call_waits_for_news_of_it() -> None:
    world = World(group=False)
    later = TopicPartition("later", 0)

    def ask(call: int, now: int) -> None:
        world.manager.list_offsets(ListOffsets(call, now + 60_000, {later: -1}))

    ask(7, 0)
    (request,) = world.metadata.poll(200).requests
    unknown = told({P0: 1}, errors={"later": ec.UNKNOWN_TOPIC_OR_PARTITION})
    world.metadata.on_response(200, answer(request, unknown, 200))
    for now in range(200, 6_000, 100):
        world.manager.poll(now)
    assert isinstance(world.background_events.pop(), Answer), "told that it does not exist"
    ask(8, 90_000)
    assert world.manager.poll(90_000).requests == []
    assert world.background_events == [], "what was heard a minute ago is no answer"
    (request,) = world.metadata.poll(90_100).requests
    world.metadata.on_response(90_101, answer(request, told({P0: 1, later: 2}), 90_101))
    assert len(world.manager.poll(90_101).requests) == 1


def test_topics_of_a_call_are_known_for_as_long_as_the_call_lasts() -> None:
    world = World(group=False)
    world.manager.list_offsets(ListOffsets(7, 1_000, {TopicPartition("once", 0): -1}))
    (request,) = world.metadata.poll(200).requests
    assert [topic.name for topic in request.message.topics] == ["once", "t"]
    world.metadata.on_response(200, answer(request, told({P0: 1, TopicPartition("once", 0): 2}), 200))
    (asked,) = world.manager.poll(200).requests
    world.manager.on_response(201, answer(asked, offsets_told(asked, 3), 201))
    world.metadata.request_update(400)
    (request,) = world.metadata.poll(400).requests
    assert [topic.name for topic in request.message.topics] == ["t"]


def test_a_call_that_is_over_is_forgotten_and_a_late_answer_is_nobody_s() -> None:
    world = World(group=False)
    world.manager.list_offsets(ListOffsets(7, 1_000, {P0: -1}))
    (request,) = world.manager.poll(0).requests
    assert world.manager.poll(1_000).requests == []
    (done,) = world.background_events
    assert isinstance(done, Answer)
    assert str(done.error) == (
        "looking up offsets (topic 't') did not finish in time: t-0 was not answered by its leader"
    )
    world.manager.on_response(1_001, answer(request, offsets_told(request, 3), 1_001))
    assert world.background_events == [done]


def test_what_a_call_still_waits_for_is_named() -> None:
    world = World(group=False)
    nowhere = [TopicPartition("t", number) for number in range(2, 9)]
    world.manager.list_offsets(ListOffsets(7, 1_000, {P0: -1, P1: -1, **dict.fromkeys(nowhere, -1)}))
    first, _ = world.manager.poll(0).requests
    world.manager.on_response(1, answer(first, offsets_told(first, 3), 1))
    assert world.manager.missing(7) == (
        "t-1 was not answered by its leader, t-2 does not exist (of 2 partitions), "
        "t-3 does not exist (of 2 partitions), t-4 does not exist (of 2 partitions), "
        "t-5 does not exist (of 2 partitions) and 3 more"
    )
    world.manager.list_offsets(ListOffsets(8, 1_000, {TopicPartition("new", 0): -1}))
    assert world.manager.missing(8) == "new-0 has no known leader"
    assert world.manager.missing(9) is None


def test_a_broker_that_hangs_keeps_no_other_waiting() -> None:
    world = World(group=False)
    world.manager.list_offsets(ListOffsets(7, 60_000, {P0: -1, P1: -1}))
    hanging, failing = world.manager.poll(0).requests
    world.manager.on_response(1, lost(failing, 1))
    (again,) = world.manager.poll(101).requests
    assert again.node_id == failing.node_id
    world.manager.on_response(102, answer(again, offsets_told(again, 3), 102))
    assert world.manager.poll(103).requests == [], "the one that hangs is still being waited for"
    world.manager.on_response(30_000, lost(hanging, 30_000))
    assert len(world.manager.poll(30_100).requests) == 1


def test_one_partition_that_is_refused_for_good_is_the_call_s_error() -> None:
    world = World(group=False)
    world.manager.list_offsets(ListOffsets(7, 1_000, {P0: -1, P1: -1}))
    first, second = world.manager.poll(0).requests
    response = offsets_told(first, -1, ec.TOPIC_AUTHORIZATION_FAILED)
    world.manager.on_response(1, answer(first, response, 1))
    world.manager.on_response(2, answer(second, offsets_told(second, 3), 2))
    (done,) = world.background_events
    assert isinstance(done, Answer)
    assert isinstance(done.error, TopicAuthorizationError)


@pytest.mark.parametrize("chosen_by", ["by_duration", "assign_topics"])
@pytest.mark.parametrize(("by_time", "start"), [(-1, 6), (8, 8), (2, 2)])
def test_a_start_by_time_asks_for_the_end_first(chosen_by: str, by_time: int, start: int) -> None:
    """W7: a record that comes between the two look-ups is younger than the time, and is not passed over."""
    world = World(auto_offset_reset="by_duration:PT1H", clock_ms=7_200_000)
    world.subscription.assign([P0])
    if chosen_by == "by_duration":
        world.manager.poll(0)
        world.commits.asked[0][1](5, {P0: None})
    else:
        world.subscription.await_reset(P0, 3_600_000)
    (request,) = world.manager.poll(6).requests
    assert request.message.topics[0].partitions[0].timestamp == -1
    world.manager.on_response(7, answer(request, offsets_told(request, 6), 7))
    assert world.status(P0) is Status.AWAIT_RESET
    # A record is written now, at offset 6.
    (request,) = world.manager.poll(8).requests
    assert request.message.topics[0].partitions[0].timestamp == 3_600_000
    world.manager.on_response(9, answer(request, offsets_told(request, by_time), 9))
    assert (world.status(P0), world.offset(P0)) == (Status.FETCHING, start)
    assert world.manager.poll(10).requests == []
