"""Handlers that await nothing still let the event loop run."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from kadence import Record, TopicPartition
from kadence.work.desk import Desk
from kadence.work.settings import settings_of
from kadence.work.workers import LoopWorkers

ONE = TopicPartition("one", 0)


@pytest.mark.parametrize("batch", [None, (8, 0)])
@pytest.mark.parametrize("workers", [1, 64])
def test_other_tasks_of_the_loop_have_their_turns(workers: int, batch: Any) -> None:
    """Each call takes 2 ms of the loop. Others wait for a few of them, however many workers there are."""
    now = 0
    handled = 0

    async def work(given: Any) -> None:
        nonlocal now, handled
        now += 2
        handled += 1
        if isinstance(given, list) and len(given) > 1:
            raise ValueError("one of them")

    settings = settings_of(
        work,
        workers=workers,
        order="none",
        executor=None,
        retry=None,
        dead_letter=None,
        timeout=None,
        batch=batch,
        halve=batch is not None,
        batch_format="records",
        max_records=10_000,
        max_bytes=1 << 20,
        drain=1,
        transactional_id=None,
    )

    async def main() -> int:
        desk = Desk(settings, Mock(now_ms=lambda: now), Mock(), "g", Mock(), Mock(), Mock(), Mock())
        handlers = LoopWorkers(desk, settings, None, asyncio.get_running_loop(), Mock())
        desk.wake = handlers.wake
        desk.scheduler.assign(ONE)
        desk.scheduler.add(ONE, [Record("one", 0, offset, value=b"v") for offset in range(400)], 0)
        handlers.wake()
        longest = before = 0
        while desk.done < 400:
            await asyncio.sleep(0)
            longest, before = max(longest, handled - before), handled
        with desk.lock:
            desk.is_ended = True
        handlers.end()
        await asyncio.sleep(0)
        return longest

    # 5 ms, and a call that they end in; and one of a worker that had waited.
    assert 0 < asyncio.run(main()) <= 4
    assert handled >= 400
