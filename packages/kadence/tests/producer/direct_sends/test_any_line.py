"""Ctrl-C at each line that a record and its wait run on the application's thread."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.patience import PATIENCE, until
from tests.producer.direct_sends.world import Ways, needs_the_direct_way, settle, stored

from kadence import AsyncProducer, Producer
from kadence.errors import KafkaTimeoutError
from kadence.producer import direct_sends
from kadence_broker import Broker

pytestmark = needs_the_direct_way


@pytest.mark.parametrize(
    "settings",
    [{"linger_ms": 0}, {"linger_ms": 20}, {"linger_ms": 0, "compression_type": "gzip"}],
    ids=["direct", "lingering", "not direct"],
)
@pytest.mark.parametrize("goes_on", ["same", "other", "waits", "flushes"])
def test_ctrl_c_at_any_line(broker: Broker, ways: Ways, settings: dict[str, Any], goes_on: str) -> None:
    """Whose `send` returned is written once and in order, whatever the program does next; nothing is left."""
    is_direct = "compression_type" not in settings
    sent: list[bytes] = []
    begun: list[bytes] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        if is_direct:
            settle(producer, ways)
        at, happened, direct = 0, True, ways.sent
        while happened:
            at += 1
            value, future = b"%d" % (2 * at), None
            begun.append(value)
            interruption = Interruption(at)
            try:
                with contextlib.suppress(KeyboardInterrupt), interruption:
                    future = producer.send("t", value, partition=0)
                    if goes_on == "flushes":
                        producer.flush(PATIENCE)
                    else:
                        future.result(PATIENCE)
                happened = interruption.happened
                if future is not None:
                    sent.append(value)
                    if goes_on == "waits":
                        future.result(PATIENCE)
                after = producer.send("t", b"%d" % (2 * at + 1), partition=int(goes_on == "other"))
                assert after.result(PATIENCE).offset >= 0
            except BaseException as error:
                error.add_note(f"after an interruption at line {at}: {interruption.where}")
                raise
            sent.append(b"%d" % (2 * at + 1))
        producer.flush(PATIENCE)
        until(lambda: not (producer._accumulator.used_bytes or producer._accumulator.unnotified))
        assert not producer._accumulator.waiting
        assert not producer._accumulator.incomplete
        # How many of them is the machine's business.
        assert (ways.sent > direct) is is_direct
    found = stored(broker)
    assert len(found) == len(set(found))
    assert set(sent) <= set(found) <= {*sent, *begun}
    in_order = [value for value in sent if goes_on != "other" or not int(value) % 2]
    assert [value for value in found if value in set(in_order)] == in_order
    assert at > 30


def test_ctrl_c_at_any_line_on_a_loop(broker: Broker, ways: Ways) -> None:
    """A task that did not end by it gets its result when the loop runs again.

    Elsewhere asyncio itself may lose a callback by it.
    """
    loop = asyncio.new_event_loop()

    async def made() -> AsyncProducer:
        return AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)

    async def trip(value: bytes) -> int:
        return (await producer.send_and_wait("t", value, partition=0)).offset

    def is_direct() -> bool:
        before = ways.sent
        return loop.run_until_complete(trip(b"before")) >= 0 and ways.sent > before

    producer = loop.run_until_complete(made())
    sent: list[bytes] = []
    begun: list[bytes] = []
    try:
        at, happened, number = 1, True, 0
        while happened:
            number += 1
            until(is_direct, every=0)
            direct, value = ways.sent, b"%d" % (2 * number)
            begun.append(value)
            interruption = Interruption(at, direct_sends.__file__)
            task = loop.create_task(trip(value))
            try:
                with contextlib.suppress(KeyboardInterrupt), interruption:
                    loop.run_until_complete(task)
                # If the network thread sent it, there were fewer lines.
                happened = interruption.happened or ways.sent == direct
                at += interruption.happened
                after = loop.create_task(trip(b"%d" % (2 * number + 1)))
                assert loop.run_until_complete(asyncio.wait_for(after, PATIENCE)) >= 0
                with contextlib.suppress(KeyboardInterrupt):
                    assert loop.run_until_complete(asyncio.wait_for(task, PATIENCE)) >= 0
                    sent.append(value)
            except BaseException as error:
                error.add_note(f"after an interruption at line {at}: {interruption.where}")
                raise
            sent.append(b"%d" % (2 * number + 1))
        loop.run_until_complete(producer.flush(PATIENCE))
        until(lambda: not (producer._accumulator.used_bytes or producer._accumulator.unnotified))
        assert not producer._accumulator.waiting
        assert not producer._accumulator.incomplete
    finally:
        loop.run_until_complete(producer.close())
        loop.close()
    found = stored(broker)
    assert len(found) == len(set(found))
    assert set(sent) <= set(found) <= {*sent, *begun}
    after_it = [value for value in sent if int(value) % 2]
    assert [value for value in found if value in set(after_it)] == after_it
    assert at > 15


@pytest.mark.parametrize("call", ["send", "flush"])
def test_ctrl_c_in_a_call_that_waits_leaves_no_claim(broker: Broker, call: str) -> None:
    """Else other records would wait for room for ever, or batches would never linger again."""
    with Producer(
        bootstrap_servers=broker.bootstrap_servers,
        linger_ms=0,
        buffer_memory=20_000,
        batch_size=10_000,
        max_block_ms=10,
    ) as producer:

        def is_sent(data: bytes, partition: int) -> bool:
            with contextlib.suppress(KafkaTimeoutError):
                return producer.send("t", data, partition=partition).result(PATIENCE).offset >= 0
            return False

        until(lambda: is_sent(b"before", 0), every=0)
        accumulator = producer._accumulator
        with broker.faults.freeze():
            stuck = producer.send("t", bytes(15_000), partition=0)
            at, happened = 0, True
            while happened:
                at += 1
                interruption = Interruption(at)
                with contextlib.suppress(KeyboardInterrupt, KafkaTimeoutError), interruption:
                    if call == "send":
                        producer.send("t", bytes(9_000), partition=1)
                    else:
                        producer.flush(0.01)
                happened = interruption.happened
                left = accumulator.claimed_bytes, accumulator.blocked, accumulator.flushing
                assert left == (0, 0, 0), f"after an interruption at line {at}: {interruption.where}"
        assert stuck.result(PATIENCE).offset >= 0
        until(lambda: is_sent(bytes(15_000), 1), every=0)
    assert at > 30


@pytest.mark.parametrize("settings", [{"linger_ms": 0}, {"linger_ms": 20, "batch_size": 2_000}], ids=str)
def test_ctrl_c_at_any_line_of_send_arrow(broker: Broker, settings: dict[str, Any]) -> None:
    """No row is written twice, and the next record goes its way: no empty or forgotten batch stays in line."""
    pa = pytest.importorskip("pyarrow")
    sent: list[bytes] = []
    begun: list[bytes] = []
    with Producer(bootstrap_servers=broker.bootstrap_servers, **settings) as producer:
        at, happened = 0, True
        while happened:
            at += 1
            interruption, values, is_done = (
                Interruption(at),
                [b"%d-%d" % (at, row) for row in range(60)],
                False,
            )
            with contextlib.suppress(KeyboardInterrupt), interruption:
                producer.send_arrow(pa.table({"value": values, "partition": [0] * len(values)}), "t")
                producer.flush(PATIENCE)
                is_done = True
            happened = interruption.happened
            (sent if is_done else begun).extend(values)
            sent.append(b"after %d" % at)
            try:
                assert producer.send("t", sent[-1], partition=0).result(PATIENCE).offset >= 0
            except BaseException as error:
                error.add_note(f"after an interruption at line {at}: {interruption.where}")
                raise
        producer.flush(PATIENCE)
        until(lambda: not (producer._accumulator.used_bytes or producer._accumulator.unnotified))
        assert not producer._accumulator.waiting
        assert not producer._accumulator.incomplete
    found = stored(broker)
    assert len(found) == len(set(found))
    assert set(sent) <= set(found) <= {*sent, *begun}
    assert at > 100
