"""A record's future: the batch's fate, seen by one record."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE, once_inside

from kadence import Broker, Producer
from kadence.client.gate import Gate
from kadence.client.loop_gate import LoopGate
from kadence.client.slices import AT_ONCE, Slices, slices_of
from kadence.errors import InvalidTopicError, KafkaError, KafkaTimeoutError, RecordTooLargeError
from kadence.producer import like_futures
from kadence.producer.arrow_delivery import ArrowDelivery, Share
from kadence.producer.futures import Delivery, RecordFuture, RecordMetadata, Span


@pytest.fixture
def delivery() -> Delivery:
    return Delivery("t", 3, Gate())


def complete_alone(delivery: Delivery, base_offset: int, log_append_time: int = -1) -> None:
    """As the thread does that has sent it by itself."""
    with delivery.gate:
        assert delivery.written_alone(base_offset, log_append_time)


in_both_ways = pytest.mark.parametrize("complete", [Delivery.complete, complete_alone])


@in_both_ways
def test_offsets_count_from_the_batch(delivery: Delivery, complete: Callable[..., None]) -> None:
    futures = [RecordFuture(delivery, index, 70 + index) for index in range(3)]
    assert not futures[0].done()
    assert futures[0].running()
    complete(delivery, 100)
    assert delivery.spans(1, 2) == [Span(1, 2, 101, None)]
    assert futures[2].result() == RecordMetadata("t", 3, 102, 72)
    assert futures[2].exception() is None
    assert repr(futures[2]) == "<RecordFuture t-3 offset 102>"


@in_both_ways
def test_log_append_time_replaces_the_records(delivery: Delivery, complete: Callable[..., None]) -> None:
    complete(delivery, 1, 555)
    assert RecordFuture(delivery, 0, 70).result().timestamp == 555


@in_both_ways
def test_offset_unknown(delivery: Delivery, complete: Callable[..., None]) -> None:
    complete(delivery, -1)
    future = RecordFuture(delivery, 2, 70)
    assert future.result().offset == -1
    assert repr(future) == "<RecordFuture t-3 sent>"


def test_what_has_a_callback_is_not_completed_alone(delivery: Delivery) -> None:
    """The thread that sent it would have to call it."""
    future, called = RecordFuture(delivery, 0, 70), list[RecordFuture]()
    future.add_done_callback(called.append)
    with delivery.gate:
        assert not delivery.written_alone(100, -1)
    assert not future.done()
    delivery.complete(200)
    assert called == [future]
    assert future.result().offset == 200


def test_what_was_completed_alone_calls_back_at_once(delivery: Delivery) -> None:
    complete_alone(delivery, 100)
    future, called = RecordFuture(delivery, 0, 70), list[RecordFuture]()
    future.add_done_callback(called.append)
    assert called == [future]


def test_a_thread_that_waits_sees_what_is_completed_alone(delivery: Delivery) -> None:
    future = RecordFuture(delivery, 0, 70)
    completing = once_inside(lambda: complete_alone(delivery, 100))
    assert future.result(PATIENCE).offset == 100
    completing.join(PATIENCE)


def test_time_runs_out_while_waiting(delivery: Delivery) -> None:
    future = RecordFuture(delivery, 0, 0)
    with pytest.raises(KafkaTimeoutError, match="t-3 was not acknowledged within 0 s"):
        future.result(0)
    assert repr(future) == "<RecordFuture t-3 pending>"


def test_waits_for_another_thread(delivery: Delivery) -> None:
    future = RecordFuture(delivery, 0, 0)
    thread = threading.Thread(target=delivery.complete, args=(5,))
    thread.start()
    assert future.result(PATIENCE).offset == 5
    thread.join()


def test_each_caller_gets_its_own_error(delivery: Delivery) -> None:
    cause = ValueError("x")
    error = InvalidTopicError("no")
    error.__cause__ = cause
    delivery.fail(error)
    future = RecordFuture(delivery, 0, 0)
    one, two = future.exception(), future.exception()
    assert one is not two
    assert one is not error
    assert isinstance(one, InvalidTopicError)
    assert isinstance(two, InvalidTopicError)
    assert one.__cause__ is not two.__cause__
    assert repr(one.__cause__) == repr(cause)
    with pytest.raises(InvalidTopicError, match="no"):
        future.result()
    assert "failed: INVALID_TOPIC" in repr(future)


def test_single_records_are_blamed(delivery: Delivery) -> None:
    delivery.fail(KafkaError("others"), {1: RecordTooLargeError("me")})
    assert type(RecordFuture(delivery, 0, 0).exception()) is KafkaError
    assert type(RecordFuture(delivery, 1, 0).exception()) is RecordTooLargeError


def test_parts_of_a_split_batch(delivery: Delivery) -> None:
    delivery.outstanding = 3
    delivery.complete(50, first=2)
    delivery.fail(KafkaError("too large"), first=4)
    assert not delivery.done
    delivery.complete(40, first=0)
    offsets = [RecordFuture(delivery, index, 0).result().offset for index in range(4)]
    assert offsets == [40, 41, 50, 51]
    assert RecordFuture(delivery, 4, 0).exception() is not None


def test_callbacks(delivery: Delivery, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    future = RecordFuture(delivery, 0, 0)
    seen: list[int] = []

    def bad(_: RecordFuture) -> None:
        raise RuntimeError("mine")

    future.add_done_callback(bad)
    future.add_done_callback(lambda f: seen.append(f.result().offset))
    assert seen == []
    delivery.complete(9)
    assert seen == [9]
    future.add_done_callback(lambda f: seen.append(-f.result().offset))
    assert seen == [9, -9]
    assert "mine" in caplog.text


def test_the_loop_turns_while_the_tasks_of_a_batch_are_woken(delivery: Delivery) -> None:
    async def work() -> None:
        woken = 0

        async def wait(number: int) -> None:
            nonlocal woken
            assert (await RecordFuture(delivery, number, 0)).offset == number
            woken += 1

        async with asyncio.TaskGroup() as tasks:
            for number in range(250):
                tasks.create_task(wait(number))
            await asyncio.sleep(0)
            delivery.complete(0)
            after_each_turn = [0]
            while woken < 250:
                await asyncio.sleep(0)
                after_each_turn.append(woken)
        assert max(after - before for before, after in pairwise(after_each_turn)) == AT_ONCE

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_nothing_is_called_back(delivery: Delivery) -> None:
    future = RecordFuture(delivery, 0, 0)
    assert not future.cancel()
    assert not future.cancelled()


# ---------------------------------------------------------------- with the tools of concurrent.futures


def test_concurrent_futures_wait(delivery: Delivery) -> None:
    failing = Delivery("t", 4, Gate())
    fine, failed = RecordFuture(delivery, 0, 0), RecordFuture(failing, 0, 0)
    both = [fine, failed]
    assert concurrent.futures.wait(both, 0) == (set(), {fine, failed})
    other = threading.Thread(target=delivery.complete, args=(5,))
    other.start()
    first = concurrent.futures.FIRST_COMPLETED
    assert concurrent.futures.wait(both, PATIENCE, first) == ({fine}, {failed})
    other.join()
    other = threading.Thread(target=failing.fail, args=(KafkaError("no"),))
    other.start()
    assert concurrent.futures.wait(both, PATIENCE) == ({fine, failed}, set())
    other.join()
    error = concurrent.futures.FIRST_EXCEPTION
    assert concurrent.futures.wait(both, PATIENCE, error) == ({fine, failed}, set())


def test_a_wait_for_the_first_exception() -> None:
    deliveries = [Delivery("t", partition, Gate()) for partition in (0, 1)]
    futures = [RecordFuture(each, 0, 0) for each in deliveries]
    other = threading.Thread(target=deliveries[1].fail, args=(KafkaError("no"),))
    other.start()
    done, waiting = concurrent.futures.wait(futures, PATIENCE, concurrent.futures.FIRST_EXCEPTION)
    other.join()
    assert (done, waiting) == ({futures[1]}, {futures[0]})


def test_what_is_decided_while_somebody_begins_to_wait_is_not_missed(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    future = RecordFuture(delivery, 0, 0)
    begin = like_futures._Condition.acquire

    def acquire(condition: like_futures._Condition) -> None:
        begin(condition)
        monkeypatch.undo()
        delivery.complete(7)

    monkeypatch.setattr(like_futures._Condition, "acquire", acquire)
    assert concurrent.futures.wait([future], PATIENCE) == ({future}, set())


def test_as_completed(delivery: Delivery) -> None:
    late = Delivery("t", 4, Gate())
    first, second = RecordFuture(delivery, 0, 0), RecordFuture(late, 0, 0)
    other = concurrent.futures.Future[None]()
    delivery.complete(5)
    all_three: list[concurrent.futures.Future[Any]] = [first, second, other]
    found = concurrent.futures.as_completed(all_three, PATIENCE)
    assert next(found) is first
    late.complete(6)
    assert next(found) is second
    other.set_result(None)
    assert list(found) == [other]


@pytest.mark.parametrize("gate", ["threads", "loop"])
def test_asyncio_wraps_it(gate: str) -> None:
    async def work() -> None:
        lock = Gate() if gate == "threads" else LoopGate(asyncio.get_running_loop())
        fine, failing = (Delivery("t", partition, lock) for partition in (0, 1))
        wrapped: list[asyncio.Future[RecordMetadata]] = [
            asyncio.wrap_future(RecordFuture(each, 0, 0)) for each in (fine, failing)
        ]
        threads = [
            threading.Thread(target=fine.complete, args=(5,)),
            threading.Thread(target=failing.fail, args=(RecordTooLargeError("no"),)),
        ]
        for thread in threads:
            thread.start()
        assert (await wrapped[0]).offset == 5
        with pytest.raises(RecordTooLargeError):
            await wrapped[1]
        for thread in threads:
            thread.join()

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_a_table_is_waited_for_like_a_future(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        rows, record = producer.send_arrow(pa.table({"value": ["x", "y"]}), "t"), producer.send("t", b"z")
        both: list[concurrent.futures.Future[Any]] = [rows, record]
        done, waiting = concurrent.futures.wait(both, PATIENCE)
        assert done == {*both}
        assert not waiting
        assert asyncio.run(_of(rows)).rows == 2
    # What Python 3.14 asks for.
    snapshot: Any = record
    assert snapshot._get_snapshot() == (True, False, record.result(), None)


async def _of(rows: Any) -> Any:
    return await asyncio.wrap_future(rows)


def failed(delivery: Delivery) -> list[RecordFuture]:
    """Three futures of a batch whose error has a cause and a note."""
    futures = [RecordFuture(delivery, index, 0) for index in range(3)]
    error = KafkaTimeoutError("too late")
    error.__cause__ = InvalidTopicError("why")
    error.add_note("given up")
    delivery.fail(error)
    return futures


def test_what_a_program_raises_or_notes_is_in_no_other_error(delivery: Delivery) -> None:
    """Raised causes kept the frames of whoever raised them, which kept the futures: no collector could see that."""

    def raise_cause() -> weakref.ref[object]:
        futures = failed(delivery)
        kept = threading.Event()
        assert futures
        for future in futures:
            error = future.exception()
            assert error is not None
            error.add_note("mine")
            try:
                raise error.__cause__ or error
            except InvalidTopicError:
                pass
        return weakref.ref(kept)

    gone = raise_cause()
    gc.collect()
    assert gone() is None
    found = RecordFuture(delivery, 0, 0).exception()
    assert found is not None
    assert found.__notes__ == ["given up"]
    assert found.__cause__ is not None
    assert found.__cause__.__traceback__ is None


def test_an_error_that_was_caught_is_gone_without_the_collector(delivery: Delivery) -> None:
    def catch() -> weakref.ref[object]:
        kept = threading.Event()
        with suppress(KafkaTimeoutError):
            failed(delivery)[0].result()
        return weakref.ref(kept)

    gc.collect()
    gc.disable()
    try:
        assert catch()() is None
    finally:
        gc.enable()


def test_a_cause_that_cannot_be_copied_is_told_as_it_is(delivery: Delivery) -> None:
    class StrangeError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__("strange")

    error = KafkaError("no login")
    error.__cause__ = StrangeError(1, 2)
    delivery.fail(error)
    found = RecordFuture(delivery, 0, 0).exception()
    assert found is not None
    assert found.__cause__ is error.__cause__


def test_a_copied_cause_says_where_it_was_raised(delivery: Delivery) -> None:
    try:
        try:
            raise OSError(5, "why")
        except OSError as refusal:
            raise KafkaError("outer") from refusal
    except KafkaError as error:
        delivery.fail(error)
    found = RecordFuture(delivery, 0, 0).exception()
    assert found is not None
    cause = found.__cause__
    assert isinstance(cause, OSError)
    assert (cause.errno, found.__traceback__) == (5, None)
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code.co_name == "test_a_copied_cause_says_where_it_was_raised"


def test_waits_that_have_ended_leave_nothing(delivery: Delivery) -> None:
    """As a loop of waits for what is done first, while a broker is away: each left something of each future."""
    futures = [RecordFuture(delivery, index, 0) for index in range(5)]
    table = ArrowDelivery(5, [Share(delivery, 0, 5, lambda: range(5))], delivery.gate)
    pending: list[concurrent.futures.Future[Any]] = [*futures, table]
    for _ in range(100):
        assert not concurrent.futures.wait(pending, timeout=0).done
        with pytest.raises(TimeoutError):
            next(concurrent.futures.as_completed(pending, timeout=0))
    assert not delivery._watchers
    delivery.complete(0)
    assert concurrent.futures.wait(pending, timeout=0).done == {*pending}


def test_awaits_that_were_cancelled_leave_nothing(delivery: Delivery) -> None:
    futures = [RecordFuture(delivery, index, 0) for index in range(3)]

    async def main() -> None:
        stays = asyncio.ensure_future(_awaited(futures[0]))
        for _ in range(100):
            for future in futures:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(_awaited(future), 0.0001)
        assert [len(each) for each in (delivery._waiters or {}).values()] == [1]
        delivery.complete(4)
        assert (await stays).offset == 4

    asyncio.run(main())


async def _awaited(future: RecordFuture) -> RecordMetadata:
    return await future


def test_a_closed_loop_keeps_nothing() -> None:
    """It kept callbacks, which kept their producer, so that its network thread never ended."""

    def leave() -> tuple[Delivery, Slices, weakref.ref[object]]:
        loop = asyncio.new_event_loop()
        made: list[Any] = []

        def begin() -> None:
            gate = LoopGate(loop)
            made.append(Delivery("t", 0, gate))
            loop.stop()
            gate.call_soon(lambda: None)

        loop.call_soon(begin)
        loop.run_forever()
        # One turn of the loop has passed, and what was added in it is still to be done.
        loop.close()
        (delivery,) = made
        slices = delivery.gate.slices
        kept = threading.Event()
        future = RecordFuture(delivery, 0, 0)
        delivery.add_callback(lambda _: kept, future)
        assert slices._is_due
        assert slices._queue
        delivery.complete(0)
        return delivery, slices, weakref.ref(kept)

    _, slices, gone = leave()
    assert not slices._queue
    gc.collect()
    assert gone() is None


def test_the_next_loop_drops_what_a_closed_one_left() -> None:
    async def here() -> Slices:
        return slices_of(asyncio.get_running_loop())

    loop = asyncio.new_event_loop()
    slices = loop.run_until_complete(here())
    slices.add(print, [1])
    loop.close()
    asyncio.run(here())
    assert not slices._queue
