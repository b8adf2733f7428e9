"""What users of other clients write to producers and admins out of habit is answered by a sentence of ours."""

from __future__ import annotations

import asyncio
import re
import traceback
import warnings
from typing import Any

import aiokafka
import confluent_kafka
import pytest

from kadence import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Broker, ConfigError, Consumer, Producer

with warnings.catch_warnings(action="ignore"):
    import kafka

UNANSWERED = {"config", "init_transactions", "max_usable_produce_magic", "metrics", "client"}
"""What has no counterpart, and what is no call."""


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        (Producer, "produce", "call send(topic, value, key)"),
        (Producer, "poll", "it is not needed"),
        (Producer, "initTransactions", "call init_transactions()"),
        (AsyncProducer, "start", "it is not needed"),
        (Admin, "alter_configs", "call incremental_alter_configs({resource: {name: value}})"),
        (Admin, "listTopics", "call list_topics()"),
        (AsyncAdmin, "list_consumer_groups", "call list_groups()"),
    ],
)
def test_a_call_of_another_client(kind: type[Any], name: str, sentence: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(object.__new__(kind), name)
    assert str(caught.value).startswith(f"{kind.__name__!r} object has no attribute {name!r}: {sentence}")


@pytest.mark.parametrize("client", [confluent_kafka.Producer, kafka.KafkaProducer, aiokafka.AIOKafkaProducer])
def test_each_call_of_another_producer_is_ours_or_has_a_sentence(client: type[Any]) -> None:
    for name in dir(client):
        if name.startswith("_") or name.isupper() or hasattr(Producer, name) or name in UNANSWERED:
            continue
        with pytest.raises(AttributeError, match=f"{name!r}: "):
            getattr(object.__new__(Producer), name)


@pytest.mark.parametrize("name", ["timestamp_ms", "on_delivery", "callback"])
def test_arguments_of_another_producer(name: str) -> None:
    """`send` is called for each record and looks at nothing: ``with`` adds the sentence to Python's own error."""
    sentence = "call it timestamp" if name == "timestamp_ms" else "add_done_callback(function)"
    with Broker(topics={"t": 1}) as broker:
        with (
            pytest.raises(TypeError, match=f"unexpected keyword argument {name!r}") as noted,
            Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ):
            producer.send("t", b"v", **{name: 1})  # type: ignore[arg-type]
        with (
            pytest.raises(TypeError, match=f"unexpected keyword argument {name!r}: .*{re.escape(sentence)}"),
            Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ):
            producer.send_and_wait("t", b"v", **{name: 1})  # type: ignore[arg-type]

        async def awaited() -> None:
            async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await producer.send("t", b"v", **{name: 1})  # type: ignore[arg-type]

        with pytest.raises(TypeError) as noted_too:
            asyncio.run(awaited())
    for error in (noted.value, noted_too.value):
        (note,) = error.__notes__
        assert note.startswith(f"{name}: ")
        assert sentence in note


def test_stop_of_a_producer_is_not_close_as_in_aiokafka(broker: Broker) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(TypeError, match=r"await producer\.close\(\)"):
                await producer.stop()  # type: ignore[func-returns-value, misc]
            assert producer.stopping

    asyncio.run(main())


def test_other_errors_in_a_with_are_left_alone() -> None:
    with Broker(topics={"t": 1}) as broker:
        for wrong in (
            TypeError("f() got an unexpected keyword argument 'callback'"),
            TypeError("KafkaProducer.send() got an unexpected keyword argument 'callback'"),
            TypeError("Producer.send() got an unexpected keyword argument 'nonsense'"),
            ValueError("callback"),
        ):
            with (
                pytest.raises(type(wrong)) as caught,
                Producer(bootstrap_servers=broker.bootstrap_servers),
            ):
                raise wrong
            assert not hasattr(caught.value, "__notes__")


@pytest.mark.parametrize("call", ["flush", "close"])
def test_timeouts_are_in_seconds(call: str) -> None:
    with (
        Producer(bootstrap_servers="127.0.0.1:1") as producer,
        pytest.raises(
            TypeError, match=rf"'timeout_ms': timeouts are seconds here, such as {call}\(timeout=1.5\)"
        ),
    ):
        getattr(producer, call)(timeout_ms=5)


@pytest.mark.parametrize("kind", [AsyncConsumer, AsyncProducer, AsyncAdmin])
def test_without_an_event_loop_it_says_what_to_write(kind: type[Any]) -> None:
    name = kind.__name__
    with pytest.raises(RuntimeError) as caught:
        kind(bootstrap_servers="127.0.0.1:1")
    assert str(caught.value) == (
        f"no event loop is running: write `async with {name}(...)` in an `async def` function that asyncio.run() "
        f"runs; without asyncio, use {name.removeprefix('Async')}"
    )


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
