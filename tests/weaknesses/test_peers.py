"""Some of these tests with the other clients themselves: what they are expected to fail, at the versions we looked at.

For information: one that passes by now is an XPASS and fails nothing, and another version is not tried.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from confluent_kafka.aio import AIOConsumer
from tests.weaknesses.conftest import Served, busy

import peers
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.join_group import JoinGroupRequest

with warnings.catch_warnings(action="ignore"):
    import kafka


def weak(client: str) -> Callable[[Any], Any]:
    """A test that a client is expected to fail."""

    def mark(test: Any) -> Any:
        expected = pytest.mark.xfail(
            reason=f"{client} {peers.VERSIONS[client]}", raises=AssertionError, strict=False
        )
        other = pytest.mark.skipif(
            version(client) != peers.VERSIONS[client], reason=f"another {client} is installed"
        )
        return expected(other(test))

    return mark


def confluent_settings(served: Served, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": served.broker.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest",
        "log_level": 0, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 100,
    }  # fmt: skip


@weak("kafka-python")
def test_kafka_python_runs_callbacks_of_commits_oldest_first(served: Served) -> None:
    served.produce(10)
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=served.broker.bootstrap_servers, group_id="g", enable_auto_commit=False
    )
    partition = kafka.TopicPartition("t", 0)
    consumer.assign([partition])
    ended: list[int] = []
    for offset in range(1, 6):
        at = kafka.OffsetAndMetadata(offset, "", -1)
        consumer.commit_async({partition: at}, lambda offsets, _: ended.append(offsets[partition].offset))
    end = time.monotonic() + 20
    while len(ended) < 5 and time.monotonic() < end:
        consumer.poll(timeout_ms=50)
    consumer.close()
    assert ended == [1, 2, 3, 4, 5]


@weak("confluent-kafka")
def test_confluents_consume_returns_with_what_there_is(served: Served) -> None:
    served.produce(5)
    consumer = confluent_kafka.Consumer(confluent_settings(served, "g"))
    consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    assert len(consumer.consume(1, 20)) == 1  # it is connected, and the others are fetched
    time.sleep(0.5)
    started = time.monotonic()
    assert len(consumer.consume(100, 3)) == 4
    waited = time.monotonic() - started
    consumer.close()
    assert waited < 2


@weak("confluent-kafka")
def test_a_cancelled_poll_of_confluents_aio_consumer_loses_no_record(served: Served) -> None:
    async def work() -> list[int]:
        consumer = AIOConsumer(confluent_settings(served, "g"))
        await consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        waiting = asyncio.ensure_future(consumer.poll(5.0))
        await asyncio.sleep(0.5)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await asyncio.to_thread(served.produce, 5)
        seen: list[int] = []
        end = time.monotonic() + 6
        while len(seen) < 5 and time.monotonic() < end:
            message = await consumer.poll(0.5)
            if message is not None and not message.error():
                seen.append(message.offset())
        await consumer.close()
        return seen

    assert asyncio.run(asyncio.wait_for(work(), 60)) == [0, 1, 2, 3, 4]


@weak("aiokafka")
def test_two_assignors_of_aiokafka_join_once(served: Served) -> None:
    async def joins(*assignors: type) -> int:
        with served.faults.observe(JoinGroupRequest) as seen:
            consumer = aiokafka.AIOKafkaConsumer(
                "t", bootstrap_servers=served.broker.bootstrap_servers, group_id=f"g{len(assignors)}",
                partition_assignment_strategy=assignors,
            )  # fmt: skip
            await consumer.start()
            await consumer.stop()
            return len(seen)

    async def work() -> tuple[int, int]:
        return await joins(RangePartitionAssignor), await joins(
            RangePartitionAssignor, RoundRobinPartitionAssignor
        )

    one, two = asyncio.run(asyncio.wait_for(work(), 60))
    assert two == one


@weak("aiokafka")
def test_heartbeats_of_aiokafka_go_on_while_a_coroutine_computes(served: Served) -> None:
    async def work() -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=served.broker.bootstrap_servers, group_id="g", heartbeat_interval_ms=100,
        )  # fmt: skip
        await consumer.start()
        await consumer.getmany(timeout_ms=500)
        with served.faults.observe(HeartbeatRequest) as beats:
            busy(2)
            count = len(beats)
        await consumer.stop()
        return count

    assert asyncio.run(asyncio.wait_for(work(), 60)) >= 5


@weak("kafka-python")
def test_a_listener_of_kafka_python_may_commit(served: Served) -> None:
    served.produce(1)
    partition = kafka.TopicPartition("t", 0)
    raised: list[RuntimeError] = []

    class Committing(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: list[Any]) -> None:
            try:
                consumer.commit({partition: kafka.OffsetAndMetadata(1, "", -1)})
            except RuntimeError as error:
                raised.append(error)

        def on_partitions_assigned(self, assigned: list[Any]) -> None: ...

    consumer = kafka.KafkaConsumer(
        bootstrap_servers=served.broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    consumer.subscribe(["t"], listener=Committing())
    end = time.monotonic() + 20
    while not raised and not consumer.poll(timeout_ms=100) and time.monotonic() < end:
        pass
    consumer.unsubscribe()
    consumer.close()
    assert raised == []


@weak("confluent-kafka")
def test_a_second_thread_of_confluent_does_not_wait_for_the_poll_of_the_first(served: Served) -> None:
    consumer = confluent_kafka.Consumer(confluent_settings(served, "g"))
    partition = confluent_kafka.TopicPartition("t", 0, 0)
    consumer.assign([partition])
    inside = threading.Thread(target=lambda: consumer.poll(3))
    inside.start()
    time.sleep(1)  # by then it is inside, on a busy machine too
    started = time.monotonic()
    consumer.position([partition])
    waited = time.monotonic() - started
    inside.join()
    consumer.close()
    assert waited < 1


CONFLUENT = """
    from confluent_kafka import Consumer
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", "log_level": 0,
        "session.timeout.ms": 1_000, "heartbeat.interval.ms": 100, "auto.commit.interval.ms": 50,
    })
    consumer.subscribe(["t"])
    while True:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            process(message.value())
