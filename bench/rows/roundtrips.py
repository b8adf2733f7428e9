"""Calls that wait for a broker, one after the other: a record sent, a transaction of one record, a list of the topics.

Sends are idempotent, with acks=all and linger 0, into one partition, and each is waited for before the next. What a
client has to wait with is its own: a future, a flush, an await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from harness.plan import Figures, Line, Options, Plan, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from harness.timing import Timer
from rows.commits import table_of

if TYPE_CHECKING:
    from harness.ground import Ground

TOPIC = "round-trips"
VALUE = bytes(100)
WARM_UP = 20

CALLS = 20_000
"""The most of one run."""


def _counted(plan: Plan, call: Callable[[], object]) -> Figures:
    for _ in range(WARM_UP):
        call()
    timer = Timer(plan)
    while timer.running() and timer.records < CALLS:
        call()
        timer.records += 1
    return timer.figures()


async def _counted_async(plan: Plan, call: Callable[[], Awaitable[object]]) -> Figures:
    for _ in range(WARM_UP):
        await call()
    timer = Timer(plan)
    while timer.running() and timer.records < CALLS:
        await call()
        timer.records += 1
    return timer.figures()


# ---------------------------------------------------------------- sends


def kadence_send(plan: Plan) -> Figures:
    from kadence import Producer

    with Producer(bootstrap_servers=plan.bootstrap, linger_ms=0) as producer:
        return _counted(plan, lambda: producer.send(TOPIC, VALUE, partition=0).result())


async def _kadence_send_async(plan: Plan) -> Figures:
    from kadence import AsyncProducer

    async with AsyncProducer(bootstrap_servers=plan.bootstrap, linger_ms=0) as producer:
        return await _counted_async(plan, lambda: producer.send_and_wait(TOPIC, VALUE, partition=0))


def _confluent(plan: Plan, **settings: Any) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {"bootstrap.servers": plan.bootstrap, "enable.idempotence": True, "linger.ms": 0, **settings}
    )


def confluent_send(plan: Plan) -> Figures:
    producer = _confluent(plan)

    def send() -> None:
        producer.produce(TOPIC, VALUE, partition=0)
        producer.flush()

    return _counted(plan, send)


async def _aiokafka_send(plan: Plan) -> Figures:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=plan.bootstrap, acks="all", enable_idempotence=True, linger_ms=0
    )
    await producer.start()
    try:
        return await _counted_async(plan, lambda: producer.send_and_wait(TOPIC, VALUE, partition=0))
    finally:
        await producer.stop()


def kafka_python_send(plan: Plan) -> Figures:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=plan.bootstrap, acks="all", enable_idempotence=True)
    result = _counted(plan, lambda: producer.send(TOPIC, VALUE, partition=0).get(10))
    producer.close()
    return result


# ---------------------------------------------------------------- transactions and lists


def kadence_transaction(plan: Plan) -> Figures:
    from kadence import Producer

    with Producer(bootstrap_servers=plan.bootstrap, transactional_id=plan.group, linger_ms=0) as producer:
        producer.init_transactions()

        def transact() -> None:
            with producer.transaction():
                producer.send(TOPIC, VALUE, partition=0)

        return _counted(plan, transact)


def confluent_transaction(plan: Plan) -> Figures:
    producer = _confluent(plan, **{"transactional.id": plan.group})
    producer.init_transactions()

    def transact() -> None:
        producer.begin_transaction()
        producer.produce(TOPIC, VALUE, partition=0)
        producer.commit_transaction()

    return _counted(plan, transact)


def kadence_topics(plan: Plan) -> Figures:
    from kadence import Admin

    with Admin(bootstrap_servers=plan.bootstrap) as admin:
        return _counted(plan, admin.list_topics)


def confluent_topics(plan: Plan) -> Figures:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": plan.bootstrap})
    return _counted(plan, lambda: admin.list_topics(timeout=10))


SENDS = {
    "kadence": Line("Kadence, `send(…).result()`", kadence_send),
    "kadence-async": Line(
        "Kadence, `await send_and_wait(…)`", lambda plan: asyncio.run(_kadence_send_async(plan))
    ),
    "confluent": Line("confluent-kafka, `produce` and `flush`", confluent_send),
    "aiokafka": Line("aiokafka, `await send_and_wait(…)`", lambda plan: asyncio.run(_aiokafka_send(plan))),
    "kafka-python": Line("kafka-python, `send(…).get()`", kafka_python_send),
}
TRANSACTIONS = {
    "kadence-transaction": Line("Kadence, `with transaction()`", kadence_transaction),
    "confluent-transaction": Line("confluent-kafka, begin to commit", confluent_transaction),
}
TOPICS = {
    "kadence-topics": Line("Kadence, `list_topics()`", kadence_topics),
    "confluent-topics": Line("confluent-kafka, `list_topics()`", confluent_topics),
}


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    cases = (
        (Case("send", "Each record sent, and waited for, 100 B", 100), "records/s", SENDS),
        (Case("transaction", "Transactions of one record", 100), "transactions/s", TRANSACTIONS),
        (Case("topics", "Lists of the topics", 100), "lists/s", TOPICS),
    )
    tables = []
    for case, what, lines in cases:
        wanted = {name: line for name, line in lines.items() if options.wants(name)}
        rates = run_case("roundtrips", case, wanted, ground, options)
        tables.append(table_of(case.title, what, wanted, rates))
    return tables, []


ROW = Row("roundtrips", SENDS | TRANSACTIONS | TOPICS, measure)
