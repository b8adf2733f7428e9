"""`process` on a queue: 4 members of 64 workers, whose handlers take 10 ms, beside Java's with pools of 64 threads.

Twice: with all the work there is, and with records as they are written, from the time of sending to the end of the
handler. All members count in the same seconds of the machine's clock.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from harness import children, meeting, share, topics
from harness.plan import Figures, Line, Options, Plan
from harness.table import Goal, Table
from harness.timing import peak_rss_mb

if TYPE_CHECKING:
    from harness.ground import Ground

MEMBERS = 4
WORKERS = 64
WORK_S = 0.01
CAPACITY = MEMBERS * WORKERS / WORK_S
PATIENCE_S = 180.0
"""Until all members work: four JVMs start, and members get partitions with a later heartbeat, which are 5 s apart."""
BACKLOG = int(35.0 * CAPACITY)
"""Many records: as many as the workers could do in so many seconds."""
PER_SECOND = 2_000
LEAST, MOST = 0.95, 1.2


def threads(plan: Plan) -> Figures:
    window = Window(plan)

    def handle(record: Any) -> None:
        time.sleep(WORK_S)
        window.ended(record.value)

    return window.process(handle)


def coroutines(plan: Plan) -> Figures:
    window = Window(plan)

    async def handle(record: Any) -> None:
        await asyncio.sleep(WORK_S)
        window.ended(record.value)

    return window.process(handle)


class Window:
    """The time in which all members count, and what this one counts: handled records, by ms since they were sent."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._begins = self._ends = 0
        self._is_ready = False
        self._lags: list[int] = []

    def ended(self, value: bytes) -> None:
        """A handler has ended, on any thread."""
        if not self._is_ready:
            self._is_ready = True
            meeting.ready(self._plan.meeting)
        now = time.monotonic_ns()
        if self._begins <= now < self._ends:
            self._lags.append((now - int(value[:19])) // 1_000_000)

    def process(self, handler: Any) -> Figures:
        cpu = 0.0

        def watch() -> None:
            nonlocal cpu
            begins = meeting.beginning(self._plan.meeting)
            ends = begins + self._plan.seconds
            self._begins, self._ends = int(begins * 1e9), int(ends * 1e9)
            time.sleep(max(begins - time.monotonic(), 0.0))
            burnt = time.process_time()
            time.sleep(max(ends - time.monotonic(), 0.0))
            cpu = time.process_time() - burnt
            consumer.stop()

        with share.kadence(self._plan) as consumer:
            watcher = threading.Thread(target=watch)
            watcher.start()
            consumer.process(handler, workers=self._plan.count, drain=1.0)
            watcher.join()
        counted = {str(lag): float(count) for lag, count in Counter(self._lags).items()}
        return {"cpu": cpu, "rss": peak_rss_mb(), **counted}


def produce(plan: Plan) -> Figures:
    """Sends until it is killed."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": plan.bootstrap, "linger.ms": 0})
    number, due = 0, time.monotonic()
    while True:
        producer.produce(plan.topic, stamp(), b"%016d" % number)
        producer.poll(0)
        number += 1
        due += 1 / PER_SECOND
        if (left := due - time.monotonic()) > 0:
            time.sleep(left)


def stamp() -> bytes:
    """A value of 100 B that begins with the present time."""
    return b"%019d" % time.monotonic_ns() + b"x" * 81


LINES = {
    "kadence-threads": Line("Kadence, `process` with threads", threads),
    "kadence-coroutines": Line("Kadence, `process` with coroutines", coroutines),
    "java-work": Line("Java, polls and a pool of threads", lambda plan: share.java(plan, "work")),
    "producer": Line("the producer", produce),
}
HEADINGS = ("client", "records/s", "of what the workers can do", "p50 ms", "p99 ms", "CPU µs/record")


class Handled:
    """What the members of one run have handled together."""

    def __init__(self, seconds: float, outcomes: list[Any]) -> None:
        self.failures = [outcome for outcome in outcomes if isinstance(outcome, str)]
        made = [outcome for outcome in outcomes if not isinstance(outcome, str)]
        self.lags: Counter[int] = Counter()
        for outcome in made:
            self.lags.update({int(name): int(count) for name, count in outcome.items() if name.isdigit()})
        self.count = self.lags.total()
        self.rate = self.count / seconds
        self.cpu_us = sum(outcome["cpu"] for outcome in made) / max(self.count, 1) * 1e6

    def quantile(self, part: float) -> int:
        """ms from sending to the end of the handler."""
        passed = 0
        for lag in sorted(self.lags):
            passed += self.lags[lag]
            if passed >= part * self.count:
                return lag
        return 0


def measure(ground: Ground, options: Options, java: tuple[str, ...]) -> tuple[list[Table], list[Goal]]:
    names = [name for name in LINES if name != "producer" and options.wants(name)]
    if not names:
        return [], []
    topic = ground.empty("share-work", topics.PARTITIONS)
    backlog = ground.empty("share-backlog", topics.PARTITIONS)
    _fill(ground.bootstrap, backlog, BACKLOG)
    full: dict[str, Handled] = {}
    steady: dict[str, Handled] = {}
    for turn in range(options.rounds):
        for name in names:
            run = _run(ground, options, java, name, backlog, f"full-{turn}")
            print(f"  share {name}: {run.rate:,.0f} records/s {run.failures or ''}", flush=True)
            full[name] = max(full.get(name, run), run, key=lambda each: each.rate)
    producer = Plan(ground.bootstrap, topic, "")
    with children.beside("share", "producer", LINES["producer"], producer):
        for turn in range(options.rounds):
            for name in names:
                run = _run(ground, options, java, name, topic, f"steady-{turn}")
                print(f"  share {name}: p99 {run.quantile(0.99)} ms {run.failures or ''}", flush=True)
                steady[name] = min(steady.get(name, run), run, key=lambda each: each.quantile(0.99))
    setting = f"{MEMBERS} members of {WORKERS} workers, handlers of {WORK_S * 1000:g} ms"
    tables = [
        _table(f"A queue of many records: {setting}", full, has_lags=False),
        _table(f"A queue of {PER_SECOND:,} records/s: {setting}", steady, has_lags=True),
    ]
    return tables, _goals(setting, full, steady)


def _fill(bootstrap: str, topic: str, count: int) -> None:
    from confluent_kafka import Producer

    print(f"filling a topic with {count:,} records", flush=True)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 100})
    for number in range(count):
        while True:
            try:
                producer.produce(topic, stamp(), partition=number % topics.PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush(120)


def _run(
    ground: Ground, options: Options, java: tuple[str, ...], name: str, topic: str, turn: str
) -> Handled:
    group = f"bench-share-{name}-{turn}"
    if turn.startswith("full"):
        share.from_the_start(ground.bootstrap, group)
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(
            ground.bootstrap,
            topic,
            group,
            count=WORKERS,
            seconds=options.seconds,
            java=java,
            meeting=folder,
        )
        members = [children.start("share", name, LINES[name], plan) for _ in range(MEMBERS)]
        are_all_there = meeting.await_members(folder, MEMBERS, PATIENCE_S)
        outcomes = [children.finish(each, PATIENCE_S) for each in members]
    if not are_all_there:
        outcomes.append(f"not all members had a record after {PATIENCE_S:g} s")
    return Handled(options.seconds, outcomes)


def _table(title: str, runs: dict[str, Handled], *, has_lags: bool) -> Table:
    """``has_lags``: the records were written while they were handled."""
    lines, failures = [], []
    for name, run in runs.items():
        failures += [f"{LINES[name].title}: {failure}" for failure in run.failures]
        if not run.count:
            lines.append((LINES[name].title, *["–"] * 5))
            continue
        figures = (
            f"{run.rate:,.0f}",
            f"{run.rate / CAPACITY:.0%}",
            f"{run.quantile(0.5)}" if has_lags else "–",
            f"{run.quantile(0.99)}" if has_lags else "–",
            f"{run.cpu_us:.1f}",
        )
        lines.append((LINES[name].title, *figures))
    return Table(title, HEADINGS, lines, (), failures)


def _goals(setting: str, full: dict[str, Handled], steady: dict[str, Handled]) -> list[Goal]:
    own = [run.rate for name, run in full.items() if name.startswith("kadence") and run.count]
    promised = f"≥ {LEAST:.0%} of {CAPACITY:,.0f} records/s"
    goals = [Goal(f"`process`, {setting}", promised, "–")]
    if own:
        part = max(own) / CAPACITY
        goals = [Goal(f"`process`, {setting}", promised, f"{part:.0%}", part >= LEAST)]
    what, promised = f"… {PER_SECOND:,} records/s, p99 from send to handled", f"≤ {MOST:g} × Java's"
    ours = [run.quantile(0.99) for name, run in steady.items() if name.startswith("kadence") and run.count]
    theirs = [run.quantile(0.99) for name, run in steady.items() if name.startswith("java") and run.count]
    if not ours or not theirs:
        return [*goals, Goal(what, promised, "–")]
    ratio = min(ours) / min(theirs)
    return [*goals, Goal(what, promised, f"{ratio:.2f} × ({min(ours)} ms)", ratio <= MOST)]
