"""A member of a group, of the client that the first argument names, as a process that others may kill and stop.

It says what happens to it as Kafka's own VerifiableConsumer does: a line of JSON for each thing. Records are told once
they are processed and before they are committed, partitions before they are given up. SIGTERM closes it.

    python member.py CLIENT SERVERS GROUP TOPIC ASSIGNOR PROTOCOL SESSION_TIMEOUT_MS
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

HEARTBEAT_MS = 200
MOST = 50
"""Records between two commits."""


@dataclass(frozen=True)
class Plan:
    servers: str
    group: str
    topic: str
    assignor: str
    protocol: str
    session_ms: int


def say(name: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"timestamp": int(time.time() * 1000), "name": name, **more}) + "\n")
    sys.stdout.flush()


def say_partitions(name: str, partitions: Iterable[Any]) -> None:
    say(name, partitions=[{"partition": each.partition} for each in partitions])


class Listener:
    """What all listeners of Python clients look like."""

    def on_partitions_assigned(self, partitions: Iterable[Any]) -> None:
        say_partitions("partitions_assigned", partitions)

    def on_partitions_revoked(self, partitions: Iterable[Any]) -> None:
        say_partitions("partitions_revoked", partitions)

    on_partitions_lost = on_partitions_revoked


def processed(offsets: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Tells of records that were processed; the offsets to commit, by partition."""
    found: dict[int, list[int]] = {}
    for partition, offset in offsets:
        found.setdefault(partition, []).append(offset)
    if found:
        sets = [
            {"partition": partition, "minOffset": min(each), "maxOffset": max(each), "count": len(each)}
            for partition, each in found.items()
        ]
        say("records_consumed", partitions=sets)
    return {partition: max(each) + 1 for partition, each in found.items()}


def committed(offsets: dict[int, int], error: Exception | None) -> None:
    told = [{"partition": partition, "offset": offset} for partition, offset in offsets.items()]
    say("offsets_committed", offsets=told, success=error is None, error=repr(error))


def confluent(plan: Plan, goes_on: Callable[[], bool]) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings: dict[str, Any] = {
        "bootstrap.servers": plan.servers, "group.id": plan.group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False, "log_level": 0, "group.protocol": plan.protocol,
    }  # fmt: skip
    if plan.protocol == "classic":
        settings |= {
            "session.timeout.ms": plan.session_ms, "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": plan.assignor,
        }  # fmt: skip
    else:
        settings["group.remote.assignor"] = plan.assignor
    consumer = Consumer(settings)
    batch: list[tuple[int, int]] = []

    def take(message: Any) -> None:
        if message is not None and message.error() is None:
            batch.append((message.partition(), message.offset()))

    def commit() -> None:
        offsets = processed(batch)
        batch.clear()
        if not offsets:
            return
        error = None
        try:
            consumer.commit(
                offsets=[TopicPartition(plan.topic, *each) for each in offsets.items()], asynchronous=False
            )
        except KafkaException as problem:
            error = problem
        committed(offsets, error)

    def revoked(_: Any, partitions: Any) -> None:
        # It gives records one by one, and calls this between two of them.
        commit()
        say_partitions("partitions_revoked", partitions)

    consumer.subscribe(
        [plan.topic],
        on_assign=lambda _, partitions: say_partitions("partitions_assigned", partitions),
        on_revoke=revoked,
        on_lost=revoked,
    )
    while goes_on():
        take(consumer.poll(0.1))
        while batch and len(batch) < MOST:
            before = len(batch)
            take(consumer.poll(0))
            if len(batch) <= before:
                break
        commit()
    say("shutdown_began")
    consumer.close()


def kafka_python(plan: Plan, goes_on: Callable[[], bool]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.errors import KafkaError

    class Told(Listener, ConsumerRebalanceListener):  # type: ignore[misc]
        pass

    assignors = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}
    consumer = KafkaConsumer(
        bootstrap_servers=plan.servers.split(","), group_id=plan.group, auto_offset_reset="earliest",
        enable_auto_commit=False, session_timeout_ms=plan.session_ms, heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=(assignors[plan.assignor],), max_poll_records=MOST,
    )  # fmt: skip
    consumer.subscribe([plan.topic], listener=Told())
    while goes_on():
        found = consumer.poll(timeout_ms=100)
        offsets = processed((each.partition, each.offset) for records in found.values() for each in records)
        if offsets:
            error = None
            try:
                consumer.commit(
                    {
                        TopicPartition(plan.topic, partition): OffsetAndMetadata(offset, "", -1)
                        for partition, offset in offsets.items()
                    }
                )
            except KafkaError as problem:
                error = problem
            committed(offsets, error)
    say("shutdown_began")
    consumer.close(autocommit=False)


def aiokafka(plan: Plan, goes_on: Callable[[], bool]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    class Told(Listener, ConsumerRebalanceListener):  # type: ignore[misc]
        pass

    async def run() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=plan.servers, group_id=plan.group, auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=plan.session_ms, heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=(RangePartitionAssignor,), max_poll_records=MOST,
        )  # fmt: skip
        consumer.subscribe([plan.topic], listener=Told())
        await consumer.start()
        while goes_on():
            found = await consumer.getmany(timeout_ms=100)
            offsets = processed(
                (each.partition, each.offset) for records in found.values() for each in records
            )
            if offsets:
                error = None
                try:
                    await consumer.commit(
                        {TopicPartition(plan.topic, partition): at for partition, at in offsets.items()}
                    )
                except KafkaError as problem:
                    error = problem
                committed(offsets, error)
        say("shutdown_began")
        await consumer.stop()

    asyncio.run(run())


def kadence(plan: Plan, goes_on: Callable[[], bool]) -> None:
    from kadence import Consumer, RebalanceListener, TopicPartition
    from kadence.errors import KafkaError

    class Told(Listener, RebalanceListener):
        pass

    settings: dict[str, Any] = {"group_protocol": plan.protocol}
    if plan.protocol == "classic":
        settings |= {
            "session_timeout_ms": plan.session_ms, "heartbeat_interval_ms": HEARTBEAT_MS,
            "partition_assignment_strategy": plan.assignor,
        }  # fmt: skip
    else:
        settings["group_remote_assignor"] = plan.assignor
    with Consumer(
        bootstrap_servers=plan.servers, group_id=plan.group, auto_offset_reset="earliest",
        enable_auto_commit=False, max_poll_records=MOST, **settings,
    ) as consumer:  # fmt: skip
        consumer.subscribe([plan.topic], listener=Told())
        while goes_on():
            offsets = processed((each.partition, each.offset) for each in consumer.poll(0.1))
            if offsets:
                error = None
                try:
                    consumer.commit(
                        {TopicPartition(plan.topic, partition): at for partition, at in offsets.items()}
                    )
                except KafkaError as problem:
                    error = problem
                committed(offsets, error)
        say("shutdown_began")


CLIENTS: dict[str, Callable[[Plan, Callable[[], bool]], None]] = {
    "confluent": confluent, "kafka-python": kafka_python, "aiokafka": aiokafka, "kadence": kadence,
}  # fmt: skip


def main() -> None:
    client, servers, group, topic, assignor, protocol, session_ms = sys.argv[1:]
    # Where it stands is written to its log when a test has waited in vain.
    faulthandler.register(signal.SIGUSR1)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    say("startup_complete")
    CLIENTS[client](Plan(servers, group, topic, assignor, protocol, int(session_ms)), lambda: not ended)
    say("shutdown_complete")


if __name__ == "__main__":
    main()
