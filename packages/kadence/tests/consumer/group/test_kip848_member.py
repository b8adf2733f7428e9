"""A KIP-848 member under virtual time, its broker played by hand: joining, reconciling, leaving, being refused."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.luck import seeds
from tests.worlds.cluster import FakeMetadata, id_of, partitions
from tests.worlds.kip848 import INTERVAL, Bench, own, said

from kadence.clock import FOREVER
from kadence.consumer import events as m
from kadence.consumer.group.epoch_member import STUMBLES, new_member_id
from kadence.consumer.group.member_states import TRANSITIONS, State
from kadence.errors import DisconnectedError, KafkaError, TopicAuthorizationError, UnsupportedVersionError
from kadence.layered import Layered
from kadence.protocol import error_codes
from kadence.types import TopicPartition


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ---------------------------------------------------------------- joining


def test_kip_1082_member_ids_are_uuids_of_our_own_in_kafkas_base64() -> None:
    ids = {new_member_id() for _ in range(200)}
    assert len(ids) == 200
    assert all(len(one) == 22 and not one.startswith("-") for one in ids)


def test_join_says_everything_with_epoch_0_and_owns_nothing(bench: Bench) -> None:
    bench.subscribe("t")
    message = bench.beat().message
    assert (message.member_id, message.member_epoch, message.instance_id) == ("m1", 0, None)
    assert message.rebalance_timeout_ms == 300_000
    assert (message.subscribed_topic_names, message.subscribed_topic_regex) == (["t"], "")
    assert message.topic_partitions == []
    assert bench.sent() == [], "one at a time"


def test_c4_server_assignor_and_rack_are_told_when_joining() -> None:
    bench = Bench(group_remote_assignor="range", client_rack="r1")
    bench.subscribe("t")
    request = bench.beat()
    assert (request.message.server_assignor, request.message.rack_id) == ("range", "r1")
    bench.answer(request, 1, {})
    assert "assignor" not in said(bench.beat())


def test_nothing_is_joined_before_there_is_something_to_join_with(bench: Bench) -> None:
    bench.subscribe()
    assert bench.sent() == []
    assert (bench.member.active, bench.member.joining) == (False, True)
    bench.subscription.topics = frozenset({"t"})
    assert bench.beat().message.subscribed_topic_names == ["t"]


def test_first_assignment_is_told_even_when_it_is_empty(bench: Bench) -> None:
    bench.subscribe("t")
    bench.answer(bench.beat(), 3, {})
    assert bench.serve() == [("AssignPartitions", [])]
    assert bench.causes == ["first join"]
    assert bench.member.group.generation_id == 3


def test_acknowledged_at_once_and_stable_when_the_heartbeat_is_made(bench: Bench) -> None:
    bench.subscribe("t")
    bench.answer(bench.beat(), 1, {"t": [0, 1]})
    assert bench.state() is State.ACKNOWLEDGING
    assert bench.owned == partitions("t", 0, 1)
    (request,) = bench.sent()
    assert said(request) == {"owned": own(0, 1)}
    assert bench.state() is State.STABLE


def test_a_quiet_heartbeat_says_nothing_and_comes_an_interval_later(bench: Bench) -> None:
    bench.settle(0)
    before = bench.now
    request = bench.beat()
    assert (said(request), bench.now) == ({}, before + INTERVAL)
    assert request.message.member_epoch == 1


def test_heard_but_not_taken_in_joins_again_an_interval_later(bench: Bench) -> None:
    bench.subscribe("t")
    bench.answer(bench.beat(), 0)
    assert bench.state() is State.JOINING
    before = bench.now
    request = bench.beat()
    assert bench.now == before + INTERVAL
    assert (request.message.member_epoch, request.message.subscribed_topic_names) == (0, ["t"])


def test_a_retry_after_a_lost_answer_keeps_the_member_id(bench: Bench) -> None:
    bench.subscribe("t")
    bench.fail(bench.beat(), DisconnectedError("gone"))
    bench.find()
    message = bench.beat().message
    assert (message.member_id, message.member_epoch, message.subscribed_topic_names) == ("m1", 0, ["t"])


# ---------------------------------------------------------------- the memory of what was said


@pytest.mark.parametrize("code", [None, error_codes.COORDINATOR_LOAD_IN_PROGRESS])
def test_after_any_failure_the_next_heartbeat_says_everything(bench: Bench, code: int | None) -> None:
    bench.subscribe("t")
    bench.answer(bench.beat(), 1, {"t": [0, 1]})
    acknowledgement = bench.beat()
    if code is None:
        bench.fail(acknowledgement, DisconnectedError("gone"))
        bench.find()
    else:
        bench.answer(acknowledgement, code=code)
    assert bench.state() is State.STABLE
    assert said(bench.beat()) == {"rebalance_timeout_ms": 300_000, "topics": ["t"], "owned": own(0, 1)}


def test_a_coordinator_that_loads_is_asked_after_a_backoff(bench: Bench) -> None:
    bench.subscribe("t")
    for _ in range(3):
        request = bench.beat()
        before = bench.now
        bench.answer(request, code=error_codes.COORDINATOR_LOAD_IN_PROGRESS)
        assert bench.sent() == []
        request = bench.beat()
        assert bench.now >= before + 80
        bench.answer(request, code=error_codes.COORDINATOR_LOAD_IN_PROGRESS)


def test_an_answer_that_was_overtaken_counts_nothing(bench: Bench) -> None:
    bench.settle(0)
    old = bench.beat()
    bench.coordinator.mark_unknown(bench.now, "moved")
    bench.sent()
    bench.now += 1
    bench.find()
    new = bench.beat()
    assert "owned" in said(new), "the one before is not known to have arrived"
    bench.answer(old, 9, {"t": [3]})
    bench.answer(new, 2)
    assert (bench.member.group.generation_id, bench.owned) == (2, partitions("t", 0))


def test_a_changed_subscription_is_told_with_the_next_poll(bench: Bench) -> None:
    bench.settle(0)
    bench.subscription.subscribe(frozenset({"t", "u"}), None, has_listener=False)
    bench.member.subscription_changed(bench.now)
    assert bench.sent() == []
    bench.member.polled(bench.now)
    (request,) = bench.sent()
    assert said(request) == {"topics": ["t", "u"]}
    bench.metadata.cluster = FakeMetadata({"t": 4, "u": 1}).cluster
    bench.answer(request, 2, {"t": [0], "u": [0]})
    assert bench.causes[-1] == "subscription changed"


def test_an_assignment_that_comes_after_a_changed_subscription_is_put_down_to_it(bench: Bench) -> None:
    """The broker may assign later than it answers (KIP-1263)."""
    bench.settle(0)
    bench.metadata.cluster = FakeMetadata({"t": 4, "u": 1}).cluster
    bench.subscribe("t", "u")
    bench.answer(bench.beat(), 1)
    bench.answer(bench.beat(), 2, {"t": [0], "u": [0]})
    bench.serve()
    bench.answer(bench.beat(), 2)
    bench.answer(bench.beat(), 3, {"t": [0]})
    bench.serve()
    assert bench.causes[-2:] == ["subscription changed", "the coordinator made a new assignment"]


def test_a_topic_dropped_and_taken_again_goes_on(bench: Bench) -> None:
    bench.settle(0)
    bench.subscribe("u")
    assert [state.shared_partition.revoking for state in bench.subscription.partitions.values()] == [True]
    bench.subscribe("t", "u")
    assert [state.shared_partition.revoking for state in bench.subscription.partitions.values()] == [False]


# ---------------------------------------------------------------- reconciling


def test_c5_what_goes_waits_for_the_application_and_what_stays_flows(bench: Bench) -> None:
    bench.settle(0, 1)
    bench.answer(bench.beat(), 1, {"t": [0]})
    assert bench.state() is State.RECONCILING
    assert {p.partition: s.shared_partition.revoking for p, s in bench.subscription.partitions.items()} == {
        0: False,
        1: True,
    }
    quiet = bench.beat()
    assert said(quiet) == {}, "not given up yet"
    bench.answer(quiet, 1)
    assert bench.serve() == [
        ("RevokePartitions", partitions("t", 1)),
        ("AssignPartitions", []),
    ]
    (request,) = bench.sent()
    assert said(request) == {"owned": own(0)}
    bench.answer(request, 2, {"t": [0, 3]})
    assert bench.serve() == [("AssignPartitions", partitions("t", 3))]
    assert said(bench.beat()) == {"owned": own(0, 3)}
    assert bench.causes == ["first join", *["the coordinator made a new assignment"] * 2]


def test_what_comes_is_added_after_what_goes_is_given_up(bench: Bench) -> None:
    bench.settle(0, 1)
    bench.answer(bench.beat(), 2, {"t": [1, 2]})
    assert bench.owned == partitions("t", 0, 1)
    assert bench.serve() == [
        ("RevokePartitions", partitions("t", 0)),
        ("AssignPartitions", partitions("t", 2)),
    ]
    assert bench.owned == partitions("t", 1, 2)
    assert said(bench.beat()) == {"owned": own(1, 2)}


def test_a_target_that_turns_back_while_the_application_gives_up_adds_anew(bench: Bench) -> None:
    bench.settle(0, 1)
    bench.answer(bench.beat(), 1, {"t": [0]})
    bench.answer(bench.beat(), 2, {"t": [0, 1]})
    assert bench.serve() == [
        ("RevokePartitions", partitions("t", 1)),
        ("AssignPartitions", partitions("t", 1)),
    ]
    assert bench.state() is State.ACKNOWLEDGING
    assert said(bench.beat()) == {"owned": own(0, 1)}


def test_the_same_target_again_is_no_rebalance(bench: Bench) -> None:
    bench.settle(0)
    bench.answer(bench.beat(), 1, {"t": [0]})
    assert bench.state() is State.STABLE
    assert len(bench.causes) == 1


def test_a_callback_that_raises_does_not_hold_the_group(bench: Bench) -> None:
    bench.settle(0, 1)
    bench.answer(bench.beat(), 1, {"t": [0]})
    bench.member.callback_done(bench.now, bench.of(m.RevokePartitions)[-1].id, "my bug")
    assert said(bench.beat()) == {"owned": own(0)}


def test_unknown_topic_ids_are_asked_for_and_the_rest_goes_on(bench: Bench) -> None:
    bench.subscribe("t", "u")
    bench.answer(bench.beat(), 1, {"t": [0], "u": [0]})
    assert (bench.owned, bench.metadata.updates) == (partitions("t", 0), 1)
    request = bench.beat()
    assert said(request) == {"owned": own(0)}
    assert bench.state() is State.RECONCILING
    bench.answer(request, 1)
    bench.sent()
    assert bench.metadata.updates == 1, "asked for once per answer"
    bench.metadata.cluster = FakeMetadata({"t": 4, "u": 1}).cluster
    (request,) = bench.sent()
    assert said(request) == {"owned": {id_of("t"): [0], id_of("u"): [0]}}
    assert bench.state() is State.STABLE


def test_a_topic_id_that_news_did_not_name_is_asked_for_again_at_once(bench: Bench) -> None:
    """Metadata had its turn before: it must have another, or it is asked for with the next heartbeat only."""
    bench.subscribe("t", "u")
    bench.answer(bench.beat(), 1, {"t": [0], "u": [0]})
    bench.answer(bench.beat(), 1)
    bench.metadata.cluster = FakeMetadata({"t": 4}).cluster
    assert bench.member.poll(bench.now).wake_at == bench.now
    assert bench.metadata.updates == 2
    assert bench.member.poll(bench.now).wake_at > bench.now, "not in a spin"


def test_a_topic_made_anew_is_given_up_and_then_read_from_its_start(bench: Bench) -> None:
    bench.settle(0)
    before = bench.subscription.partitions[TopicPartition("t", 0)]
    new_id = b"n" * 16
    bench.answer(bench.beat(), 2, {new_id: [0]})
    assert bench.serve()[0] == ("RevokePartitions", partitions("t", 0))
    topics = dict(bench.metadata.cluster.topics)
    name = topics["t"].name
    bench.metadata.cluster = _with_id(bench.metadata, name, new_id)
    bench.answer(bench.beat(), 2)
    bench.sent()
    assert bench.owned == partitions("t", 0)
    assert bench.subscription.partitions[TopicPartition("t", 0)] is not before


def test_partitions_of_a_topic_made_anew_are_given_up_before_the_new_ones_are_assigned(bench: Bench) -> None:
    """Another member may get the new ones, and would read them beside this one."""
    bench.settle(0)
    old, new = bench.metadata.cluster, _with_id(bench.metadata, "t", b"n" * 16)
    bench.metadata.cluster = new
    bench.sent()
    assert bench.serve()[0] == ("RevokePartitions", partitions("t", 0))
    request = bench.beat()
    assert (bench.owned, said(request)) == ([], {"owned": []})
    bench.answer(request, 1)
    bench.answer(bench.beat(), 2, {b"n" * 16: [0]})
    request = bench.beat()
    assert (bench.owned, said(request)) == (partitions("t", 0), {"owned": {b"n" * 16: [0]}})
    bench.answer(request, 2)
    bench.serve()
    # A broker that has not heard of it yet: what nobody has told otherwise comes back with the next news.
    bench.metadata.cluster = old
    bench.sent()
    bench.serve()
    bench.answer(bench.beat(), 2)
    assert bench.owned == []
    bench.metadata.cluster = new
    bench.sent()
    assert bench.owned == partitions("t", 0)


def _with_id(metadata: FakeMetadata, name: str, topic_id: bytes) -> Any:
    from dataclasses import replace

    topics = Layered({name: replace(metadata.cluster.topics[name], topic_id=topic_id)})
    return replace(metadata.cluster, topics=topics)


def test_another_epoch_without_a_rebalance_is_told(bench: Bench) -> None:
    bench.settle(0)
    bench.answer(bench.beat(), 5)
    assert bench.of(m.IdentityChanged)[-1].group == bench.member.group
    assert bench.member.group.generation_id == 5
    assert len(bench.causes) == 1


# ---------------------------------------------------------------- fenced, refused


@pytest.mark.parametrize("code", ["FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID", "GROUP_ID_NOT_FOUND"])
def test_fenced_loses_everything_and_joins_again_with_its_member_id(bench: Bench, code: str) -> None:
    bench.settle(0, 1)
    bench.answer(bench.beat(), code=getattr(error_codes, code))
    assert bench.owned == []
    assert bench.serve() == [("LosePartitions", partitions("t", 0, 1))]
    assert bench.of(m.Failed) == []
    request = bench.beat()
    assert (request.message.member_id, request.message.member_epoch) == ("m1", 0)
    assert said(request)["topics"] == ["t"]
    bench.answer(request, 7, {"t": [0]})
    assert bench.causes[-1] == f"session lost: {code}"


def test_fenced_again_and_again_does_not_spin(bench: Bench) -> None:
    bench.subscribe("t")
    start = bench.now
    for _ in range(5):
        bench.answer(bench.beat(), code=error_codes.FENCED_MEMBER_EPOCH)
    assert bench.now >= start + 1_000


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("GROUP_AUTHORIZATION_FAILED", "not allowed to read as group 'g'"),
        ("INVALID_REQUEST", "refused the heartbeat"),
        ("GROUP_MAX_SIZE_REACHED", r"group\.consumer\.max\.size"),
        ("UNSUPPORTED_ASSIGNOR", r"group\.remote\.assignor"),
        ("UNRELEASED_INSTANCE_ID", r"group\.instance\.id"),
        ("UNSUPPORTED_VERSION", r"group\.protocol=classic"),
        ("GROUP_ID_NOT_FOUND", r"group\.protocol=classic"),
    ],
)
def test_b6_a_refusal_for_good_is_told_and_the_next_poll_tries_again(
    bench: Bench, code: str, advice: str
) -> None:
    bench.subscribe("t")
    bench.answer(bench.beat(), code=getattr(error_codes, code))
    (failed,) = bench.of(m.Failed)
    assert not failed.fatal
    with pytest.raises(KafkaError, match=advice):
        raise failed.error
    assert bench.sent() == []
    assert (bench.state(), bench.member.left) == (State.FATAL, True)
    bench.member.polled(bench.now)
    assert bench.beat().message.member_epoch == 0


def test_a_join_that_the_broker_failed_to_serve_is_repeated_for_a_while(bench: Bench) -> None:
    """Kafka 4.3 fails so when it should convert a classic group in its first rebalance."""
    bench.subscribe("t")
    start = bench.now
    for _ in range(STUMBLES):
        bench.answer(bench.beat(), code=error_codes.UNKNOWN_SERVER_ERROR)
        bench.find()
    assert bench.of(m.Failed) == []
    assert bench.now - start >= 3_000, "a first rebalance is over by then"
    bench.answer(bench.beat(), code=error_codes.UNKNOWN_SERVER_ERROR)
    (failed,) = bench.of(m.Failed)
    assert "UNKNOWN_SERVER_ERROR" in str(failed.error)


def test_a_topic_that_may_not_be_read_is_told_and_the_membership_goes_on(bench: Bench) -> None:
    bench.settle(0)
    bench.answer(bench.beat(), code=error_codes.TOPIC_AUTHORIZATION_FAILED)
    (failed,) = bench.of(m.Failed)
    assert isinstance(failed.error, TopicAuthorizationError)
    assert (bench.state(), bench.owned) == (State.STABLE, partitions("t", 0))
    before = bench.now
    request = bench.beat()
    assert bench.now >= before + 80, "after a backoff"
    assert "topics" in said(request), "and with everything, as after any refusal"
    bench.answer(request, 1)
    assert len(bench.of(m.Failed)) == 1


def test_kip_568_enforce_rebalance_is_said_to_do_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settle(0)
    bench.member.rebalance(bench.now, "please")
    assert "the broker decides" in caplog.text
    assert bench.sent() == []
    assert bench.state() is State.STABLE


def test_p_kafka_20426_a_group_id_with_assign_keeps_nothing_awake(bench: Bench) -> None:
    """Kafka's own client spins there: its heartbeat is always due and never sent."""
    bench.subscription.assign(partitions("t", 0))
    bench.member.polled(bench.now)
    assert (bench.member.active, bench.member.joining, bench.member.needs_polled) == (False, False, False)
    assert {manager.poll(bench.now).wake_at for manager in (bench.heartbeat, bench.member)} == {FOREVER}


