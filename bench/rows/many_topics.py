"""Writing to many topics: the first record to each, and then records to one while the client knows all of them.

Each client gets an embedded broker of its own, in another process, which creates the topics as they are asked for.
Apache Kafka would spend minutes on so many topics, and that is not what is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from broker import ours
from harness import children
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.table import Goal, Table
from harness.timing import peak_rss_mb

if TYPE_CHECKING:
    from harness.ground import Ground

TOPICS = 6_000
FEW = 10
CHUNKS = 20
CALLS = 50
TIMEOUT = 600.0

VALUE = b"x" * 100


def _measured(
    plan: Plan, send: Callable[[str], object], flush: Callable[[], object], wait: Callable[[str], object]
) -> Figures:
    """Seconds for the first records, and the CPU of a record that is waited for, with few and with all topics known."""
    names = [f"{plan.topic}-{number}" for number in range(plan.count)]
    seconds, burnt = time.perf_counter(), time.process_time()
    for name in names[:FEW]:
        send(name)
    flush()
    seconds, burnt = time.perf_counter() - seconds, time.process_time() - burnt
    few = _each(names[0], wait)
    began, cpu = time.perf_counter(), time.process_time()
    for name in names[FEW:]:
        send(name)
    flush()
    seconds, burnt = seconds + time.perf_counter() - began, burnt + time.process_time() - cpu
    return {"seconds": seconds, "cpu": burnt, "few": few, "all": _each(names[0], wait), "rss": peak_rss_mb()}


def _each(topic: str, wait: Callable[[str], object]) -> float:
    """The cheapest of some chunks: milliseconds of CPU of all threads for each record."""
    costs = []
    for _ in range(CHUNKS):
        burnt = time.process_time()
        for _ in range(CALLS):
            wait(topic)
        costs.append((time.process_time() - burnt) / CALLS * 1e3)
    return min(costs)


def kadence(plan: Plan) -> Figures:
    from kadence import Producer

    with Producer(bootstrap_servers=plan.bootstrap) as producer:
        return _measured(
            plan,
            lambda topic: producer.send(topic, VALUE),
            producer.flush,
            lambda topic: producer.send_and_wait(topic, VALUE),
        )


def confluent(plan: Plan) -> Figures:
    from confluent_kafka import Producer

    # It waits 5 ms for more records by default, which has nothing to do with topics.
    producer = Producer({"bootstrap.servers": plan.bootstrap, "linger.ms": 0})

    def send(topic: str) -> None:
        producer.produce(topic, VALUE)
        producer.poll(0)

    def wait(topic: str) -> None:
        producer.produce(topic, VALUE)
        producer.flush()

    return _measured(plan, send, producer.flush, wait)


LINES = {
    "kadence": Line("Kadence, `send` and `send_and_wait`", kadence),
    "confluent": Line("confluent-kafka, `produce`, and `flush` to wait", confluent),
}


def measure(ground: Ground, options: Options, topics: int = TOPICS) -> tuple[list[Table], list[Goal]]:
    del ground
    outcomes: dict[str, Outcome] = {}
    for name, line in LINES.items():
        if options.wants(name):
            with ours(None) as bootstrap:
                plan = Plan(bootstrap, "many", "", count=topics)
                outcomes[name] = children.run("many_topics", name, line, plan, TIMEOUT)
            print(f"  many_topics {name}: {outcomes[name]}", flush=True)
    measured = {name: each for name, each in outcomes.items() if not isinstance(each, str)}
    headings = (
        "client",
        "first records, s",
        "CPU s",
        "× confluent",
        f"CPU ms/record, {FEW} known",
        "all known",
        "peak RSS MB",
    )
    theirs = measured.get("confluent", {}).get("seconds")
    lines = []
    for name in outcomes:
        each = measured.get(name)
        if each is None:
            lines.append((LINES[name].title, *["–"] * 6))
            continue
        ratio = f"{each['seconds'] / theirs:.2f}" if theirs else "–"
        cells = (
            f"{each['seconds']:.1f}",
            f"{each['cpu']:.1f}",
            ratio,
            f"{each['few']:.3f}",
            f"{each['all']:.3f}",
        )
        lines.append((LINES[name].title, *cells, f"{each['rss']:.1f}"))
    failures = [f"{LINES[name].title}: {each}" for name, each in outcomes.items() if isinstance(each, str)]
    note = f"CPU ms of a record that is waited for: of all threads, the cheapest of {CHUNKS} times {CALLS}."
    table = Table(f"Records to {topics:,} topics, 100 B", headings, lines, [note], failures)
    return [table], [*_goals(measured, topics)]


def _goals(measured: dict[str, Figures], topics: int) -> list[Goal]:
    first, steady = (
        f"the first record to each of {topics:,} topics",
        "`send_and_wait` with so many topics known",
    )
    promised = "≤ 1 × confluent", f"≤ 1.2 × with {FEW} known"
    ours, theirs = measured.get("kadence"), measured.get("confluent")
    goals = [Goal(first, promised[0], "–"), Goal(steady, promised[1], "–")]
    if ours is not None:
        ratio = ours["all"] / ours["few"]
        goals[1] = Goal(steady, promised[1], f"{ratio:.2f} × ({ours['all']:.2f} ms CPU)", ratio <= 1.2)
        if theirs is not None:
            ratio = ours["seconds"] / theirs["seconds"]
            goals[0] = Goal(first, promised[0], f"{ratio:.2f} × ({ours['seconds']:.1f} s)", ratio <= 1)
    return goals


ROW = Row("many_topics", LINES, measure)
