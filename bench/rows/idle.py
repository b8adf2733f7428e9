"""100 idle consumers in one process: what each costs when there is nothing to read."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from harness import children, peers
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.table import Goal, Table
from harness.timing import Patience, peak_rss_mb

if TYPE_CHECKING:
    from harness.ground import Ground

CONSUMERS = 100
TIMES = 7
"""The time of other rows: heartbeats, each 5 s, and what else comes now and then are to count as often as they come."""


def settle_seconds(plan: Plan) -> float:
    """How long clients get to calm down before they are measured."""
    return min(3.0, plan.seconds)


def _own(plan: Plan, number: int) -> Plan:
    """Each consumer is alone in its group: what is measured is no rebalance."""
    return Plan(plan.bootstrap, plan.topic, f"{plan.group}-{number}")


def _idle(plan: Plan, consumers: list[Any]) -> Figures:
    """The application does nothing: what is spent is the clients' own."""
    patience = Patience(plan)
    waiting = list(consumers)
    while waiting:
        for consumer in waiting:
            consumer.poll(0)
        waiting = [consumer for consumer in waiting if not consumer.assignment()]
        patience.check()
        time.sleep(0.02)
    time.sleep(settle_seconds(plan))
    burnt, began = time.process_time(), time.perf_counter()
    time.sleep(plan.seconds)
    share = (time.process_time() - burnt) / (time.perf_counter() - began) * 100
    return {"cpu": share / len(consumers), "rss": peak_rss_mb() / len(consumers)}


def kadence(plan: Plan) -> Figures:
    consumers = [peers.kadence(_own(plan, number)) for number in range(plan.count)]
    return _closed(_idle(plan, consumers), consumers)


def confluent(plan: Plan) -> Figures:
    consumers = [peers.confluent(_own(plan, number)) for number in range(plan.count)]
    return _closed(_idle(plan, consumers), consumers)


def _closed(figures: Figures, consumers: list[Any]) -> Figures:
    for consumer in consumers:
        consumer.close()
    return figures


async def _aiokafka(plan: Plan) -> Figures:
    consumers = [await peers.aiokafka(_own(plan, number)) for number in range(plan.count)]
    patience = Patience(plan)
    while not all(consumer.assignment() for consumer in consumers):
        await asyncio.sleep(0.1)
        patience.check()
    await asyncio.sleep(settle_seconds(plan))
    burnt, began = time.process_time(), time.perf_counter()
    await asyncio.sleep(plan.seconds)
    share = (time.process_time() - burnt) / (time.perf_counter() - began) * 100
    await asyncio.gather(*(consumer.stop() for consumer in consumers))
    return {"cpu": share / len(consumers), "rss": peak_rss_mb() / len(consumers)}


LINES = {
    "kadence": Line("Kadence", kadence),
    "confluent": Line("confluent-kafka", confluent),
    "aiokafka": Line("aiokafka, one event loop", lambda plan: asyncio.run(_aiokafka(plan))),
}
HEADINGS = ("client", "CPU % each", "× confluent", "peak RSS MB each")


def measure(ground: Ground, options: Options, consumers: int = CONSUMERS) -> tuple[list[Table], list[Goal]]:
    topic = ground.empty("idle", 1)
    seconds = TIMES * options.seconds
    outcomes: dict[str, Outcome] = {}
    for name in (name for name in LINES if options.wants(name)):
        plan = Plan(ground.bootstrap, topic, f"bench-idle-{name}", count=consumers, seconds=seconds)
        outcomes[name] = children.run("idle", name, LINES[name], plan)
        print(f"  idle {name}: {outcomes[name]}", flush=True)
    table = shares_table(f"{consumers} idle consumers in one process", HEADINGS, LINES, outcomes)
    goal = share_goal(f"{CONSUMERS} idle consumers in one process", outcomes)
    return [table], [goal]


def shares_table(
    title: str, headings: tuple[str, ...], titles: dict[str, Line], outcomes: dict[str, Outcome]
) -> Table:
    """Processor shares, in percent of one processor, beside confluent-kafka's."""
    yardstick = outcomes.get("confluent")
    theirs = yardstick["cpu"] if isinstance(yardstick, dict) else None
    lines, failures = [], []
    for name, each in outcomes.items():
        if isinstance(each, str):
            lines.append((titles[name].title, *["–"] * (len(headings) - 1)))
            failures.append(f"{titles[name].title}: {each}")
            continue
        ratio = f"{each['cpu'] / theirs:.2f}" if theirs else "–"
        lines.append((titles[name].title, f"{each['cpu']:.3f}", ratio, f"{each['rss']:.1f}"))
    return Table(title, headings, lines, (), failures)


def share_goal(what: str, outcomes: dict[str, Outcome]) -> Goal:
    """At most what confluent-kafka takes in the same run."""
    promised = "≤ confluent's CPU"
    ours, theirs = outcomes.get("kadence"), outcomes.get("confluent")
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return Goal(what, promised, "–")
    said = f"{ours['cpu']:.3f} %, {ours['cpu'] / theirs['cpu']:.2f} × confluent"
    return Goal(what, promised, said, ours["cpu"] <= theirs["cpu"])


ROW = Row("idle", LINES, measure)