def test_a_broker_without_kip_848_is_told_with_what_to_set(bench: Bench) -> None:
    bench.subscribe("t")
    bench.fail(bench.beat(), UnsupportedVersionError("the broker has no ConsumerGroupHeartbeat"))
    (failed,) = bench.of(m.Failed)
    assert "group.protocol=classic" in str(failed.error)


def test_a_refused_member_of_the_group_says_goodbye(bench: Bench) -> None:
    bench.settle(0)
    bench.answer(bench.beat(), code=error_codes.INVALID_REQUEST)
    assert bench.serve() == [("LosePartitions", partitions("t", 0))]
    (request,) = bench.sent()
    assert (request.message.member_id, request.message.member_epoch) == ("m1", -1)


def test_a_fenced_instance_stays_out_until_subscribe() -> None:
    bench = Bench(group_instance_id="i")
    bench.settle(0)
    bench.answer(bench.beat(), code=error_codes.FENCED_INSTANCE_ID)
    assert [event.fatal for event in bench.of(m.Failed)] == [True]
    assert bench.causes[-1].startswith("fenced: "), "the history ends with what was lost"
    assert bench.of(m.RebalanceFinished)[-1].rebalance.removed == tuple(partitions("t", 0))
    assert not bench.member.needs_polled
    bench.subscribe("t")
    assert bench.beat().message.member_epoch == 0


