"""Queues (KIP-932): one member of a share group reads a topic from its start, as fast as each client can.

The batches of the topic are large, and the broker acquires whole ones, so each client gets more than it asks for.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from harness import share, touch
from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from harness.timing import read
from rows import share_idle, share_work

if TYPE_CHECKING:
    from harness.ground import Ground

EXPLICIT = {"share.acknowledgement.mode": "explicit"}


def kadence(plan: Plan) -> Figures:
    with share.kadence(plan) as consumer:
        return read(plan, lambda turns: touch.attributes(consumer.poll(plan.wait), turns))


def kadence_explicit(plan: Plan) -> Figures:
    with share.kadence(plan, **EXPLICIT) as consumer:

        def take(_turns: int) -> int:
            touched = 0
            for record in consumer.poll(plan.wait):
                key, value, offset = record.key, record.value, record.offset  # noqa: F841
                consumer.acknowledge(record)
                touched += 1
            return touched

        return read(plan, take)


def kadence_at_once(plan: Plan) -> Figures:
    with share.kadence(plan, **EXPLICIT) as consumer:

        def take(turns: int) -> int:
            records = consumer.poll(plan.wait)
            touched = touch.attributes(records, turns)
            consumer.acknowledge(records)
            return touched

        return read(plan, take)


def confluent(plan: Plan) -> Figures:
    with share.confluent(plan) as consumer:
        return read(plan, lambda turns: touch.methods(consumer.poll(plan.wait), turns))


def confluent_explicit(plan: Plan) -> Figures:
    with share.confluent(plan, **EXPLICIT) as consumer:

        def take(_turns: int) -> int:
            touched = 0
            for message in consumer.poll(plan.wait):
                _raise(message.error())
                key, value, offset = message.key(), message.value(), message.offset()  # noqa: F841
                consumer.acknowledge(message)
                touched += 1
            return touched

        return read(plan, take)


def _raise(error: Any) -> None:
    if error:
        raise SystemExit(str(error))


LINES = {
    "kadence": Line("Kadence, `poll`", kadence),
    "confluent": Line("confluent-kafka's preview, `poll`", confluent),
    "java": Line("Java, `poll`", lambda plan: share.java(plan, "implicit")),
}
EXPLICIT_LINES = {
    "kadence-explicit": Line("Kadence, `acknowledge(record)` for each", kadence_explicit),
    "kadence-at-once": Line("Kadence, `acknowledge(records)` of a poll", kadence_at_once),
    "confluent-explicit": Line("confluent-kafka's preview, `acknowledge` for each", confluent_explicit),
    "java-explicit": Line("Java, `acknowledge` for each", lambda plan: share.java(plan, "explicit")),
}
CASES = (
    Case("100B", "A queue, implicit, 100 B", 100),
    Case("1KiB", "A queue, implicit, 1 KiB", 1024),
)
EXPLICIT_CASES = (
    Case("explicit-100B", "A queue, each record acknowledged, 100 B", 100),
    Case("explicit-1KiB", "A queue, each record acknowledged, 1 KiB", 1024),
)


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    tables: list[Table] = []
    goals: list[Goal] = []
    with share.java_command() if options.wants("java") else nullcontext(()) as java:
        for cases, lines, suffix in ((CASES, LINES, ""), (EXPLICIT_CASES, EXPLICIT_LINES, "-explicit")):
            for case in cases:
                rates = run_case(
                    "share",
                    case,
                    lines,
                    ground,
                    options,
                    (),
                    java=java,
                    before=lambda plan: share.from_the_start(plan.bootstrap, plan.group),
                )
                tables.append(rates.table())
                ours = f"kadence{suffix}"
                goals.append(rates.ratio_goal(case.title, ours, f"java{suffix}", 1.5, "Java's"))
                if not suffix:
                    goals.append(rates.ratio_goal(case.title, ours, "confluent", 3, "confluent's preview"))
        for part in (share_work.measure(ground, options, java), share_idle.measure(ground, options)):
            tables += part[0]
            goals += part[1]
    return tables, goals


ROW = Row("share", {**LINES, **EXPLICIT_LINES, **share_work.LINES, **share_idle.LINES}, measure)
