"""What is looked through on one thread while another one adds to it: nobody fails, and nothing is missed."""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kadence import Consumer, Producer, publish_state, stop_on_signals
from kadence.client import engine
from kadence.metrics.otel import ClientInstruments
from kadence.metrics.prometheus import ClientCollector
from kadence.weak import all_of

NOWHERE = "127.0.0.1:1"


@contextmanager
def in_the_middle(act: Callable[[], object]) -> Iterator[list[bool]]:
    """``act`` happens when the next weak collection of the block has given its first item, as on another thread."""
    done: list[bool] = []

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.endswith(("_weakrefset.py", "/weakref.py")):
            return None
        if event == "return" and argument is not None and frame.f_code.co_flags & 0x20 and not done:
            done.append(True)
            act()
        return trace

    sys.settrace(trace)
    try:
        yield done
    finally:
        sys.settrace(None)


class Thing:
    """May be in weak collections."""


def test_all_of_a_set_and_of_a_dictionary_that_grow() -> None:
    things = [Thing() for _ in range(3)]
    some: weakref.WeakSet[Thing] = weakref.WeakSet(things[:2])
    with in_the_middle(lambda: some.add(things[2])) as done:
        assert set(all_of(lambda: some)) >= set(things[:2])
    assert done
    named: weakref.WeakKeyDictionary[Thing, int] = weakref.WeakKeyDictionary({things[0]: 0, things[1]: 1})
    with in_the_middle(lambda: named.__setitem__(things[2], 2)) as done:
        assert dict(all_of(named.items)).keys() >= set(things[:2])
    assert done


class Told:
    """Stands for a client that reports nothing."""

    client_id = "me"

    def metrics(self) -> dict[Any, float]:
        return {}

    def metric_names(self) -> tuple[Any, ...]:
        return ()


def test_a_scrape_while_another_thread_adds_a_client() -> None:
    told = [Told() for _ in range(4)]
    collector = ClientCollector(*told[:2])
    with in_the_middle(lambda: collector.add(told[2])) as done:
        assert list(collector.collect()) == []
    assert done
    reader = InMemoryMetricReader()
    instruments = ClientInstruments(MeterProvider([reader]).get_meter("test"), *told[:2])
    # Its lock keeps others out meanwhile.
    assert instruments._lock.acquire(timeout=0)
    with in_the_middle(lambda: not instruments._lock.acquire(timeout=0)) as done:
        assert instruments._read() == {}
    assert done
    instruments._lock.release()


def test_a_state_that_is_asked_for_while_another_thread_adds_a_consumer(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody is told of any consumer of this process any more."""
    monkeypatch.setenv("KADENCE_STATE_DIR", str(tmp_path_factory.mktemp("s") / "kadence"))
    consumers = [Consumer(bootstrap_servers=NOWHERE, client_id=f"{number}") for number in range(3)]
    try:
        with publish_state(*consumers[:2]) as publisher:
            with in_the_middle(lambda: publisher.add(consumers[2])) as done:
                document = json.loads(publisher._document())
            assert done
            assert {each["client_id"] for each in document["consumers"]} >= {"0", "1"}
    finally:
        for consumer in consumers:
            consumer.close()


def test_a_signal_and_the_end_of_the_process_while_another_thread_makes_a_client() -> None:
    made: list[Producer] = []

    def make() -> None:
        made.append(Producer(bootstrap_servers=NOWHERE))

    try:
        for _ in range(2):
            make()
        with in_the_middle(make) as done:
            clients = {client for client in stop_on_signals()._mine() if isinstance(client, Producer)}
        assert done
        assert clients >= {*made[:2]}
        with in_the_middle(make) as done:
            alive = {each for each, _ in engine._alive()}
        assert done
        assert alive >= {producer._engine for producer in made[:3] if producer._engine.is_alive()}
    finally:
        for producer in made:
            producer.close(0)
