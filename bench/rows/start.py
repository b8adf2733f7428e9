"""What a start costs: a client until its constructor returns, a consumer until its first record, a command as a whole.

Each start has an interpreter of its own, and takes turns with the others. What counts is the time that processors
worked: on a busy machine the time that passes says little of a program of a tenth of a second.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
from functools import partial
from os import wait4
from typing import TYPE_CHECKING

from harness import children
from harness.plan import Figures, Line, Options, Outcome, Plan, Row
from harness.table import Goal, Table

if TYPE_CHECKING:
    from harness.ground import Ground

SIZE = 1024
RECORDS = 20_000
"""More than a client fetches ahead before its first record is returned."""

PROGRAM = """
import os, sys, time
bootstrap, topic, group = sys.argv[1:]
began = time.process_time()
{start}
worked = time.process_time() - began
for line in open("/proc/self/status"):
    if line.startswith("VmHWM:"):
        print(worked * 1000, int(line.split()[1]) / 1024, flush=True)
os._exit(0)
"""
"""Its end is none of the client's: it measures a start."""

CONSUMERS = {
    "kadence": "import kadence; client = kadence.Consumer({{'bootstrap.servers': bootstrap, 'group.id': group{more}}})",
    "confluent": (
        "import confluent_kafka; "
        "client = confluent_kafka.Consumer({{'bootstrap.servers': bootstrap, 'group.id': group{more}}})"
    ),
}
EARLIEST = ", 'auto.offset.reset': 'earliest'"
READING = {
    "kadence": "client.subscribe([topic])\nwhile not client.poll(1): pass",
    "confluent": "client.subscribe([topic])\nwhile not client.poll(1): pass",
}
AIOKAFKA = """
import asyncio, aiokafka
async def main():
    client = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
    {then}
asyncio.run(main())
"""


def started(program: str, plan: Plan) -> Figures:
    """A program of a client, in an interpreter that has loaded nothing yet."""
    command = [sys.executable, "-c", PROGRAM.format(start=program), plan.bootstrap, plan.topic, plan.group]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.stderr)
    worked, held = ran.stdout.split()
    return {"cpu": float(worked), "rss": float(held)}


def ran(command: list[str], plan: Plan) -> Figures:
    """A command, from the start of its process to its end."""
    child = subprocess.Popen(
        [word.format(at=plan.bootstrap, topic=plan.topic) for word in command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, used = wait4(child.pid, 0)
    child.returncode = status
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return {"cpu": (used.ru_utime + used.ru_stime) * 1000}


def _client(title: str, program: str) -> Line:
    return Line(title, partial(started, program))


def _command(title: str, *words: str) -> Line:
    return Line(title, partial(ran, list(words)))


_KADENCE = (sys.executable, "-m", "kadence")
CLIENTS = {
    "kadence": _client("Kadence, `Consumer`", CONSUMERS["kadence"].format(more="")),
    "kadence-producer": _client(
        "Kadence, `Producer`", "import kadence; client = kadence.Producer({'bootstrap.servers': bootstrap})"
    ),
    "kadence-admin": _client(
        "Kadence, `Admin`", "import kadence; client = kadence.Admin({'bootstrap.servers': bootstrap})"
    ),
    "confluent": _client("confluent-kafka, `Consumer`", CONSUMERS["confluent"].format(more="")),
    "confluent-producer": _client(
        "confluent-kafka, `Producer`",
        "import confluent_kafka; client = confluent_kafka.Producer({'bootstrap.servers': bootstrap})",
    ),
    "aiokafka": _client("aiokafka, `AIOKafkaConsumer`", AIOKAFKA.format(then="pass")),
}
FIRST = {
    "kadence-first": _client(
        "Kadence", CONSUMERS["kadence"].format(more=EARLIEST) + "\n" + READING["kadence"]
    ),
    "confluent-first": _client(
        "confluent-kafka", CONSUMERS["confluent"].format(more=EARLIEST) + "\n" + READING["confluent"]
    ),
    "aiokafka-first": _client(
        "aiokafka", AIOKAFKA.format(then="await client.start(); await client.getone()")
    ),
}
COMMANDS = {
    "kadence-topics": _command("`kadence topics list`", *_KADENCE, "topics", "list", "-b", "{at}"),
    "kadence-consume": _command(
        "`kadence consume -n 1`", *_KADENCE, "consume", "{topic}", "-n", "1", "-b", "{at}"
    ),
    "kcat-topics": _command("`kcat -L`", "kcat", "-L", "-b", "{at}"),
    "kcat-consume": _command("`kcat -C -c 1`", "kcat", "-C", "-t", "{topic}", "-c", "1", "-b", "{at}"),
}
LINES = CLIENTS | FIRST | COMMANDS
HEADINGS = ("start", "CPU ms, least", "CPU ms, median", "× confluent", "peak RSS MB")


def measure(ground: Ground, options: Options, rounds: int | None = None) -> tuple[list[Table], list[Goal]]:
    topic = ground.filled("start", SIZE, RECORDS)
    runs: dict[str, list[Outcome]] = {name: [] for name in LINES if options.wants(name)}
    if not shutil.which("kcat"):
        runs = {name: each for name, each in runs.items() if not name.startswith("kcat")}
    for number in range(7 * options.rounds + 1 if rounds is None else rounds):
        for name, outcomes in runs.items():
            plan = Plan(ground.bootstrap, topic, f"bench-start-{name}-{number}")
            outcomes.append(children.run("start", name, LINES[name], plan))
    tables = [
        _table("A client, until its constructor returns", CLIENTS, runs, "confluent"),
        _table("A consumer, until it has its first record of 1 KiB", FIRST, runs, "confluent-first"),
        _table("A command, with its interpreter", COMMANDS, runs, ""),
    ]
    return tables, [_goal(runs)]


def _figures(outcomes: list[Outcome], name: str) -> list[float]:
    return [each[name] for each in outcomes if isinstance(each, dict) and name in each]


def _table(title: str, lines: dict[str, Line], runs: dict[str, list[Outcome]], yardstick: str) -> Table:
    theirs = _figures(runs.get(yardstick, []), "cpu")
    rows, failures = [], []
    for name, line in lines.items():
        cpu, rss = _figures(runs.get(name, []), "cpu"), _figures(runs.get(name, []), "rss")
        failures += [f"{line.title}: {each}" for each in runs.get(name, []) if isinstance(each, str)]
        if not cpu:
            continue
        ratio = f"{min(cpu) / min(theirs):.2f}" if theirs else "–"
        held = f"{statistics.median(rss):.1f}" if rss else "–"
        rows.append((line.title, f"{min(cpu):.0f}", f"{statistics.median(cpu):.0f}", ratio, held))
    return Table(title, HEADINGS, rows, (), failures)


def _goal(runs: dict[str, list[Outcome]]) -> Goal:
    what, promised = "import and `Consumer`, until the constructor returns", "≤ 1.6 × confluent's CPU"
    ours, theirs = (_figures(runs.get(name, []), "cpu") for name in ("kadence", "confluent"))
    if not ours or not theirs:
        return Goal(what, promised, "–")
    ratio = min(ours) / min(theirs)
    return Goal(what, promised, f"{min(ours):.0f} ms, {ratio:.2f} × confluent", ratio <= 1.6)


ROW = Row("start", LINES, measure)
