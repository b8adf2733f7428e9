"""One record at a time, each committed: where a program may not repeat a record that it is done with.

Waited for, a commit is a way to the broker and back. Otherwise the client takes them as they come, and how many
requests they become is its affair. There the last commit is waited for: a client may take many more than it sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from harness import peers
from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, Rates, run_case
from harness.table import Goal, Table
from harness.timing import Patience, Timer, read

if TYPE_CHECKING:
    from harness.ground import Ground

MANUAL = {"enable.auto.commit": False}

LOOK = 10
"""Records between two looks at the clock."""

MANY = 10_000
"""Commits that are not waited for, before the one that is."""


def _in_a_row(plan: Plan, take: Callable[[], object], commit: Callable[[], object]) -> Figures:
    """``take`` reads a record and has it committed; ``commit`` is waited for."""
    take()
    timer = Timer(plan)
    for _ in range(min(MANY, plan.count // 2)):
        take()
        timer.records += 1
    commit()
    return timer.figures()


def kadence(plan: Plan) -> Figures:
    with peers.kadence(plan, **MANUAL) as consumer:
        records = iter(consumer)

        def take(_turns: int) -> int:
            for record in islice(records, LOOK):
                consumer.commit(record)
            return LOOK

        return read(plan, take)


def kadence_in_a_row(plan: Plan) -> Figures:
    with peers.kadence(plan, **MANUAL) as consumer:
        records = iter(consumer)
        return _in_a_row(plan, lambda: consumer.commit_async(next(records)), consumer.commit)


async def _kadence_async(plan: Plan) -> Figures:
    async with await peers.kadence_async(plan, **MANUAL) as consumer:
        timer: Timer | None = None
        async for record in consumer:
            await consumer.commit(record)
            if timer is None:
                timer = Timer(plan)
                continue
            timer.records += 1
            if not timer.running():
                break
        assert timer is not None
        return timer.figures()


def confluent(plan: Plan) -> Figures:
    consumer = peers.confluent(plan, **MANUAL)

    def take(_turns: int) -> int:
        message = consumer.poll(plan.wait)
        if message is None:
            return 0
        if message.error():
            raise SystemExit(str(message.error()))
        consumer.commit(message=message, asynchronous=False)
        return 1

    result = read(plan, take)
    consumer.close()
    return result


def confluent_in_a_row(plan: Plan) -> Figures:
    consumer = peers.confluent(plan, **MANUAL)

    def take() -> None:
        while (message := consumer.poll(plan.wait)) is None:
            pass
        if message.error():
            raise SystemExit(str(message.error()))
        consumer.commit(message=message)

    result = _in_a_row(plan, take, lambda: consumer.commit(asynchronous=False))
    consumer.close()
    return result


def _end_of(record: Any) -> dict[Any, Any]:
    """What kafka-python wants to be told for a record."""
    from kafka import TopicPartition
    from kafka.structs import OffsetAndMetadata

    return {TopicPartition(record.topic, record.partition): OffsetAndMetadata(record.offset + 1, "", -1)}


def kafka_python(plan: Plan) -> Figures:
    consumer = peers.kafka_python(plan, enable_auto_commit=False)
    records = iter(consumer)

    def take(_turns: int) -> int:
        for record in islice(records, LOOK):
            consumer.commit(_end_of(record))
        return LOOK

    result = read(plan, take)
    consumer.close()
    return result


def kafka_python_in_a_row(plan: Plan) -> Figures:
    consumer = peers.kafka_python(plan, enable_auto_commit=False)
    records = iter(consumer)
    result = _in_a_row(plan, lambda: consumer.commit_async(_end_of(next(records))), consumer.commit)
    consumer.close()
    return result


async def _aiokafka(plan: Plan) -> Figures:
    from aiokafka import TopicPartition

    consumer = await peers.aiokafka(plan, enable_auto_commit=False)
    try:
        patience = Patience(plan)
        await consumer.getone()
        patience.check()
        timer = Timer(plan)
        while timer.running():
            record = await consumer.getone()
            await consumer.commit({TopicPartition(record.topic, record.partition): record.offset + 1})
            timer.records += 1
        return timer.figures()
    finally:
        await consumer.stop()


WAITED = {
    "kadence": Line("Kadence, `commit(record)`", kadence),
    "kadence-async": Line("Kadence, `await commit(record)`", lambda plan: asyncio.run(_kadence_async(plan))),
    "confluent": Line("confluent-kafka, `commit(message, asynchronous=False)`", confluent),
    "aiokafka": Line("aiokafka, `await commit({…})`", lambda plan: asyncio.run(_aiokafka(plan))),
    "kafka-python": Line("kafka-python, `commit({…})`", kafka_python),
}
IN_A_ROW = {
    "kadence-in-a-row": Line("Kadence, `commit_async(record)`", kadence_in_a_row),
    "confluent-in-a-row": Line("confluent-kafka, `commit(message)`", confluent_in_a_row),
    "kafka-python-in-a-row": Line("kafka-python, `commit_async({…})`", kafka_python_in_a_row),
}


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    cases = (
        (Case("waited", "Each record committed, and waited for", 100), WAITED),
        (
            Case("in-a-row", f"{MANY:,} records, each committed, and the last commit waited for", 100),
            IN_A_ROW,
        ),
    )
    tables = []
    for case, lines in cases:
        wanted = {name: line for name, line in lines.items() if options.wants(name)}
        rates = run_case("commits", case, wanted, ground, options)
        tables.append(table_of(case.title, "commits/s", wanted, rates))
    return tables, []


def table_of(title: str, what: str, lines: Mapping[str, Line], rates: Rates) -> Table:
    """Calls that were waited for; ``what`` is the heading of their rate."""
    theirs = rates.rate("confluent")
    cells = []
    for name, line in lines.items():
        rate, cpu = rates.rate_of(name), rates.cpu(name)
        if rate is None or cpu is None:
            cells.append((line.title, "–", "–", "–"))
        else:
            cells.append(
                (line.title, f"{rate:,.0f}", f"{rate / theirs:.2f}" if theirs else "–", f"{cpu:.0f}")
            )
    return Table(title, ("client", what, "× confluent's", "CPU µs each"), cells, (), rates.failures)


ROW = Row("commits", WAITED | IN_A_ROW, measure)
