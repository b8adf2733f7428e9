"""Records that tasks of an event loop await."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.patience import PATIENCE, until
from tests.producer.direct_sends.world import Ways, needs_the_direct_way, stored

from kadence import AsyncProducer
from kadence.client.loop_gate import LoopGate
from kadence.client.slices import AT_ONCE, Slices
from kadence.errors import TopicAuthorizationError
from kadence.producer.futures import RecordFuture, RecordMetadata
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import ProduceRequest
from kadence_broker import Broker
from kadence_broker.faults.injected import Injected

pytestmark = needs_the_direct_way


@pytest.mark.parametrize("tasks", [1, 10, 100])
def test_tasks_that_wait_for_their_records(broker: Broker, ways: Ways, tasks: int) -> None:
    """The records of tasks that are ready together go in one request, and in their order."""
    rounds = max(300 // tasks, 20)
    # More tasks are woken in two turns. Of two batches neither is alone, and the network thread sends both.
    is_one_turn = tasks <= AT_ONCE

    async def work(producer: AsyncProducer, task: int) -> None:
        last = -1
        for number in range(rounds):
            found = await (await producer.send("t", b"%d-%d" % (task, number), partition=0))
            assert found.offset > last
            last = found.offset

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer:
            await settled(producer, ways)
            with broker.faults.observe(ProduceRequest) as seen:
                await asyncio.gather(*(work(producer, task) for task in range(tasks)))
            assert len(seen) < (1.5 if is_one_turn else 2.5) * rounds + 10

    asyncio.run(main())
    values = stored(broker)
    assert sorted(values) == sorted(b"%d-%d" % (task, n) for task in range(tasks) for n in range(rounds))
    for task in range(tasks):
        mine = [value for value in values if value.startswith(b"%d-" % task)]
        assert mine == [b"%d-%d" % (task, number) for number in range(rounds)]
    assert not is_one_turn or ways.sent > rounds // 2


async def settled(producer: AsyncProducer, ways: Ways) -> None:
    end, sent = time.monotonic() + PATIENCE, ways.sent
    while ways.sent == sent:
        await producer.send_and_wait("t", b"before", partition=0)
        assert time.monotonic() < end


def on_a_loop(broker: Broker, ways: Ways, work: Callable[[AsyncProducer], Any]) -> None:
    async def main() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, linger_ms=0, retry_backoff_ms=10
        ) as producer:
            await settled(producer, ways)
            await work(producer)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


ATTEMPTS = 10
"""The network thread may be at work in some of them, and then sends all itself."""


def test_a_record_that_is_alone_goes_out_at_once(broker: Broker, ways: Ways) -> None:
    """It does not wait for a turn of the loop, which would bring nothing to go along."""

    async def work(producer: AsyncProducer) -> None:
        for _ in range(ATTEMPTS):
            # The second is the first that is expected to be alone.
            await settled(producer, ways)
            await settled(producer, ways)
            sent = ways.sent
            future = await producer.send("t", b"0", partition=0)
            is_at_once = ways.sent == sent + 1
            assert (await future).partition == 0
            if is_at_once:
                return
        raise AssertionError

    on_a_loop(broker, ways, work)


@pytest.mark.parametrize("reason", ["others are ready", "the loop cannot tell", "several went before"])
def test_a_record_that_may_get_company_waits_for_it(
    broker: Broker, ways: Ways, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    async def work(producer: AsyncProducer) -> None:
        for _ in range(ATTEMPTS):
            await settled(producer, ways)
            if reason == "several went before":
                await together(producer)
            sent = ways.sent
            with broker.faults.observe(ProduceRequest) as seen:
                if reason == "others are ready":
                    await together(producer)
                else:
                    futures = [await producer.send("t", b"0", partition=0) for _ in range(3)]
                    assert ways.sent == sent
                    await asyncio.gather(*(wait_for(future) for future in futures))
            if len(seen) == 1 and ways.sent == sent + 1:
                return
        raise AssertionError

    async def together(producer: AsyncProducer) -> None:
        await asyncio.gather(*(producer.send_and_wait("t", b"0", partition=0) for _ in range(3)))

    if reason == "the loop cannot tell":
        monkeypatch.setattr(LoopGate, "runs_only_this", lambda _gate: False)
    on_a_loop(broker, ways, work)
    assert len(stored(broker)) % 3 == 0


def test_two_records_that_a_task_sends_before_it_waits_stay_together(broker: Broker, ways: Ways) -> None:
    """Only the first time one of them goes out alone, because the records before it did."""
    rounds = 40

    async def work(producer: AsyncProducer) -> None:
        await settled(producer, ways)
        with broker.faults.observe(ProduceRequest) as seen:
            for number in range(rounds):
                futures = [
                    await producer.send("t", b"%d" % each, partition=0)
                    for each in (2 * number, 2 * number + 1)
                ]
                for future in futures:
                    await future
        assert len(seen) < 1.5 * rounds

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"%d" % number for number in range(2 * rounds)]


def test_a_loop_that_does_not_show_what_is_ready_is_never_alone() -> None:
    class Another:
        """As uvloop's."""

        def is_closed(self) -> bool:
            return True

    assert not LoopGate(Another()).runs_only_this()  # type: ignore[arg-type]

    async def main() -> None:
        loop = asyncio.get_running_loop()
        gate = LoopGate(loop)
        assert gate.runs_only_this()
        loop.call_soon(lambda: None)
        assert not gate.runs_only_this()

    asyncio.run(main())