"""
AIOKAFKA = """
    import asyncio, aiokafka
    async def main():
        consumer = aiokafka.AIOKafkaConsumer(
            "t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest",
            session_timeout_ms=1_000, heartbeat_interval_ms=100, auto_commit_interval_ms=50,
        )
        await consumer.start()
        async for record in consumer:
            await aprocess(record.value)
    asyncio.run(main())
"""
WORKER = """
    import asyncio, os, sys, time
    servers, stop_at, path = sys.argv[1:]
    done = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    def process(value):
        if value == stop_at.encode():
            print("in hand", flush=True)
            time.sleep(60)
        os.write(done, value + b"\\n")
    async def aprocess(value):
        if value == stop_at.encode():
            print("in hand", flush=True)
            await asyncio.sleep(60)
        os.write(done, value + b"\\n")
"""


def crash(served: Served, program: str, folder: Path) -> None:
    """As `test_a_crash_while_processing_loses_no_record`, with another client's program."""
    served.produce(60)
    done = folder / "done"
    source = textwrap.dedent(WORKER) + textwrap.dedent(program)

    def worker(stop_at: str) -> subprocess.Popen[str]:
        arguments = [served.broker.bootstrap_servers, stop_at, str(done)]
        return subprocess.Popen([sys.executable, "-c", source, *arguments], stdout=subprocess.PIPE, text=True)

    for stop_at in ("35", "59"):
        with worker(stop_at) as killed:
            assert killed.stdout is not None
            if killed.stdout.readline() != "in hand\n":
                pytest.fail(f"record {stop_at} never came")
            with pytest.raises(subprocess.TimeoutExpired):
                killed.wait(0.6)
            killed.kill()
    assert sorted({int(line) for line in done.read_text().split()}) == list(range(59))


@weak("confluent-kafka")
def test_a_crash_of_a_confluent_process_loses_no_record(served: Served, tmp_path: Path) -> None:
    crash(served, CONFLUENT, tmp_path)


@weak("aiokafka")
def test_a_crash_of_an_aiokafka_process_loses_no_record(served: Served, tmp_path: Path) -> None:
    crash(served, AIOKAFKA, tmp_path)
