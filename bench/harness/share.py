"""Members of share groups (KIP-932): of Kadence, of confluent-kafka, and of Java, whose program is compiled here."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.plan import Figures, Plan
from kadence import Admin
from kadence.admin import ConfigResource
from kadence.java import find_java
from kadence_testing.kafka import kafka_jars

WORKERS = Path(__file__).resolve().parent.parent / "workers"
JAVA = "WithShareConsumer"


def from_the_start(bootstrap: str, group: str) -> None:
    """The group, which nobody is in yet, will begin at the first record."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.incremental_alter_configs(
            {ConfigResource("group", group): {"share.auto.offset.reset": "earliest"}}
        )


def _settings(plan: Plan, **tuning: Any) -> dict[str, Any]:
    return {"bootstrap.servers": plan.bootstrap, "group.id": plan.group, **tuning}


def kadence(plan: Plan, **tuning: Any) -> Any:
    from kadence import ShareConsumer

    consumer = ShareConsumer(_settings(plan, **tuning))
    consumer.subscribe([plan.topic])
    return consumer


def confluent(plan: Plan, **tuning: Any) -> Any:
    from confluent_kafka import ShareConsumer

    consumer = ShareConsumer(_settings(plan, **tuning))
    consumer.subscribe([plan.topic])
    return consumer


@contextmanager
def java_command() -> Iterator[tuple[str, ...]]:
    """The command that starts Java's member, without its arguments. It is compiled for as long as the block lasts."""
    java, jars = find_java(), kafka_jars()
    with tempfile.TemporaryDirectory() as classes:
        javac = java.home / "bin" / "javac"
        source = WORKERS / f"{JAVA}.java"
        subprocess.run([str(javac), "-cp", f"{jars}/*", "-d", classes, str(source)], check=True)
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
        yield (str(java.executable), "-cp", f"{jars}/*:{classes}", quiet, JAVA)


def java(plan: Plan, way: str) -> Figures:
    """Run Java's member in one of its ways. Its CPU is that of the time measured, without the start of the JVM."""
    command = [*plan.java, way, plan.bootstrap, plan.topic, plan.group, str(plan.count), str(plan.seconds)]
    command.append(plan.meeting)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{JAVA} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return {name: float(figure) for name, figure in json.loads(done.stdout.splitlines()[-1]).items()}
