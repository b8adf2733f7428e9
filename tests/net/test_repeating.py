"""A fetch whose answers bring nothing goes out again without Python, and all numbers are right afterwards."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from tests.net.conftest import Certificates, Connect, Driver
from tests.net.servers import Peer, accept, serve
from tests.net.test_client import fetch_response

from kadence.connection.request import ConnectionPurpose, Repeat, Request
from kadence.errors import DisconnectedError
from kadence.net import drain
from kadence.protocol.fetch import FetchRequest, FetchResponse
from kadence.types import Node

pytestmark = pytest.mark.skipif(not drain.COMPILED, reason="Python alone sends each fetch itself")

EMPTY = FetchResponse(session_id=7)


class Fetching:
    """One fetch that may be repeated while ``may``, and what is told of it."""

    def __init__(self, driver: Driver, node: Node, *, max_wait_ms: int = 0) -> None:
        driver.client.set_nodes([node])
        self.driver = driver
        self.may = True
        self.told: list[int] = []
        message = FetchRequest(session_id=7, session_epoch=5, max_wait_ms=max_wait_ms)
        self.request = Request(message, node.node_id, driver.clock.now_ms() + 20_000, ConnectionPurpose.FETCH)
        self.request.repeat = Repeat(lambda: self.may, lambda count, sent_at: self.told.append(count))
        driver.client.send(self.request)

    @property
    def count(self) -> int:
        return sum(self.told)


class Broker:
    """Answers fetches in turn, and remembers their numbers: (correlation id, session epoch)."""

    def __init__(self, *answers: Any, certificates: Certificates | None = None) -> None:
        self.answers = answers
        self.seen: list[tuple[int, int]] = []
        self.context = None if certificates is None else certificates.server_context()

    def __call__(self, listener: socket.socket) -> None:
        with accept(listener, self.context) as peer:
            peer.greet()
            for answer in self.answers:
                self.answer(peer, answer)
            peer.read()

    def answer(self, peer: Peer, answer: Any) -> None:
        header, message = peer.read()
        self.seen.append((header.correlation_id, message.session_epoch))
        peer.answer(header, answer)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_c10_empty_answers_are_answered_by_the_next_fetch_until_something_comes(
    connect: Connect, certificates: Certificates, secure: bool
) -> None:
    if secure and not drain.TLS:
        pytest.skip("this OpenSSL is not reached by the compiled half")
    records = fetch_response(100)
    records.session_id = 7
    broker = Broker(EMPTY, EMPTY, EMPTY, records, records, certificates=certificates if secure else None)
    with serve(broker) as (host, port):
        settings = {"ssl_context": certificates.client_context()} if secure else {}
        driver = connect((host, port), **settings)
        fetching = Fetching(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert ended.request is fetching.request
        assert len(ended.response.responses) == 1
        assert ended.loan is not None
        ended.loan.release()
        assert fetching.count == 3
        first = broker.seen[0][0]
        assert broker.seen == [(first + number, 5 + number) for number in range(4)]
        # The connection goes on with the next number.
        driver.ask(FetchRequest(), node_id=1, purpose=ConnectionPurpose.FETCH)
        assert broker.seen[4][0] == first + 4
        node = driver.client._meters.node(1)
        assert node.latency.count == 5
        assert node.requests.count == node.incoming.count - 1 == 5


def test_without_leave_the_answer_comes_to_the_sender(connect: Connect) -> None:
    broker = Broker(EMPTY)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        fetching.may = False
        [ended] = driver.complete()
        assert ended.response.responses == []
        assert fetching.told == []


def test_a_broker_that_does_not_wait_is_not_asked_again_without_python(connect: Connect) -> None:
    broker = Broker(EMPTY)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port), max_wait_ms=60_000)
        [ended] = driver.complete()
        assert ended.response.responses == []
        assert fetching.told == []


@pytest.mark.parametrize(
    "answer",
    [
        FetchResponse(session_id=8),
        FetchResponse(session_id=7, error_code=70),
        FetchResponse(session_id=7, throttle_time_ms=1),
    ],
    ids=["another session", "an error", "throttled"],
)
def test_whatever_is_not_exactly_the_empty_answer_comes_to_the_sender(
    connect: Connect, answer: FetchResponse
) -> None:
    broker = Broker(EMPTY, answer)
    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert ended.response.throttle_time_ms == answer.throttle_time_ms
        assert ended.response.error_code == answer.error_code
        assert fetching.count == 1


def test_a_connection_that_ends_after_repeats_fails_the_fetch(connect: Connect) -> None:
    def broker(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            for _ in range(2):
                header, _ = peer.read()
                peer.answer(header, EMPTY)
            peer.read()

    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        [ended] = driver.complete()
        assert isinstance(ended.error, DisconnectedError)
        assert fetching.count == 2


def test_a_wake_up_finds_the_numbers_of_what_was_repeated(connect: Connect) -> None:
    """Whoever acts on the fetch after a wake-up must know first how often it went out."""
    repeated, go_on = threading.Event(), threading.Event()

    def broker(listener: socket.socket) -> None:
        with accept(listener) as peer:
            peer.greet()
            for _ in range(2):
                header, _ = peer.read()
                peer.answer(header, EMPTY)
            header, _ = peer.read()
            repeated.set()
            assert go_on.wait(20)
            peer.answer(header, EMPTY)
            peer.read()

    def wake() -> None:
        assert repeated.wait(20)
        driver.client.wakeup()

    with serve(broker) as (host, port):
        driver = connect((host, port))
        fetching = Fetching(driver, Node(1, host, port))
        waker = threading.Thread(target=wake)
        waker.start()
        driver.until(lambda: fetching.count == 2)
        waker.join()
        fetching.may = False
        go_on.set()
        [ended] = driver.complete()
        assert ended.response.responses == []
        assert fetching.count == 2
