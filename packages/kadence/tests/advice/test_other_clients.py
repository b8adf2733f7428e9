"""Advice for calls of other clients: every sentence of `kadence.idioms` is followed, and works.

The settings of that table are in `test_settings.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kadence import (
    AcknowledgeType,
    Admin,
    Broker,
    ConfigResource,
    Consumer,
    Interceptor,
    Producer,
    RebalanceListener,
    Records,
    ShareConsumer,
    TopicPartition,
)
from kadence.idioms import _ADVICE, advice

PARTITION = TopicPartition("t", 0)


class World(NamedTuple):
    """A topic with the records 0 to 4, and one client of each kind."""

    broker: Broker
    consumer: Consumer[bytes, bytes]
    producer: Producer
    admin: Admin


class Assignments(RebalanceListener):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_partitions_assigned(self, partitions: Any) -> None:
        self.seen.append("assigned")

    def on_partitions_revoked(self, partitions: Any) -> None:
        self.seen.append("revoked")

    def on_partitions_lost(self, partitions: Any) -> None:
        self.seen.append("lost")


class Commits(Interceptor):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_commit(self, offsets: Any) -> None:
        self.seen.append(offsets)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    quick = {"group.share.heartbeat.interval.ms": 100, "group.share.min.heartbeat.interval.ms": 100}
    with Broker(topics={"t": 1}, config=quick) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("t", str(number).encode(), b"k")
        yield broker


@pytest.fixture
def world(broker: Broker, request: pytest.FixtureRequest) -> Iterator[World]:
    servers = broker.bootstrap_servers
    group = re.sub(r"\W", "-", request.node.name)
    with (
        Consumer(
            bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
        Producer(bootstrap_servers=servers) as producer,
        Admin(bootstrap_servers=servers) as admin,
    ):
        yield World(broker, consumer, producer, admin)


def polled(world: World, **arguments: Any) -> Records[bytes, bytes]:
    if not world.consumer.assignment():
        world.consumer.assign(PARTITION)
    return world.consumer.poll(10, **arguments)


def of(records: Any) -> list[bytes]:
    return [record.value for record in records]


def listened(world: World) -> None:
    listener = Assignments()
    world.consumer.subscribe("t", listener=listener)
    assert of(world.consumer.poll(10))
    world.consumer.unsubscribe()
    assert listener.seen == ["assigned", "revoked"]


def committed_by_hand(world: World) -> None:
    records = polled(world)
    world.consumer.commit_async(records)
    world.consumer.commit()
    found = world.consumer.committed(PARTITION)[PARTITION]
    assert found is not None
    assert found.offset == 5


def committed_up_to(world: World) -> None:
    records = list(polled(world))
    world.consumer.commit(records[2])
    found = world.consumer.committed(PARTITION)[PARTITION]
    assert found is not None
    assert found.offset == 3


def committed_with_callback(world: World) -> None:
    ended: list[Any] = []
    world.consumer.commit_async(polled(world), lambda offsets, error: ended.append(error))
    world.consumer.commit()
    assert ended == [None]


def seen_by_an_interceptor(world: World) -> None:
    commits = Commits()
    with Consumer(
        bootstrap_servers=world.broker.bootstrap_servers, group_id="intercepted", interceptors=[commits]
    ) as consumer:
        consumer.assign({PARTITION: 0})
        consumer.commit(consumer.poll(10))
        consumer.poll(0)
    assert commits.seen


def delivered(world: World) -> None:
    with Broker(topics={"u": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        assert producer.send("u", b"v", b"k").result(timeout=10).offset == 0


def called_back(world: World) -> None:
    errors: list[Any] = []
    with Broker(topics={"u": 1}) as broker, Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("u", b"v").add_done_callback(lambda future: errors.append(future.exception()))
    assert errors == [None]


def altered(world: World) -> None:
    topic = ConfigResource("topic", "t")
    world.admin.incremental_alter_configs({topic: {"retention.ms": "1000000"}})
    assert world.admin.describe_configs([topic])[topic]["retention.ms"].value == "1000000"


def idle(world: World) -> None:
    assert len(polled(world)) == 5
    assert list(world.consumer.records(idle_timeout=0.2)) == []


def unassigned(world: World) -> None:
    assert polled(world)
    world.consumer.unsubscribe()
    assert not world.consumer.assignment()


def at_the_end(world: World) -> None:
    assert len(polled(world)) == 5
    assert world.consumer.current_lag(PARTITION) == 0


def logged(world: World) -> None:
    logger = logging.getLogger("kadence")
    before = logger.level
    logger.setLevel(logging.DEBUG)
    assert logging.getLogger("kadence.net").isEnabledFor(logging.DEBUG)
    logger.setLevel(before)


def is_true(of: Callable[[World], Any]) -> Callable[[World], None]:
    def check(world: World) -> None:
        assert of(world)

    return check


def from_queue(of: Callable[[ShareConsumer[Any, Any]], Any]) -> Callable[[World], None]:
    """A check with a member of a queue that begins at the first record, and says itself what becomes of records."""

    def check(world: World) -> None:
        group = f"{world.consumer.group_metadata().group_id}-queue"
        settings = {"bootstrap.servers": world.broker.bootstrap_servers, "group.id": group}
        world.admin.alter_share_group_offsets(group, {PARTITION: 0})
        with ShareConsumer(settings, share_acknowledgement_mode="explicit") as consumer:
            consumer.subscribe("t")
            assert of(consumer)

    return check


def taken(consumer: ShareConsumer[Any, Any], count: int = 5) -> list[Any]:
    records: list[Any] = []
    while len(records) < count:
        records += consumer.poll(timeout=10, max_records=count - len(records))
        for record in records:
            consumer.acknowledge(record)
    return records


def gone(consumer: ShareConsumer[Any, Any]) -> bool:
    consumer.unsubscribe()
    return not consumer.subscription()


def released(consumer: ShareConsumer[Any, Any]) -> bool:
    for record in consumer.poll(10):
        consumer.acknowledge(record, AcknowledgeType.RELEASE)
    return all(record.delivery_count == 2 for record in taken(consumer))


CALLS: dict[str, dict[str, Callable[[World], None]]] = {
    "Consumer": {
        "consume": is_true(lambda w: len(polled(w, max_records=2)) == 2),
        "store_offsets": committed_by_hand,
        "get_watermark_offsets": is_true(
            lambda w: (
                (w.consumer.beginning_offsets(PARTITION), w.consumer.end_offsets(PARTITION))
                == ({PARTITION: 0}, {PARTITION: 5})
            )
        ),
        "unassign": unassigned,
        "topics": is_true(lambda w: "t" in w.consumer.list_topics()),
        "partitions_for_topic": is_true(lambda w: len(w.consumer.partitions_for("t")) == 1),
        "start": is_true(polled),
        "getone": is_true(
            lambda w: of(polled(w, max_records=1)) == [b"0"] and next(iter(w.consumer)).value == b"1"
        ),
        "getmany": is_true(lambda w: of(polled(w, max_records=3)) == [b"0", b"1", b"2"]),
    },
    "Consumer.poll": {"timeout_ms": is_true(lambda w: polled(w) and not w.consumer.poll(timeout=0.01))},
    "Consumer.subscribe": dict.fromkeys(("on_assign", "on_revoke", "on_lost"), listened),
    "Consumer.commit": {"asynchronous": committed_with_callback, "message": committed_up_to},
    "ShareConsumer": {
        "consume": from_queue(lambda q: of(taken(q, 2)) == [b"0", b"1"]),
        "commit_sync": from_queue(lambda q: taken(q) and q.commit() == {PARTITION: None}),
        "acquisition_lock_timeout_ms": from_queue(lambda q: taken(q) and q.lock_timeout == 30),
        "seek": from_queue(lambda q: taken(q, 1)[0].offset == 0),
        "pause": from_queue(gone),
        "nack": from_queue(released),
        "ack": from_queue(lambda q: taken(q) and q.commit() == {PARTITION: None}),
    },
    "ShareConsumer.poll": {"timeout_ms": from_queue(taken)},
    "Records": {
        "error": is_true(lambda w: next((r.key, r.value) for r in polled(w)) == (b"k", b"0")),
        "value": is_true(lambda w: [r.value for r in polled(w)][4] == b"4"),
        "items": is_true(lambda w: list(polled(w).by_partition()) == [PARTITION]),
    },
    "Producer": {"produce": delivered, "poll": called_back, "start": delivered},
    "RecordFuture": {"get": delivered, "add_callback": called_back, "add_errback": called_back},
    "Admin": {
        "alter_configs": altered,
        "list_consumer_groups": is_true(lambda w: w.admin.list_groups() is not None),
    },
}
SETTINGS: dict[str, Callable[[World], None]] = {
    "consumer.timeout.ms": idle,
    "debug": logged,
    "enable.auto.offset.store": committed_by_hand,
    "enable.partition.eof": at_the_end,
    "logger": logged,
    "on.commit": seen_by_an_interceptor,
    "stats.cb": is_true(lambda w: w.consumer.metrics()),
    "statistics.interval.ms": is_true(lambda w: w.producer.metrics()),
}
"""Settings whose advice is a call."""

NEEDS_NOTHING = re.compile(r"leave it out|buffer\.memory|batch\.size|ssl\.|errors are raised by the calls")
"""Advice that names another setting, which `test_settings.py` reads, or none."""


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in _ADVICE if kind != "setting" for name in _ADVICE[kind]]
)
def test_a_call_that_follows_the_advice_works(world: World, kind: str, name: str) -> None:
    CALLS[kind][name](world)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_call_in_place_of_a_setting_works(world: World, name: str) -> None:
    assert advice("setting", name)
    SETTINGS[name](world)


def test_no_advice_is_left_out() -> None:
    settings = _ADVICE["setting"]
    sentences = {name for name, ours in settings.items() if " " in ours and not NEEDS_NOTHING.search(ours)}
    assert sentences <= set(SETTINGS)
