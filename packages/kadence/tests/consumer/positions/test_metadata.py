"""Metadata under virtual time: asked once, asked again after a backoff, told once."""

from __future__ import annotations

import pytest
from tests.worlds.cluster import TOPIC_ID, answer, config, knowing, lost, told
from tests.worlds.hand import BackgroundEvents

from kadence.clock import FOREVER
from kadence.connection.request import Completed
from kadence.consumer.events import Answer, Failed, TopicMetadata
from kadence.consumer.positions.metadata import MetadataManager
from kadence.errors import AuthenticationError, InvalidTopicError
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataResponse
from kadence.types import TopicPartition

P0 = TopicPartition("t", 0)


def test_nothing_is_asked_before_somebody_needs_it() -> None:
    manager = MetadataManager(config(), BackgroundEvents())
    assert manager.poll(0).requests == []
    assert manager.poll(0).wake_at == FOREVER


def test_what_is_needed_is_asked_once_and_refreshed_when_it_is_old() -> None:
    manager = MetadataManager(config(metadata_max_age_ms=5_000), BackgroundEvents())
    manager.need("subscription", frozenset({"t"}))
    (request,) = manager.poll(0).requests
    assert [topic.name for topic in request.message.topics] == ["t"]
    assert manager.poll(1).requests == []
    manager.on_response(10, answer(request, told({P0: 2}), 10))
    assert manager.leader(P0) == 2
    assert manager.poll(11).wake_at == 5_010
    assert len(manager.poll(5_010).requests) == 1


