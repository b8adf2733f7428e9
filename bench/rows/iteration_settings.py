"""``for record in consumer`` with deserialisers, dead letters and interceptors: no setting makes the loop slow."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING, Any

from harness import peers, touch
from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from harness.timing import read
from rows.iteration import SLICE
from rows.iteration_async import iterate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.ground import Ground

LEAST = 0.8
"""Of our own polls of 500 with the same settings."""


def text(data: bytes) -> str:
    """The deserialiser of all clients: any bytes are text of this kind."""
    return data.decode("latin-1")


class Counts:
    """An interceptor that looks at each record, as those do that trace or count."""

    def __init__(self) -> None:
        self.count = 0

    def on_consume(self, records: Iterable[Any]) -> None:
        for _ in records:
            self.count += 1


FUNCTION = {"value.deserializer": text}
NAMED = {"value.deserializer": "string"}
DEAD_LETTERS = FUNCTION | {"deserialization.errors": "dead-letter", "dead.letter.topic": "bench-bad"}
INTERCEPTED = {"interceptors": [Counts]}


def _iterated(plan: Plan, settings: dict[str, Any]) -> Figures:
    with peers.kadence(plan, **settings) as consumer:
        records = iter(consumer)
        return read(plan, lambda turns: touch.attributes(islice(records, SLICE), turns))


def _polled(plan: Plan, settings: dict[str, Any]) -> Figures:
    with peers.kadence(plan, **settings) as consumer:
        return read(plan, lambda turns: touch.attributes(consumer.poll(plan.wait), turns))


async def _async_iterated(plan: Plan, settings: dict[str, Any]) -> Figures:
    async with await peers.kadence_async(plan, **settings) as consumer:
        return await iterate(plan, consumer)


def _confluent(plan: Plan) -> Figures:
    consumer = peers.confluent(plan, **peers.CONFLUENT_BEST)

    def take(_turns: int) -> int:
        touched = 0
        for _ in range(SLICE):
            message = consumer.poll(plan.wait)
            if message is None:
                break
            if message.error():
                raise SystemExit(str(message.error()))
            key, value, offset = message.key(), text(message.value()), message.offset()  # noqa: F841
            touched += 1
        return touched

    result = read(plan, take)
    consumer.close()
    return result


LINES = {
    "kadence-function": Line(
        "Kadence, `value_deserializer=` a function", lambda plan: _iterated(plan, FUNCTION)
    ),
    "kadence-function-polls": Line("… the function, `poll` of 500", lambda plan: _polled(plan, FUNCTION)),
    "kadence-function-async": Line(
        "… the function, `async for`", lambda plan: asyncio.run(_async_iterated(plan, FUNCTION))
    ),
    "kadence-named": Line('Kadence, `value_deserializer="string"`', lambda plan: _iterated(plan, NAMED)),
    "kadence-dead-letters": Line(
        "… the function and a dead letter topic", lambda plan: _iterated(plan, DEAD_LETTERS)
    ),
    "kadence-interceptor": Line(
        "Kadence, an interceptor that counts records", lambda plan: _iterated(plan, INTERCEPTED)
    ),
    "kadence-interceptor-polls": Line(
        "… the interceptor, `poll` of 500", lambda plan: _polled(plan, INTERCEPTED)
    ),
    "confluent-best": Line("confluent-kafka, queues raised, `poll` loop that calls the function", _confluent),
}


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    case = Case("100B", "One record at a time, 100 B, with settings", 100)
    rates = run_case("iteration_settings", case, LINES, ground, options)
    goals = [
        rates.ratio_goal(f"{what}, 100 B", line, polls, LEAST, "our own polls of 500 with the same")
        for what, line, polls in (
            ("iteration with a deserialiser", "kadence-function", "kadence-function-polls"),
            ("`async for` with a deserialiser", "kadence-function-async", "kadence-function-polls"),
            ("iteration with dead letters", "kadence-dead-letters", "kadence-function-polls"),
            ("iteration with an interceptor", "kadence-interceptor", "kadence-interceptor-polls"),
        )
    ]
    return [rates.table()], goals


ROW = Row("iteration_settings", LINES, measure)
