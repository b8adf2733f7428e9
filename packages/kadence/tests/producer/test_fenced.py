"""A producer that another one of its name has replaced: all that it says of its transaction is that it was fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from kadence import Broker, Producer
from kadence.errors import KafkaError, ProducerFencedError


@pytest.fixture
def replaced(broker: Broker) -> Iterator[Producer]:
    """It has a transaction open with a record that is written, and another one has come."""
    broker.create_topic("t", 1)
    first, second = [
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="x", linger_ms=0)
        for _ in range(2)
    ]
    with first, second:
        first.init_transactions()
        first.begin_transaction()
        first.send("t", b"0").result()
        second.init_transactions()
        yield first


def flushed(producer: Producer, future: Any) -> Any:
    producer.flush()
    assert future.done()
    return future.result()


CALLS: dict[str, Callable[[Producer], Any]] = {
    "send and its future": lambda producer: producer.send("t", b"1").result(),
    "send_and_wait": lambda producer: producer.send_and_wait("t", b"1"),
    "flush and its future": lambda producer: flushed(producer, producer.send("t", b"1")),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_it_is_told_that_it_was_fenced(replaced: Producer, call: Callable[[Producer], Any]) -> None:
    with pytest.raises(ProducerFencedError, match=r"another producer with transactional.id='x' took over"):
        call(replaced)
    # And from then on.
    with pytest.raises(ProducerFencedError):
        replaced.begin_transaction()


def test_except_around_a_transaction_catches_it(replaced: Producer) -> None:
    with suppress(KafkaError):
        replaced.abort_transaction()
    caught = False
    try:
        with replaced.transaction():
            replaced.send_and_wait("t", b"1")
    except ProducerFencedError:
        caught = True
    assert caught


def test_except_around_a_transaction_that_is_replaced_within(broker: Broker) -> None:
    broker.create_topic("t", 1)
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "transactional_id": "x",
        "linger_ms": 0,
    }
    with Producer(**settings) as first, Producer(**settings) as second:
        first.init_transactions()

        def work() -> None:
            with first.transaction():
                first.send_and_wait("t", b"0")
                second.init_transactions()
                first.send_and_wait("t", b"1")

        with pytest.raises(ProducerFencedError):
            work()
