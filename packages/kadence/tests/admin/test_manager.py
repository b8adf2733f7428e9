"""The admin client's request manager: the time is set, and answers are given by hand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kadence.admin.manager import AdminManager, OpenRequests
from kadence.clock import FOREVER
from kadence.config import AdminConfig
from kadence.connection.request import ANY_NODE, Completed, ConnectionPurpose, Request
from kadence.errors import KafkaError, MalformedMessageError, RequestTimedOutError
from kadence.protocol import error_codes as ec
from kadence.protocol.list_groups import ListGroupsRequest, ListGroupsResponse
from kadence.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kadence.types import Node


class _Connections:
    """What the manager tells the network client."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.bootstraps = 0
        self.disconnected: list[tuple[int, ConnectionPurpose, str]] = []

    def set_nodes(self, nodes: Iterable[Node], cluster_id: str | None = None) -> None:
        self.nodes = list(nodes)

    def rebootstrap(self) -> None:
        self.bootstraps += 1

    def disconnect(self, node_id: int, purpose: ConnectionPurpose, *, why: str) -> None:
        self.disconnected.append((node_id, purpose, why))


class _World:
    def __init__(self, **settings: Any) -> None:
        self.connections = _Connections()
        config = AdminConfig.parse(None, bootstrap_servers="b:1", **settings)
        self.manager = AdminManager(config, self.connections)
        self.notified: list[OpenRequests] = []

    def ask(self, *messages: Any) -> OpenRequests:
        requests = [Request(message, ANY_NODE, 1_000) for message in messages]
        asked = OpenRequests(requests, lambda: self.notified.append(asked))
        self.manager.hand_over(asked)
        return asked

    def answer(self, now: int, request: Request, response: Any, error: KafkaError | None = None) -> None:
        self.manager.on_response(now, Completed(request, response, error, 0, now))


def test_a_call_goes_on_once_all_that_it_asked_has_ended() -> None:
    world = _World()
    asked = world.ask(ListGroupsRequest(), ListGroupsRequest())
    other = world.ask(ListGroupsRequest())
    had_some, poll = world.manager.has_handed_over, world.manager.poll(0)
    assert (poll.requests, poll.wake_at) == ([*asked.requests, *other.requests], FOREVER)
    assert (had_some, world.manager.has_handed_over) == (True, False)
    first, second = asked.requests
    world.answer(1, first, ListGroupsResponse())
    assert world.manager.poll(1).requests == []
    assert (asked.is_done, world.notified) == (False, [])
    world.answer(2, second, None, RequestTimedOutError("late"))
    world.manager.poll(2)
    world.manager.poll(3)
    assert (asked.is_done, world.notified) == (True, [asked])
    assert {request: ended.error is None for request, ended in asked.ended.items()} == {
        first: True,
        second: False,
    }


def test_what_a_call_has_taken_back_is_not_sent_and_an_answer_that_comes_late_does_no_harm() -> None:
    world = _World()
    sent = world.ask(ListGroupsRequest())
    world.manager.poll(0)
    never = world.ask(ListGroupsRequest())
    sent.is_given_up = never.is_given_up = True
    assert world.manager.poll(1).requests == []
    world.answer(2, sent.requests[0], ListGroupsResponse())
    assert world.manager.poll(2).requests == []


def test_what_metadata_says_of_the_brokers_holds_before_the_call_goes_on() -> None:
    world = _World()
    asked = world.ask(MetadataRequest(topics=[]))
    world.manager.poll(0)
    brokers = [MetadataResponseBroker(node_id=7, host="h", port=9, rack="r")]
    world.answer(1, asked.requests[0], MetadataResponse(brokers=brokers))
    assert (world.connections.nodes, world.notified) == ([Node(7, "h", 9, "r")], [])
    refused = world.ask(MetadataRequest(topics=[]))
    world.manager.poll(2)
    world.answer(3, refused.requests[0], MetadataResponse(error_code=ec.CLUSTER_AUTHORIZATION_FAILED))
    assert world.connections.nodes == [Node(7, "h", 9, "r")], "an error names no brokers"


