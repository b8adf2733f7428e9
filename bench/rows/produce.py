"""Writing: one record at a time with a key, and tables, counted until the flush returns; acks=all.

Then the same with what a program may add: headers, a serialiser, an event loop, compression. With defaults each client
says when its batches are full: 1 MB here and in librdkafka, 16 KiB in the others.

Every client hands over records for as long as it is measured, then waits until the brokers have acknowledged all of
them; what is counted is all of them in all of that time. The broker keeps its log in memory where the system has a
folder there (Linux): on a disk, whoever finds it free writes twice what the others do. Values and keys are made before
the clock starts. Each client says how its application hears of a record's fate: by a future that ``send`` gives
(Kadence, kafka-python, aiokafka), by a callback, or not at all. A client without serialisers calls the function itself.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

from harness import children
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.rates import Rates
from harness.table import Goal, Table
from harness.timing import Timer
from harness.topics import MEMORY, PARTITIONS

if TYPE_CHECKING:
    from harness.ground import Ground

SLICE = 1000
"""Records between two looks at the clock."""

PAUSE = 1.0

IN_MEMORY = {
    "log.segment.bytes": str(32 << 20),
    "log.retention.bytes": str(64 << 20),
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
}
"""Of a broker that keeps its log in memory: it soon deletes what was written, so that some 2 GB are enough."""

TABLE_ROWS = 10_000
"""Rows of one table: what Spark hands to its writers by default."""

HEADERS = [("source", b"web"), ("trace", b"0123456789abcdef")]

KEYS = [b"%016d" % number for number in range(10_000)]


def value_of(plan: Plan) -> bytes:
    """The value that all records have."""
    return (b"abcdefghijklmnopqrstuvwxyz" * (plan.size // 26 + 1))[: plan.size]


def values_of(plan: Plan) -> list[bytes]:
    """Values that differ, of letters that a codec makes about half as long."""
    letters = random.Random(1)
    return [bytes(letters.choices(b"etaoinshrdlu .,0", k=plan.size)) for _ in range(100)]


def write(plan: Plan, hand_over: Callable[[list[bytes]], int], flush: Callable[[], object]) -> Figures:
    """Hand over slices until the time is over, then wait for all. The first slice is not counted."""
    hand_over(KEYS[:SLICE])
    flush()
    keys = cycle([KEYS[at : at + SLICE] for at in range(0, len(KEYS), SLICE)])
    timer = Timer(plan)
    while timer.running():
        timer.records += hand_over(next(keys))
    flush()
    return timer.figures()


def kadence(plan: Plan) -> Figures:
    return _kadence(plan)


def kadence_headers(plan: Plan) -> Figures:
    return _kadence(plan, further={"headers": HEADERS})


def kadence_serializer(plan: Plan) -> Figures:
    return _kadence(plan, [value_of(plan).decode()], value_serializer=str.encode)


def kadence_lz4(plan: Plan) -> Figures:
    return _kadence(plan, values_of(plan), compression_type="lz4")


def kadence_zstd(plan: Plan) -> Figures:
    return _kadence(plan, values_of(plan), compression_type="zstd")


def _kadence(
    plan: Plan, given: list[Any] | None = None, further: Mapping[str, Any] | None = None, **settings: Any
) -> Figures:
    from kadence import Producer

    topic, values = plan.topic, cycle(given or [value_of(plan)])
    futures: list[Any] = [None]
    with Producer(bootstrap_servers=plan.bootstrap, **settings) as producer:
        send: Callable[..., Any] = producer.send
        if further is not None:
            send = partial(send, **further)

        def hand_over(keys: list[bytes]) -> int:
            for key in keys:
                last = send(topic, next(values), key)
            futures[0] = last
            return len(keys)

        figures = write(plan, hand_over, producer.flush)
        futures[0].result(0)
        return figures


def kadence_callback(plan: Plan) -> Figures:
    from kadence import Producer

    value, topic = value_of(plan), plan.topic

    def delivered(future: Any) -> None:
        if future.exception() is not None:
            raise SystemExit(str(future.exception()))

    with Producer(bootstrap_servers=plan.bootstrap) as producer:
        send = producer.send

        def hand_over(keys: list[bytes]) -> int:
            for key in keys:
                send(topic, value, key).add_done_callback(delivered)
            return len(keys)

        return write(plan, hand_over, producer.flush)


def kadence_async(plan: Plan) -> Figures:
    return asyncio.run(_kadence_async(plan))


async def _kadence_async(plan: Plan) -> Figures:
    from kadence import AsyncProducer

    async with AsyncProducer(bootstrap_servers=plan.bootstrap) as producer:
        return await write_async(plan, producer)


async def write_async(plan: Plan, producer: Any) -> Figures:
    """As `write`, with a client whose ``send`` and ``flush`` are awaited."""
    value, topic = value_of(plan), plan.topic
    for key in KEYS[:SLICE]:
        await producer.send(topic, value, key)
    await producer.flush()
    keys, timer = cycle(KEYS), Timer(plan)
    while timer.running():
        for key in islice(keys, SLICE):
            await producer.send(topic, value, key)
        timer.records += SLICE
    await producer.flush()
    return timer.figures()


def kadence_arrow(plan: Plan) -> Figures:
    import pyarrow as pa

    from kadence import Producer

    value = value_of(plan)
    keys = list(islice(cycle(KEYS), TABLE_ROWS))
    table = pa.table(
        {"key": pa.array(keys, pa.binary()), "value": pa.array([value] * TABLE_ROWS, pa.binary())}
    )
    with Producer(bootstrap_servers=plan.bootstrap) as producer:
        deliveries: list[Any] = []

        def hand_over(_keys: list[bytes]) -> int:
            deliveries.append(producer.send_arrow(table, plan.topic))
            return TABLE_ROWS

        figures = write(plan, hand_over, producer.flush)
        for delivery in deliveries:
            delivery.result(0)
        return figures


def confluent_default(plan: Plan) -> Figures:
    return _confluent(plan)


def confluent_idempotent(plan: Plan) -> Figures:
    return _confluent(plan, tuning={"enable.idempotence": True})


def confluent_headers(plan: Plan) -> Figures:
    return _confluent(plan, further={"headers": HEADERS})


def confluent_serializer(plan: Plan) -> Figures:
    return _confluent(plan, [value_of(plan).decode()], str.encode)


def confluent_lz4(plan: Plan) -> Figures:
    return _confluent(plan, values_of(plan), tuning={"compression.type": "lz4"})


def confluent_zstd(plan: Plan) -> Figures:
    return _confluent(plan, values_of(plan), tuning={"compression.type": "zstd"})


def _confluent(
    plan: Plan,
    given: list[Any] | None = None,
    serialize: Callable[[Any], bytes] | None = None,
    further: Mapping[str, Any] | None = None,
    tuning: Mapping[str, Any] | None = None,
) -> Figures:
    """Nobody hears of a record. The queue of 100,000 records fills; a full one is waited for in ``poll``."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": plan.bootstrap, **(tuning or {})})
    produce, poll, topic = producer.produce, producer.poll, plan.topic
    values = cycle(given or [value_of(plan)])
    if further is not None:
        produce = partial(produce, **further)

    def hand_over(keys: list[bytes]) -> int:
        for key in keys:
            each = next(values)
            data = each if serialize is None else serialize(each)
            while True:
                try:
                    produce(topic, data, key)
                    break
                except BufferError:
                    poll(0.01)
        poll(0)
        return len(keys)

    return write(plan, hand_over, producer.flush)


