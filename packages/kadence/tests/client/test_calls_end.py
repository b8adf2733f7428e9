"""Every call that waits for brokers ends with the grace period of `stop`, where no broker ever was (H10).

Among threads and under asyncio; with `stop_on_signals` the same holds, for it calls `stop`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.patience import PATIENCE, until

from kadence import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    TopicPartition,
    read,
    stopping,
)
from kadence.client import grace
from kadence.client.engine import OPEN
from kadence.errors import ClosedError
from kadence.weak import all_of
from kadence.work.meters import Totals

NOWHERE = "127.0.0.1:1"
TP = TopicPartition("t", 0)

Client = Any


def assigned(call: Callable[[Client], Any]) -> Callable[[Client], Any]:
    call.needs_assignment = True  # type: ignore[attr-defined]
    return call


CONSUMER: dict[str, Callable[[Client], Any]] = {
    "partitions_for": lambda c: c.partitions_for("t"),
    "list_topics": lambda c: c.list_topics(),
    "committed": lambda c: c.committed([TP]),
    "commit": lambda c: c.commit({TP: 1}),
    "end_offsets": lambda c: c.end_offsets([TP]),
    "offsets_for_times": lambda c: c.offsets_for_times({TP: 0}),
    "assign_topics": lambda c: c.assign_topics("t"),
    "position": assigned(lambda c: c.position(TP)),
    "process": assigned(lambda c: c.process(print, dead_letter="d")),
}
PRODUCER: dict[str, Callable[[Client], Any]] = {
    "send": lambda p: p.send("t", b""),
    "partitions_for": lambda p: p.partitions_for("t"),
    "init_transactions": lambda p: p.init_transactions(),
}
ADMIN: dict[str, Callable[[Client], Any]] = {
    "list_topics": lambda a: a.list_topics(),
    "describe_cluster": lambda a: a.describe_cluster(),
}
CALLS = [
    *(pytest.param("Consumer", call, id=f"Consumer.{name}") for name, call in CONSUMER.items()),
    *(pytest.param("Producer", call, id=f"Producer.{name}") for name, call in PRODUCER.items()),
    *(pytest.param("Admin", call, id=f"Admin.{name}") for name, call in ADMIN.items()),
]

SETTINGS: dict[str, dict[str, Any]] = {
    "Consumer": {"group_id": "g", "default_api_timeout_ms": 600_000},
    "Producer": {"transactional_id": "x", "max_block_ms": 600_000},
    "Admin": {"default_api_timeout_ms": 600_000},
}


@pytest.fixture(autouse=True)
def _no_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grace, "RESERVE_MS", 0)
    monkeypatch.setattr(stopping, "RESERVE_MS", 0)


def waits(client: Client) -> bool:
    """Whether a call of a client of threads waits."""
    if isinstance(client, Consumer):
        return client._shared_state.signal.waiting
    if isinstance(client, Admin):
        return bool(client._shell.network.waiting)
    condition = client._gate._changed
    return bool(condition._waiters)


def made(kind: str, call: Callable[[Client], Any]) -> dict[str, Any]:
    settings = {"bootstrap_servers": NOWHERE, **SETTINGS[kind]}
    if call is PRODUCER["send"] or call is PRODUCER["partitions_for"]:
        del settings["transactional_id"]
    return settings


@pytest.mark.parametrize(("kind", "call"), CALLS)
def test_on_a_thread(kind: str, call: Callable[[Client], Any]) -> None:
    classes: dict[str, Any] = {"Consumer": Consumer, "Producer": Producer, "Admin": Admin}
    with classes[kind](**made(kind, call)) as client:
        if hasattr(call, "needs_assignment"):
            client.assign([TP])
        ended: list[object] = []

        def run() -> None:
            try:
                ended.append(call(client))
            except BaseException as error:  # noqa: BLE001 - it is looked at
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: waits(client))
        client.stop(grace=0)
        thread.join(PATIENCE)
        assert isinstance(ended[0], ClosedError | Totals)


@pytest.mark.parametrize(("kind", "call"), CALLS)
def test_under_asyncio(kind: str, call: Callable[[Client], Any]) -> None:
    classes: dict[str, Any] = {"Consumer": AsyncConsumer, "Producer": AsyncProducer, "Admin": AsyncAdmin}

    async def run() -> object:
        async with classes[kind](**made(kind, call)) as client:
            if hasattr(call, "needs_assignment"):
                await client.assign([TP])
            task = asyncio.ensure_future(call(client))
            # It begins, and waits.
            await asyncio.sleep(0)
            assert not task.done()
            client.stop(grace=0)
            try:
                return await asyncio.wait_for(task, PATIENCE)
            except ClosedError as error:
                return error

    assert isinstance(asyncio.run(run()), ClosedError | Totals)


@pytest.mark.parametrize("kind", ["Consumer", "Producer", "Admin"])
def test_at_the_end_of_the_grace_period_a_client_that_waits_is_ended(kind: str) -> None:
    """What `stop_on_signals` does where `stop` alone would not be enough."""
    classes: dict[str, Any] = {"Consumer": Consumer, "Producer": Producer, "Admin": Admin}
    calls = {
        "Consumer": CONSUMER["committed"],
        "Producer": PRODUCER["partitions_for"],
        "Admin": ADMIN["list_topics"],
    }
    with classes[kind](**made(kind, calls[kind])) as client:
        ended: list[object] = []

        def run() -> None:
            try:
                calls[kind](client)
            except BaseException as error:  # noqa: BLE001 - it is looked at
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        until(lambda: waits(client))
        assert client._unfinished() is not None
        client._end_unfinished()
        thread.join(PATIENCE)
        assert isinstance(ended[0], ClosedError)
        assert client._unfinished() is None


def test_an_admin_client_without_a_call_is_not_told_of() -> None:
    with Admin(bootstrap_servers=NOWHERE) as admin:
        assert admin._unfinished() is None
        admin.stop(grace=0)
    assert admin._unfinished() is None


def test_a_reading_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[object] = []

    def run() -> None:
        try:
            read("t", bootstrap_servers=NOWHERE, default_api_timeout_ms=600_000)
        except BaseException as error:  # noqa: BLE001 - it is looked at
            ended.append(error)

    before = set(all_of(lambda: OPEN))
    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: set(all_of(lambda: OPEN)) - before)
    for client in set(all_of(lambda: OPEN)) - before:
        client.stop(grace=0)
    thread.join(PATIENCE)
    assert isinstance(ended[0], ClosedError)
