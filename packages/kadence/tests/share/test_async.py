"""`AsyncShareConsumer`: the same calls, awaited; cancelling loses no record, and nothing blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.worlds.queue import ACCEPT, REJECT, HandNetwork

from kadence import AcknowledgeType, AsyncShareConsumer, TopicPartition
from kadence.errors import ConcurrentAccessError, IllegalStateError
from kadence.share import async_share_consumer


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> HandNetwork:
    made = HandNetwork()
    monkeypatch.setattr(async_share_consumer, "network_side", lambda config, around: (made.state, made))
    return made


@asynccontextmanager
async def consumer_of(mode: str = "implicit") -> AsyncIterator[AsyncShareConsumer[Any, Any]]:
    settings = {"bootstrap.servers": "nowhere:1", "group.id": "q", "share.acknowledgement.mode": mode}
    async with AsyncShareConsumer(settings) as consumer:
        await consumer.subscribe("jobs")
        yield consumer


def test_the_calls_are_awaited_and_acknowledge_is_not(network: HandNetwork) -> None:
    async def program() -> None:
        async with consumer_of("explicit") as consumer:
            network.put(3)
            records = list(await consumer.poll())
            consumer.acknowledge(records[:2])
            consumer.acknowledge(records[2], AcknowledgeType.REJECT)
            assert await consumer.commit() == {TopicPartition("jobs", 0): None}

    asyncio.run(program())
    assert network.taken() == [("jobs", 0, 1, ACCEPT), ("jobs", 2, 2, REJECT)]
    assert network.heard[-1] == "Close"


def test_a_cancelled_poll_loses_no_record_and_accepts_none(network: HandNetwork) -> None:
    async def program() -> None:
        async with consumer_of() as consumer:
            waiting = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentAccessError, match="another task is inside poll"):
                await consumer.poll()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            network.put(1)
            assert [each.offset for each in await consumer.poll()] == [0]
            assert network.taken() == []

    asyncio.run(program())


def test_process_is_refused_while_another_task_polls(network: HandNetwork) -> None:
    """That poll would take records that nobody acknowledges, and whose locks are renewed."""

    async def handler(record: object) -> None: ...

    async def program() -> None:
        async with consumer_of() as consumer:
            waiting = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(ConcurrentAccessError, match="another task is inside poll"):
                await consumer.process(handler)
            network.put(1)
            assert [each.offset for each in await waiting] == [0]
            assert await consumer.commit() == {TopicPartition("jobs", 0): None}

    asyncio.run(program())


def test_an_iteration_ends_with_stop(network: HandNetwork) -> None:
    async def program() -> list[int]:
        seen = []
        async with consumer_of() as consumer:
            network.put(3)
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 1:
                    consumer.stop()
        return seen

    assert asyncio.run(program()) == [0, 1]
    assert [each[:3] for each in network.taken()] == [("jobs", 0, 0), ("jobs", 1, 1)]


def test_the_callback_may_be_a_coroutine_function_and_other_tasks_call_meanwhile(
    network: HandNetwork,
) -> None:
    told: list[object] = []

    async def program() -> None:
        async with consumer_of("explicit") as consumer:
            ended = asyncio.Event()

            async def callback(partition: TopicPartition, offsets: frozenset[int], error: object) -> None:
                with pytest.raises(IllegalStateError, match="inside the acknowledgement callback"):
                    await consumer.commit()
                await ended.wait()
                told.append((partition.topic, offsets, error))

            consumer.set_acknowledgement_commit_callback(callback)
            network.put(2)
            first, second = await consumer.poll()
            consumer.acknowledge(first)
            committing = asyncio.create_task(consumer.commit())
            # Its first step sends; then it waits for the callback.
            for _ in range(3):
                await asyncio.sleep(0)
            assert network.said
            # Not inside the callback.
            consumer.acknowledge(second)
            ended.set()
            await committing

    asyncio.run(program())
    assert told[0] == ("jobs", {0}, None)
