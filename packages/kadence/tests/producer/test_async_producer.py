"""`AsyncProducer`: what the threads' producer promises, kept on an event loop that nothing blocks."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE
from tests.producer.reading import read_all

from kadence import (
    ArrowDelivery,
    ArrowSummary,
    AsyncConsumer,
    AsyncProducer,
    Broker,
    Producer,
    RecordFuture,
    RecordMetadata,
    TopicPartition,
)
from kadence.client import async_shell
from kadence.client.loop_gate import LoopGate
from kadence.client.slices import AT_ONCE
from kadence.client.waits import Waits
from kadence.clock import FOREVER, SystemClock
from kadence.errors import (
    ClosedError,
    ConcurrentAccessError,
    IllegalStateError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    LocalError,
    ProducerFencedError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from kadence.producer import transaction_calls
from kadence.producer.accumulator import Accumulator
from kadence.producer.async_shell import AsyncShell
from kadence.producer.futures import Delivery
from kadence.producer.network_state import NetworkState
from kadence.producer.transaction_states import State
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import ProduceRequest

NOBODY = "127.0.0.1:1"


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


async def turns(done: Callable[[], object]) -> int:
    """Let the loop turn until something is so; how often it did."""
    count = 0
    while not done():
        await asyncio.sleep(0)
        count += 1
    return count


def test_what_is_sent_is_read(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            future = await producer.send("t", b"v", b"k", timestamp=1234, headers={"a": b"1"})
            assert not future.cancelled()
            assert await future == RecordMetadata("t", 0, 0, 1234)
            assert await future == future.result(), "it is awaited as often as one likes"
            assert (await producer.send_and_wait("t", b"w")).offset == 1
            assert [each.partition for each in await producer.partitions_for("t")] == [0]
            many = [await producer.send("t", b"%d" % number) for number in range(1000)]
            assert [place.offset for place in await asyncio.gather(*many)] == list(range(2, 1002))
            assert " open " in repr(producer)
        assert repr(producer).startswith("<AsyncProducer ")

    broker.create_topic("t", 1)
    run(work())
    found = [record.value() for record in read_all(broker.bootstrap_servers, "t", 1, 1002)]
    assert found == [b"v", b"w", *(b"%d" % number for number in range(1000))]


def test_with_brokers_away_the_loop_turns_and_other_tasks_go_on() -> None:
    async def work() -> None:
        producer = AsyncProducer(bootstrap_servers=NOBODY, max_block_ms=600_000)
        calls = [
            asyncio.create_task(each)
            for each in (
                producer.send("t", b"x"),
                producer.send_and_wait("t", b"x"),
                producer.send_arrow(pa.table({"value": [b"x"]}), "t"),
                producer.partitions_for("t"),
            )
        ]
        ticks = 0
        for _ in range(1000):
            await asyncio.sleep(0)
            ticks += 1
        assert ticks == 1000
        assert not any(call.done() for call in calls), "they wait"
        await producer.close(0)
        for call in calls:
            with pytest.raises(ClosedError):
                await call

    run(work())


def test_with_brokers_away_a_call_ends_by_max_block_ms() -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=NOBODY, max_block_ms=30) as producer:
            with pytest.raises(
                KafkaTimeoutError, match=r"no metadata of topic 't' came within max.block.ms=30"
            ):
                await producer.send("t", b"x")

    run(work())


def test_no_room_is_waited_for_in_order_while_the_loop_turns(broker: Broker) -> None:
    settings = {"buffer.memory": 2_000, "batch.size": 400, "linger.ms": 0}

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:
            await producer.partitions_for("t")
            with broker.faults.freeze():
                sends = [asyncio.create_task(producer.send("t", b"%03d" % each * 50)) for each in range(200)]
                await turns(lambda: producer._accumulator.blocked)
                waiting = [send for send in sends if not send.done()]
                assert waiting
                assert waiting == sends[-len(waiting) :], "who came first was served first"
            futures = await asyncio.gather(*sends)
            assert sorted(place.offset for place in await asyncio.gather(*futures)) == list(range(200))
            assert producer._accumulator.blocked == 0

    broker.create_topic("t", 1)
    run(work())


def test_no_room_in_time(broker: Broker) -> None:
    settings = {"buffer.memory": 1_000, "batch.size": 400, "max.block.ms": 50}

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:
            await turns_until_known(producer)
            with broker.faults.freeze():
                await producer.send("t", b"x" * 300)
                await producer.send("t", b"x" * 300)
                with pytest.raises(KafkaTimeoutError, match=r"buffer\.memory=1000 is full"):
                    await producer.send("t", b"x" * 300)
            await producer.flush(PATIENCE)

    broker.create_topic("t", 1)
    run(work())


async def turns_until_known(producer: AsyncProducer) -> None:
    while True:
        with contextlib.suppress(KafkaTimeoutError):
            await producer.partitions_for("t")
            return


def test_a_cancelled_send_has_handed_over_nothing(broker: Broker) -> None:
    settings = {"buffer.memory": 1_000, "batch.size": 400, "linger.ms": 0}

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:
            await producer.partitions_for("t")
            with broker.faults.freeze():
                sends = [asyncio.create_task(producer.send("t", b"%03d" % each * 100)) for each in range(5)]
                await turns(lambda: producer._accumulator.blocked)
                first = sum(send.done() for send in sends)
                cancelled = sends[first]
                cancelled.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await cancelled
                assert producer._gate.acquire(timeout=PATIENCE), "a wait that ends gives the lock back"
                producer._gate.release()
            futures = [await send for send in sends if send is not cancelled]
            await asyncio.gather(*futures)
            assert len(futures) == 4
            assert (await producer.send_and_wait("t", b"last")).offset == 4

    broker.create_topic("t", 1)
    run(work())


def test_cancelling_what_awaits_a_future_harms_nobody_else(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=500
        ) as producer:
            await producer.partitions_for("t")
            with broker.faults.drop(ProduceRequest):
                future = await producer.send("t", b"x")
                one, other = (asyncio.create_task(_awaited(future)) for _ in range(2))
                await asyncio.sleep(0)
                one.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await one
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(future, 0.01)
            await producer.flush()
            assert (await other).offset == 0
            assert (await asyncio.wait_for(future, PATIENCE)).offset == 0

    run(work())


def test_tasks_that_await_their_records_share_requests_and_do_not_linger(broker: Broker) -> None:
    """The first await has the batch sent once the tasks of that turn of the loop have put theirs in."""

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            await producer.partitions_for("t")
            for count in (1, 10, 100):
                with broker.faults.observe(ProduceRequest) as seen:
                    tasks = [producer.send_and_wait("t", b"x") for _ in range(count)]
                    await asyncio.gather(*tasks)
                assert len(seen) <= 2
            delivery = await producer.send_arrow(pa.table({"value": [b"x"]}), "t")
            assert (await delivery).rows == 1

    run(work())


async def _awaited(future: RecordFuture) -> RecordMetadata:
    return await future


async def _written(delivery: ArrowDelivery) -> ArrowSummary:
    return await delivery


def test_sends_that_never_wait_let_the_loop_turn(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every few milliseconds, at a record that begins a batch."""
    monkeypatch.setattr(async_shell, "BREATH_MS", 0)

    async def work() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0)
                ticks += 1

        settings = {"bootstrap.servers": broker.bootstrap_servers, "batch.size": 1_000, "linger.ms": 60_000}
        async with AsyncProducer(settings) as producer:
            await producer.partitions_for("t")
            ticking = asyncio.create_task(tick())
            for _ in range(100):
                await producer.send("t", b"x" * 300)
            assert ticks >= 20
            before = ticks
            table = pa.table({"value": [b"x"] * 20_000})
            await producer.send_arrow(table, "t")
            assert ticks > before
            ticking.cancel()

    run(work())


