"""Where the time of one record goes, for each way of reading.

    python bench/stages.py                              every path, about three minutes
    python bench/stages.py --paths polls-100 iteration --tops 12
    python bench/stages.py --write bench/NOTES.md  beside the figures of bench/stages_before.json

Each path runs three times in processes of its own: as it is, for the processor time of each thread; with every call
counted; and with cProfile, for the functions at the top. What the machine asks at least is measured beside: bytes read
from a socket and not looked at, checksums, records made of bytes. What no stage explains is the machinery around.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import children, peers, touch
from harness.floor import Floor
from harness.plan import Options, Plan
from harness.reports import Report, report, tops
from harness.table import write_section
from harness.threads import Calls, Functions, Usages
from harness.timing import Patience

if TYPE_CHECKING:
    from harness.ground import Ground

BEFORE = Path(__file__).resolve().parent / "stages_before.json"
"""The figures of commit ac919236, from before all clients had one engine, on a machine with two processors."""

STEP = 1000
"""Records between two looks at the clock, where they come one by one."""


@dataclass(frozen=True, slots=True)
class ReadingPath:
    """One way of reading. ``step`` reads something from a consumer and says how many records it was.

    Attributes:
        size: of the values; 0: the topic is empty.
        rate: records come only so fast, so what counts is the time of all, not how long the records last.
    """

    title: str
    size: int
    step: Callable[[Any], Any]
    is_async: bool = False
    rate: int = 0

    @property
    def is_waiting(self) -> bool:
        """The consumer waits most of the time, and its topic begins empty."""
        return not self.size or bool(self.rate)


def _polls(consumer: Any) -> int:
    return touch.attributes(consumer.poll(1.0))


def _iteration(consumer: Any) -> int:
    return touch.attributes(islice(consumer, STEP))


def _single(consumer: Any) -> int:
    return sum(touch.attributes(consumer.poll(0, max_records=1)) for _ in range(STEP))


def _arrow(consumer: Any) -> int:
    return touch.table(consumer.poll_arrow(1.0))


def _one(consumer: Any) -> int:
    return touch.attributes(islice(consumer, 1))


async def _async_iteration(consumer: Any) -> int:
    touched = 0
    async for record in consumer:
        key, value, offset = record.key, record.value, record.offset  # noqa: F841  (touching is the point)
        touched += 1
        if touched == STEP:
            break
    return touched


PATHS = {
    "polls-100": ReadingPath("polls of 500, 100 B", 100, _polls),
    "polls-1024": ReadingPath("polls of 500, 1 KiB", 1024, _polls),
    "iteration": ReadingPath("`for record in consumer`, 100 B", 100, _iteration),
    "async": ReadingPath("`async for`, 100 B", 100, _async_iteration, is_async=True),
    "single": ReadingPath("`poll(0, max_records=1)`, 100 B", 100, _single),
    "arrow-100": ReadingPath("`poll_arrow()`, 100 B", 100, _arrow),
    "arrow-1024": ReadingPath("`poll_arrow()`, 1 KiB", 1024, _arrow),
    "latency": ReadingPath("1,000 records/s, `for record in consumer`", 100, _one, rate=1000),
    "idle": ReadingPath("idle, 8 partitions, `poll(1)`", 0, _polls),
}


# ------------------------------------------------------------ in the child

Probe = Usages | Calls | Functions
PROBES: dict[str, type[Probe]] = {"cpu": Usages, "calls": Calls, "functions": Functions}


def _answers(consumer: Any) -> float:
    """Fetches that were answered."""
    return next(
        float(value)
        for name, value in consumer.metrics().items()
        if name.name == "fetch-total" and set(name.tags) == {"client-id"}
    )


class Span:
    """From the first record on: records, answers, and what the probe counted."""

    def __init__(self, plan: Plan, consumer: Any, probe: Probe) -> None:
        self.plan, self.consumer, self.probe = plan, consumer, probe
        self.records = 0
        self.answers = _answers(consumer)
        self.before = probe.look()
        self.began = time.perf_counter()

    def running(self) -> bool:
        return self.records < self.plan.count and time.perf_counter() - self.began < self.plan.seconds

    def result(self) -> dict[str, Any]:
        seconds, after = time.perf_counter() - self.began, self.probe.look()
        answers = _answers(self.consumer) - self.answers
        return {
            "records": self.records,
            "seconds": seconds,
            "answers": answers,
            "before": self.probe.told(self.before),
            "after": self.probe.told(after),
        }


def _drive(path: ReadingPath, plan: Plan, probe: Probe) -> dict[str, Any]:
    tuning = {"auto.offset.reset": "latest"} if path.rate else {}
    with peers.kadence(plan, **tuning) as consumer:
        patience = Patience(plan)
        while not path.step(consumer) and (path.size or not consumer.assignment()):
            patience.check()
        span = Span(plan, consumer, probe)
        while span.running():
            span.records += path.step(consumer)
        return span.result()


async def _drive_async(path: ReadingPath, plan: Plan, probe: Probe) -> dict[str, Any]:
    step: Callable[[Any], Awaitable[int]] = path.step
    async with await peers.kadence_async(plan) as consumer:
        await step(consumer)
        span = Span(plan, consumer, probe)
        while span.running():
            span.records += await step(consumer)
        return span.result()


def child(name: str, mode: str, plan: Plan) -> dict[str, Any]:
    """One run in this process: ``mode`` is what is observed."""
    path, probe = PATHS[name], PROBES[mode]()
    try:
        if path.is_async:
            return asyncio.run(_drive_async(path, plan, probe))
        return _drive(path, plan, probe)
    finally:
        probe.stop()


# ------------------------------------------------------------ the parent


def observe(name: str, mode: str, plan: Plan) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", name, mode, json.dumps(asdict(plan))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise SystemExit(f"{name}, {mode}: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(ground: Ground, options: Options, names: list[str], top: int) -> dict[str, Report]:
    """Observe and print the paths; their reports by name."""
    floors: dict[int, Floor] = {}
    reports: dict[str, Report] = {}
    for name in names:
        path = PATHS[name]
        if path.is_waiting:
            topic, count = ground.empty("latency" if path.rate else "idle-8", 8), 1 << 30
        else:
            topic, count = ground.values(path.size, options)
            if path.size not in floors:
                floors[path.size] = Floor.measure(ground.bootstrap, topic, path.size, options.seconds / 2)
        seconds = options.seconds * 2 if path.is_waiting else options.seconds
        runs = {}
        with _producer(ground, topic) if path.rate else nullcontext():
            for mode in PROBES:
                group = f"stages-{name}-{mode}"
                plan = Plan(ground.bootstrap, topic, group, count=count, seconds=seconds)
                runs[mode] = observe(name, mode, plan)
        floor = None if path.is_waiting else floors[path.size]
        reports[name] = report(path.title, runs, floor, is_arrow=path.step is _arrow)
        print(reports[name].text(), flush=True)
        if top:
            print(tops(runs["functions"], top), flush=True)
    return reports


def write(file: Path, reports: dict[str, Report], before: dict[str, Report]) -> None:
    """Each report goes between its own markers, beside the earlier one of the same name."""
    for name, each in reports.items():
        command = f"python bench/stages.py --paths {name}"
        write_section(file, f"stages-{name}", command, [each.markdown(before.get(name))])


def _producer(ground: Ground, topic: str) -> Any:
    from rows import latency

    return children.beside("latency", "producer", latency.PRODUCER, Plan(ground.bootstrap, topic, ""))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paths", nargs="*", choices=list(PATHS), default=list(PATHS))
    parser.add_argument("--records", type=int, default=8_000_000, help="of 100 B; a fifth as many of 1 KiB")
    parser.add_argument("--seconds", type=float, default=4.0, help="longest run of one path")
    parser.add_argument("--tops", type=int, default=6, help="functions to name for each thread; 0 for none")
    parser.add_argument("--save", type=Path, metavar="FILE", help="put the figures into this JSON file")
    parser.add_argument(
        "--before", type=Path, metavar="FILE", default=BEFORE, help="earlier figures, of --save"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this Markdown file")
    parser.add_argument("--child", nargs=3, metavar=("PATH", "MODE", "PLAN"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        name, mode, plan = chosen.child
        print(json.dumps(child(name, mode, Plan(**json.loads(plan))), default=asdict), flush=True)
        return
    from harness.ground import real_kafka

    options = Options(records=chosen.records, seconds=chosen.seconds)
    with real_kafka() as ground:
        reports = measure(ground, options, chosen.paths, chosen.tops)
    if chosen.save:
        saved = {name: each.data() for name, each in reports.items()}
        chosen.save.write_text(json.dumps(saved, indent=1, ensure_ascii=False) + "\n")
    if chosen.write:
        earlier = json.loads(chosen.before.read_text()).items()
        write(chosen.write, reports, {name: Report.from_data(data) for name, data in earlier})


if __name__ == "__main__":
    main()
