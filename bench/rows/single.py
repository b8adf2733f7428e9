"""A poll of one record that is already buffered: what the call itself costs."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from harness import children, peers
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.table import Goal, Table
from harness.timing import Patience

if TYPE_CHECKING:
    from harness.ground import Ground

CHUNKS = 5
FILL_SECONDS = 1.0
"""How long a client gets to fetch ahead before its calls are counted."""


def _timed(plan: Plan, call: Callable[[], Any], first: Callable[[], Any] | None = None) -> Figures:
    """The cheapest of some chunks of calls, in microseconds of the calling thread and of the wall, for each call."""
    patience = Patience(plan)
    while not (first or call)():
        patience.check()
    time.sleep(FILL_SECONDS)
    cpu, wall = [], []
    empty = 0
    for _ in range(CHUNKS):
        began, burnt = time.perf_counter(), time.thread_time()
        for _ in range(plan.count):
            if not call():
                empty += 1
        cpu.append((time.thread_time() - burnt) / plan.count * 1e6)
        wall.append((time.perf_counter() - began) / plan.count * 1e6)
    return {"cpu": min(cpu), "wall": min(wall), "empty": empty}


async def _timed_async(plan: Plan, call: Callable[[], Awaitable[Any]]) -> Figures:
    """The same for a client of asyncio; ``thread_time`` is that of the loop's thread, background tasks included."""
    patience = Patience(plan)
    while not await call():
        patience.check()
    await asyncio.sleep(FILL_SECONDS)
    cpu, wall = [], []
    empty = 0
    for _ in range(CHUNKS):
        began, burnt = time.perf_counter(), time.thread_time()
        for _ in range(plan.count):
            if not await call():
                empty += 1
        cpu.append((time.thread_time() - burnt) / plan.count * 1e6)
        wall.append((time.perf_counter() - began) / plan.count * 1e6)
    return {"cpu": min(cpu), "wall": min(wall), "empty": empty}


def kadence(plan: Plan) -> Figures:
    with peers.kadence(plan) as consumer:
        return _timed(plan, lambda: consumer.poll(0, max_records=1))


async def _kadence_async(plan: Plan) -> Figures:
    async with await peers.kadence_async(plan) as consumer:
        return await _timed_async(plan, lambda: consumer.poll(0.1, max_records=1))


def confluent(plan: Plan) -> Figures:
    consumer = peers.confluent(plan)
    result = _timed(plan, lambda: consumer.poll(0))
    consumer.close()
    return result


async def _aiokafka(plan: Plan) -> Figures:
    consumer = await peers.aiokafka(plan)
    try:
        return await _timed_async(plan, consumer.getone)
    finally:
        await consumer.stop()


def kafka_python(plan: Plan) -> Figures:
    consumer = peers.kafka_python(plan)
    # It joins its group inside polls that wait.
    first = functools.partial(consumer.poll, 100, max_records=1)
    result = _timed(plan, lambda: consumer.poll(0, max_records=1), first)
    consumer.close()
    return result


LINES = {
    "kadence": Line("Kadence, `poll(0, max_records=1)`", kadence),
    "confluent": Line("confluent-kafka, `poll(0)`", confluent),
    "kafka-python": Line("kafka-python, `poll(0, max_records=1)`", kafka_python),
    "kadence-async": Line(
        "Kadence, `await poll(0.1, max_records=1)`", lambda plan: asyncio.run(_kadence_async(plan))
    ),
    "aiokafka": Line("aiokafka, `await getone()`", lambda plan: asyncio.run(_aiokafka(plan))),
}
HEADINGS = ("client", "CPU µs/call", "wall µs/call", "× confluent's CPU", "calls that returned nothing")


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    topic, available = ground.values(100, options)
    calls = min(4000, available // 20)
    outcomes: dict[str, Outcome] = {}
    for name, line in LINES.items():
        if options.wants(name):
            plan = Plan(ground.bootstrap, topic, f"bench-single-{name}", count=calls)
            outcomes[name] = children.run("single", name, line, plan)
            print(f"  single {name}: {outcomes[name]}", flush=True)
    measured = {name: each for name, each in outcomes.items() if not isinstance(each, str)}
    theirs = measured.get("confluent", {}).get("cpu")
    lines = []
    for name in outcomes:
        each = measured.get(name)
        if each is None:
            lines.append((LINES[name].title, *["–"] * 4))
            continue
        ratio = f"{each['cpu'] / theirs:.2f}" if theirs else "–"
        empty = f"{each['empty']:.0f} of {CHUNKS * calls}"
        lines.append((LINES[name].title, f"{each['cpu']:.2f}", f"{each['wall']:.2f}", ratio, empty))
    failures = [f"{LINES[name].title}: {each}" for name, each in outcomes.items() if isinstance(each, str)]
    note = f"The cheapest of {CHUNKS} times {calls} calls; CPU is that of the calling thread."
    return [Table("A buffered poll of one record, 100 B", HEADINGS, lines, [note], failures)], [
        _goal(measured)
    ]


def _goal(measured: dict[str, Figures]) -> Goal:
    what, promised = "a buffered `poll(0, max_records=1)`", "≤ 1 × confluent"
    if not {"kadence", "confluent"} <= measured.keys():
        return Goal(what, promised, "–")
    ours, theirs = measured["kadence"]["cpu"], measured["confluent"]["cpu"]
    return Goal(what, promised, f"{ours / theirs:.2f} × ({ours:.2f} µs)", ours <= theirs)


ROW = Row("single", LINES, measure)
