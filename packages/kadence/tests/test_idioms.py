"""What users of other clients write to producers and admins out of habit is answered by a sentence of ours."""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest

from kadence import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Broker,
    ConfigError,
    Consumer,
    Producer,
    RecordFuture,
    Records,
)


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        (Producer, "produce", "call send(topic, value, key)"),
        (Producer, "poll", "it is not needed"),
        (AsyncProducer, "start", "it is not needed"),
        (Admin, "alter_configs", "call incremental_alter_configs({resource: {name: value}})"),
        (AsyncAdmin, "list_consumer_groups", "call list_groups()"),
    ],
)
def test_a_call_of_another_client(kind: type[Any], name: str, sentence: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(object.__new__(kind), name)
    assert str(caught.value).startswith(f"{kind.__name__!r} object has no attribute {name!r}: {sentence}")


def test_stop_of_a_producer_is_not_close_as_in_aiokafka(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(TypeError, match=r"await producer\.close\(\)"):
                await producer.stop()  # type: ignore[func-returns-value, misc]
            assert producer.stopping

    asyncio.run(main())


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncProducer, AsyncAdmin])
def test_without_an_event_loop_it_says_what_to_write(kind: type[Any]) -> None:
    name = kind.__name__
    with pytest.raises(RuntimeError) as caught:
        kind(bootstrap_servers="127.0.0.1:1")
    assert str(caught.value) == (
        f"no event loop is running: write `async with {name}(...)` in an `async def` function that asyncio.run() "
        f"runs; without asyncio, use {name.removeprefix('Async')}"
    )


def test_names_of_other_clients_are_not_offered() -> None:
    with Producer(bootstrap_servers="127.0.0.1:1") as producer:
        offered = dir(producer)
    assert "send" in offered
    assert "produce" not in offered


def test_any_other_name_is_missing_as_ever() -> None:
    with Broker(topics={"t": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        future = producer.send("t", b"v")
        with pytest.raises(AttributeError, match=r"'get': call result\(timeout\)"):
            future.get(timeout=10)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError, match=r"'add_callback': call add_done_callback\(function\)"):
            future.add_callback(print)  # type: ignore[attr-defined]
        for owner in (producer, future):
            with pytest.raises(
                AttributeError, match=f"^{type(owner).__name__!r} object has no attribute 'nonsense'$"
            ):
                getattr(owner, "nonsense")  # noqa: B009
            assert not hasattr(owner, "_nonsense")
        future.result(timeout=10)


@pytest.mark.parametrize("kind", [Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer])
def test_a_client_whose_constructor_fails_can_be_shown(kind: type[Any]) -> None:
    """Reporters of errors show what a frame knows, `self` of the constructor among it."""

    async def make() -> None:
        kind(bootstrap_servers="127.0.0.1:1", security_protocol="SSL", ssl_ca_location="nowhere.pem")

    with pytest.raises(ConfigError) as raised:
        asyncio.run(make())
    frames = traceback.TracebackException.from_exception(raised.value, capture_locals=True).stack
    shown = {
        frame.locals["self"]
        for frame in frames
        if frame.locals and frame.name == "__init__" and "self" in frame.locals
    }
    assert f"<{kind.__name__}, not made yet>" in shown


@pytest.mark.parametrize(
    "kind", [Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, RecordFuture, Records]
)
def test_advice_costs_nothing_where_there_is_an_attribute(kind: type[Any]) -> None:
    """Python looks at each attribute of a class that has one of these the slow way."""
    assert not {"__getattr__", "__getattribute__"} & {
        name for each in kind.__mro__[:-1] for name in vars(each)
    }
