"""``for record in consumer``: one record at a time, as most programs are written."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from harness import peers, touch
from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from harness.timing import read
from rows import polls

if TYPE_CHECKING:
    from harness.ground import Ground

SLICE = 1000
"""Records between two looks at the clock. ``islice`` adds nothing to the step that it repeats."""


def kadence(plan: Plan) -> Figures:
    with peers.kadence(plan) as consumer:
        records = iter(consumer)
        return read(plan, lambda turns: touch.attributes(islice(records, SLICE), turns))


def confluent_best(plan: Plan) -> Figures:
    return _confluent(plan, **peers.CONFLUENT_BEST)


def confluent_default(plan: Plan) -> Figures:
    return _confluent(plan)


def _confluent(plan: Plan, **tuning: object) -> Figures:
    """Its consumer cannot be iterated over; this loop is the one of its documentation."""
    consumer = peers.confluent(plan, **tuning)

    def take(_turns: int) -> int:
        touched = 0
        for _ in range(SLICE):
            message = consumer.poll(plan.wait)
            if message is None:
                break
            if message.error():
                raise SystemExit(str(message.error()))
            key, value, offset = message.key(), message.value(), message.offset()  # noqa: F841
            touched += 1
        return touched

    result = read(plan, take)
    consumer.close()
    return result


def kafka_python(plan: Plan) -> Figures:
    consumer = peers.kafka_python(plan)
    records = iter(consumer)
    result = read(plan, lambda turns: touch.attributes(islice(records, SLICE), turns))
    consumer.close()
    return result


LINES = {
    "kadence": Line("Kadence, `for record in consumer`", kadence),
    "kadence-polls": Line("Kadence, `poll` of 500", polls.kadence_polls),
    "confluent-best": Line("confluent-kafka, queues raised, `poll` loop", confluent_best),
    "confluent-default": Line("confluent-kafka, defaults, `poll` loop", confluent_default),
    "kafka-python": Line("kafka-python, `for record in consumer`", kafka_python),
}


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    case = Case("100B", "One record at a time, 100 B", 100)
    rates = run_case("iteration", case, LINES, ground, options)
    what = "`for record in consumer`, 100 B"
    goal = rates.ratio_goal(what, "kadence", "kadence-polls", 0.8, "our own polls of 500")
    return [rates.table()], [goal]


ROW = Row("iteration", LINES, measure)
