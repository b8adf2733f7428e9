"""Polls of 500: a topic read from its start, as fast as each client can."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from harness import peers, touch
from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from harness.timing import Patience, Timer, read, turns_for

if TYPE_CHECKING:
    from harness.ground import Ground


def kadence_polls(plan: Plan) -> Figures:
    with peers.kadence(plan) as consumer:
        return read(plan, lambda turns: touch.attributes(consumer.poll(plan.wait), turns))


def confluent_best(plan: Plan) -> Figures:
    return _confluent(plan, peers.confluent(plan, **peers.CONFLUENT_BEST))


def confluent_default(plan: Plan) -> Figures:
    return _confluent(plan, peers.confluent(plan))


def _confluent(plan: Plan, consumer: Any) -> Figures:
    # consume() waits for its whole number or its whole timeout, so the timeout only bounds the tail.
    result = read(plan, lambda turns: touch.methods(consumer.consume(500, plan.wait), turns))
    consumer.close()
    return result


def kafka_python(plan: Plan) -> Figures:
    wait_ms = int(plan.wait * 1000)
    consumer = peers.kafka_python(plan)
    result = read(plan, lambda turns: touch.by_partition(consumer.poll(wait_ms, max_records=500), turns))
    consumer.close()
    return result


def aiokafka(plan: Plan) -> Figures:
    return asyncio.run(_aiokafka(plan))


async def _aiokafka(plan: Plan) -> Figures:
    """The same loop as `read` inside the event loop, where this client's background tasks live."""
    turns, wait_ms = turns_for(plan.work_us), int(plan.wait * 1000)
    consumer = await peers.aiokafka(plan)
    try:
        patience = Patience(plan)
        while not (taken := touch.by_partition(await consumer.getmany(timeout_ms=wait_ms, max_records=500))):
            patience.check()
        timer = Timer(plan, taken)
        while timer.running():
            batches = await consumer.getmany(timeout_ms=wait_ms, max_records=500)
            timer.records += touch.by_partition(batches, turns)
        return timer.figures(turns)
    finally:
        await consumer.stop()


LINES = {
    "kadence": Line("Kadence, `poll`, defaults", kadence_polls),
    "confluent-best": Line("confluent-kafka, queues raised, `consume(500)`, no CRC check", confluent_best),
    "confluent-default": Line("confluent-kafka, defaults, `consume(500)`, no CRC check", confluent_default),
    "aiokafka": Line("aiokafka, `getmany(500)`", aiokafka),
    "kafka-python": Line("kafka-python with crc32c, `poll(500)`", kafka_python),
    "java-classic": Line("Java, classic protocol (CPU with JVM start)", peers.java_performance),
    "java-new": Line("Java, new protocol (CPU with JVM start)", peers.java_performance),
}
CASES = (Case("100B", "Polls of 500, 100 B", 100), Case("1KiB", "Polls of 500, 1 KiB", 1024))


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    small, large = (run_case("polls", case, LINES, ground, options) for case in CASES)
    return [small.table(), large.table()], [
        small.ratio_goal("polls of 500, 100 B", "kadence", "confluent", 4, "confluent's best"),
        small.ratio_goal("polls of 500, 100 B", "kadence", "java", 1.5, "Java's best"),
        small.cpu_goal("polls of 500, 100 B", "kadence", 0.35),
        large.ratio_goal("polls of 500, 1 KiB", "kadence", "confluent", 1.7, "confluent's best"),
        large.cpu_goal("polls of 500, 1 KiB", "kadence", 1.0),
    ]


ROW = Row("polls", LINES, measure)
