"""`process` that begins while no broker is there waits for one, as polls do, and ends with `stop()`; virtual time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.virtual import VirtualCluster

from kadence import Record
from kadence.errors import ConfigError
from kadence.work import Retry

LONG_S = 300
"""Several times default.api.timeout.ms."""

TOPICS: list[dict[str, Any]] = [
    {},
    {"dead_letter": "dead"},
    {"dead_letter": "dead", "retry": Retry(topic="again")},
]
with_topics = pytest.mark.parametrize("arguments", TOPICS, ids=["none", "dead letters", "retries"])


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    made = VirtualCluster()
    for topic in ("t", "dead", "again"):
        made.create_topic(topic, 1)
    yield made
    made.close()


async def nothing(record: Record[Any, Any]) -> None: ...


@with_topics
def test_it_begins_once_they_are_there(cluster: VirtualCluster, arguments: dict[str, Any]) -> None:
    cluster.produce("t", 3, partitions=1)
    cluster.virtual_broker.stop_node(1)
    consumer, handled = cluster.consumer(group_id="g"), []

    async def handle(record: Record[Any, Any]) -> None:
        handled.append(record.offset)

    consumer.subscribe("t")
    call = consumer.begin("process", handle, **arguments)
    cluster.sleep(LONG_S)
    assert not call.done()
    cluster.virtual_broker.start_node(1)
    cluster.until(lambda: len(handled) == 3)
    consumer._client.stop()
    cluster.until(call.done)
    assert call.result().done == 3
    consumer.close()


@with_topics
def test_stop_ends_it_at_once(cluster: VirtualCluster, arguments: dict[str, Any]) -> None:
    cluster.virtual_broker.stop_node(1)
    consumer = cluster.consumer(group_id="g")
    consumer.subscribe("t")
    call = consumer.begin("process", nothing, **arguments)
    cluster.sleep(5)
    began = cluster.simulation.scheduler.now_ms()
    consumer._client.stop()
    cluster.until(call.done)
    assert cluster.simulation.scheduler.now_ms() - began < 1_000
    assert call.result().done == 0
    consumer.close(1)


def test_a_topic_that_is_missing_is_told_once_they_are_there(cluster: VirtualCluster) -> None:
    cluster.virtual_broker.stop_node(1)
    consumer = cluster.consumer(group_id="g")
    consumer.subscribe("t")
    call = consumer.begin("process", nothing, dead_letter="nowhere")
    cluster.sleep(LONG_S)
    cluster.virtual_broker.start_node(1)
    cluster.until(call.done)
    with pytest.raises(ConfigError, match="the cluster has no topic 'nowhere'"):
        call.result()
    consumer.close()


def test_the_last_transaction_does_not_outlast_the_grace_period(cluster: VirtualCluster) -> None:
    cluster.produce("t", 3, partitions=1)
    consumer = cluster.consumer(
        group_id="g",
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=600_000,
    )
    handled = []

    async def handle(record: Record[Any, Any]) -> None:
        handled.append(record.offset)

    consumer.subscribe("t")
    call = consumer.begin("process", handle, transactional_id="worker-1")
    cluster.until(lambda: len(handled) == 3)
    cluster.virtual_broker.stop_node(1)
    began = cluster.simulation.scheduler.now_ms()
    consumer._client.stop(grace=6)
    cluster.until(call.done)
    assert cluster.simulation.scheduler.now_ms() - began < 6_000
    consumer.close(1)