def test_an_answer_that_a_call_hands_in_is_taken_as_any_other_and_ends_the_connection_if_it_is_none() -> None:
    world = _World()
    brokers = [MetadataResponseBroker(node_id=7, host="h", port=9)]
    good = OpenRequests([Request(MetadataRequest(), ANY_NODE, 1_000)], lambda: world.notified.append(good))
    (request,) = good.requests
    world.manager.hand_in(7, Completed(request, MetadataResponse(brokers=brokers), None, 12, 1))
    had_some = world.manager.has_handed_over
    world.manager.poll(1)
    assert (had_some, world.manager.has_handed_over) == (True, False)
    assert (world.connections.nodes, world.notified) == ([Node(7, "h", 9)], [good])
    assert world.connections.disconnected == []
    bad = OpenRequests([Request(ListGroupsRequest(), 7, 1_000)], lambda: world.notified.append(bad))
    (request,) = bad.requests
    error = MalformedMessageError("no such answer")
    world.manager.hand_in(7, Completed(request, None, error, 5, 2))
    world.manager.poll(2)
    assert world.notified == [good, bad]
    assert bad.ended[request].error is error
    assert world.connections.disconnected == [(7, ConnectionPurpose.MAIN, "no such answer")]


def test_the_brokers_are_the_same_object_as_long_as_they_are_the_same_and_none_after_a_rebootstrap() -> None:
    world = _World()
    known = []
    for now, port in ((0, 9), (1, 9), (2, 10)):
        asked = world.ask(MetadataRequest(topics=[]))
        world.manager.poll(now)
        brokers = [MetadataResponseBroker(node_id=7, host="h", port=port)]
        world.answer(now, asked.requests[0], MetadataResponse(brokers=brokers, cluster_id="c"))
        known.append(world.manager.known)
    assert known[0] is known[1]
    assert known[1:] == [({7: Node(7, "h", 9)}, "c"), ({7: Node(7, "h", 10)}, "c")]
    was_settled = world.manager.is_settled
    world.manager.brokers_are_wrong()
    assert (was_settled, world.manager.is_settled) == (True, False)
    world.manager.poll(3)
    assert world.manager.known is None


@pytest.mark.parametrize(("strategy", "times"), [("rebootstrap", 1), ("none", 0)])
def test_kip1102_bootstrap_servers_are_asked_again_when_a_broker_says_so(strategy: str, times: int) -> None:
    world = _World(metadata_recovery_strategy=strategy)
    asked = world.ask(MetadataRequest(topics=[]))
    world.manager.poll(0)
    world.answer(1, asked.requests[0], MetadataResponse(error_code=ec.REBOOTSTRAP_REQUIRED))
    world.manager.poll(1)
    world.manager.poll(2)
    assert world.connections.bootstraps == times


def test_kip1102_bootstrap_servers_are_asked_again_when_metadata_fails_for_long() -> None:
    world = _World(metadata_recovery_rebootstrap_trigger_ms=100)

    def fail(now: int) -> None:
        asked = world.ask(MetadataRequest(topics=[]))
        (request,) = world.manager.poll(now).requests
        request.queued_at = now
        world.answer(now, asked.requests[0], None, RequestTimedOutError("silent"))

    fail(1_000)
    assert world.manager.poll(1_050).wake_at == 1_100
    fail(1_060)
    assert world.connections.bootstraps == 0
    assert world.manager.poll(1_100).wake_at == FOREVER
    assert world.connections.bootstraps == 1
    fail(1_200)
    asked = world.ask(MetadataRequest(topics=[]))
    world.manager.poll(1_250)
    brokers = [MetadataResponseBroker(node_id=7, host="h", port=9)]
    world.answer(1_260, asked.requests[0], MetadataResponse(brokers=brokers))
    assert world.manager.poll(1_260).wake_at == FOREVER, "a broker has answered"


def test_a_broker_that_knows_of_no_broker_yet_is_not_believed() -> None:
    world = _World()
    brokers = [MetadataResponseBroker(node_id=7, host="h", port=9)]
    for now, known in ((0, brokers), (10, [])):
        asked = world.ask(MetadataRequest(topics=[]))
        world.manager.poll(now)
        world.answer(now, asked.requests[0], MetadataResponse(brokers=known))
    assert world.connections.nodes == [Node(7, "h", 9)]
