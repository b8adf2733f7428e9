"""Kadence and Java's consumer in one group on real Kafka, with each assignor, whoever leads."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.patience import PATIENCE

from kadence import Admin, Consumer
from kadence_testing.kafka import Kafka

PARTITIONS = 6


@contextmanager
def java(kafka: Kafka, topic: str, group: str, *properties: str) -> Iterator[None]:
    """Java's console consumer as a member of the group, while the block runs."""
    settings = [f"group.id={group}", "heartbeat.interval.ms=200", "session.timeout.ms=6000", *properties]
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
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, f"{consumer!r} owns {consumer.assignment()}"
        consumer.poll(0.05)


def member(kafka: Kafka, group: str, strategy: str | None) -> Consumer:
    settings: dict[str, Any] = {} if strategy is None else {"partition_assignment_strategy": strategy}
    return Consumer(
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        group_protocol="classic",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        **settings,
    )


def java_class(strategy: str) -> str:
    name = "".join(part.capitalize() for part in strategy.replace("roundrobin", "round-robin").split("-"))
    return f"partition.assignment.strategy=org.apache.kafka.clients.consumer.{name}Assignor"


_OTHERS = [
    pytest.param(name, marks=pytest.mark.heavy) for name in ("cooperative-sticky", "roundrobin", "sticky")
]


@pytest.mark.parametrize("strategy", [None, "range", *_OTHERS])
def test_group_with_java(kafka: Kafka, strategy: str | None) -> None:
    """Java joins a group that we lead, and leaves it by being killed. None: each side's defaults."""
    name = f"mixed-{strategy}"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({name: PARTITIONS})
    properties = () if strategy is None else (java_class(strategy),)
    with member(kafka, name, strategy) as consumer:
        consumer.subscribe([name])
        poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS)
        with java(kafka, name, name, *properties):
            poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS // 2)
        poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS)


@pytest.mark.parametrize("strategy", ["range", *_OTHERS])
def test_java_leads(kafka: Kafka, strategy: str) -> None:
    """Its assignor reads our subscription and user data, ours reads its assignment."""
    name = f"mixed-java-leads-{strategy}"
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({name: PARTITIONS})
        with java(kafka, name, name, java_class(strategy)):
            end = time.monotonic() + PATIENCE
            while not any(
                group.group_id == name and group.state == "Stable" for group in admin.list_groups()
            ):
                assert time.monotonic() < end
                time.sleep(0.1)
            with member(kafka, name, strategy) as consumer:
                consumer.subscribe([name])
                poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS // 2)
                # A second round, in which we have something to tell: who had what stays with it.
                before = consumer.assignment()
                rounds = len(consumer.rebalances())
                consumer.enforce_rebalance()
                poll_until(consumer, lambda: len(consumer.rebalances()) > rounds)
                poll_until(consumer, lambda: len(consumer.assignment()) == PARTITIONS // 2)
                if "sticky" in strategy:
                    assert consumer.assignment() == before
