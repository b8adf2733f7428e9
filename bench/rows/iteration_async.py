"""``async for record in consumer``, beside what aiokafka offers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from harness import peers, touch
from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from harness.timing import Patience, Timer
from rows import polls

if TYPE_CHECKING:
    from harness.ground import Ground

LEAST = 1_000_000
LOOK = 1000
"""Records between two looks at the clock."""


async def iterate(plan: Plan, consumer: Any) -> Figures:
    timer: Timer | None = None
    touched = 0
    async for record in consumer:
        key, value, offset = record.key, record.value, record.offset  # noqa: F841  (touching is the point)
        touched += 1
        if touched < LOOK and timer is not None:
            continue
        if timer is None:
            timer = Timer(plan)
        else:
            timer.records += touched
        touched = 0
        if not timer.running():
            break
    assert timer is not None
    return timer.figures()


async def _kadence(plan: Plan) -> Figures:
    async with await peers.kadence_async(plan) as consumer:
        return await iterate(plan, consumer)


async def _kadence_polls(plan: Plan) -> Figures:
    async with await peers.kadence_async(plan) as consumer:
        patience = Patience(plan)
        while not (taken := touch.attributes(await consumer.poll(plan.wait))):
            patience.check()
        timer = Timer(plan, taken)
        while timer.running():
            timer.records += touch.attributes(await consumer.poll(plan.wait))
        return timer.figures()


async def _aiokafka(plan: Plan) -> Figures:
    consumer = await peers.aiokafka(plan)
    try:
        return await iterate(plan, consumer)
    finally:
        await consumer.stop()


LINES = {
    "kadence": Line("Kadence, `async for record in consumer`", lambda plan: asyncio.run(_kadence(plan))),
    "kadence-polls": Line("Kadence, `await poll` of 500", lambda plan: asyncio.run(_kadence_polls(plan))),
    "aiokafka": Line("aiokafka, `async for record in consumer`", lambda plan: asyncio.run(_aiokafka(plan))),
    "aiokafka-many": Line("aiokafka, `getmany(500)`", polls.aiokafka),
    "confluent-best": Line("confluent-kafka's `consume(500)`, threads, queues raised", polls.confluent_best),
}


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    case = Case("100B", "asyncio, 100 B", 100)
    rates = run_case("iteration_async", case, LINES, ground, options)
    rate = rates.rate_of("kadence")
    goal = Goal("`async for`, 100 B", f"≥ {LEAST / 1e6:g} M/s", "–")
    if rate is not None:
        goal = Goal(goal.what, goal.promised, f"{rate / 1e6:.2f} M/s", rate >= LEAST)
    return [rates.table()], [goal]


ROW = Row("iteration_async", LINES, measure)
