"""A request with an offset that a thread of the application writes while the poller waits."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from kadence.net import drain
from kadence.net.sockets import new_poller

pytestmark = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)

FIRST_ID = 7
AT = 16
FRAME = (24).to_bytes(4) + bytes(24)


class Way:
    """Lets requests be written in each wait."""

    is_watched = False

    def may(self) -> int:
        return FIRST_ID


def answer(correlation_id: int, code: int = 0) -> bytes:
    return (6).to_bytes(4) + correlation_id.to_bytes(4) + code.to_bytes(2)


class World:
    """A poller that waits on a thread of its own, and the other end of its connection."""

    def __init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self.ours = ours
        ours.setblocking(False)
        self.peer.settimeout(PATIENCE)
        self.poller: Any = new_poller()[0]
        session = drain.drain.Session(ours.fileno(), 0)
        self.intake: Any = drain.drain.Intake(session, lambda into: None)
        self.intake.leave_direct(Way())
        self.poller.watch(ours.fileno(), 1, self, self.intake)
        self.flag: Any = drain.drain.new_arrivals().flag()
        self.found: list[Any] = []
        self.thread = threading.Thread(target=lambda: self.found.extend(self.poller.wait(None)))

    def wait(self) -> int:
        """Have the poller wait. Returns the number of that wait."""
        self.thread.start()
        until(lambda: self.intake.turn() > 0, every=0.001)
        turn: int = self.intake.turn()
        return turn

    def form(self) -> Any:
        return self.intake.offset_form(FRAME, AT, answer(0), self.flag)

    def close(self) -> None:
        self.peer.close()
        if self.thread.is_alive():
            self.thread.join(PATIENCE)
        self.intake.leave_direct(None)
        self.poller.close()
        self.ours.close()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def requested(world: World) -> bytes:
    return world.peer.recv(len(FRAME), socket.MSG_WAITALL)


def test_each_request_has_its_own_offset_and_epoch(world: World) -> None:
    turn, form = world.wait(), world.form()
    for number, (offset, epoch) in enumerate([(5, 3), (2**63 - 1, None), (0, 0), (1 << 40, 2**31 - 1)]):
        world.flag.enter()
        asked = form.ask(turn, offset, epoch, "request")
        sent = requested(world)
        epoch_bytes = (-1 if epoch is None else epoch).to_bytes(4, signed=True)
        assert sent[8:12] == (FIRST_ID + number).to_bytes(4)
        assert sent[AT:] == offset.to_bytes(8) + epoch_bytes
        assert sent[:8] + sent[12:AT] == FRAME[:8] + FRAME[12:AT]
        assert asked.is_waiting
        world.peer.sendall(answer(FIRST_ID + number))
        world.flag.wait(PATIENCE)
        assert asked.is_answered
        assert world.intake.turn() == turn, "the poller has not come back"


def test_another_answer_is_for_the_network_thread(world: World) -> None:
    turn, form = world.wait(), world.form()
    asked = form.ask(turn, 5, 3, "request")
    requested(world)
    world.peer.sendall(answer(FIRST_ID, code=1))
    world.thread.join(PATIENCE)
    assert not asked.is_answered
    assert not asked.is_waiting
    assert world.intake.asked()[4:6] == ("request", FIRST_ID)


def test_nothing_is_written_in_another_wait_or_beside_another_request(world: World) -> None:
    form = world.form()
    assert form.ask(1, 5, 3, "too early") is None
    turn = world.wait()
    assert form.ask(turn + 1, 5, 3, "of another wait") is None
    assert form.ask(turn, 5, 3, "the first") is not None
    assert form.ask(turn, 6, 3, "beside it") is None
    assert requested(world)[AT + 7] == 5


def test_an_event_loop_that_python_wakes_sends_nothing_itself(world: World) -> None:
    turn, form = world.wait(), world.form()
    world.flag.on_set = lambda: None
    assert form.ask(turn, 5, 3, "request") is None


@pytest.mark.parametrize(("frame", "at"), [(bytes(24), 11), (bytes(24), 13), (bytes(24), 2**63), (b"", 0)])
def test_a_frame_without_room_for_an_offset_is_refused(world: World, frame: bytes, at: int) -> None:
    with pytest.raises(ValueError, match="no frame with an offset"):
        world.intake.offset_form(frame, at, answer(0), world.flag)
