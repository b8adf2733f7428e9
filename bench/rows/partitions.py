"""One idle consumer with 1,000 partitions, waiting in its poll: what it costs when there is nothing to read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness import children, peers
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.table import Goal, Table
from harness.timing import Patience, peak_rss_mb
from rows.idle import settle_seconds, share_goal, shares_table

if TYPE_CHECKING:
    from harness.ground import Ground

PARTITIONS = 1000


def _waiting(plan: Plan, poll: Callable[[], Any], assigned: Callable[[], Any]) -> Figures:
    patience = Patience(plan)
    while len(assigned()) < plan.count:
        poll()
        patience.check()
    _poll_for(settle_seconds(plan), poll)
    burnt, began = time.process_time(), time.perf_counter()
    _poll_for(plan.seconds, poll)
    share = (time.process_time() - burnt) / (time.perf_counter() - began) * 100
    return {"cpu": share, "rss": peak_rss_mb()}


def _poll_for(seconds: float, poll: Callable[[], Any]) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        poll()


def kadence(plan: Plan) -> Figures:
    with peers.kadence(plan) as consumer:
        return _waiting(plan, lambda: consumer.poll(plan.wait), consumer.assignment)


def confluent(plan: Plan) -> Figures:
    consumer = peers.confluent(plan)
    result = _waiting(plan, lambda: consumer.poll(plan.wait), consumer.assignment)
    consumer.close()
    return result


def kafka_python(plan: Plan) -> Figures:
    consumer = peers.kafka_python(plan)
    result = _waiting(plan, lambda: consumer.poll(1000), consumer.assignment)
    consumer.close()
    return result


async def _aiokafka(plan: Plan) -> Figures:
    consumer = await peers.aiokafka(plan)
    patience = Patience(plan)
    while len(consumer.assignment()) < plan.count:
        await consumer.getmany(timeout_ms=100)
        patience.check()
    until = time.monotonic() + settle_seconds(plan)
    while time.monotonic() < until:
        await consumer.getmany(timeout_ms=1000)
    burnt, began = time.process_time(), time.perf_counter()
    until = time.monotonic() + plan.seconds
    while time.monotonic() < until:
        await consumer.getmany(timeout_ms=1000)
    share = (time.process_time() - burnt) / (time.perf_counter() - began) * 100
    await consumer.stop()
    return {"cpu": share, "rss": peak_rss_mb()}


LINES = {
    "kadence": Line("Kadence, `poll(1)`", kadence),
    "confluent": Line("confluent-kafka, `poll(1)`", confluent),
    "aiokafka": Line("aiokafka, `getmany(1000)`", lambda plan: asyncio.run(_aiokafka(plan))),
    "kafka-python": Line("kafka-python, `poll(1000)`", kafka_python),
}
HEADINGS = ("client", "CPU %", "× confluent", "peak RSS MB")


def measure(ground: Ground, options: Options, partitions: int = PARTITIONS) -> tuple[list[Table], list[Goal]]:
    topic = ground.empty(f"wide-{partitions}", partitions)
    seconds = 2 * options.seconds
    outcomes: dict[str, Outcome] = {}
    for name in (name for name in LINES if options.wants(name)):
        plan = Plan(ground.bootstrap, topic, f"bench-wide-{name}", count=partitions, seconds=seconds)
        outcomes[name] = children.run("partitions", name, LINES[name], plan)
        print(f"  partitions {name}: {outcomes[name]}", flush=True)
    title = f"One idle consumer with {partitions:,} partitions"
    return [shares_table(title, HEADINGS, LINES, outcomes)], [share_goal(title, outcomes)]


ROW = Row("partitions", LINES, measure)
