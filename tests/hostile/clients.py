"""What clients do before a hostile broker: a little of everything, and then close().

Kadence's own errors may come, but for the one that tells of a bug; a record that is returned is the one that was
written at its place; and close() ends in time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from tests.patience import PATIENCE

from kadence import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KafkaError,
    OffsetAndMetadata,
    Producer,
    TopicPartition,
)
from kadence.admin import ConfigChange, ConfigResource
from kadence.errors import FatalNetworkError
from kadence_broker import Broker

__all__ = ["ASKED", "CLIENTS", "HASTE", "PARTITIONS", "READING", "RECORDS", "TOPIC", "filled_broker", "value"]

TOPIC: Final = "t"
PARTITIONS: Final = 2
RECORDS: Final = 200
READING: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "default_api_timeout_ms": 500,
    # Many fetches of few records each.
    "max_partition_fetch_bytes": 300,
    "fetch_max_bytes": 500,
}
HASTE: Final[dict[str, Any]] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 20,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 20,
    "request_timeout_ms": 300,
    "socket_connection_setup_timeout_ms": 300,
}


Met = Callable[[BaseException], None] | None

ONE: Final = TopicPartition(TOPIC, 0)
CONFIGS: Final = ConfigResource("topic", TOPIC)
ASKED: Final[dict[str, Callable[[Admin], object]]] = {
    "create topics": lambda admin: admin.create_topics({"new": 1}),
    "create partitions": lambda admin: admin.create_partitions({"t": 3}),
    "delete topics": lambda admin: admin.delete_topics("t"),
    "describe configs": lambda admin: admin.describe_configs(CONFIGS),
    "alter configs": lambda admin: admin.incremental_alter_configs(
        {CONFIGS: {"retention.ms": ConfigChange("set", "1000")}}
    ),
    "list offsets": lambda admin: admin.list_offsets({ONE: "latest"}),
    "delete records": lambda admin: admin.delete_records({ONE: 0}),
    "describe groups": lambda admin: admin.describe_consumer_groups("g"),
    "delete groups": lambda admin: admin.delete_consumer_groups("g"),
    "group offsets": lambda admin: admin.list_offsets_of_groups(["g"]),
    "commit": lambda admin: admin.alter_consumer_group_offsets("g", {ONE: OffsetAndMetadata(0)}),
    "delete offsets": lambda admin: admin.delete_consumer_group_offsets("g", ONE),
    "describe share groups": lambda admin: admin.describe_share_groups("g"),
    "share group offsets": lambda admin: admin.list_offsets_of_share_groups(["g"]),
    "alter share group offsets": lambda admin: admin.alter_share_group_offsets("s", {ONE: 0}),
    "delete share group offsets": lambda admin: admin.delete_share_group_offsets("s", TOPIC),
    "dead letter topics": lambda admin: admin.describe_dead_letter_queues("s", topic="dlq.t"),
    "transactions": lambda admin: admin.describe_transactions("x"),
    "producers": lambda admin: admin.describe_producers(ONE),
}


def value(partition: int, offset: int) -> bytes:
    return b"%d:%d" % (partition, offset)


_VALUES: Final = {value(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)}


@contextmanager
def filled_broker() -> Iterator[Broker]:
    """A broker with a topic whose records say where they are."""
    with Broker(topics={TOPIC: PARTITIONS}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition in range(PARTITIONS):
                for offset in range(RECORDS):
                    producer.send(TOPIC, value(partition, offset), partition=partition)
        yield broker


def _reader(servers: str, rounds: int, met: Met) -> None:
    consumer = Consumer(bootstrap_servers=servers, **READING, **HASTE)
    _attempt(met, lambda: consumer.assign_topics(TOPIC, start="earliest"))
    _read(consumer, rounds, met)
    _end(consumer.close)


def _member(servers: str, rounds: int, met: Met) -> None:
    consumer = Consumer(
        bootstrap_servers=servers, group_id="g", auto_commit_interval_ms=10, **READING, **HASTE
    )
    consumer.subscribe(TOPIC)
    _read(consumer, rounds, met)
    _attempt(met, lambda: consumer.commit(timeout=0.2))
    _end(consumer.close)


def _read(consumer: Consumer, rounds: int, met: Met) -> None:
    def poll() -> None:
        for record in consumer.poll(0.05, max_records=17):
            if record.topic == TOPIC and met is None:
                assert record.value == value(record.partition, record.offset)
            elif record.topic == TOPIC:
                # No checksum is over the offset.
                assert record.value in _VALUES or record.value.startswith(b"more")

    for _ in range(rounds):
        _attempt(met, poll)


def _asyncio(servers: str, rounds: int, met: Met) -> None:
    async def run() -> None:
        consumer = AsyncConsumer(bootstrap_servers=servers, group_id="g", **READING, **HASTE)
        producer = AsyncProducer(
            bootstrap_servers=servers, max_block_ms=100, delivery_timeout_ms=400, linger_ms=0, **HASTE
        )
        await consumer.subscribe(TOPIC)
        for _ in range(rounds):
            for call in (consumer.poll(0.05), producer.send_and_wait(TOPIC, b"more")):
                await _attempt_async(met, call)
        for close in (consumer.close, producer.close):
            with suppress(KafkaError):
                await asyncio.wait_for(close(1), PATIENCE)

    asyncio.run(run())


def _producer(servers: str, rounds: int, met: Met) -> None:
    producer = Producer(
        bootstrap_servers=servers, max_block_ms=100, delivery_timeout_ms=400, linger_ms=0, **HASTE
    )
    for number in range(rounds):
        _attempt(met, partial(_send, producer, b"more %d" % number))
    _end(producer.close)


def _send(producer: Producer, value: bytes) -> None:
    producer.send(TOPIC, value).result(1)


def _transactions(servers: str, rounds: int, met: Met) -> None:
    for _ in range(max(1, rounds // 5)):
        producer = Producer(
            bootstrap_servers=servers,
            transactional_id="tx",
            max_block_ms=100,
            delivery_timeout_ms=400,
            linger_ms=0,
            **HASTE,
        )
        _attempt(met, producer.init_transactions)
        for call in (producer.commit_transaction, producer.abort_transaction) * 2:
            _attempt(met, producer.begin_transaction)
            _attempt(met, partial(producer.send, TOPIC, b"more"))
            _attempt(met, call)
        _end(producer.close)


def _admin(servers: str, rounds: int, met: Met) -> None:
    admin = Admin(bootstrap_servers=servers, default_api_timeout_ms=200, **HASTE)
    for number in range(max(1, rounds // 5)):
        _attempt(met, admin.list_topics)
        _attempt(met, lambda: admin.describe_topics(TOPIC))
        _attempt(met, partial(admin.create_topics, {f"n{number}": 1}))
        _attempt(met, admin.list_groups)
        _attempt(met, admin.describe_cluster)
    _end(admin.close)


def _operator(servers: str, rounds: int, met: Met) -> None:
    admin = Admin(bootstrap_servers=servers, default_api_timeout_ms=200, **HASTE)
    for ask in ASKED.values():
        _attempt(met, partial(ask, admin))
    _end(admin.close)


def _attempt(met: Met, call: Callable[[], object]) -> None:
    """Kadence's own errors may come, but for the one that tells of a bug."""
    try:
        call()
    except FatalNetworkError:
        raise AssertionError("the network thread has died") from None
    except (KafkaError, TimeoutError) as error:
        if met is not None:
            met(error)


async def _attempt_async(met: Met, call: Awaitable[object]) -> None:
    try:
        await call
    except FatalNetworkError:
        raise AssertionError("the network thread has died") from None
    except (KafkaError, TimeoutError) as error:
        if met is not None:
            met(error)


def _end(close: Callable[[float], object]) -> None:
    """close() returns, whatever the broker answers."""
    ended = threading.Event()

    def run() -> None:
        with suppress(KafkaError):
            close(1)
        ended.set()

    threading.Thread(target=run, daemon=True).start()
    assert ended.wait(PATIENCE), "close() hangs"


CLIENTS: Final[dict[str, Callable[[str, int, Met], None]]] = {
    "reader": _reader,
    "member": _member,
    "asyncio": _asyncio,
    "producer": _producer,
    "transactions": _transactions,
    "admin": _admin,
    "operator": _operator,
}
"""A client by its kind: given the address, how often it is to ask for something, and what is called with each error.
None: answers may be late or refused, but records come as they were written."""
