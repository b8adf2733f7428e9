"""What the program pauses beside `process` stays paused, and what `process` holds back stays so, too (C23)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest
from tests.work.worlds import Real, Simulated, become

from kadence import Consumer, Record, TopicPartition
from kadence.consumer.shared_partition import NotFetchedReason

PAUSED = NotFetchedReason.PAUSED
FIRST = TopicPartition("orders", 0)
ALL = [TopicPartition("orders", n) for n in range(4)]


def waiting(consumer: Any) -> int:
    """How many records were read and are not done."""
    return int(
        sum(
            value
            for name, value in consumer.metrics().items()
            if name.name in ("work-running", "work-waiting", "work-retrying")
        )
    )


def ends_of(world: Simulated) -> list[int]:
    """How many records each partition has."""
    return [world.simulation.broker.core.partition("orders", n).high_watermark for n in range(4)]


@pytest.mark.parametrize("transactional_id", [None, "t"])
def test_a_partition_that_the_program_pauses_is_not_read(
    simulated: Simulated, transactional_id: str | None
) -> None:
    """Not until the program resumes it. What had been read of it is handled."""
    simulated.write("orders", 400, keys=40)
    handled: Counter[int] = Counter()
    member = simulated.member(isolation_level="read_committed", auto_commit_interval_ms=50)
    at: list[int] = []

    async def work(record: Record[Any, Any]) -> None:
        if not at:
            member.consumer.pause([FIRST])
            at.append(waiting(member.consumer))
        await asyncio.sleep(0.01)
        handled[record.partition] += 1

    call = member.processes(work, workers=4, max_records=20, transactional_id=transactional_id)
    ends = ends_of(simulated)
    others = sum(ends[1:])
    simulated.until(lambda: sum(handled.values()) - handled[0] == others)
    assert member.consumer.paused() == {FIRST}
    assert handled[0] <= 20 < ends[0]
    before = handled[0]
    simulated.cluster.sleep(60)
    assert handled[0] == before
    assert member.consumer.not_fetched()[FIRST].reason is PAUSED
    member.consumer.resume([FIRST])
    simulated.until(lambda: handled[0] == ends[0])
    member.stop()
    call.result()


def test_a_program_that_resumes_all_does_not_open_what_process_holds_back(simulated: Simulated) -> None:
    simulated.write("orders", 400, keys=400)
    member = simulated.member()
    released: list[bool] = []
    begun: list[int] = []

    async def work(record: Record[Any, Any]) -> None:
        begun.append(record.offset)
        await become(lambda: released)

    call = member.processes(work, workers=2, max_records=20)
    simulated.until(lambda: len(begun) == 2)
    for _ in range(200):
        member.consumer.resume(member.consumer.assignment())
        simulated.cluster.sleep(0.05)
    assert waiting(member.consumer) <= 20
    assert member.consumer.paused() == frozenset()
    for why in member.consumer.not_fetched().values():
        assert (why.reason, why.detail) == (PAUSED, "process() has read enough of it ahead")
    released.append(True)
    simulated.until(lambda: len(begun) == 400)
    member.stop()
    assert call.result().done == 400


@pytest.mark.parametrize("ends", ["stops", "fails", "is cancelled"])
def test_the_end_of_process_resumes_what_it_held_back_and_no_more(simulated: Simulated, ends: str) -> None:
    simulated.write("orders", 400, keys=400)
    member = simulated.member()
    tasks: list[asyncio.Task[Any]] = []

    async def process(consumer: Any) -> None:
        tasks.append(
            task := asyncio.ensure_future(consumer.process(work, workers=2, max_records=20, drain=0))
        )
        await asyncio.wait((task,))
        if ends == "fails":
            assert isinstance(task.exception(), ValueError)

    async def work(record: Record[Any, Any]) -> None:
        await become(lambda: failing)
        raise ValueError("failed")

    failing: list[bool] = []
    call = member.begin(process)
    simulated.until(lambda: len(member.consumer.not_fetched()) == 4)
    member.consumer.pause([FIRST])
    if ends == "fails":
        failing.append(True)
    elif ends == "is cancelled":
        tasks[0].cancel()
    else:
        member.stop()
    call.result()
    assert member.consumer.paused() == {FIRST}
    assert {p for p, why in member.consumer.not_fetched().items() if why.reason is PAUSED} == {FIRST}
    if ends == "stops":
        # Nothing is polled any more.
        return
    records: list[Record[Any, Any]] = []
    while len(records) < sum(ends_of(simulated)[1:]):
        records += member.do(lambda consumer: consumer.poll(5))
    assert {record.partition for record in records} == {1, 2, 3}
    assert not member.do(lambda consumer: consumer.poll(5))


def test_both_hold_on_threads(real: Real) -> None:
    """A circuit breaker in a handler, and a program that resumes all the time."""
    real.write("orders", 400, keys=400)
    member = real.member()
    consumer: Consumer = member.consumer
    handled: Counter[int] = Counter()
    most: list[int] = []
    lock = threading.Lock()

    def work(record: Record[Any, Any]) -> None:
        if not handled:
            consumer.pause([FIRST])
        with lock:
            handled[record.partition] += 1
        consumer.resume([each for each in consumer.assignment() if each != FIRST])
        most.append(waiting(consumer))

    ends = member.do(lambda consumer: consumer.end_offsets(ALL))
    others = sum(ends.values()) - ends[FIRST]
    member.process(
        work,
        until=lambda: sum(handled.values()) - handled[0] == others,
        workers=4,
        max_records=20,
    )
    assert consumer.paused() == {FIRST}
    assert handled[0] <= 20 < ends[FIRST]
    # A poll may bring a little more than there is room for.
    assert max(most) <= 20
