"""What clients do before a hostile broker: a little of everything, and then close().

Kadence's own errors may come, but for the one that tells of a bug; a record that is returned is the one that was
written at its place; and close() ends in time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from tests.patience import PATIENCE

from kadence import Admin, Consumer, KafkaError, Producer
from kadence.broker import Broker
from kadence.errors import FatalNetworkError

__all__ = ["CLIENTS", "TOPIC", "filled_broker"]

TOPIC: Final = "t"
PARTITIONS: Final = 2
RECORDS: Final = 200
_READING: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "default_api_timeout_ms": 500,
    # Many fetches of few records each.
    "max_partition_fetch_bytes": 300,
    "fetch_max_bytes": 500,
}
_HASTE: Final[dict[str, Any]] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "request_timeout_ms": 300,
    "socket_connection_setup_timeout_ms": 300,
}


def value(partition: int, offset: int) -> bytes:
    return b"%d:%d" % (partition, offset)


@contextmanager
def filled_broker() -> Iterator[Broker]:
    """A broker with a topic whose records say where they are."""
    with Broker(topics={TOPIC: PARTITIONS}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition in range(PARTITIONS):
                for offset in range(RECORDS):
                    producer.send(TOPIC, value(partition, offset), partition=partition)
        yield broker


def _reader(servers: str, rounds: int) -> None:
    consumer = Consumer(bootstrap_servers=servers, **_READING, **_HASTE)
    _attempt(lambda: consumer.assign_topics(TOPIC, start="earliest"))
    _read(consumer, rounds)
    _end(consumer.close)


def _member(servers: str, rounds: int) -> None:
    consumer = Consumer(
        bootstrap_servers=servers, group_id="g", auto_commit_interval_ms=10, **_READING, **_HASTE
    )
    consumer.subscribe(TOPIC)
    _read(consumer, rounds)
    _attempt(lambda: consumer.commit(timeout=0.2))
    _end(consumer.close)


def _read(consumer: Consumer, rounds: int) -> None:
    for _ in range(rounds):
        with suppress(KafkaError):
            try:
                records = consumer.poll(0.05, max_records=17)
            except FatalNetworkError:
                raise AssertionError("the network thread has died") from None
            for record in records:
                if record.topic == TOPIC:
                    assert record.value == value(record.partition, record.offset)


def _producer(servers: str, rounds: int) -> None:
    producer = Producer(
        bootstrap_servers=servers, max_block_ms=100, delivery_timeout_ms=400, linger_ms=0, **_HASTE
    )
    for number in range(rounds):
        _attempt(partial(_send, producer, b"more %d" % number))
    _end(producer.close)


def _send(producer: Producer, value: bytes) -> None:
    producer.send(TOPIC, value).result(1)


def _transactions(servers: str, rounds: int) -> None:
    for _ in range(max(1, rounds // 5)):
        producer = Producer(
            bootstrap_servers=servers,
            transactional_id="tx",
            max_block_ms=100,
            delivery_timeout_ms=400,
            linger_ms=0,
            **_HASTE,
        )
        _attempt(producer.init_transactions)
        for call in (producer.commit_transaction, producer.abort_transaction) * 2:
            _attempt(producer.begin_transaction)
            _attempt(partial(producer.send, TOPIC, b"more"))
            _attempt(call)
        _end(producer.close)


def _admin(servers: str, rounds: int) -> None:
    admin = Admin(bootstrap_servers=servers, default_api_timeout_ms=200, **_HASTE)
    for number in range(max(1, rounds // 5)):
        _attempt(admin.list_topics)
        _attempt(lambda: admin.describe_topics(TOPIC))
        _attempt(partial(admin.create_topics, {f"n{number}": 1}))
        _attempt(admin.list_groups)
        _attempt(admin.describe_cluster)
    _end(admin.close)


def _attempt(call: Callable[[], object]) -> None:
    """Kadence's own errors may come, but for the one that tells of a bug."""
    with suppress(KafkaError, TimeoutError):
        try:
            call()
        except FatalNetworkError:
            raise AssertionError("the network thread has died") from None


def _end(close: Callable[[float], object]) -> None:
    """close() returns, whatever the broker answers."""
    ended = threading.Event()

    def run() -> None:
        with suppress(KafkaError):
            close(1)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert ended.wait(PATIENCE), "close() hangs"


CLIENTS: Final[dict[str, Callable[[str, int], None]]] = {
    "reader": _reader,
    "member": _member,
    "producer": _producer,
    "transactions": _transactions,
    "admin": _admin,
}
"""A client by its kind: given the address, and how often it is to ask for something."""
