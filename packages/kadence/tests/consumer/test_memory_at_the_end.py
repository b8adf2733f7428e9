"""A closed consumer holds no fetched bytes, though cycles keep the consumer itself until they are collected."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from kadence import AsyncConsumer, Broker, Consumer, Producer
from kadence.client.network_thread import NetworkThread
from kadence.consumer.events import CommitCompleted
from kadence.errors import ClosedError
from kadence.net import arena

PARTITIONS = 6


class _Memory(bytearray):
    """Memory that can be watched."""


class Fetched:
    """The memory of all responses since it was made."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._made: list[weakref.ref[_Memory]] = []
        patch.setattr(arena, "fresh_memory", self._fresh)

    def _fresh(self, capacity: int) -> _Memory:
        made = _Memory(capacity)
        self._made.append(weakref.ref(made))
        return made

    @property
    def held(self) -> int:
        """Bytes that somebody holds."""
        return sum(len(memory) for each in self._made if (memory := each()) is not None)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fetched]:
    gc.disable()
    yield Fetched(monkeypatch)
    gc.enable()


@pytest.fixture
def servers() -> Iterator[str]:
    with Broker() as broker:
        broker.create_topic("t", PARTITIONS)
        with Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="zstd") as producer:
            for number in range(8 * PARTITIONS):
                producer.send("t", os.urandom(100_000), partition=number % PARTITIONS)
        yield broker.bootstrap_servers


def settings(servers: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": servers, "auto_offset_reset": "earliest", **more}


@pytest.mark.parametrize("group", [None, "g"])
def test_close_lets_go_of_all_that_was_fetched(servers: str, fetched: Fetched, group: str | None) -> None:
    with Consumer(settings(servers, group_id=group)) as consumer:
        if group is None:
            consumer.assign_topics("t")
        else:
            consumer.subscribe("t")
        # From each partition something is left.
        while len({record.partition for record in consumer.poll(PATIENCE, max_records=1)}) == 0:
            pass
        assert fetched.held > 0
    assert fetched.held == 0
    assert consumer._shared_state.held_bytes() == 0


def test_close_under_asyncio_does_so_too(servers: str, fetched: Fetched) -> None:
    async def read() -> AsyncConsumer:
        async with AsyncConsumer(settings(servers)) as consumer:
            await consumer.assign_topics("t")
            assert await consumer.poll(PATIENCE, max_records=1)
            assert fetched.held > 0
        return consumer

    consumer = asyncio.run(read())
    assert fetched.held == 0
    assert consumer._shared_state.held_bytes() == 0


def test_records_that_were_returned_keep_nothing_else(servers: str, fetched: Fetched) -> None:
    with Consumer(settings(servers)) as consumer:
        consumer.assign_topics("t")
        (record,) = consumer.poll(PATIENCE, max_records=1)
    assert fetched.held == 0
    assert len(record.value or b"") == 100_000


def test_what_comes_back_once_the_network_thread_has_ended_is_let_go_of(
    servers: str, fetched: Fetched
) -> None:
    """As when close() does not wait for it, or it ends with a bug."""
    consumer = Consumer(settings(servers))
    consumer.assign_topics("t")
    assert consumer.poll(PATIENCE, max_records=1)
    consumer._shared_state.begin_close(0)
    engine = consumer._core._engine
    assert isinstance(engine, NetworkThread)
    engine.join(PATIENCE)
    assert fetched.held > 0
    consumer.close()
    assert fetched.held == 0


@pytest.mark.parametrize("where", ["deserialiser", "callback"])
def test_a_thread_that_close_did_not_wait_for_lets_go_when_it_comes_back(
    servers: str, fetched: Fetched, where: str
) -> None:
    entered, may = threading.Event(), threading.Event()

    def hangs(*given: Any) -> Any:
        entered.set()
        assert may.wait(PATIENCE)
        return given[0]

    more: dict[str, Any] = {"value_deserializer": hangs} if where == "deserialiser" else {}
    consumer = Consumer(settings(servers, group_id="g"), **more)
    consumer.assign_topics("t")
    if where == "callback":
        assert consumer.poll(PATIENCE, max_records=1)
        consumer.commit_async(callback=hangs)
        until(lambda: any(isinstance(e, CommitCompleted) for e in consumer._shared_state.background_events))
    raised: list[type[Exception]] = []

    def polls() -> None:
        try:
            consumer.poll(PATIENCE, max_records=1)
        except ClosedError as error:
            raised.append(type(error))

    thread = threading.Thread(target=polls)
    thread.start()
    assert entered.wait(PATIENCE)
    try:
        consumer.close(0.1)
        assert fetched.held > 0
    finally:
        may.set()
        thread.join(PATIENCE)
    assert raised == [ClosedError]
    assert fetched.held == 0
