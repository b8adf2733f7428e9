"""How a listener takes in who connects."""

from __future__ import annotations

import contextlib
import socket

from kadence.clock import FOREVER, SystemClock
from kadence_broker.server.listener import Listener, listen
from kadence_broker.server.loop import Loop
from kadence_testing.clock import FakeClock

WAITING = 150


def test_a_crowd_is_taken_in_few_turns_and_no_turn_takes_all_of_it() -> None:
    taken: list[socket.socket] = []
    after_each_turn: list[int] = []

    def before_wait(_now: int) -> int:
        after_each_turn.append(len(taken))
        if len(taken) == WAITING:
            loop.stop()
        return FOREVER

    # Its clock stands still: a loop that is late serves what came meanwhile before its timers, in one turn.
    loop = Loop(FakeClock(), before_wait)
    sock = listen("127.0.0.1", 0)
    with contextlib.ExitStack() as clients:
        for _ in range(WAITING):
            clients.enter_context(socket.create_connection(sock.getsockname()))
        listener = Listener(loop, sock, lambda accepted, _peer: taken.append(accepted))
        loop.run()
    listener.close()
    loop.close()
    for each in taken:
        each.close()
    in_one_turn = [
        after - before for before, after in zip([0, *after_each_turn], after_each_turn, strict=False)
    ]
    assert max(in_one_turn) == 64
    assert len(in_one_turn) < 10


def test_who_takes_a_connection_may_stop_the_listener() -> None:
    taken: list[socket.socket] = []
    loop = Loop(SystemClock(), lambda _now: FOREVER)
    sock = listen("127.0.0.1", 0)

    def take(accepted: socket.socket, _peer: str) -> None:
        taken.append(accepted)
        listener.freeze(frozen=True)
        loop.stop()

    with socket.create_connection(sock.getsockname()), socket.create_connection(sock.getsockname()):
        listener = Listener(loop, sock, take)
        loop.run()
    listener.close()
    loop.close()
    assert len(taken) == 1
    taken[0].close()