def confluent_callback(plan: Plan) -> Figures:
    """A callback for each record, and ``poll(0)`` after each, as in the examples of its documentation."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": plan.bootstrap})
    produce, poll, topic = producer.produce, producer.poll, plan.topic
    value = value_of(plan)

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            raise SystemExit(str(error))

    def hand_over(keys: list[bytes]) -> int:
        for key in keys:
            while True:
                try:
                    produce(topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    poll(0.01)
            poll(0)
        return len(keys)

    return write(plan, hand_over, producer.flush)


def kafka_python(plan: Plan) -> Figures:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=plan.bootstrap, acks="all")
    value, topic = value_of(plan), plan.topic

    def hand_over(keys: list[bytes]) -> int:
        for key in keys:
            producer.send(topic, value, key)
        return len(keys)

    figures = write(plan, hand_over, producer.flush)
    producer.close()
    return figures


def aiokafka(plan: Plan) -> Figures:
    return asyncio.run(_aiokafka(plan))


async def _aiokafka(plan: Plan) -> Figures:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=plan.bootstrap, acks="all")
    await producer.start()
    try:
        return await write_async(plan, producer)
    finally:
        await producer.stop()


MAIN = {
    "kadence": Line("Kadence, `send`, idempotent", kadence),
    "kadence-callback": Line("Kadence, `send` with a callback of each future", kadence_callback),
    "kadence-arrow": Line(f"Kadence, `send_arrow` of {TABLE_ROWS:,} rows, idempotent", kadence_arrow),
    "confluent-default": Line("confluent-kafka, `produce`, defaults", confluent_default),
    "confluent-idempotent": Line("confluent-kafka, `produce`, idempotent", confluent_idempotent),
    "confluent-callback": Line(
        "confluent-kafka, `produce` with a callback, `poll(0)` after each", confluent_callback
    ),
    "kafka-python": Line("kafka-python, `send`", kafka_python),
    "aiokafka": Line("aiokafka, `await send`", aiokafka),
}

WAYS: dict[str, tuple[str, int, dict[str, Line]]] = {
    "headers": (
        "two headers",
        100,
        {
            "kadence-headers": Line("Kadence, `send`", kadence_headers),
            "confluent-headers": Line("confluent-kafka, `produce`", confluent_headers),
        },
    ),
    "serializer": (
        "values of text, encoded by a serialiser",
        100,
        {
            "kadence-serializer": Line("Kadence, `value_serializer=str.encode`", kadence_serializer),
            "confluent-serializer": Line(
                "confluent-kafka, `str.encode` before `produce`", confluent_serializer
            ),
        },
    ),
    "async": (
        "on an event loop",
        100,
        {
            "kadence-async": Line("Kadence, `await send`", kadence_async),
            "aiokafka-async": Line("aiokafka, `await send`", aiokafka),
        },
    ),
    "lz4": (
        "lz4",
        1024,
        {
            "kadence-lz4": Line("Kadence, `send`", kadence_lz4),
            "confluent-lz4": Line("confluent-kafka, `produce`", confluent_lz4),
        },
    ),
    "zstd": (
        "zstd",
        1024,
        {
            "kadence-zstd": Line("Kadence, `send`", kadence_zstd),
            "confluent-zstd": Line("confluent-kafka, `produce`", confluent_zstd),
        },
    ),
}
"""Ways to write beside the usual one: what is added, bytes of the values, the clients."""

LINES = MAIN | {name: line for _, _, lines in WAYS.values() for name, line in lines.items()}

ONLY_ONCE = ("aiokafka", "kafka-python")


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    if ground.another is None or not MEMORY.is_dir():
        return measure_on(ground, options)
    with ground.another(IN_MEMORY, parent=MEMORY) as in_memory:
        return measure_on(in_memory, options)


def measure_on(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    small = _case(ground, options, "100B", "Records of 100 B with a key", 100, MAIN)
    large = _case(ground, options, "1KiB", "Records of 1 KiB with a key", 1024, MAIN)
    ways = [
        _case(ground, options, name, f"Records of {size} B with a key: {title}", size, lines)
        for name, (title, size, lines) in WAYS.items()
        if any(options.wants(line) for line in lines)
    ]
    goals = [
        case.ratio_goal(
            f"`Producer.send`, {size} with a key", "kadence", "confluent-default", 1, "confluent's `produce`"
        )
        for case, size in ((small, "100 B"), (large, "1 KiB"))
    ]
    return [case.table() for case in (small, large, *ways)], goals


def _case(
    ground: Ground, options: Options, name: str, title: str, size: int, lines: Mapping[str, Line]
) -> Rates:
    topic = ground.empty(f"produced-{size}", PARTITIONS)
    runs: dict[str, list[Outcome]] = {line: [] for line in lines if options.wants(line)}
    for turn in range(options.rounds):
        for line, made in runs.items():
            if turn and line.startswith(ONLY_ONCE):
                continue
            plan = Plan(
                bootstrap=ground.bootstrap,
                topic=topic,
                group="",
                count=options.records * 10,
                seconds=options.seconds,
                size=size,
            )
            made.append(children.run("produce", line, LINES[line], plan))
            print(f"  produce {name} {line}: {_said(made[-1])}", flush=True)
            time.sleep(PAUSE)  # The broker writes what it holds; the next client should not pay for it.
    return Rates(title, lines, runs)


def _said(outcome: Outcome) -> str:
    return (
        outcome if isinstance(outcome, str) else f"{outcome['records'] / outcome['seconds']:,.0f} records/s"
    )


ROW = Row("produce", LINES, measure)
