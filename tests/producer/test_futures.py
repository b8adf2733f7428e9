"""A record's future: the batch's fate, seen by one record."""

from __future__ import annotations

import asyncio
import logging
import threading
from itertools import pairwise

import pytest
from tests.patience import PATIENCE

from kadence.errors import InvalidTopicError, KafkaError, KafkaTimeoutError, RecordTooLargeError
from kadence.producer.futures import Delivery, RecordFuture, RecordMetadata
from kadence.producer.gate import Gate
from kadence.producer.slices import AT_ONCE


@pytest.fixture
def delivery() -> Delivery:
    return Delivery("t", 3, Gate())


def test_offsets_count_from_the_batch(delivery: Delivery) -> None:
    futures = [RecordFuture(delivery, index, 70 + index) for index in range(3)]
    assert not futures[0].done()
    assert futures[0].running()
    delivery.complete(100)
    assert futures[2].result() == RecordMetadata("t", 3, 102, 72)
    assert futures[2].exception() is None
    assert repr(futures[2]) == "<RecordFuture t-3 offset 102>"


def test_log_append_time_replaces_the_records(delivery: Delivery) -> None:
    delivery.complete(1, 555)
    assert RecordFuture(delivery, 0, 70).result().timestamp == 555


def test_offset_unknown(delivery: Delivery) -> None:
    delivery.complete(-1)
    future = RecordFuture(delivery, 2, 70)
    assert future.result().offset == -1
    assert repr(future) == "<RecordFuture t-3 sent>"


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
    assert one.__cause__ is cause
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
