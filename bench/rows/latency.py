"""1,000 records a second: from ``send`` in another process to the loop, alone and beside a thread that computes.

The value of each record is the time at which its producer sent it, on the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness import children, peers
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.table import Goal, Table
from harness.timing import FIRST_RECORDS_WITHIN, busy_thread

if TYPE_CHECKING:
    from harness.ground import Ground

PER_SECOND = 1000
WARM_SECONDS = 1.0
LATEST = {"auto.offset.reset": "latest"}


def produce(plan: Plan) -> Figures:
    """Sends until it is killed."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": plan.bootstrap, "linger.ms": 0})
    number, due = 0, time.monotonic()
    while True:
        producer.produce(plan.topic, b"%d" % time.monotonic_ns(), b"%016d" % number)
        producer.poll(0)
        number += 1
        due += 1 / PER_SECOND
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)


class Delays:
    """What the loop adds each record to; it says when there is enough."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._began = time.monotonic()
        self._first = 0.0
        self._delays: list[int] = []

    def add(self, value: bytes) -> bool:
        """Returns whether the loop should go on."""
        now = time.monotonic_ns()
        if not self._first:
            self._first = now / 1e9
        elapsed = now / 1e9 - self._first
        if elapsed > WARM_SECONDS:
            self._delays.append(now - int(value))
        return elapsed < WARM_SECONDS + self._plan.seconds

    def check(self) -> None:
        if not self._first and time.monotonic() - self._began > FIRST_RECORDS_WITHIN:
            raise SystemExit(f"no record of {self._plan.topic} within {FIRST_RECORDS_WITHIN:g} s")

    def figures(self) -> Figures:
        if len(self._delays) < 2:
            raise SystemExit(f"only {len(self._delays)} records came in {self._plan.seconds:g} s")
        parts = statistics.quantiles(self._delays, n=100)
        return {
            "first": self._first - self._began,
            "p50": parts[49] / 1e6,
            "p99": parts[98] / 1e6,
            "records": len(self._delays),
            "seconds": self._plan.seconds,
        }


def _loop(plan: Plan, make: Callable[[], Any], poll: Callable[[Any], Any]) -> Figures:
    with busy_thread(plan):
        # From here on, so the import of the client counts: it too waits for the interpreter.
        delays = Delays(plan)
        consumer = make()
        while True:
            for value in poll(consumer):
                if not delays.add(value):
                    result = delays.figures()
                    consumer.close()
                    return result
            delays.check()


def kadence(plan: Plan) -> Figures:
    def poll(consumer: Any) -> Any:
        return (record.value for record in consumer)

    return _loop(plan, lambda: peers.kadence(plan, **LATEST), poll)


def kadence_polls(plan: Plan) -> Figures:
    def poll(consumer: Any) -> Any:
        return (record.value for record in consumer.poll(1.0))

    return _loop(plan, lambda: peers.kadence(plan, **LATEST), poll)


def confluent(plan: Plan) -> Figures:
    def poll(consumer: Any) -> Any:
        message = consumer.poll(1.0)
        return (message.value(),) if message is not None and not message.error() else ()

    return _loop(plan, lambda: peers.confluent(plan, **LATEST), poll)


def kafka_python(plan: Plan) -> Figures:
    def poll(consumer: Any) -> Any:
        return (record.value for each in consumer.poll(1000).values() for record in each)

    return _loop(plan, lambda: peers.kafka_python(plan, auto_offset_reset="latest"), poll)


async def _iterate(delays: Delays, consumer: Any) -> None:
    async for record in consumer:
        if not delays.add(record.value):
            break


async def _kadence_async(plan: Plan) -> Figures:
    with busy_thread(plan):
        delays = Delays(plan)
        async with await peers.kadence_async(plan, **LATEST) as consumer:
            await _iterate(delays, consumer)
            return delays.figures()


async def _aiokafka(plan: Plan) -> Figures:
    with busy_thread(plan):
        delays = Delays(plan)
        consumer = await peers.aiokafka(plan, auto_offset_reset="latest")
        try:
            await _iterate(delays, consumer)
            return delays.figures()
        finally:
            await consumer.stop()


PRODUCER = Line("the producer", produce)
LINES = {
    "kadence": Line("Kadence, `for record in consumer`", kadence),
    "kadence-polls": Line("Kadence, `poll(1)`", kadence_polls),
    "kadence-async": Line(
        "Kadence, `async for record in consumer`", lambda plan: asyncio.run(_kadence_async(plan))
    ),
    "confluent": Line("confluent-kafka, `poll(1)`", confluent),
    "aiokafka": Line("aiokafka, `async for record in consumer`", lambda plan: asyncio.run(_aiokafka(plan))),
    "kafka-python": Line("kafka-python, `poll(1000)`", kafka_python),
    "producer": PRODUCER,
}
HEADINGS = ("client", "p50 ms", "p99 ms", "import to first record, s", "records/s")


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    topic = ground.empty("latency", 8)
    tables: list[Table] = []
    measured: list[dict[str, Figures]] = []
    producer = Plan(ground.bootstrap, topic, "")
    with children.beside("latency", "producer", PRODUCER, producer):
        # A broker that has just started answers the first client slowly.
        warm = Plan(ground.bootstrap, topic, "bench-latency-warm", seconds=options.seconds)
        children.run("latency", "confluent", LINES["confluent"], warm)
        for busy in (False, True):
            outcomes = _outcomes(ground.bootstrap, topic, options, busy)
            title = f"{PER_SECOND:,} records/s, {'beside a thread that computes' if busy else 'nothing else'}"
            tables.append(_table(title, outcomes))
            measured.append({name: each for name, each in outcomes.items() if not isinstance(each, str)})
    return tables, _goals(*measured)


def _outcomes(bootstrap: str, topic: str, options: Options, busy: bool) -> dict[str, Outcome]:
    """Of each client the run with the smallest p99; the rounds take turns."""
    kept: dict[str, Outcome] = {}
    for turn in range(options.rounds):
        for name in (name for name in LINES if name != "producer" and options.wants(name)):
            group = f"bench-latency-{name}-{'busy' if busy else 'idle'}-{turn}"
            plan = Plan(bootstrap, topic, group, seconds=options.seconds, busy=busy)
            outcome = children.run("latency", name, LINES[name], plan)
            print(f"  latency {'busy' if busy else 'idle'} {name}: {_said(outcome)}", flush=True)
            best = kept.get(name)
            if best is None or isinstance(best, str):
                kept[name] = outcome
            elif not isinstance(outcome, str):
                first = min(outcome["first"], best["first"])
                kept[name] = min(outcome, best, key=lambda run: run["p99"]) | {"first": first}
    return kept


def _said(outcome: Outcome) -> str:
    if isinstance(outcome, str):
        return outcome
    return ", ".join(f"{name} {figure:.2f}" for name, figure in outcome.items())


def _table(title: str, outcomes: dict[str, Outcome]) -> Table:
    lines, failures = [], []
    for name, each in outcomes.items():
        if isinstance(each, str):
            lines.append((LINES[name].title, *["–"] * 4))
            failures.append(f"{LINES[name].title}: {each}")
        else:
            figures = (f"{each['p50']:.2f}", f"{each['p99']:.1f}", f"{each['first']:.2f}")
            lines.append((LINES[name].title, *figures, f"{each['records'] / each['seconds']:,.0f}"))
    return Table(title, HEADINGS, lines, (), failures)


def _goals(idle: dict[str, Figures], busy: dict[str, Figures]) -> list[Goal]:
    goals = [_as_confluent(idle), _beside_a_busy_thread(busy)]
    what, promised = "… how much later than confluent the first record comes then", "≤ 0.3 s"
    if {"kadence", "confluent"} <= busy.keys():
        later = busy["kadence"]["first"] - busy["confluent"]["first"]
        goals.append(Goal(what, promised, f"{later:.2f} s", later <= 0.3))
    else:
        goals.append(Goal(what, promised, "–"))
    return goals


def _as_confluent(idle: dict[str, Figures]) -> Goal:
    what, promised = f"{PER_SECOND:,} records/s, p50 / p99", "≤ confluent's"
    ours, theirs = idle.get("kadence"), idle.get("confluent")
    if ours is None or theirs is None:
        return Goal(what, promised, "–")
    said = f"{_percentiles(ours)} ms (confluent {_percentiles(theirs)})"
    return Goal(what, promised, said, ours["p50"] <= theirs["p50"] and ours["p99"] <= theirs["p99"])


def _beside_a_busy_thread(busy: dict[str, Figures]) -> Goal:
    what, promised = "… beside a busy thread", "≤ 6 / ≤ 20 ms"
    ours, theirs = busy.get("kadence"), busy.get("confluent")
    if ours is None:
        return Goal(what, promised, "–")
    said = f"{_percentiles(ours)} ms" + (f" (confluent {_percentiles(theirs)})" if theirs else "")
    return Goal(what, promised, said, ours["p50"] <= 6.0 and ours["p99"] <= 20.0)


def _percentiles(figures: Figures) -> str:
    return f"{figures['p50']:.2f} / {figures['p99']:.1f}"


ROW = Row("latency", LINES, measure)