def test_nothing_may_block_the_loop(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            future = await producer.send("t", b"x")
            delivery = await producer.send_arrow(pa.table({"value": [b"x"]}), "t")
            for wait in (future.result, future.exception, delivery.result):
                with pytest.raises(IllegalStateError, match="await the future"):
                    wait()
            waiting = asyncio.create_task(asyncio.to_thread(future.result, PATIENCE))
            await producer.flush()
            assert (await waiting).offset == 0, "another thread may wait"
            assert future.result().offset == 0, "what is decided needs no wait"
            assert (await delivery).rows == 1

    run(work())


def test_callbacks_run_on_the_loop(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            called: asyncio.Queue[tuple[object, threading.Thread]] = asyncio.Queue()

            def callback(future: object) -> None:
                called.put_nowait((future, threading.current_thread()))

            future = await producer.send("t", b"x")
            delivery = await producer.send_arrow(pa.table({"value": [b"x"]}), "t")
            future.add_done_callback(callback)
            assert await called.get() == (future, threading.current_thread())
            delivery.add_done_callback(callback)
            assert await called.get() == (delivery, threading.current_thread())
            future.add_done_callback(callback)
            assert called.empty(), "not before the loop turns, as with futures of asyncio"
            assert await called.get() == (future, threading.current_thread())

    run(work())


def test_however_much_is_decided_at_once_the_loop_turns_between_a_few() -> None:
    """Ten thousand records of a hundred batches fail in one moment, each with a callback and a task that awaits it."""

    async def work() -> None:
        gate = LoopGate(asyncio.get_running_loop())
        batches = [Delivery("t", number, gate) for number in range(100)]
        in_turn, most, done = 0, 0, 0

        def count(_: object = None) -> None:
            nonlocal in_turn, done
            in_turn += 1
            done += 1

        async def await_one(future: RecordFuture) -> None:
            with pytest.raises(LocalError):
                await future
            count()

        futures = [RecordFuture(batch, index, 0) for batch in batches for index in range(100)]
        tasks = [asyncio.create_task(await_one(future)) for future in futures]
        for future in futures:
            future.add_done_callback(count)
        await asyncio.sleep(0)
        for batch in batches:
            batch.fail(LocalError("no"))
        while done < 20_000:
            in_turn = 0
            await asyncio.sleep(0)
            most = max(most, in_turn)
        # What is woken in one turn runs in the next one.
        assert most <= 2 * AT_ONCE
        await asyncio.gather(*tasks)

    run(work())


def test_however_many_calls_wait_the_loop_turns_between_a_few_and_none_is_forgotten() -> None:
    async def work() -> None:
        gate = LoopGate(asyncio.get_running_loop())
        shell = AsyncShell(gate, SystemClock())
        room, in_turn, most = 0, 0, 0
        let_in: list[int] = []

        def call(number: int) -> Waits[None]:
            nonlocal room, in_turn
            with gate:
                while True:
                    in_turn += 1
                    if room:
                        break
                    yield FOREVER
                room -= 1
                let_in.append(number)

        tasks = [asyncio.create_task(shell.run(call(number))) for number in range(1_000)]
        await asyncio.sleep(0)
        while len(let_in) < 1_000:
            in_turn = 0
            with gate:
                room += 7
                gate.notify_all()
            await asyncio.sleep(0)
            most = max(most, in_turn)
        assert sorted(let_in) == list(range(1_000))
        assert most <= 2 * AT_ONCE
        await asyncio.gather(*tasks)

    run(work())


def test_whoever_has_waited_longest_for_room_goes_first(broker: Broker) -> None:
    """Tasks are woken some at a time, so those that are woken when there is room need not be the first."""

    async def work() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 1_000, "batch.size": 1}
        async with AsyncProducer(settings) as producer:
            await producer.partitions_for("t")
            with broker.faults.freeze():
                first = [await producer.send("t", b"%03d" % each * 100) for each in range(2)]
                sends = [asyncio.create_task(producer.send("t", b"%03d" % each * 100)) for each in range(300)]
                await turns(lambda: producer._accumulator.blocked == 300)
            futures = [*first, *await asyncio.gather(*sends)]
            assert [place.offset for place in await asyncio.gather(*futures)] == list(range(302))

    broker.create_topic("t", 1)
    run(work())


def test_futures_of_the_threads_producer_can_be_awaited(broker: Broker) -> None:
    async def work() -> None:
        with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            await asyncio.to_thread(producer.partitions_for, "t")
            futures = [producer.send("t", b"x") for _ in range(3)]
            delivery = producer.send_arrow(pa.table({"value": [b"y"] * 3}), "t")
            waiting = asyncio.gather(*futures)
            table = asyncio.create_task(_written(delivery))
            await asyncio.sleep(0)
            await asyncio.to_thread(producer.flush)
            assert [place.offset for place in await waiting] == [0, 1, 2]
            assert (await table).partitions[TopicPartition("t", 0)].first_offset == 3

    run(work())


def test_an_error_is_raised_where_the_future_is_awaited(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with broker.faults.error(ProduceRequest, ec.INVALID_TOPIC_EXCEPTION, times=1):
                future = await producer.send("t", b"x")
                with pytest.raises(InvalidTopicError):
                    await future
            with pytest.raises(UnknownTopicOrPartitionError):
                await producer.send("t", b"x", partition=7)

    run(work())


def test_flush_waits_for_what_was_sent(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            futures = [await producer.send("t", b"x") for _ in range(10)]
            with broker.faults.freeze():
                with pytest.raises(KafkaTimeoutError, match="1 batches are not acknowledged yet"):
                    await producer.flush(0.05)
                flushing = asyncio.create_task(producer.flush())
                await asyncio.sleep(0)
                assert not flushing.done()
            await flushing
            assert all(future.done() for future in futures)

    run(work())


def test_flush_waits_for_the_callbacks(broker: Broker) -> None:
    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            told: list[int] = []
            for _ in range(10 * AT_ONCE):
                future = await producer.send("t", b"x")
                future.add_done_callback(lambda future: told.append(future.result().offset))
            await producer.flush(PATIENCE)
            assert told == list(range(10 * AT_ONCE))
            assert not producer._accumulator.unnotified

    run(work())


def test_a_loop_that_is_closed_early_ends_no_producer(broker: Broker) -> None:
    made: list[AsyncProducer] = []
    futures: list[RecordFuture] = []

    async def work() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
        made.append(producer)
        futures.append(await producer.send("t", b"x"))
        futures[0].add_done_callback(lambda future: None)
        for call in (_awaited(futures[0]), producer.flush()):
            task = asyncio.create_task(call)
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(task.cancel)

    async def later() -> None:
        with pytest.raises(ConcurrentAccessError, match="another event loop"):
            await made[0].flush()
        with pytest.raises(ConcurrentAccessError, match="another event loop"):
            await made[0].send("t", b"known topic, room in the batch: nothing has to wait")
        await made[0].close()

    run(work())
    run(later())
    assert futures[0].result(PATIENCE).offset == 0, "closing on another loop delivers what was sent"


def test_a_producer_that_nobody_closed_delivers_and_warns(broker: Broker) -> None:
    async def work() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000)
        future = await producer.send("t", b"x")
        with pytest.warns(ResourceWarning, match=r"^AsyncProducer was not closed; use `async with"):  # noqa: PT031 - it is collected where its name is dropped
            del producer
            gc.collect()
        assert (await future).offset == 0

    run(work())


def test_it_needs_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no event loop is running"):
        AsyncProducer(bootstrap_servers=NOBODY)


def test_close_waits_without_holding_the_loop(broker: Broker) -> None:
    async def work() -> None:
        producer = AsyncProducer(bootstrap_servers=broker.bootstrap_servers)
        await producer.partitions_for("t")
        with broker.faults.freeze():
            future = await producer.send("t", b"x")
            closing = asyncio.create_task(producer.close())
            for _ in range(100):
                await asyncio.sleep(0)
            assert not closing.done()
        await closing
        assert future.result().offset == 0
        assert not producer._engine.is_alive()
        await producer.close()
        with pytest.raises(ClosedError):
            await producer.send("t", b"x")

    run(work())


def test_close_waits_for_the_callbacks() -> None:
    """The network thread had ended before they had run, and with the program's only task the loop ended, too."""

    async def work() -> None:
        gate = AsyncShell.new_gate()
        accumulator = Accumulator(
            batch_size=1, linger_ms=0, buffer_memory=1, delivery_timeout_ms=1, gate=gate
        )
        network = NetworkState(accumulator, lambda: None, "producer-1")
        engine: Any = None
        delivery = Delivery("t", 0, gate, accumulator.unnotified)
        accumulator.unnotified.add(delivery)
        called: list[RecordFuture] = []
        for index in range(10 * AT_ONCE):
            RecordFuture(delivery, index, 0).add_done_callback(called.append)
        deadline = SystemClock().now_ms() + int(PATIENCE * 1000)
        closing = asyncio.ensure_future(AsyncShell(gate, SystemClock()).end(network, engine, deadline))
        await asyncio.sleep(0)

        def end() -> None:
            delivery.complete(0)
            network.dismiss()

        # It ends when the call has been woken for something else, and has not looked yet.
        with gate:
            gate.notify_all()
        gate.call_soon(lambda: gate.call_soon(end))
        await closing
        assert len(called) == 10 * AT_ONCE

    run(work())


def test_transactions(broker: Broker) -> None:
    async def work() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        async with AsyncProducer(settings, transactional_id="a") as producer:
            with pytest.raises(IllegalStateError):
                await producer.send("t", b"too early")
            await producer.init_transactions()
            await producer.begin_transaction()
            kept = await producer.send("t", b"kept")
            async with AsyncConsumer(settings, group_id="g") as consumer:
                await producer.send_offsets_to_transaction(
                    {TopicPartition("in", 0): 5}, consumer.group_metadata()
                )
                await producer.commit_transaction()
                assert (await kept).offset == 0
                committed = await consumer.committed(TopicPartition("in", 0))
                at = committed[TopicPartition("in", 0)]
                assert at is not None
                assert at.offset == 5
            await producer.begin_transaction()
            dropped = await producer.send("t", b"dropped")
            await producer.abort_transaction()
            with contextlib.suppress(TransactionAbortedError):
                await dropped
            async with AsyncProducer(settings, transactional_id="a") as other:
                await other.init_transactions()
                await producer.begin_transaction()
                await producer.send("t", b"fenced")
                with pytest.raises(ProducerFencedError, match="took over"):
                    await producer.commit_transaction()
        async with AsyncConsumer(settings, isolation_level="read_committed") as consumer:
            partition = TopicPartition("t", 0)
            end = (await consumer.end_offsets(partition))[partition]
            await consumer.assign({partition: (0, end)})
            assert [record.value async for record in consumer] == [b"kept"]

    broker.create_topic("t", 1)
    broker.create_topic("in", 1)
    run(work())


def test_an_async_with_block_is_one_transaction(broker: Broker) -> None:
    async def work() -> None:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        async with AsyncProducer(settings, transactional_id="a") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("t", b"kept")
            sent = asyncio.Event()

            async def block() -> None:
                async with producer.transaction():
                    await producer.send_and_wait("t", b"cancelled")
                    sent.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(block())
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send("t", b"kept")
        async with AsyncConsumer(settings, isolation_level="read_committed") as consumer:
            await consumer.assign_topics("t", start="earliest")
            found: list[bytes | None] = []
            while len(found) < 2:
                found += [record.value for record in await consumer.poll(PATIENCE)]
            assert found == [b"kept"] * 2

    broker.create_topic("t", 1)
    run(work())


@pytest.mark.parametrize("ended", [False, True])
def test_a_cancelled_commit_goes_on_and_can_be_waited_for_again(broker: Broker, ended: bool) -> None:
    async def work() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="a"
        ) as producer:
            transactions = producer._send_checks.transactions
            assert transactions is not None
            await producer.init_transactions()
            await producer.begin_transaction()
            future = await producer.send("t", b"x")
            await future
            with broker.faults.freeze():
                committing = asyncio.create_task(producer.commit_transaction())
                await asyncio.sleep(0)
                committing.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await committing
            if ended:
                await turns(lambda: transactions.state is State.READY)
            await producer.commit_transaction()
            with pytest.raises(IllegalStateError, match="no transaction is open"):
                await producer.commit_transaction()
            await producer.begin_transaction()
            await producer.abort_transaction()

    broker.create_topic("t", 1)
    run(work())


def test_a_cancelled_with_block_does_not_wait_for_a_silent_broker(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_calls, "_IN_A_HURRY", 0.05)

    async def write(producer: AsyncProducer, inside: asyncio.Event) -> None:
        async with producer, producer.transaction():
            await (await producer.send("t", b"x"))
            inside.set()
            await asyncio.sleep(PATIENCE)

    async def work() -> None:
        producer = AsyncProducer(
            bootstrap_servers=broker.bootstrap_servers,
            transactional_id="a",
            max_block_ms=600_000,
            delivery_timeout_ms=600_000,
        )
        await producer.init_transactions()
        inside = asyncio.Event()
        task = asyncio.create_task(write(producer, inside))
        await inside.wait()
        with broker.faults.freeze():
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    broker.create_topic("t", 1)
    run(work())


def test_a_table_that_is_cancelled_half_way_cannot_be_committed(broker: Broker) -> None:
    settings = {"buffer.memory": 2_000, "batch.size": 400, "transactional.id": "a"}

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await producer.partitions_for("t")
            with broker.faults.freeze():
                table = pa.table({"value": [b"x" * 300] * 20})
                sending = asyncio.create_task(producer.send_arrow(table, "t"))
                await turns(lambda: producer._accumulator.blocked)
                sending.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await sending
            with pytest.raises(KafkaError, match="interrupted"):
                await producer.commit_transaction()
            await producer.abort_transaction()

    broker.create_topic("t", 1)
    run(work())


def test_many_tasks_share_one(broker: Broker) -> None:
    settings = {"buffer.memory": 20_000, "batch.size": 1_000}

    async def work() -> None:
        async with AsyncProducer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:

            async def one(task: int) -> list[int]:
                futures = [await producer.send("t", b"%d-%d" % (task, each)) for each in range(100)]
                return [place.offset for place in await asyncio.gather(*futures)]

            offsets = await asyncio.gather(*(one(task) for task in range(20)))
            assert sorted(offset for each in offsets for offset in each) == list(range(2000))
            assert all(each == sorted(each) for each in offsets), "each task's records keep their order"

    broker.create_topic("t", 1)
    run(work())


def test_elsewhere(kafka: Any) -> None:
    """Against real Kafka: records, an error of the broker, a transaction."""

    async def work() -> None:
        async with AsyncProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            futures = [await producer.send("async-producer", b"%d" % each, b"key") for each in range(500)]
            places = await asyncio.gather(*futures)
            assert [place.offset for place in places] == list(range(500))
            with pytest.raises(InvalidTopicError):
                await producer.send("a/b", b"x")
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "async"}
        async with AsyncProducer(settings) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            future = await producer.send("async-producer", b"last", b"key")
            await producer.commit_transaction()
            assert future.result().offset == 500

    run(work())