# ---------------------------------------------------------------- leaving


@pytest.mark.parametrize(("name", "when"), [(None, ""), ("i", " when its session has ended")])
def test_b4_a_member_that_nothing_polled_says_when_its_partitions_go_to_others(
    name: str | None, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(group_instance_id=name)
    bench.settle(0)
    bench.member.poll_timed_out(bench.now)
    assert f"Its partitions go to other members{when}. Poll more often" in caplog.text


def test_b7_leave_revokes_first_with_heartbeats_and_then_says_minus_1(bench: Bench) -> None:
    bench.settle(0)
    bench.member.leave(bench.now, reason="test")
    assert bench.state() is State.PREPARE_LEAVING
    quiet = bench.beat()
    assert (quiet.message.member_epoch, said(quiet)) == (1, {})
    bench.answer(quiet, 2, {"t": [0, 1]})
    assert bench.owned == partitions("t", 0), "what comes now is not taken"
    assert bench.serve() == [("RevokePartitions", partitions("t", 0))]
    assert bench.state() is State.LEAVING
    (request,) = bench.sent()
    assert (request.message.member_id, request.message.member_epoch) == ("m1", -1)
    assert (bench.state(), bench.member.left) == (State.UNSUBSCRIBED, False)
    bench.answer(request, -1)
    assert bench.member.left
    assert bench.sent() == []


def test_leaving_before_the_join_was_answered_leaves_no_phantom(bench: Bench) -> None:
    bench.subscribe("t")
    join = bench.beat()
    bench.member.leave(bench.now, reason="test")
    (request,) = bench.sent()
    assert (request.message.member_id, request.message.member_epoch) == (join.message.member_id, -1)
    bench.answer(join, 1, {"t": [0]})
    assert bench.owned == []


def test_leaving_without_having_joined_says_nothing(bench: Bench) -> None:
    bench.subscribe()
    bench.member.leave(bench.now, reason="test")
    assert bench.sent() == []
    assert bench.member.left


def test_a_late_goodbye_does_not_reach_the_next_membership(bench: Bench) -> None:
    bench.settle(0)
    bench.member.leave(bench.now, reason="test", callbacks=False)
    (goodbye,) = bench.sent()
    bench.subscribe("t")
    join = bench.beat()
    assert (join.message.member_id, join.message.member_epoch) == ("m2", 0)
    bench.answer(join, 1, {"t": [0]})
    bench.answer(goodbye, -1)
    assert (bench.state(), bench.member.group.generation_id) == (State.ACKNOWLEDGING, 1)


def test_subscribe_before_the_goodbye_is_sent_joins_after_it(bench: Bench) -> None:
    bench.settle(0)
    bench.coordinator.mark_unknown(bench.now, "test")
    bench.member.leave(bench.now, reason="test", callbacks=False)
    assert bench.sent() == []
    bench.subscribe("t")
    assert bench.state() is State.LEAVING
    bench.find()
    sent = [(request.message.member_id, request.message.member_epoch) for request in bench.sent()]
    assert sent == [("m1", -1), ("m2", 0)]


def test_fenced_while_it_prepares_to_leave_is_out(bench: Bench) -> None:
    bench.settle(0)
    bench.member.leave(bench.now, reason="test")
    bench.answer(bench.beat(), code=error_codes.UNKNOWN_MEMBER_ID)
    assert (bench.state(), bench.member.left) == (State.UNSUBSCRIBED, True)
    assert bench.serve() == [("LosePartitions", partitions("t", 0))], "each partition is told of once"


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_b4_stale_after_the_poll_timeout_until_the_next_poll(instance: str | None, epoch: int) -> None:
    bench = Bench(group_instance_id=instance, max_poll_interval_ms=5_000)
    bench.settle(0)
    bench.progress.leave_poll(bench.now)
    bench.now += 4_999
    bench.answer(bench.beat(), 1)
    bench.now += 1
    (request,) = bench.sent()
    assert (request.message.member_epoch, request.message.instance_id) == (epoch, instance)
    assert bench.serve() == [("LosePartitions", partitions("t", 0))]
    assert bench.state() is State.STALE
    bench.answer(request, epoch)
    bench.now += 60_000
    assert bench.sent() == []
    bench.progress.enter_poll(bench.now)
    bench.member.polled(bench.now)
    join = bench.beat()
    assert (join.message.member_id, join.message.member_epoch) == ("m2", 0)
    bench.answer(join, 1, {"t": [0]})
    assert bench.causes[-1] == "poll interval exceeded"


def test_b2_the_processing_timeout_is_the_poll_interval_alone() -> None:
    assert Bench(max_poll_interval_ms=1_000).config.processing_timeout_ms == 1_000


def test_a_static_member_joins_again_once_its_own_goodbye_was_heard() -> None:
    bench = Bench(group_instance_id="i")
    bench.settle(0)
    bench.member.leave(bench.now, reason="test", callbacks=False)
    (goodbye,) = bench.sent()
    assert goodbye.message.member_epoch == -2
    bench.subscribe("t")
    assert bench.sent() == []
    bench.answer(goodbye, -2)
    assert bench.beat().message.member_epoch == 0


def test_a_static_member_joins_again_as_soon_as_its_goodbye_can_matter_no_more() -> None:
    bench = Bench(group_instance_id="i")
    bench.settle(0)
    bench.member.leave(bench.now, reason="test", callbacks=False)
    (goodbye,) = bench.sent()
    bench.subscribe("t")
    bench.now += bench.config.session_timeout_ms
    bench.fail(goodbye, DisconnectedError("gone"))
    for manager in (bench.heartbeat, bench.member):
        poll = manager.poll(bench.now)
        assert poll.requests == []
    assert poll.wake_at <= bench.now, "heartbeats had their turn already, and know nothing of it"
    bench.find()
    assert bench.beat().message.member_epoch == 0


# ---------------------------------------------------------------- commits


def test_a_commit_of_a_stale_epoch_is_sent_again_and_the_epoch_asked_for(bench: Bench) -> None:
    bench.settle(0)
    sent = bench.member.group
    assert bench.member.commit_refused(bench.now, sent, error_codes.STALE_MEMBER_EPOCH)
    (request,) = bench.sent()
    assert "topics" in said(request)
    bench.answer(request, 2)
    assert bench.member.commit_refused(bench.now, sent, error_codes.STALE_MEMBER_EPOCH)


def test_a_commit_of_an_unknown_member_fences_it(bench: Bench) -> None:
    bench.settle(0)
    assert not bench.member.commit_refused(bench.now, bench.member.group, error_codes.UNKNOWN_MEMBER_ID)
    assert (bench.state(), bench.owned) == (State.JOINING, [])


# ---------------------------------------------------------------- the coordinator, the table


def test_b5_a_silence_longer_than_the_session_gives_the_coordinator_up(bench: Bench) -> None:
    bench.settle(0)
    bench.beat()
    bench.now += 10_000
    bench.sent()
    assert bench.coordinator.node_id is None


def test_a_long_interval_of_the_broker_is_no_silence(bench: Bench) -> None:
    bench.settle(0)
    bench.member.heartbeat_interval_ms = 15_000
    assert bench.member.session_timeout_ms == 45_000


def test_a_coordinator_that_cannot_be_had_is_fatal_until_the_next_poll(bench: Bench) -> None:
    bench.settle(0)
    told = [each(bench.now, KafkaError("not allowed")) for each in bench.coordinator.on_failed]
    assert any(told)
    assert (bench.state(), bench.member.needs_polled) == (State.FATAL, True)


def test_every_state_is_entered_and_left() -> None:
    assert set(TRANSITIONS) == set(State)
    assert set().union(*TRANSITIONS.values()) == set(State)


@pytest.mark.parametrize("seed", seeds(75))
def test_whatever_happens_the_table_holds_and_the_member_can_still_join(seed: int) -> None:
    """Random answers, failures, calls and callbacks; the table's assertions are the test, and then it settles."""
    luck = random.Random(seed)
    bench = Bench({"t": 4, "u": 2}, group_instance_id=luck.choice([None, "i"]), max_poll_interval_ms=20_000)
    codes = [0] * 12 + [14, 15, 16, 25, 42, 69, 82, 110, 111, -1]
    for _ in range(80):
        act = luck.randrange(10)
        if act == 0:
            bench.subscribe(*luck.choice([("t",), ("t", "u"), ("u",)]))
        elif act == 1:
            bench.member.leave(bench.now, reason="test", callbacks=luck.random() < 0.5)
        elif act == 2:
            bench.serve()
        elif act == 3:
            bench.member.polled(bench.now)
            luck.choice([bench.progress.enter_poll, bench.progress.leave_poll])(bench.now)
        elif act == 4:
            bench.member.commit_refused(bench.now, bench.member.group, luck.choice([22, 25, 27, 82, 113]))
        elif act == 5:
            bench.metadata.cluster = FakeMetadata(luck.choice([{"t": 4}, {"t": 4, "u": 2}])).cluster
        elif act == 6:
            bench.now += luck.choice([1, 100, 1_000, 12_000])
        bench.find()
        bench.sent()
        for request in list(bench.owners):
            if luck.random() < 0.7:
                if luck.random() < 0.1:
                    bench.fail(request, DisconnectedError("gone"))
                    continue
                assigned: Any = luck.choice(
                    [None, {}, {"t": [0, 1]}, {"t": [1, 2], "u": [0]}, {b"?" * 16: [0]}]
                )
                bench.answer(request, luck.randrange(1, 5), assigned, luck.choice(codes))
    _recover(bench)
    assert bench.owned == partitions("t", 0, 1)


def _recover(bench: Bench) -> None:
    bench.progress.enter_poll(bench.now)
    bench.metadata.cluster = FakeMetadata({"t": 4, "u": 2}).cluster
    bench.subscribe("t")
    for _ in range(60):
        bench.serve()
        bench.member.polled(bench.now)
        bench.find()
        bench.sent()
        for request in list(bench.owners):
            bench.answer(request, 9, {"t": [0, 1]})
        bench.now += 500
    assert bench.state() is State.STABLE
