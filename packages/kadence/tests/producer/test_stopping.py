"""What a producer does when its program is to end: `stop()`, and `stop_on_signals`."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
from tests.patience import PATIENCE, once_inside, until
from tests.producer.reading import read_all

from kadence import AsyncProducer, Broker, Producer, stop_on_signals
from kadence.clock import FOREVER
from kadence.errors import ClosedError
from kadence.producer import send_checks
from kadence.protocol.produce import ProduceRequest


def test_after_stop_everything_works_and_close_is_bounded(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        checks, clock = producer._send_checks, producer._clock
        before = producer.stopping
        assert not before
        assert checks.closed_by(None) == FOREVER - 1
        producer.stop(grace=10)
        assert producer.stopping
        assert producer.send("t", b"x").result(PATIENCE).offset == 0
        assert 0 < checks.closed_by(None) - clock.now_ms() <= 10_000
        assert checks.closed_by(20) - clock.now_ms() > 10_000
        # A grace period that is over leaves the time to end.
        producer.stop(grace=0)
        assert checks.closed_by(None) - clock.now_ms() > 1_000
        # Without one nothing is added to what was said before.
        producer.stop()


def test_a_loop_ends_by_sigterm_and_all_it_sent_is_written(broker: Broker) -> None:
    program = f"""
        import sys
        from kadence import Producer, stop_on_signals
        sent = 0
        with stop_on_signals(grace=25) as stop, Producer(
            bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000
        ) as producer:
            producer.partitions_for("t")
            while not producer.stopping:
                if sent < 10:
                    producer.send("t", b"x")
                    sent += 1
                    if sent == 10:
                        print("running", flush=True)
        print(stop.received.name, sent)
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)], stdout=pipe, stderr=pipe, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "running\n"
        child.send_signal(signal.SIGTERM)
        output, errors = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0, errors
    name, sent = output.split()
    assert name == "SIGTERM"
    assert len(read_all(broker.bootstrap_servers, "t", 1, int(sent))) == int(sent)


def test_a_signal_that_interrupts_a_call_on_an_event_loop(broker: Broker) -> None:
    async def work() -> int:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            sent = 0
            while not producer.stopping:
                await producer.send("t", b"x")
                sent += 1
                if sent == 10:
                    os.kill(os.getpid(), signal.SIGUSR1)
            return sent

    with stop_on_signals(signals=[signal.SIGUSR1]) as stop:
        sent = asyncio.run(asyncio.wait_for(work(), PATIENCE))
    assert stop.received is signal.SIGUSR1
    assert len(read_all(broker.bootstrap_servers, "t", 1, sent)) == sent


def test_at_the_end_of_the_grace_period_a_send_that_waits_ends(caplog: pytest.LogCaptureFixture) -> None:
    main = threading.get_ident()
    with (
        stop_on_signals(grace=0.1, signals=[signal.SIGUSR1]),
        Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=600_000) as producer,
    ):
        once_inside(lambda: signal.pthread_kill(main, signal.SIGUSR1))
        with pytest.raises(ClosedError):
            producer.send("t", b"x")
        assert producer.stopping
    assert "0 records are neither acknowledged nor failed yet" in caplog.text
    assert "takes no more records, sends the records that it has and ends" in caplog.text


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
@pytest.mark.parametrize("timeout", [None, 600])
def test_a_close_that_waits_for_brokers_ends_with_the_grace_period(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, kind: str, timeout: int | None
) -> None:
    """As one does that begins after `stop`, if it has no timeout of its own."""
    monkeypatch.setattr(send_checks, "RESERVE_MS", 0)
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "delivery_timeout_ms": 600_000,
    }
    made: list[Producer | AsyncProducer] = []

    def on_threads() -> None:
        producer = Producer(**settings)
        made.append(producer)
        producer.send("t", b"x")
        producer.close(timeout)

    async def on_a_loop() -> None:
        producer = AsyncProducer(**settings)
        made.append(producer)
        await producer.send("t", b"x")
        await producer.close(timeout)

    with broker.faults.drop(ProduceRequest) as dropped:
        closing = threading.Thread(
            target=on_threads if kind == "threads" else lambda: asyncio.run(on_a_loop())
        )
        closing.start()
        dropped.wait()
        until(lambda: made[0]._network.is_closing)
        made[0].stop(grace=0)
        if timeout is not None:
            assert made[0]._network.close_at > made[0]._clock.now_ms() + 60_000
            made[0]._network.begin_close(0)
        closing.join(PATIENCE)
        assert not closing.is_alive()


def test_producers_that_are_named_are_stopped_and_no_others(broker: Broker) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as one,
        Producer(bootstrap_servers=broker.bootstrap_servers) as other,
        stop_on_signals(one, signals=[signal.SIGUSR1]),
    ):
        signal.raise_signal(signal.SIGUSR1)
        assert one.stopping
        assert not other.stopping
        with Producer(bootstrap_servers=broker.bootstrap_servers) as later:
            assert not later.stopping
