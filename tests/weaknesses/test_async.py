"""asyncio: cancellation that loses records or is swallowed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.weaknesses.conftest import Served

from kadence import AsyncConsumer, TopicPartition
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.offset_commit import OffsetCommitRequest
from kadence.protocol.offset_fetch import OffsetFetchRequest

PARTITION = TopicPartition("t", 0)


def made(served: Served, **settings: Any) -> AsyncConsumer:
    return AsyncConsumer(
        bootstrap_servers=served.broker.bootstrap_servers, auto_offset_reset="earliest", **settings
    )


def test_a_cancelled_poll_loses_no_record(served: Served) -> None:
    """A cancelled await of confluent's AIOConsumer dropped record 0 and committed it (CK #185, #1017)."""

    async def work() -> None:
        async with made(served, group_id="g") as consumer:
            await consumer.assign([PARTITION])
            for _ in range(20):
                waiting = asyncio.create_task(consumer.poll(60))
                await asyncio.sleep(0.005)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await asyncio.to_thread(served.produce, 5)
            seen: list[int] = []
            while len(seen) < 5:
                seen += [record.offset for record in await consumer.poll(5)]
            assert seen == [0, 1, 2, 3, 4]

    asyncio.run(asyncio.wait_for(work(), 60))


@pytest.mark.parametrize(
    ("silent", "call"),
    [
        (JoinGroupRequest, lambda consumer: consumer.poll(60)),
        (OffsetCommitRequest, lambda consumer: consumer.commit({PARTITION: 1}, timeout=60)),
        (OffsetFetchRequest, lambda consumer: consumer.committed([PARTITION], timeout=60)),
    ],
)
def test_a_cancellation_is_never_swallowed(
    served: Served, silent: type, call: Callable[[AsyncConsumer], Awaitable[object]]
) -> None:
    """Aiokafka swallowed CancelledError, so that tasks went on for ever (AIO #983, #1007)."""

    async def work() -> None:
        async with made(served, group_id="g", group_protocol="classic") as consumer:
            await consumer.subscribe("t")
            if silent is not JoinGroupRequest:
                while not consumer.assignment():
                    await consumer.poll(0.1)
            with served.faults.drop(silent) as dropped:
                waiting: asyncio.Future[object] = asyncio.ensure_future(call(consumer))
                await asyncio.to_thread(dropped.wait)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            await consumer.close(timeout=1)

    asyncio.run(asyncio.wait_for(work(), 60))
