"""Ctrl-C at the lines that close() runs on the application's thread: close() again ends the client."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.patience import until

from kadence import Admin, Consumer, Producer, ShareConsumer
from kadence_broker import Broker


def consumer(broker: Broker) -> Consumer:
    made = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="g",
        auto_offset_reset="earliest",
        max_poll_records=1,
    )
    made.subscribe("t")
    until(lambda: bool(made.poll(0.1)), every=0)
    return made


def queue(broker: Broker) -> ShareConsumer:
    made = ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="g", max_poll_records=1)
    made.subscribe("t")
    until(lambda: not made.poll(0.01) and "1 members" in members(broker), every=0)
    return made


def producer(broker: Broker) -> Producer:
    made = Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0)
    made.send("t", b"x").result()
    return made


def admin(broker: Broker) -> Admin:
    made = Admin(bootstrap_servers=broker.bootstrap_servers)
    made.list_topics()
    return made


def members(broker: Broker) -> str:
    return broker.describe_groups().get("g", "0 members")


def places() -> Iterator[int]:
    """All of the first lines, where a call notes what it does; later some."""
    yield from range(1, 60)
    yield from count(60, 17)


def threads() -> set[threading.Thread]:
    return {each for each in threading.enumerate() if each.name.startswith("kadence")}


@pytest.mark.parametrize("make", [consumer, queue, producer, admin], ids=lambda make: str(make.__name__))
def test_close_again_after_ctrl_c(make: Callable[[Broker], Any]) -> None:
    with Broker(topics={"t": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as sending:
            for _ in range(100):
                sending.send("t", b"x")
        before = threads()
        for at in places():
            client = make(broker)
            interruption = Interruption(at)
            with contextlib.suppress(KeyboardInterrupt), interruption:
                client.close()
            client.close()

            def is_gone() -> bool:
                return threads() <= before and "0 members" in members(broker)

            until(is_gone, what=f"after an interruption in {interruption.where} the client ends", every=0.001)
            if not interruption.happened:
                break
