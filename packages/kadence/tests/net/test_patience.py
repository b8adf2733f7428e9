"""Waiting and giving up, under virtual time: no socket is needed to see a deadline pass."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence.clock import FOREVER
from kadence.connection.request import ANY_NODE, Backoff, ConnectionPurpose, Request
from kadence.errors import ConnectError, RequestTimedOutError
from kadence.net import ConnectionConfig, NetworkClient
from kadence.net.nodes import FIRST_BOOTSTRAP, KnownNode
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.types import Node
from kadence_testing.clock import FakeClock

HEARTBEAT = HeartbeatRequest(group_id="g", member_id="m")


class Patient:
    """A client whose only broker has a name that is never looked up to the end."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.hangs = threading.Event()
        config = ConnectionConfig(bootstrap=(("kafka.example", 9092),), connect_timeout_ms=10_000)
        self.client = NetworkClient(config, self.clock, lookup=self._lookup, rng=random.Random(7))

    def _lookup(self, *_: Any, **__: Any) -> list[Any]:
        self.hangs.wait(PATIENCE)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


@pytest.fixture
def patient() -> Iterator[Patient]:
    made = Patient()
    yield made
    made.hangs.set()
    made.client.close()


def test_a_request_for_any_node_is_late_at_its_deadline(patient: Patient) -> None:
    now = patient.clock.now_ms()
    request = Request(HEARTBEAT, ANY_NODE, now + 5_000)
    patient.client.send(request)
    assert patient.client.poll(0) == []
    assert patient.client.next_deadline(now) == now + 5_000
    assert patient.client.in_flight() == 1
    patient.clock.advance(4_999)
    assert patient.client.poll(0) == []
    patient.clock.advance(1)
    [ended] = patient.client.poll(0)
    assert ended.request is request
    assert isinstance(ended.error, RequestTimedOutError)
    assert "name look-up" in str(ended.error)
    assert patient.client.in_flight() == 0


def test_a_wake_up_that_came_while_the_thread_was_kept_from_running_ends_its_poll(
    patient: Patient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is seen by the look before the wait; the wait for ever after it would hang whoever woke the thread."""
    client, waits = patient.client, []
    poller = client._poller

    class Watched:
        def wait(self, wait_ms: int | None) -> object:
            waits.append(wait_ms)
            return poller.wait(wait_ms)

    client.poll(0)
    monkeypatch.setattr(client, "_poller", Watched())
    patient.clock.advance(10_000)
    client.wakeup()
    assert client.poll(int(PATIENCE * 1_000)) == []
    assert waits == [0, 0]


def test_a_look_up_that_takes_too_long_fails_the_attempt_and_later_ones_wait_longer(patient: Patient) -> None:
    client, clock = patient.client, patient.clock
    client.set_nodes([Node(1, "kafka.example", 9092)])
    waits = []
    for _ in range(8):
        request = Request(HEARTBEAT, 1, FOREVER)
        client.send(request)
        assert client.poll(0) == []
        assert client.next_deadline(clock.now_ms()) == clock.now_ms() + 10_000
        clock.advance(10_000)
        [ended] = client.poll(0)
        assert isinstance(ended.error, ConnectError)
        assert "kafka.example:9092): name look-up: no answer in time" in str(ended.error)
        start = clock.now_ms()
        while not client.can_send(1, ConnectionPurpose.MAIN, clock.now_ms()):
            clock.advance(1)
        waits.append(clock.now_ms() - start)
    for expected, waited in zip([50, 100, 200, 400, 800, 1000, 1000, 1000], waits, strict=True):
        assert 0.8 * expected <= waited <= 1.2 * expected
    assert len(set(waits)) > 4, "without jitter all clients come back at once"


def test_requests_to_a_node_in_its_backoff_wait_for_it(patient: Patient) -> None:
    client, clock = patient.client, patient.clock
    client.set_nodes([Node(1, "kafka.example", 9092)])
    client.send(Request(HEARTBEAT, 1, FOREVER))
    client.poll(0)
    clock.advance(10_000)
    client.poll(0)
    now = clock.now_ms()
    client.send(Request(HEARTBEAT, 1, FOREVER, ConnectionPurpose.FETCH))
    assert client.poll(0) == []
    retry_at = client.next_deadline(now)
    assert now + 40 <= retry_at <= now + 60
    assert client.in_flight(1, ConnectionPurpose.FETCH) == 1


def test_all_lanes_of_a_dead_broker_fail_as_one() -> None:
    known = KnownNode(Node(1, "kafka", 9092), Backoff(50, 1000, random.Random(7)))
    for _ in range(4):
        known.failed(1_000, "connection refused")
    assert known.failures == 1
    assert known.waits(1_000)
    known.failed(known.retry_at, "connection refused")
    assert known.failures == 2
    known.succeeded({18: (0, 4)})
    assert (known.failures, known.trouble, known.ranges) == (0, None, {18: (0, 4)})
    assert not known.waits(1_000)


def test_how_nodes_are_named() -> None:
    backoff = Backoff(50, 1000)
    assert str(KnownNode(Node(1, "kafka", 9092), backoff)) == "broker 1 (kafka:9092)"
    assert str(KnownNode(Node(FIRST_BOOTSTRAP, "::1", 9092), backoff)) == "bootstrap [::1]:9092"
    # A broker says under which host another one is reached, and errors name it.
    assert str(KnownNode(Node(1, "a\nb\x1b", 9092), backoff)) == r"broker 1 (a\x0ab\x1b:9092)"
