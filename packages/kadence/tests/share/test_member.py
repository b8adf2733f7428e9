"""A member of a share group under virtual time, its coordinator played by hand (KIP-932)."""

from __future__ import annotations

import dataclasses

import pytest
from tests.worlds.cluster import cluster_of, id_of
from tests.worlds.share import INTERVAL, Member

from kadence.connection.request import ConnectionPurpose, Request
from kadence.consumer import events as m
from kadence.consumer.group.member_states import State
from kadence.consumer.group.membership import SENT_NATIVELY
from kadence.errors import DisconnectedError, UnsupportedVersionError
from kadence.protocol import error_codes as ec
from kadence.types import TopicPartition


@pytest.fixture
def bench() -> Member:
    bench = Member(client_rack="r1")
    bench.subscribe("t")
    return bench


def owned(*numbers: int) -> dict[TopicPartition, bytes]:
    return {TopicPartition("t", number): id_of("t") for number in numbers}


def test_it_joins_with_epoch_0_and_says_its_whole_subscription(bench: Member) -> None:
    message = bench.beat().message
    assert (message.group_id, message.member_id, message.member_epoch) == ("q", "m1", 0)
    assert (message.subscribed_topic_names, message.rack_id) == (["t"], "r1")


def test_the_first_assignment_is_empty_and_the_next_heartbeat_comes_soon(bench: Member) -> None:
    bench.answer(bench.beat(), 1, {})
    assert (bench.member.state, bench.assignments, bench.rebalances) == (State.STABLE, [], [])
    request = bench.beat()
    assert request.message.subscribed_topic_names is None, "unchanged"
    bench.answer(request, 2, {"t": [0, 1]})
    assert bench.assignments == [owned(0, 1)]
    assert bench.member.group.generation_id == 2


def test_b4_a_member_that_nothing_polled_says_that_its_records_go_to_others(
    bench: Member, caplog: pytest.LogCaptureFixture
) -> None:
    bench.answer(bench.beat(), 1, {"t": [0]})
    bench.member.poll_timed_out(bench.hand.now)
    assert "The records that it holds are released, and go to other members. Poll more often" in caplog.text
    assert "partitions" not in caplog.text


def test_it_owns_what_it_is_assigned_at_once_and_says_no_word(bench: Member) -> None:
    bench.answer(bench.beat(), 1, {"t": [0, 1]})
    bench.answer(bench.beat(), 2, {"t": [1, 2]})
    assert bench.assignments == [owned(0, 1), owned(1, 2)]
    assert bench.member.state is State.STABLE
    bench.answer(bench.beat(), 2)
    assert bench.member.assignment == owned(1, 2), "without an assignment in the answer it is as it was"
    bench.answer(bench.beat(), 3, {"t": [1, 2]})
    assert len(bench.rebalances) == 2, "the same once more is none"


def test_a_subscription_that_changed_is_told_with_the_next_poll(bench: Member) -> None:
    bench.answer(bench.beat(), 1, {"t": [0]})
    bench.subscribe("t", "u")
    before = bench.hand.now
    request = bench.beat()
    assert request.message.subscribed_topic_names == ["t", "u"]
    assert bench.hand.now == before, "at once"


def test_what_is_not_subscribed_to_any_more_is_not_owned_from_now_on(bench: Member) -> None:
    """Its records were fetched, and counted as delivered, until the group had heard of the new subscription."""
    bench.subscribe("t")
    bench.answer(bench.beat(), assigned={"t": [0, 1]})
    bench.subscribe("u")
    assert bench.member.assignment == {}
    bench.answer(bench.beat(), assigned={"t": [0]})
    assert bench.member.assignment == {}
    bench.subscribe("t", "u")
    assert bench.member.assignment == {TopicPartition("t", 0): id_of("t")}
    bench.answer(bench.beat(), epoch=2, assigned={"t": [0], "u": [0]})
    assert set(bench.member.assignment) == {TopicPartition("t", 0), TopicPartition("u", 0)}


def test_after_a_lost_answer_it_says_everything_again(bench: Member) -> None:
    bench.answer(bench.beat(), 1, {"t": [0]})
    bench.hand.fail(bench.beat(), DisconnectedError("gone"))
    bench.find()
    message = bench.beat().message
    assert (message.member_epoch, message.subscribed_topic_names) == (1, ["t"])


