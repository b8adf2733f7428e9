"""A producer that closes waits for nothing once all is done, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.producer import World
from tests.worlds.transacting import TransactionWorld

from kadence.client.network_thread import NetworkSide
from kadence.connection.request import Completed, Request
from kadence.errors import ClosedError, FatalNetworkError, KafkaTimeoutError, TransactionAbortedError
from kadence.producer.network_state import NetworkState
from kadence.producer.turn import Turn


class Client:
    """Connections on which nothing ever happens. A wait lasts as long as it may: it is the clock, too."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waits: list[int | None] = []
        self.sent: list[Request] = []
        self.was_woken = False
        self.direct_users: dict[object, object] = {}

    def poll(self, wait_ms: int | None) -> list[Completed]:
        self.waits.append(wait_ms)
        self.world.advance(wait_ms or 0)
        return []

    def now_ms(self) -> int:
        return self.world.now

    def send(self, request: Request) -> None:
        self.sent.append(request)

    def can_send(self, *_: object) -> bool:
        return True

    def trouble(self) -> None:
        return None

    def set_nodes(self, nodes: object) -> None: ...


def closes(world: World, *, within_ms: int = 40_000) -> Client:
    """Have a network side that runs in this world end, and run it to its end."""
    client: Any = Client(world)
    state = NetworkState(world.accumulator, lambda: None, "p-network")
    turn = Turn(world.config, client, client, state, world.accumulator, world.topics, world.transactions)
    state.begin_close(world.now + within_ms)
    for _ in range(100):
        if not turn.run_once():
            made: Client = client
            return made
    raise AssertionError(f"it does not end: {client.waits}")


def test_an_open_transaction_without_records_has_nothing_to_abort() -> None:
    world = TransactionWorld()
    world.begin()
    client = closes(world)
    assert (client.waits, client.sent) == ([], [])


def test_records_that_never_went_out_are_dropped_at_once() -> None:
    world = TransactionWorld(linger_ms=60_000)
    world.begin()
    future = world.append()
    assert closes(world).waits == []
    with pytest.raises(TransactionAbortedError):
        future.result()


def test_what_was_written_is_aborted_for_as_long_as_there_is_time() -> None:
    world = TransactionWorld()
    world.warm()
    client = closes(world)
    assert [type(request.message).__name__ for request in client.sent] == ["EndTxnRequest"]
    assert sum(wait or 0 for wait in client.waits) == 40_000


def test_no_time_is_left_to_wait_for_when_the_last_record_has_run_out_of_its_own() -> None:
    world = World(delivery_timeout_ms=5_000, request_timeout_ms=5_000)
    future = world.append()
    client = closes(world)
    assert sum(wait or 0 for wait in client.waits) == 5_000
    with pytest.raises(KafkaTimeoutError):
        future.result()


def test_what_ends_takes_nothing_any_more() -> None:
    """Whoever told it to end, and whatever else has called: the door is shut before the last look."""
    world = World()
    state = NetworkState(world.accumulator, lambda: None, "p-network")
    client: Any = Client(world)
    turn = Turn(world.config, client, client, state, world.accumulator, world.topics, world.transactions)
    turn.run_once()
    before = state.is_shut, world.accumulator.is_usable
    state.begin_close(world.now + 1_000)
    assert not turn.run_once()
    assert (before, (state.is_shut, world.accumulator.is_usable)) == ((False, True), (True, False))


@pytest.mark.parametrize("is_built", [True, False], ids=["built", "not even built"])
@pytest.mark.parametrize("is_bug", [True, False], ids=["bug", "end"])
def test_what_a_network_side_leaves_at_its_end_fails(
    is_built: bool, is_bug: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    future = world.append()
    state = NetworkState(world.accumulator, lambda: None, "p-network")
    client: Any = Client(world)

    def build() -> Turn:
        if not is_built:
            raise MemoryError
        return Turn(world.config, client, client, state, world.accumulator, world.topics)

    side = NetworkSide("producer", state, build, lambda: None)
    assert side.run_once() is is_built
    if is_built:
        side._end(ValueError("a bug") if is_bug else None)
    assert future.done()
    error = FatalNetworkError if is_bug or not is_built else ClosedError
    assert isinstance(future.exception(), error)
    assert "records lost: 1 in 1 batches" in caplog.text
    assert state.has_ended
