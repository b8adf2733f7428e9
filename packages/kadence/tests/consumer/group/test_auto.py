"""group.protocol=auto under virtual time: what is asked before a join, and which member then joins (C4)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.cluster import partitions
from tests.worlds.hand import Hand, Managers
from tests.worlds.members import Member

from kadence.connection.request import Request
from kadence.consumer import events as m
from kadence.consumer.group.epoch_member import STUMBLES
from kadence.errors import DisconnectedError, KafkaError, UnsupportedVersionError
from kadence.protocol import error_codes
from kadence.protocol.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kadence.protocol.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kadence.protocol.join_group import JoinGroupResponse
from kadence.protocol.leave_group import LeaveGroupResponse
from kadence.types import Node

NOW = 1_000_003


class Bench(Hand):
    def __init__(self, **config: Any) -> None:
        self.player = Member("m", {"t": 2}, protocol="auto", **config)
        self.config = self.player.config
        self.progress = self.player.progress
        self.background_events = self.player.background_events
        self.subscription = self.player.subscription
        self.coordinator = self.player.coordinator
        self.coordinator.node = Node(7, "b7", 9092)
        self.classic, self.consumer = self.player.parts
        self.member = self.player.membership
        self.heartbeat = self.player.heartbeat
        # Without the coordinator's own manager: the test says whether the coordinator is known.
        super().__init__(Managers(self.heartbeat, self.member), version=1)
        self.subscribe()

    def subscribe(self, regex: str | None = None) -> None:
        topics = frozenset() if regex else frozenset({"t"})
        self.subscription.subscribe(topics, None, has_listener=False, regex=regex)
        self.member.subscription_changed(self.now)
        self.member.polled(self.now)

    def sent(self) -> list[Request]:
        self.player.jobs.run(self.now)
        return [request for _ in range(2) for request in self.turn()]

    def one(self) -> Request:
        (request,) = self.sent()
        return request

    def described(self, *members: str, code: int = 0) -> None:
        """The coordinator is asked for the group, and has these classic members."""
        request = self.one()
        assert request.name == "DescribeGroups"
        group = DescribedGroup(error_code=code, members=[DescribedGroupMember(member_id=i) for i in members])
        self.answer(request, DescribeGroupsResponse(groups=[group]))

    def owned(self) -> list[Any]:
        return sorted(self.subscription.partitions)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def heartbeat(code: int = 0) -> ConsumerGroupHeartbeatResponse:
    both = TopicPartitions(topic_id=b"t" + b"\1" * 15, partitions=[0, 1])
    return ConsumerGroupHeartbeatResponse(
        error_code=code,
        member_epoch=1,
        heartbeat_interval_ms=1_000,
        assignment=None if code else Assignment(topic_partitions=[both]),
    )


@pytest.mark.parametrize("code", [0, error_codes.GROUP_ID_NOT_FOUND])
def test_c4_a_group_without_classic_members_is_joined_by_kip_848(bench: Bench, code: int) -> None:
    bench.described(code=code)
    request = bench.one()
    assert (request.name, request.min_version) == ("ConsumerGroupHeartbeat", 1)
    bench.answer(request, heartbeat())
    assert bench.owned() == partitions("t", 0, 1)
    assert bench.member.active


def test_c4_a_group_with_classic_members_is_joined_as_one_of_them(bench: Bench) -> None:
    bench.described("somebody")
    assert bench.one().name == "JoinGroup"


@pytest.mark.parametrize("code", [None, error_codes.UNSUPPORTED_VERSION, error_codes.GROUP_ID_NOT_FOUND])
def test_c4_where_kip_848_is_not_offered_the_classic_protocol_does(bench: Bench, code: int | None) -> None:
    bench.described()
    request = bench.one()
    if code is None:
        bench.fail(request, UnsupportedVersionError("no such API"))
    else:
        bench.answer(request, heartbeat(code))
    assert bench.one().name == "JoinGroup"
    assert [event for event in bench.background_events if isinstance(event, m.Failed)] == []
    assert "auto <classic member" in repr(bench.member)


def test_a_coordinator_that_does_not_tell_members_is_joined_classic(bench: Bench) -> None:
    bench.fail(bench.one(), UnsupportedVersionError("no DescribeGroups"))
    assert bench.one().name == "JoinGroup"


def test_the_question_is_repeated_after_a_backoff(bench: Bench) -> None:
    bench.described(code=error_codes.COORDINATOR_LOAD_IN_PROGRESS)
    assert bench.sent() == []
    bench.now = bench.member.poll(bench.now).wake_at
    bench.fail(bench.one(), DisconnectedError("gone"))
    assert bench.coordinator.node_id is None
    assert bench.sent() == []
    bench.coordinator.node = Node(7, "b7", 9092)
    bench.now += 1_000
    bench.described()
    assert bench.one().name == "ConsumerGroupHeartbeat"


def test_an_answer_without_groups_is_no_answer(bench: Bench) -> None:
    bench.answer(bench.one(), DescribeGroupsResponse())
    assert bench.sent() == []
    bench.now = bench.member.poll(bench.now).wake_at
    bench.described()
    assert bench.one().name == "ConsumerGroupHeartbeat"


def test_each_join_from_outside_asks_anew(bench: Bench) -> None:
    bench.described()
    bench.answer(bench.one(), heartbeat())
    bench.member.leave(bench.now, reason="test", callbacks=False)
    acknowledged_or_gone = bench.sent()
    for request in acknowledged_or_gone:
        bench.answer(request, heartbeat(0))
    bench.subscribe()
    bench.described("somebody")
    assert bench.one().name == "JoinGroup"
    assert bench.owned() == []


def test_b4_the_poll_timeout_ends_the_question_and_the_next_poll_asks_again() -> None:
    bench = Bench(max_poll_interval_ms=12_000)
    bench.progress.leave_poll(bench.now)
    question = bench.one()
    bench.now += 12_000
    assert bench.sent() == []
    bench.answer(question, DescribeGroupsResponse(groups=[DescribedGroup()]))
    assert bench.sent() == [], "nobody polls"
    assert bench.member.needs_polled
    bench.progress.enter_poll(bench.now)
    bench.member.polled(bench.now)
    bench.described()
    assert bench.one().name == "ConsumerGroupHeartbeat"


def test_leaving_while_the_question_is_asked(bench: Bench) -> None:
    question = bench.one()
    bench.member.leave(bench.now, reason="test")
    assert bench.member.left
    bench.answer(question, DescribeGroupsResponse(groups=[DescribedGroup()]))
    assert bench.sent() == []


def test_a_coordinator_that_cannot_be_had_is_asked_for_by_the_next_poll(bench: Bench) -> None:
    told = [listener(bench.now, KafkaError("not allowed")) for listener in bench.coordinator.on_failed]
    assert not any(told), "the coordinator's manager tells of it"
    assert bench.member.needs_polled
    bench.member.polled(bench.now)
    bench.described()
    assert bench.one().name == "ConsumerGroupHeartbeat"


# ---------------------------------------------------------------- a SubscriptionPattern, which only KIP-848 carries


def failures(bench: Bench) -> list[str]:
    return [str(event.error) for event in bench.background_events if isinstance(event, m.Failed)]


def test_c4_a_pattern_of_the_brokers_is_joined_by_kip_848(bench: Bench) -> None:
    bench.subscribe("t.*")
    bench.described()
    request = bench.one()
    assert request.message.subscribed_topic_regex == "t.*"
    bench.answer(request, heartbeat())
    assert bench.owned() == partitions("t", 0, 1)


def test_c4_a_pattern_of_the_brokers_does_not_convert_a_group_of_classic_members(bench: Bench) -> None:
    bench.subscribe("t.*")
    bench.described("somebody")
    assert bench.sent() == []
    (error,) = failures(bench)
    assert "re.compile('t.*')" in error
    assert "group.protocol=consumer" in error
    assert bench.member.needs_polled, "the next poll asks again"
    bench.member.polled(bench.now)
    assert bench.sent() == [], "but not in a spin"
    bench.now = bench.member.poll(bench.now).wake_at
    bench.described()
    assert bench.one().name == "ConsumerGroupHeartbeat"


@pytest.mark.parametrize("code", [None, error_codes.UNSUPPORTED_VERSION])
def test_c4_a_pattern_of_the_brokers_where_kip_848_is_not_offered_is_an_error(
    bench: Bench, code: int | None
) -> None:
    bench.subscribe("t.*")
    if code is None:
        bench.fail(bench.one(), UnsupportedVersionError("no DescribeGroups"))
    else:
        bench.described()
    request = bench.one()
    assert request.name == "ConsumerGroupHeartbeat"
    if code is None:
        bench.fail(request, UnsupportedVersionError("no such API"))
    else:
        bench.answer(request, heartbeat(code))
    assert bench.sent() == []
    (error,) = failures(bench)
    assert "re.compile('t.*')" in error


def test_c4_from_names_in_a_classic_group_to_a_pattern_leaves_it_first(bench: Bench) -> None:
    bench.described("somebody")
    join = bench.one()
    assert join.name == "JoinGroup"
    bench.subscribe("t.*")
    assert bench.sent() == [], "its join is on its way"
    bench.answer(join, JoinGroupResponse(error_code=error_codes.MEMBER_ID_REQUIRED, member_id="me"))
    goodbye = bench.one()
    assert goodbye.name == "LeaveGroup"
    bench.member.polled(bench.now)
    assert bench.sent() == [], "or the group would be found to have a classic member: us"
    bench.answer(goodbye, LeaveGroupResponse(members=[]))
    bench.member.polled(bench.now)
    bench.described()
    assert bench.one().message.subscribed_topic_regex == "t.*"


# ---------------------------------------------------------------- between the question and the join


def test_c4_a_classic_member_that_came_after_the_question_is_converted_by_the_join(bench: Bench) -> None:
    """The protocol has no join that a group of classic members would refuse: decided, and said in auto.py."""
    bench.described()
    request = bench.one()
    # "somebody" joins the empty group now, by JoinGroup; a broker that converts accepts the heartbeat all the same.
    bench.answer(request, heartbeat())
    assert bench.owned() == partitions("t", 0, 1)
    assert failures(bench) == []


def test_c4_a_classic_member_that_came_after_the_question_where_nothing_is_converted(bench: Bench) -> None:
    """group.consumer.migration.policy=disabled or downgrade: the join is refused, and classic does."""
    bench.described()
    bench.answer(bench.one(), heartbeat(error_codes.GROUP_ID_NOT_FOUND))
    assert bench.one().name == "JoinGroup"
    assert failures(bench) == []


def test_c4_a_join_that_stumbles_over_a_classic_group_in_its_first_rebalance_asks_again(bench: Bench) -> None:
    """Kafka 4.3 answers UNKNOWN_SERVER_ERROR where it should convert."""
    bench.described()
    bench.answer(bench.one(), heartbeat(error_codes.UNKNOWN_SERVER_ERROR))
    assert bench.sent() == [], "after a backoff"
    bench.now = bench.member.poll(bench.now).wake_at
    bench.described("somebody")
    assert bench.one().name == "JoinGroup"
    assert failures(bench) == []


def test_c4_a_broker_that_always_fails_is_told_of_in_the_end(bench: Bench) -> None:
    start, joins = bench.now, 0
    while not failures(bench):
        if bench.coordinator.node is None:  # it was given up: no answer of it was one
            bench.coordinator.node, bench.coordinator.found_at = Node(7, "b7", 9092), bench.now
        for request in bench.sent():
            if request.name == "DescribeGroups":
                bench.answer(request, DescribeGroupsResponse(groups=[DescribedGroup(members=[])]))
            else:
                joins += 1
                bench.answer(request, heartbeat(error_codes.UNKNOWN_SERVER_ERROR))
        bench.now += 10
        assert bench.now - start < 10_000
    assert joins == STUMBLES + 1, "counted in one place"
    assert bench.now - start >= 3_000, "a first rebalance is over by then"
    assert ["UNKNOWN_SERVER_ERROR" in error for error in failures(bench)] == [True]


def test_the_classic_protocol_is_read_by_the_helper_thread_while_the_member_waits(bench: Bench) -> None:
    bench.described("somebody")
    assert len(bench.player.jobs.waiting) == 1
    assert bench.member.joining
    assert not bench.member.has_parted
    assert bench.turn() == [], "neither another question nor a join"
    bench.member.polled(bench.now)
    assert bench.turn() == []
    assert bench.one().name == "JoinGroup"


def test_who_leaves_while_the_classic_protocol_is_read_has_left(bench: Bench) -> None:
    bench.described("somebody")
    bench.member.leave(bench.now, reason="test")
    assert bench.member.left
    assert bench.sent() == [], "it is there now, and nobody joins by it"
    bench.subscribe()
    bench.described("somebody")
    assert bench.player.jobs.waiting == [], "it is read once"
    assert bench.one().name == "JoinGroup"


def test_who_comes_back_while_the_classic_protocol_is_read_waits_for_the_same_reading(bench: Bench) -> None:
    bench.described("somebody")
    bench.member.leave(bench.now, reason="test")
    bench.subscribe()
    (question,) = bench.turn()
    bench.answer(
        question,
        DescribeGroupsResponse(groups=[DescribedGroup(members=[DescribedGroupMember(member_id="somebody")])]),
    )
    assert len(bench.player.jobs.waiting) == 1
    assert bench.one().name == "JoinGroup"


def test_a_pattern_that_came_while_the_classic_protocol_was_read_is_asked_for_anew(bench: Bench) -> None:
    bench.described("somebody")
    bench.subscribe("t.*")
    bench.described()
    assert bench.one().name == "ConsumerGroupHeartbeat"


def test_a_classic_protocol_that_cannot_be_read_is_not_hidden(bench: Bench) -> None:
    def broken() -> Any:
        raise ImportError("no such file")

    bench.member._load_classic = broken
    bench.described("somebody")
    with pytest.raises(ImportError, match="no such file"):
        bench.sent()
