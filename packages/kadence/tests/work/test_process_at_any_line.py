"""Ctrl-C at the lines by which `Consumer.process` begins and ends."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import SOURCE, Interruption
from tests.patience import until

from kadence import Consumer, Producer, Record
from kadence.consumer.application import inside
from kadence.work import driver
from kadence.work.desk import Desk
from kadence.work.meters import Meters
from kadence_broker import Broker

BEGINNING = 120
"""Lines, after which one of each few is enough."""


@pytest.mark.parametrize("deserializer", [None, bytes.decode], ids=["bytes", "text"])
def test_the_consumer_is_as_it_was_before(deserializer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another `process` is not refused, polls deserialise, and commit() is possible."""
    assert Path(inside.__file__).is_relative_to(SOURCE)
    desks: list[Desk] = []
    begin = Meters.begin

    def begins(meters: Meters, desk: Desk, workers: int) -> None:
        desks.append(desk)
        begin(meters, desk, workers)

    monkeypatch.setattr(Meters, "begin", begins)
    with Broker(topics={"t": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3_000):
                producer.send("t", b"%d" % number)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            auto_offset_reset="earliest",
            max_poll_records=1,
            value_deserializer=deserializer,
        ) as consumer:
            consumer.subscribe("t")

            def handler(_: Record[Any, Any]) -> None:
                consumer.stop()

            def goes_on() -> None:
                # A handler may outlast its call, and stop the consumer only then.
                until(lambda: not any(desk.scheduler.running for desk in desks), every=0.001)
                consumer._core.exchange.stopping = False

            at, happened = 0, True
            while happened:
                at += 1 if at < BEGINNING else 7
                interruption = Interruption(at, (inside.__file__, driver.__file__))
                with contextlib.suppress(KeyboardInterrupt), interruption:
                    consumer.process(handler, workers=1)
                goes_on()
                happened, where = interruption.happened, f"line {at}: {interruption.where}"
                core = consumer._core
                assert (core.polls.is_working, core.commits.is_for_work) == (False, False), where
                assert core.listener is None, where
                found: list[Record[Any, Any]] = []
                while not found:
                    found += consumer.poll(1)
                assert isinstance(found[0].value, bytes if deserializer is None else str), where
                consumer.commit()
            consumer.process(handler, workers=1)
    assert at > 50