@pytest.mark.parametrize("code", [ec.FENCED_MEMBER_EPOCH, ec.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_drops_its_assignment_and_joins_under_its_id(bench: Member, code: int) -> None:
    bench.answer(bench.beat(), 4, {"t": [0]})
    bench.answer(bench.beat(), code=code)
    assert bench.assignments[-1] == {}
    assert bench.partings == 0, "the locks at the brokers hold"
    message = bench.beat().message
    assert (message.member_id, message.member_epoch, message.subscribed_topic_names) == ("m1", 0, ["t"])


@pytest.mark.parametrize(
    "code",
    [ec.GROUP_MAX_SIZE_REACHED, ec.UNSUPPORTED_VERSION, ec.GROUP_AUTHORIZATION_FAILED, ec.GROUP_ID_NOT_FOUND],
)
def test_a_refusal_is_fatal_until_a_later_join_succeeds(bench: Member, code: int) -> None:
    bench.answer(bench.beat(), code=code)
    (failed,) = bench.told.of(m.Failed)
    assert (failed.fatal, failed.gave_up) == (True, True)
    assert bench.member.state is State.FATAL
    assert bench.partings == 1
    assert bench.member.needs_polled
    bench.hand.advance(2_000)
    bench.member.polled(bench.hand.now)
    request = bench.beat()
    assert request.message.member_epoch == 0, "each poll tries again"
    bench.answer(request, 1, {"t": [0]})
    assert bench.told.of(m.IdentityChanged)[-1].group.generation_id == 1


def test_a_group_that_is_gone_is_made_anew_by_its_members(bench: Member) -> None:
    bench.answer(bench.beat(), 3, {"t": [0]})
    bench.answer(bench.beat(), code=ec.GROUP_ID_NOT_FOUND)
    assert bench.beat().message.member_epoch == 0


def test_a_broker_without_queues_is_told_of_in_words(bench: Member) -> None:
    bench.hand.fail(bench.beat(), UnsupportedVersionError("no ShareGroupHeartbeat"))
    (failed,) = bench.told.of(m.Failed)
    assert "share.version" in str(failed.error)


def test_leaving_says_epoch_minus_1_once(bench: Member) -> None:
    bench.answer(bench.beat(), 3, {"t": [0]})
    bench.member.leave(bench.hand.now, reason="unsubscribe() was called")
    assert bench.partings == 1
    assert bench.member.assignment == {}
    request = bench.beat()
    assert (request.message.member_id, request.message.member_epoch) == ("m1", -1)
    bench.answer(request, -1)
    assert bench.member.left


def test_a_goodbye_to_a_group_that_is_gone_counts_as_heard(bench: Member) -> None:
    bench.answer(bench.beat(), 3, {"t": [0]})
    bench.member.leave(bench.hand.now, reason="the consumer is closing")
    bench.answer(bench.beat(), code=ec.GROUP_ID_NOT_FOUND)
    assert bench.member.left


def test_who_does_not_poll_leaves_and_comes_back_with_the_next_poll(bench: Member) -> None:
    bench.answer(bench.beat(), 3, {"t": [0]})
    bench.progress.polled(bench.hand.now)
    polled = bench.hand.now
    while (goodbye := bench.beat()).message.member_epoch > 0:
        bench.answer(goodbye, 3)
    assert bench.hand.now - polled == 300_000
    assert bench.partings == 1, "what it holds goes to others"
    assert goodbye.message.member_epoch == -1
    bench.answer(goodbye, -1)
    bench.progress.polled(bench.hand.now)
    bench.member.polled(bench.hand.now)
    assert (bench.beat().message.member_epoch, bench.member.group.member_id) == (0, "m2")


def test_a_topic_that_was_made_anew_is_not_ours_until_it_is_assigned(bench: Member) -> None:
    bench.subscribe("t", "u")
    bench.answer(bench.beat(), 3, {"t": [0], "u": [0]})
    cluster = cluster_of({"t": 4, "u": 1})
    topics = cluster.topics.changed({"t": dataclasses.replace(cluster.topics["t"], topic_id=b"n" * 16)})
    bench.metadata.cluster = dataclasses.replace(cluster, topics=topics)
    bench.hand.turn()
    assert bench.member.assignment == {TopicPartition("u", 0): id_of("u")}


def test_g3_a_native_heartbeat_says_everything_and_may_be_sent_again(bench: Member) -> None:
    assert bench.member.native_heartbeat() is None
    bench.answer(bench.beat(), 3, {"t": [0]})
    message = bench.member.native_heartbeat()
    assert (message.member_epoch, message.subscribed_topic_names, message.rack_id) == (3, ["t"], "r1")
    assert bench.member.native_heartbeat() is message
    request = Request(message, 7, 0, ConnectionPurpose.GROUP, SENT_NATIVELY)
    bench.owners[request] = bench.heartbeat
    bench.hand.now += 3 * INTERVAL
    bench.heartbeat.native_heartbeats_sent(bench.hand.now, [request], bench.hand.now)
    bench.answer(request, 4, {"t": [2]})
    assert (bench.member.assignment, bench.member.group.generation_id) == (owned(2), 4)