def test_what_is_needed_while_a_request_is_on_its_way_is_asked_for_next(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager = MetadataManager(config(), BackgroundEvents())
    manager.need("subscription", frozenset({"t"}))
    (request,) = manager.poll(0).requests
    manager.need("subscription", frozenset({"t", "u"}))
    manager.on_response(10, answer(request, told({P0: 2}), 10))
    assert manager.missing("subscription") == {}
    assert "does not exist" not in caplog.text
    (request,) = manager.poll(manager.poll(10).wake_at).requests
    assert [topic.name for topic in request.message.topics] == ["t", "u"]


def test_a_contradiction_is_looked_into_but_not_in_a_loop() -> None:
    manager = knowing({P0: 1}, BackgroundEvents())
    for now in range(100):
        manager.request_update(now)
        assert manager.poll(now).requests == [], "within the backoff"
    assert len(manager.poll(100).requests) == 1


def test_failures_back_off_and_keep_what_is_known() -> None:
    manager = knowing({P0: 1}, BackgroundEvents())
    manager.request_update(200)
    (request,) = manager.poll(200).requests
    manager.on_response(210, lost(request, 210))
    assert manager.leader(P0) == 1
    poll = manager.poll(210)
    assert poll.requests == []
    assert 210 + 80 <= poll.wake_at <= 210 + 120
    assert len(manager.poll(poll.wake_at).requests) == 1


def test_a_refused_password_is_told_and_tried_again() -> None:
    background_events = BackgroundEvents()
    manager = MetadataManager(config(), background_events)
    manager.need("subscription", frozenset({"t"}))
    manager.ask(TopicMetadata(7, 10_000, None))
    refused = AuthenticationError("broker 1 refused SASL PLAIN of user 'alice'")
    for request in manager.poll(0).requests:
        manager.on_response(5, Completed(request, None, refused, -1, 5))
    assert background_events == [Failed(refused), Answer(7, None, refused)]
    poll = manager.poll(5)
    assert poll.requests == []
    assert len(manager.poll(poll.wake_at).requests) == 1


def test_a_topic_that_is_not_there_is_asked_for_until_it_is() -> None:
    background_events = BackgroundEvents()
    manager = MetadataManager(config(), background_events)
    manager.need("subscription", frozenset({"t"}))
    (request,) = manager.poll(0).requests
    manager.on_response(0, answer(request, told({}, errors={"t": ec.UNKNOWN_TOPIC_OR_PARTITION}), 0))
    assert manager.error_of(P0) == ec.UNKNOWN_TOPIC_OR_PARTITION
    assert background_events == []
    (request,) = manager.poll(manager.poll(0).wake_at).requests
    manager.on_response(200, answer(request, told({P0: 1}), 200))
    assert manager.error_of(P0) == ec.NONE
    assert manager.error_of(TopicPartition("t", 9)) == ec.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_can_never_be_is_told_once() -> None:
    background_events = BackgroundEvents()
    manager = MetadataManager(config(), background_events)
    manager.need("subscription", frozenset({"t"}))
    for now in (0, 10_000):
        manager.request_update(now)
        (request,) = manager.poll(now).requests
        manager.on_response(now, answer(request, told({}, errors={"t": ec.INVALID_TOPIC_EXCEPTION}), now))
    (failed,) = background_events
    assert isinstance(failed, Failed)
    assert isinstance(failed.error, InvalidTopicError)


def test_calls_that_wait_are_answered_by_one_request() -> None:
    background_events = BackgroundEvents()
    manager = MetadataManager(config(), background_events)
    manager.ask(TopicMetadata(1, 1000, ("t",)))
    manager.ask(TopicMetadata(2, 1000, ("t", "absent")))
    (request,) = manager.poll(0).requests
    response = told({P0: 1}, errors={"absent": ec.UNKNOWN_TOPIC_OR_PARTITION})
    manager.on_response(0, answer(request, response, 0))
    first, second = background_events
    assert isinstance(first, Answer)
    assert isinstance(second, Answer)
    assert isinstance(first.value, dict)
    assert isinstance(second.value, dict)
    assert [info.leader for info in first.value["t"]] == [1]
    assert set(second.value) == {"t"}


def test_a_pattern_matches_whole_names_and_skips_internal_topics() -> None:
    manager = knowing({P0: 1, TopicPartition("tt", 0): 1}, BackgroundEvents())
    manager.want_matching("t.?")
    assert manager.matching() == {"t", "tt"}
    manager.want_matching("t")
    assert manager.matching() == {"t"}
    manager.want_matching(None)
    assert manager.matching() == frozenset()


# ------------------------------------------------------------ KIP-516


def test_kip516_topics_are_named_by_their_ids_until_each_has_a_name() -> None:
    manager = knowing({P0: 1}, BackgroundEvents())
    manager.identify(frozenset({TOPIC_ID, b"2" * 16}))
    (request,) = manager.poll(1).requests
    assert [(each.topic_id, each.name) for each in request.message.topics] == [
        (b"2" * 16, None),
        (TOPIC_ID, None),
    ]
    assert manager.poll(2).requests == [], "one at a time"
    manager.on_response(10, answer(request, told({P0: 2}), 10))
    assert manager.leader(P0) == 2
    poll = manager.poll(10)
    assert (poll.requests, 90 <= poll.wake_at <= 130) == ([], True)
    (request,) = manager.poll(poll.wake_at).requests
    assert [each.topic_id for each in request.message.topics] == [b"2" * 16], (
        "a topic that was deleted has none"
    )
    manager.identify(frozenset())
    manager.on_response(200, lost(request, 200))
    assert manager.poll(1_000).requests == []


def test_kip516_an_answer_about_ids_is_believed_as_any_other() -> None:
    """From a broker that was just started it would cost every connection, the one of heartbeats too."""
    manager = knowing({P0: 1}, BackgroundEvents())
    begun: list[int] = []
    manager.on_rebootstrap = begun.append
    manager.identify(frozenset({b"2" * 16}))
    (request,) = manager.poll(1).requests
    response = told({})
    response.brokers = []
    manager.on_response(10, answer(request, response, 10))
    assert manager.has_node(1)
    (request,) = manager.poll(1_000).requests
    manager.on_response(1_010, answer(request, MetadataResponse(error_code=ec.REBOOTSTRAP_REQUIRED), 1_010))
    assert begun == [1_010]


# ------------------------------------------------------------ KIP-899, KIP-1102


def failing(manager: MetadataManager, until: int) -> None:
    """Nobody answers from 200 on: poll whenever the manager asks to be."""
    now = 200
    manager.request_update(now)
    while now < until:
        poll = manager.poll(now)
        for request in poll.requests:
            manager.on_response(now, lost(request, now))
        now = max(poll.wake_at, now + 1) if not poll.requests else now + 1


def test_kip1102_no_answer_for_the_trigger_time_begins_again_at_the_bootstrap_addresses() -> None:
    manager = knowing({P0: 1}, BackgroundEvents(), metadata_recovery_rebootstrap_trigger_ms=10_000)
    begun: list[int] = []
    manager.on_rebootstrap = begun.append
    failing(manager, 10_201)
    assert begun == [10_200]
    assert manager.leader(P0) is None
    assert manager.cluster.partition(P0) is not None, "nobody must take the topic for deleted"


def test_kip1102_it_repeats_as_long_as_nobody_answers_and_ends_with_an_answer() -> None:
    manager = knowing({P0: 1}, BackgroundEvents(), metadata_recovery_rebootstrap_trigger_ms=1_000)
    begun: list[int] = []
    manager.on_rebootstrap = begun.append
    failing(manager, 5_000)
    assert 3 <= len(begun) <= 5
    (request,) = manager.poll(9_000).requests
    manager.on_response(9_000, answer(request, told({P0: 2}, epoch=0), 9_000))
    assert manager.leader(P0) == 2
    count = len(begun)
    manager.poll(60_000)
    assert len(begun) == count


def test_kip1102_the_time_counts_from_the_first_request_that_was_not_answered() -> None:
    manager = knowing({P0: 1}, BackgroundEvents(), metadata_recovery_rebootstrap_trigger_ms=20_000)
    begun: list[int] = []
    manager.on_rebootstrap = begun.append
    manager.request_update(200)
    (request,) = manager.poll(200).requests
    manager.on_response(30_200, lost(request, 30_200))
    assert begun == [30_200], "it was swallowed, and only now is that known"


def test_kip899_strategy_none_never_does() -> None:
    manager = knowing(
        {P0: 1},
        BackgroundEvents(),
        metadata_recovery_strategy="none",
        metadata_recovery_rebootstrap_trigger_ms=1_000,
    )
    begun: list[int] = []
    manager.on_rebootstrap = begun.append
    failing(manager, 5_000)
    assert (begun, manager.leader(P0)) == ([], 1)


def test_kip1102_a_broker_that_says_so_is_believed_at_once() -> None:
    manager = knowing({P0: 1}, BackgroundEvents())
    begun: list[int] = []
    manager.on_rebootstrap = begun.append
    manager.request_update(200)
    (request,) = manager.poll(200).requests
    response = MetadataResponse(error_code=ec.REBOOTSTRAP_REQUIRED)
    manager.on_response(210, answer(request, response, 210))
    assert begun == [210]
    assert manager.poll(210).requests == [], "not in a loop, whoever answers so"
    assert len(manager.poll(1_000).requests) == 1


def test_a_broker_that_knows_of_no_broker_yet_is_not_believed() -> None:
    """One that has just been started. Believed, it would cost every connection, the one of heartbeats too."""
    manager = knowing({P0: 1}, BackgroundEvents())
    manager.request_update(200)
    (request,) = manager.poll(200).requests
    response = told({}, errors={"t": ec.UNKNOWN_TOPIC_OR_PARTITION})
    response.brokers = []
    manager.on_response(210, answer(request, response, 210))
    assert (manager.leader(P0), manager.has_node(1)) == (1, True)
    assert manager.poll(210).requests == []
    assert len(manager.poll(1_000).requests) == 1


def test_an_answer_that_is_an_error_as_a_whole_is_repeated_and_changes_nothing() -> None:
    manager = knowing({P0: 1}, BackgroundEvents())
    manager.request_update(200)
    (request,) = manager.poll(200).requests
    manager.on_response(210, answer(request, MetadataResponse(error_code=ec.UNKNOWN_SERVER_ERROR), 210))
    assert (manager.leader(P0), manager.has_node(1)) == (1, True)
    assert len(manager.poll(1_000).requests) == 1
