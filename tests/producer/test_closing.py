"""A producer that closes waits for nothing once all is done, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.producer import World
from tests.worlds.transacting import TransactionWorld

from kadence.connection.request import Completed, Request
from kadence.errors import KafkaTimeoutError, TransactionAbortedError
from kadence.producer.network_state import NetworkState
from kadence.producer.turn import Turn


class Client:
    """Connections on which nothing ever happens. A wait lasts as long as it may: it is the clock, too."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.waits: list[int | None] = []
        self.sent: list[Request] = []

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
