"""Two threads take what arrived, and a collection lets one in while the other is at it: nothing twice, all in order."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.collecting import at_collection
from tests.net.test_following import BODY, CORRELATION, TABLE, VERSION, Follow, Leave, framed

from kadence.connection.sent import again
from kadence.net import drain
from kadence.protocol import registry
from kadence.protocol.fetch import FetchRequest

pytestmark = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)

CONNECTIONS = 3


class Named(Follow):
    """Takes what comes, twice as many parts as it has partitions: (which connection, first or second).

    Attributes:
        fits: how many answers fit to what was asked for.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.fits = 1 << 60
        self.parts: list[Any] = []

    def read(self, parts: list[Any]) -> Any:
        self.parts = parts
        if self.asked is None or self.asked == self.fits:
            return None, None
        return [(self.number, 0), (self.number, 1)], self.asked + 1


class Connections:
    """A poller with several connections, each with one answer that it is to pass on, and which all come at once."""

    def __init__(self) -> None:
        self._wake = drain.drain.Wake()
        self.poller = drain.drain.Poller(self._wake)
        self.arrivals = self.poller.pass_on()
        self.intakes: list[Any] = []
        self.follows: list[Named] = []
        self._ends: list[socket.socket] = []
        for number in range(CONNECTIONS):
            ours, theirs = socket.socketpair()
            self._ends += (ours, theirs)
            ours.setblocking(False)
            intake = drain.drain.Intake(drain.drain.Session(ours.fileno(), 0), lambda into: None)
            follow = Named(number)
            message = FetchRequest(session_id=7, session_epoch=5)
            frame = registry.encode_request(message, VERSION, CORRELATION, "me")
            known = again(memoryview(len(frame).to_bytes(4) + frame), message, VERSION, CORRELATION, "me")
            intake.send_again(Leave(follow), *known, 0, 0, 1 << 60)
            intake.follow(self.arrivals, TABLE)
            self.poller.watch(ours.fileno(), 1, number, intake)
            self.intakes.append(intake)
            self.follows.append(follow)
        self.answer(*range(CONNECTIONS))

    def answer(self, *numbers: int, before: int = 0) -> None:
        """The broker's next answer on each of these connections, the one after so many."""
        for number in numbers:
            self._ends[2 * number + 1].sendall(framed((CORRELATION + before).to_bytes(4) + BODY[4:]))

    def told(self) -> list[list[Any]]:
        """Of which answers of each connection the network thread is told."""
        return [intake.sent_again(1 << 60)[4] for intake in self.intakes]

    def close(self) -> None:
        for end in self._ends[::2]:
            self.poller.unwatch(end.fileno())
        self.poller.close()
        self._wake.close()
        for end in self._ends:
            end.close()


EXPECTED = [(number, half) for number in range(CONNECTIONS) for half in (0, 1)]


def through_all(run: Callable[[int], bool]) -> None:
    """With the other thread at each collection, until there is none."""
    number = 0
    while run(number):
        number += 1
    assert number > 0


def check(connections: Connections, taken: deque[Any]) -> None:
    connections.arrivals.take(taken)
    assert list(taken) == EXPECTED
    assert [follow.asked for follow in connections.follows] == [1] * CONNECTIONS
    assert all(len(follow.parts) == 3 for follow in connections.follows)
    assert not connections.arrivals.has_some()
    connections.close()


def test_the_application_takes_while_the_network_thread_makes_objects_of_what_came() -> None:
    def run(number: int) -> bool:
        connections, taken = Connections(), deque[Any]()
        with at_collection(number, lambda: connections.arrivals.take(taken)) as done:
            connections.poller.wait(0)
        assert [len(arrivals) for arrivals in connections.told()] == [1] * CONNECTIONS
        check(connections, taken)
        return bool(done)

    through_all(run)


def test_the_network_thread_takes_while_the_application_does() -> None:
    def run(number: int) -> bool:
        connections, taken = Connections(), deque[Any]()
        connections.poller.wait(0)
        with at_collection(number, lambda: connections.arrivals.take(taken)) as done:
            connections.arrivals.take(taken)
        check(connections, taken)
        return bool(done)

    through_all(run)


def test_what_does_not_fit_is_dropped_with_what_came_after_it_and_nothing_else() -> None:
    connections, taken = Connections(), deque[Any]()
    connections.follows[1].fits = 3
    connections.poller.wait(0)
    connections.answer(1, before=1)
    connections.poller.wait(0)
    # Counted. The next ones are numbered from 1 again.
    assert [arrival.number for arrival in connections.told()[1]] == [1, 2]
    for before in (2, 3, 4):
        connections.answer(1, before=before)
        connections.poller.wait(0)
    connections.answer(2, before=1)
    connections.poller.wait(0)
    connections.arrivals.take(taken)
    assert [number for number, half in taken if half == 0] == [0, 1, 2, 1, 1, 2]
    told = connections.told()
    assert [arrival.fetches for arrival in told[1]] == [[(1, 0), (1, 1)], None, None]
    assert [arrival.fetches for arrival in told[2]] == [[(2, 0), (2, 1)]]
    assert not connections.arrivals.has_some()
    connections.close()


def test_what_came_after_a_misfit_is_dropped_whenever_it_comes() -> None:
    connections, taken = Connections(), deque[Any]()
    connections.follows[1].fits = 1
    connections.poller.wait(0)
    for before in (1, 2):
        connections.answer(0, 1, before=before)
        connections.poller.wait(0)
        connections.arrivals.take(taken)
    assert [number for number, half in taken if half == 0] == [0, 1, 2, 0, 0]
    assert [arrival.fetches is None for arrival in connections.told()[1]] == [False, True, True]
    connections.close()


def test_what_does_not_fit_is_dropped_once_though_two_threads_find_it() -> None:
    def run(number: int) -> bool:
        connections, taken = Connections(), deque[Any]()
        connections.follows[1].fits = 0
        connections.poller.wait(0)
        with at_collection(number, lambda: connections.arrivals.take(taken)) as done:
            connections.arrivals.take(taken)
        assert list(taken) == [each for each in EXPECTED if each[0] != 1]
        assert [[each.fetches is None for each in told] for told in connections.told()] == [
            [False],
            [True],
            [False],
        ]
        connections.close()
        return bool(done)

    through_all(run)


def test_a_frame_without_pieces_is_none() -> None:
    session = drain.drain.Session(-1, 0)
    for _ in range(3):
        assert session.take([]) == 0
    assert not session.has_unwritten()
