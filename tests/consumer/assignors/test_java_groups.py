"""Kadence and Java's consumer in one group on real Kafka: Java's defaults, and Java cooperative."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kadence import Admin, Consumer
from kadence.testing.kafka import Kafka

PARTITIONS = 6
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@contextmanager
def java(kafka: Kafka, topic: str, group: str, *properties: str) -> Iterator[None]:
    """Java's console consumer as a member of the group, while the block runs."""
    settings = [f"group.id={group}", "heartbeat.interval.ms=200", "session.timeout.ms=2000", *properties]
    command = kafka.tool_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server",
        kafka.bootstrap_servers,
        "--topic",
        topic,
        *(part for setting in settings for part in ("--command-property", setting)),
    )
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            yield
            assert process.poll() is None, process.stderr.read().decode() if process.stderr else ""
        finally:
            process.kill()
            if process.stderr:
                process.stderr.close()


def poll_until(consumer: Consumer, done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, f"{consumer!r} owns {consumer.assignment()}"
        consumer.poll(0.05)


@pytest.mark.parametrize(
    "properties", [(), (f"partition.assignment.strategy={COOPERATIVE}",)], ids=["defaults", "cooperative"]
)
def test_group_with_java(kafka: Kafka, properties: tuple[str, ...]) -> None:
    """Java joins a group that we lead, and leaves it by being killed."""
    name = f"mixed-{len(properties)}"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({name: PARTITIONS})
    with Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=name,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
    ) as consumer:
        consumer.subscribe([name])
        poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS)
        with java(kafka, name, name, *properties):
            poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS // 2)
        poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS)


def test_java_leads(kafka: Kafka) -> None:
    """Its sticky assignor reads our subscription, ours reads its assignment."""
    name = "mixed-java-leads"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({name: PARTITIONS})
        with java(kafka, name, name, f"partition.assignment.strategy={COOPERATIVE}"):
            end = time.monotonic() + 60
            while not any(
                group.group_id == name and group.state == "Stable" for group in admin.list_groups()
            ):
                assert time.monotonic() < end
                time.sleep(0.1)
            with Consumer(
                bootstrap_servers=kafka.bootstrap_servers,
                group_id=name,
                session_timeout_ms=6_000,
                heartbeat_interval_ms=200,
            ) as consumer:
                consumer.subscribe([name])
                poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS // 2)
