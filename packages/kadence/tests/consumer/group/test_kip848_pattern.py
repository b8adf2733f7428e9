"""A SubscriptionPattern under virtual time: what the heartbeat says, and how topics get their names (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.cluster import FakeMetadata, answer, id_of, lost, partitions, told
from tests.worlds.cluster import config as consumer_config
from tests.worlds.hand import BackgroundEvents
from tests.worlds.kip848 import Bench, own

from kadence.connection.cluster import Cluster
from kadence.connection.request import Request
from kadence.consumer import events as m
from kadence.consumer.group.member_states import State
from kadence.consumer.positions.metadata import MetadataManager
from kadence.errors import InvalidRegularExpressionError, UnsupportedVersionError
from kadence.protocol import error_codes
from kadence.protocol.metadata import MetadataResponse, MetadataResponseTopic
from kadence.protocol.registry import encode_request
from kadence.types import TopicPartition
from kadence.wire import VersionError


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.metadata.cluster = Cluster()
    return bench


def subscribe(bench: Bench, regex: str | None, *topics: str) -> None:
    bench.subscription.subscribe(frozenset(topics), None, has_listener=False, regex=regex)
    bench.member.subscription_changed(bench.now)
    bench.member.polled(bench.now)


def said(request: Request) -> tuple[Any, Any]:
    return request.message.subscribed_topic_names, request.message.subscribed_topic_regex


def test_c4_a_pattern_is_said_when_joining_and_then_no_more(bench: Bench) -> None:
    subscribe(bench, "t.*")
    request = bench.beat()
    assert said(request) == ([], "t.*")
    assert request.min_version == 1
    bench.answer(request, 1, {})
    bench.serve()
    assert said(bench.beat()) == (None, None)


def test_a_pattern_cannot_be_left_out_for_an_older_broker(bench: Bench) -> None:
    subscribe(bench, "t.*")
    with pytest.raises(VersionError):
        encode_request(bench.beat().message, 0, 1, "client")


def test_names_are_said_to_older_brokers_too() -> None:
    bench = Bench()
    bench.subscribe("t")
    request = bench.beat()
    assert request.message.subscribed_topic_regex == ""
    assert encode_request(request.message, 0, 1, "client")


def test_from_names_to_a_pattern_and_back(bench: Bench) -> None:
    bench.metadata.cluster = FakeMetadata({"t": 4}).cluster
    bench.settle(0)
    subscribe(bench, "t|u")
    (request,) = bench.sent()
    assert said(request) == ([], "t|u")
    assert [s.shared_partition.revoking for s in bench.subscription.partitions.values()] == [False], (
        "the broker decides"
    )
    bench.answer(request, 2)
    subscribe(bench, "u|t")
    (request,) = bench.sent()
    assert said(request) == ([], "u|t")
    bench.answer(request, 2)
    subscribe(bench, None, "t")
    (request,) = bench.sent()
    assert said(request) == (["t"], "")


def test_topics_are_named_by_their_ids_and_then_kept_known(bench: Bench) -> None:
    subscribe(bench, "t.*")
    bench.answer(bench.beat(), 1, {"t1": [0], "t2": [1]})
    assert bench.metadata.nameless == {id_of("t1"), id_of("t2")}
    assert bench.metadata.updates == 0, "asking by name would be asking for nothing"
    assert bench.owned == []
    bench.answer(bench.beat(), 1)
    bench.metadata.cluster = FakeMetadata({"t1": 1}).cluster
    bench.answer(bench.beat(), 1)
    assert bench.owned == partitions("t1", 0)
    assert bench.metadata.nameless == {id_of("t2")}
    bench.metadata.cluster = FakeMetadata({"t1": 1, "t2": 2}).cluster
    bench.answer(bench.beat(), 1)
    assert bench.owned == [*partitions("t1", 0), *partitions("t2", 1)]
    assert not bench.metadata.nameless
    assert bench.metadata.wanted == {"t1", "t2"}
    bench.member.leave(bench.now, reason="test", callbacks=False)
    assert bench.metadata.wanted == frozenset()


def test_nothing_is_told_of_an_assignment_as_long_as_nothing_of_it_has_a_name(bench: Bench) -> None:
    subscribe(bench, "t.*")
    bench.answer(bench.beat(), 1, {})
    bench.answer(bench.beat(), 1, {"t": [0]})
    assert bench.serve() == [("AssignPartitions", [])], "of the first assignment, which was empty"
    assert said(bench.beat()) == (None, None)
    assert bench.state() is State.RECONCILING
    bench.metadata.cluster = FakeMetadata({"t": 4}).cluster
    bench.sent()
    assert bench.serve() == [("AssignPartitions", partitions("t", 0))]
    assert bench.causes == ["first join", "the coordinator made a new assignment"]


def test_a_topic_that_is_deleted_before_it_had_a_name_is_not_asked_for_any_more(bench: Bench) -> None:
    subscribe(bench, "t.*")
    bench.answer(bench.beat(), 1, {"gone": [0], "t": [0]})
    bench.metadata.cluster = FakeMetadata({"t": 4}).cluster
    request = bench.beat()
    bench.answer(request, 2, {"t": [0]})
    assert bench.metadata.nameless == frozenset()
    bench.serve()
    request = bench.beat()
    assert {t.topic_id: t.partitions for t in request.message.topic_partitions} == own(0)
    assert bench.state() is State.STABLE


def test_an_invalid_pattern_is_told_and_the_next_poll_tries_again(bench: Bench) -> None:
    subscribe(bench, "(")
    bench.answer(bench.beat(), code=error_codes.INVALID_REGULAR_EXPRESSION)
    (failed,) = bench.of(m.Failed)
    with pytest.raises(InvalidRegularExpressionError, match="RE2"):
        raise failed.error
    subscribe(bench, "t")
    assert said(bench.beat()) == ([], "t")


@pytest.mark.parametrize("told_by_broker", [False, True])
def test_a_broker_that_cannot_match_is_told_with_what_to_use(bench: Bench, told_by_broker: bool) -> None:
    subscribe(bench, "t.*")
    if told_by_broker:
        bench.answer(bench.beat(), code=error_codes.UNSUPPORTED_VERSION)
    else:
        bench.fail(bench.beat(), UnsupportedVersionError("ConsumerGroupHeartbeat 1 to 1, the broker has 0"))
    (failed,) = bench.of(m.Failed)
    assert "re.compile('t.*')" in str(failed.error)


def test_b6_a_join_refused_again_and_again_does_not_spin(bench: Bench) -> None:
    subscribe(bench, "(")
    start = bench.now
    for _ in range(6):
        bench.answer(bench.beat(), code=error_codes.INVALID_REGULAR_EXPRESSION)
        bench.member.polled(bench.now)
    assert bench.now >= start + 1_000


def test_b7_a_join_held_back_is_left_at_once(bench: Bench) -> None:
    subscribe(bench, "(")
    bench.answer(bench.beat(), code=error_codes.INVALID_REGULAR_EXPRESSION)
    bench.member.polled(bench.now)
    assert bench.state() is State.JOINING
    bench.member.leave(bench.now, reason="test")
    bench.sent()
    assert (bench.state(), bench.member.left) == (State.UNSUBSCRIBED, True)


# ---------------------------------------------------------------- metadata by topic id


def named(name: str | None, topic_id: bytes, code: int = 0) -> MetadataResponse:
    topic = MetadataResponseTopic(name=name, topic_id=topic_id, error_code=code, partitions=[])
    return replace_topics(told({TopicPartition("x", 0): 1}), topic)


def replace_topics(response: MetadataResponse, topic: MetadataResponseTopic) -> MetadataResponse:
    response.topics = [topic]
    return response


def test_kip_516_topics_are_asked_for_by_id_until_they_have_names() -> None:
    manager = MetadataManager(consumer_config(), BackgroundEvents())
    one, two = b"1" * 16, b"2" * 16
    manager.identify(frozenset({one, two}))
    (request,) = manager.poll(0).requests
    assert [(t.topic_id, t.name) for t in request.message.topics] == [(one, None), (two, None)]
    assert (request.min_version, request.message.allow_auto_topic_creation) == (12, False)
    assert manager.poll(0).requests == [], "one at a time"
    manager.on_response(5, answer(request, named("a", one), 5))
    assert manager.cluster.names_of([one]) == {one: "a"}
    wait = manager.poll(5)
    assert wait.requests == []
    (request,) = manager.poll(wait.wake_at).requests
    assert [t.topic_id for t in request.message.topics] == [two]
    manager.on_response(900, answer(request, named(None, two, error_codes.UNKNOWN_TOPIC_ID), 900))
    later = manager.poll(900)
    assert later.wake_at >= 900 + 150, "longer each time: it may be gone for good"
    (request,) = manager.poll(later.wake_at).requests
    manager.on_response(2_000, lost(request, 2_000))
    manager.identify(frozenset())
    assert manager.poll(9_000).requests == []
    assert manager.cluster.names_of([one]) == {one: "a"}