@pytest.mark.parametrize("is_watched", [True, False])
def test_the_loop_decides_what_it_can_watch(
    broker: Broker, ways: Ways, monkeypatch: pytest.MonkeyPatch, is_watched: bool
) -> None:
    """Elsewhere, as on Windows' own loop, the network thread gets each answer."""
    if not is_watched:
        monkeypatch.setattr(Slices, "descriptor", lambda _slices: -1)

    async def work(producer: AsyncProducer) -> None:
        sent, taken_over = ways.sent, ways.taken_over
        for number in range(30):
            await producer.send_and_wait("t", b"%d" % number, partition=0)
        assert ways.sent > sent
        if is_watched:
            # Some answers may come before the loop watches for them.
            assert ways.taken_over - taken_over < ways.sent - sent
        else:
            assert ways.taken_over - taken_over == ways.sent - sent

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"%d" % number for number in range(30)]


def test_what_is_not_plain_on_a_loop(broker: Broker, ways: Ways) -> None:
    async def work(producer: AsyncProducer) -> None:
        faults = broker.faults
        inflicted: list[Callable[[], Injected]] = [
            lambda: faults.disconnect(ProduceRequest, times=1),
            lambda: faults.disconnect(ProduceRequest, times=1, served=True),
            lambda: faults.error(ProduceRequest, ec.NOT_ENOUGH_REPLICAS, times=1),
        ]
        for number, fault in enumerate(inflicted):
            await settled(producer, ways)
            sent, taken_over = ways.sent, ways.taken_over
            with fault():
                await producer.send_and_wait("t", b"%d" % (2 * number), partition=0)
            assert ways.taken_over - taken_over == ways.sent - sent
        with (
            faults.error(ProduceRequest, ec.TOPIC_AUTHORIZATION_FAILED, times=1),
            pytest.raises(TopicAuthorizationError),
        ):
            await producer.send_and_wait("t", b"refused", partition=0)

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"0", b"2", b"4"]


def test_a_slow_answer_on_a_loop_is_the_network_threads_affair(broker: Broker, ways: Ways) -> None:
    async def work(producer: AsyncProducer) -> None:
        accumulator = producer._accumulator
        direct: Any = accumulator.direct
        await settled(producer, ways)
        sent, taken_over = ways.sent, ways.taken_over

        def is_the_network_threads() -> bool:
            return bool(accumulator.incomplete) and not accumulator.waiting and direct._under_way is None

        with broker.faults.freeze():
            waiting = asyncio.ensure_future(producer.send_and_wait("t", b"0", partition=0))
            await asyncio.to_thread(until, is_the_network_threads)
        await waiting
        assert ways.taken_over - taken_over == ways.sent - sent

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"0"]


def test_callbacks_and_cancelled_tasks_on_a_loop(broker: Broker, ways: Ways) -> None:
    async def work(producer: AsyncProducer) -> None:
        called: list[int] = []
        for number in range(20):
            future = await producer.send("t", b"%d" % (2 * number), partition=0)
            future.add_done_callback(lambda _: called.append(threading.get_ident()))
            task = asyncio.ensure_future(wait_for(future))
            await asyncio.sleep(0.001 * (number % 3))
            if number % 2:
                task.cancel()
            assert (await future).partition == 0
            await asyncio.gather(task, return_exceptions=True)
        await producer.flush()
        assert called == [threading.get_ident()] * 20

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"%d" % (2 * number) for number in range(20)]


async def wait_for(future: RecordFuture) -> None:
    await future


def test_threads_and_other_loops_that_wait_for_a_loops_records(broker: Broker, ways: Ways) -> None:
    async def work(producer: AsyncProducer) -> None:
        async def elsewhere(future: RecordFuture) -> RecordMetadata:
            return await future

        for number in range(10):
            future = await producer.send("t", b"%d" % (2 * number), partition=0)
            found = await asyncio.gather(
                asyncio.to_thread(future.result, PATIENCE),
                asyncio.to_thread(asyncio.run, elsewhere(future)),
            )
            assert found[0] == found[1] == await future

    on_a_loop(broker, ways, work)
    assert stored(broker) == [b"%d" % (2 * number) for number in range(10)]


def test_a_loop_that_does_not_turn(broker: Broker, ways: Ways) -> None:
    """What it has queued last is sent all the same, and what was answered is decided."""
    loop = asyncio.new_event_loop()

    async def made() -> AsyncProducer:
        return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)

    producer = loop.run_until_complete(made())
    try:
        for number in range(2):
            loop.run_until_complete(settled(producer, ways))
            future = loop.run_until_complete(producer.send("t", b"%d" % (2 * number), partition=0))
            until(future.done)
    finally:
        loop.run_until_complete(producer.close())
        loop.close()
    assert stored(broker) == [b"0", b"2"]
