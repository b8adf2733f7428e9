"""Finding the coordinator, and forgetting it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.hand import START, BackgroundEvents, Hand, Managers

from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.consumer import events as m
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.errors import (
    AuthenticationError,
    DisconnectedError,
    GroupAuthorizationError,
    KafkaError,
    MalformedMessageError,
    UnsupportedVersionError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.find_coordinator import Coordinator, FindCoordinatorResponse
from kadence.protocol.registry import decode_request, encode_request
from kadence.types import Node

NOW = START


class Bench(Hand):
    def __init__(self) -> None:
        self.background_events = BackgroundEvents()
        self.manager = CoordinatorRequestManager("g", ConsumerConfig(group_id="g"), self.background_events)
        super().__init__(Managers(self.manager))

    def look_up(self, now: int = NOW) -> Request:
        """The question that a manager in need makes it ask."""
        self.now = now
        self.manager.require(now)
        return self.only()

    def found(self, request: Request, code: int = 0, *, now: int = NOW, version: int = 6) -> None:
        one: dict[str, Any] = {"node_id": 3, "host": "b3", "port": 9092, "error_code": code}
        response = (
            FindCoordinatorResponse(coordinators=[Coordinator(key="g", **one)])
            if version >= 4
            else FindCoordinatorResponse(**one)
        )
        self.now = now
        self.answer(request, response, version=version)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nothing_is_asked_before_somebody_needs_it(bench: Bench) -> None:
    assert bench.manager.poll(NOW).requests == []


def test_require_wakes_once_and_asks_any_node(bench: Bench) -> None:
    assert bench.manager.require(NOW) == NOW
    assert bench.manager.require(NOW) == FOREVER
    (request,) = bench.manager.poll(NOW).requests
    assert request.node_id == ANY_NODE
    assert bench.manager.poll(NOW).requests == [], "one look-up at a time"


@pytest.mark.parametrize("version", range(7))
def test_both_forms_are_sent_and_read(bench: Bench, version: int) -> None:
    request = bench.look_up()
    _, read = decode_request(encode_request(request.message, version, 1, "c"))
    assert (read.key, read.coordinator_keys) == (("g", []) if version < 4 else ("", ["g"]))
    found: list[Node] = []
    bench.manager.on_found = found.append
    bench.found(request, version=version)
    assert bench.manager.node_id == 3
    assert found == [Node(3, "b3", 9092)]
    assert bench.manager.require(NOW) == FOREVER


@pytest.mark.parametrize("code", [ec.COORDINATOR_NOT_AVAILABLE, ec.COORDINATOR_LOAD_IN_PROGRESS])
def test_retriable_refusal_backs_off(bench: Bench, code: int) -> None:
    bench.found(bench.look_up(), code)
    wake_at = bench.manager.poll(NOW).wake_at
    assert NOW + 80 <= wake_at <= NOW + 120
    assert len(bench.manager.poll(wake_at).requests) == 1
    assert bench.background_events == []


def levels_and_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (each.levelname, each.getMessage()) for each in caplog.records if "coordinator: " in each.getMessage()
    ]


def test_a_group_without_a_coordinator_is_logged_once_and_as_a_warning_when_it_lasts(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """As where __consumer_offsets cannot be created, which no broker names as the reason."""
    caplog.set_level("INFO", "kadence.consumer")
    for now in range(NOW, NOW + 60_000, 2_000):
        bench.manager.require(now)
        bench.found(bench.look_up(now), ec.COORDINATOR_NOT_AVAILABLE, now=now)
    why = "COORDINATOR_NOT_AVAILABLE (15): group 'g': there is no coordinator yet, or its topic is being created"
    first, second = levels_and_lines(caplog)
    assert first == ("INFO", f"group g waits for its coordinator: {why}")
    assert second[0] == "WARNING"
    assert second[1].startswith(f"group g has waited 10 s for its coordinator: {why}")
    assert "offsets.topic.replication.factor" in second[1]
    bench.found(bench.look_up(NOW + 60_000), now=NOW + 60_000)
    bench.manager.mark_unknown(NOW + 60_000, "gone")
    bench.found(bench.look_up(NOW + 61_000), ec.COORDINATOR_NOT_AVAILABLE, now=NOW + 61_000)
    assert [level for level, _ in levels_and_lines(caplog)] == ["INFO", "WARNING", "INFO"], "found in between"


def test_a_coordinator_that_loads_its_state_is_logged(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "kadence.consumer")
    bench.found(bench.look_up())
    for now in range(NOW, NOW + 30_000, 3_000):
        bench.manager.check(now, 3, ec.COORDINATOR_LOAD_IN_PROGRESS)
    why = "broker 3 is loading the group's state (COORDINATOR_LOAD_IN_PROGRESS)"
    assert levels_and_lines(caplog) == [
        ("INFO", f"group g waits for its coordinator: {why}"),
        ("WARNING", f"group g has waited 12 s for its coordinator: {why}"),
    ]
    assert bench.manager.node_id == 3
    bench.manager.check(NOW + 30_000, 3, ec.NONE)
    bench.manager.check(NOW + 31_000, 3, ec.COORDINATOR_LOAD_IN_PROGRESS)
    assert [level for level, _ in levels_and_lines(caplog)][2:] == ["INFO"]


def test_lost_connection_backs_off(bench: Bench) -> None:
    bench.fail(bench.look_up(), DisconnectedError("gone"))
    assert bench.manager.poll(NOW).requests == []
    assert len(bench.manager.poll(NOW + 120).requests) == 1


def test_an_answer_that_cannot_be_read_backs_off(bench: Bench) -> None:
    """It cost the connection, and the next one may bring better bytes."""
    bench.fail(bench.look_up(), MalformedMessageError("junk"))
    assert bench.background_events == []
    assert len(bench.manager.poll(NOW + 120).requests) == 1


def test_two_lookups_are_a_backoff_apart_even_when_they_succeed(bench: Bench) -> None:
    bench.found(bench.look_up())
    bench.manager.mark_unknown(NOW, "cannot be reached")
    bench.manager.require(NOW)
    poll = bench.manager.poll(NOW)
    assert (poll.requests, poll.wake_at) == ([], NOW + 100)


@pytest.mark.parametrize(
    ("code", "kind"),
    [(ec.GROUP_AUTHORIZATION_FAILED, GroupAuthorizationError), (ec.INVALID_GROUP_ID, KafkaError)],
)
def test_b6_fatal_refusal_is_told_once_and_tried_again_when_asked(
    bench: Bench, code: int, kind: type[Exception]
) -> None:
    bench.found(bench.look_up(), code)
    (event,) = bench.background_events
    assert isinstance(event, m.Failed)
    assert isinstance(event.error, kind)
    assert bench.manager.poll(NOW + 60_000).requests == [], "nobody asked again"
    assert bench.manager.require(NOW + 60_000) == NOW + 60_000
    assert len(bench.manager.poll(NOW + 60_000).requests) == 1


@pytest.mark.parametrize("error", [AuthenticationError("no"), UnsupportedVersionError("old")])
def test_b6_fatal_transport_error(bench: Bench, error: KafkaError) -> None:
    bench.fail(bench.look_up(), error)
    assert [event.error for event in bench.background_events] == [error]


def test_listener_that_takes_the_error_keeps_it_from_the_background_events(bench: Bench) -> None:
    taken: list[KafkaError] = []

    def take(now: int, error: KafkaError) -> bool:
        del now
        taken.append(error)
        return True

    bench.manager.on_failed.append(take)
    bench.found(bench.look_up(), ec.GROUP_AUTHORIZATION_FAILED)
    assert len(taken) == 1
    assert bench.background_events == []


def test_answer_without_a_coordinator(bench: Bench) -> None:
    request = bench.look_up()
    bench.manager.on_response(NOW, Completed(request, FindCoordinatorResponse(), None, 6, NOW))
    assert isinstance(bench.background_events[0].error, MalformedMessageError)


def test_check_forgets_only_the_present_coordinator(bench: Bench) -> None:
    bench.found(bench.look_up())
    bench.manager.check(NOW, 99, ec.NOT_COORDINATOR)
    bench.manager.check(NOW, 3, ec.ILLEGAL_GENERATION)
    bench.manager.check(NOW, 3, MalformedMessageError("junk"))
    assert repr(bench.manager) == "<coordinator of g 3>"
    bench.manager.check(NOW, 3, DisconnectedError("gone"))
    assert repr(bench.manager) == "<coordinator of g unknown>"
