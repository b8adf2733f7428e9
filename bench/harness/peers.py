"""The clients, made with their defaults where nothing is said; all begin at a partition's first record."""

from __future__ import annotations

import resource
import subprocess
import tempfile
from typing import Any

from harness.plan import Figures, Plan

CONFLUENT_BEST: dict[str, Any] = {
    "queued.min.messages": 10_000_000,
    "queued.max.messages.kbytes": 524_288,
    "fetch.queue.backoff.ms": 0,
}
"""The best of 50 settings tried: queues that never fill (a full one pauses its partition for a second).

Bigger fetches did not help, and neither did bigger batches: at ``consume(10000)`` Python's cyclic collector walks the
messages in hand, and the rate halves.
"""


def kadence_config(plan: Plan, tuning: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "auto.offset.reset": "earliest",
    }
    if plan.protocol:
        config["group.protocol"] = plan.protocol
    if plan.ca:
        config |= {"security.protocol": "SSL", "ssl.ca.location": plan.ca}
    return config | tuning


def kadence(plan: Plan, **tuning: Any) -> Any:
    from kadence import Consumer

    consumer = Consumer(kadence_config(plan, tuning))
    consumer.subscribe([plan.topic])
    return consumer


async def kadence_async(plan: Plan, **tuning: Any) -> Any:
    from kadence import AsyncConsumer

    consumer = AsyncConsumer(kadence_config(plan, tuning))
    await consumer.subscribe([plan.topic])
    return consumer


def confluent(plan: Plan, **tuning: Any) -> Any:
    from confluent_kafka import Consumer

    config: dict[str, Any] = {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "auto.offset.reset": "earliest",
    }
    if plan.protocol:
        config["group.protocol"] = plan.protocol
    if plan.ca:
        config |= {"security.protocol": "ssl", "ssl.ca.location": plan.ca}
    consumer = Consumer(config | tuning)
    consumer.subscribe([plan.topic])
    return consumer


def kafka_python(plan: Plan, **tuning: Any) -> Any:
    from kafka import KafkaConsumer

    options: dict[str, Any] = {"auto_offset_reset": "earliest"}
    if plan.ca:
        options |= {"security_protocol": "SSL", "ssl_cafile": plan.ca}
    return KafkaConsumer(
        plan.topic, bootstrap_servers=plan.bootstrap, group_id=plan.group, **options | tuning
    )


async def aiokafka(plan: Plan, **tuning: Any) -> Any:
    """A consumer that was started."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.helpers import create_ssl_context

    options: dict[str, Any] = {"auto_offset_reset": "earliest"}
    if plan.ca:
        options |= {"security_protocol": "SSL", "ssl_context": create_ssl_context(cafile=plan.ca)}
    consumer = AIOKafkaConsumer(
        plan.topic, bootstrap_servers=plan.bootstrap, group_id=plan.group, **options | tuning
    )
    await consumer.start()
    return consumer


def java_performance(plan: Plan) -> Figures:
    """Kafka's own ConsumerPerformance. Its CPU includes the start of the JVM, which it cannot leave out."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as config:
        config.write(f"group.protocol={plan.protocol}\nauto.offset.reset=earliest\n")
        config.flush()
        command = [*plan.java, "--bootstrap-server", plan.bootstrap, "--topic", plan.topic]
        command += ["--group", plan.group, "--num-records", str(plan.count)]
        command += ["--command-config", config.name, "--hide-header"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    figures = done.stdout.strip().splitlines()[-1:] or [""]
    fields = [text.strip() for text in figures[0].split(",")]
    if done.returncode or len(fields) < 10:
        raise SystemExit(f"ConsumerPerformance ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "records": int(fields[4]),
        "seconds": float(fields[7]) / 1000,
        "cpu": used.ru_utime + used.ru_stime,
        "rss": used.ru_maxrss / 1024,
    }
