"""The same options given to Spark's Kafka connector and to Kadence, on one real Kafka, every row compared.

    python bench/parity.py
    python bench/parity.py --only "transactions"     checks with this in their name

Each check is data, in conformity/checks.py: a topic, queries, and what is expected: the same rows, a refusal by both,
or a difference that is meant, with its reason. Then come random lives of streams, see conformity/lives.py:

    python bench/parity.py --only lives --lives 300 --seed 5

Ends with 1 when a check or a life turns out otherwise. Needs a JDK and Maven.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from conformity.checks import CHECKS, Back, Check, Differs, Do, Expected, Read, Refused, Same, Stream
from conformity.lives import REASONS, RealLife
from conformity.topics import ACTIONS, SETUPS, World
from kadence_spark.checkpoints import rewrite_for_connector
from kadence_testing.kafka import KAFKA_VERSION, Kafka
from spark import SPARK_VERSION, connector_jars, environment

HERE = Path(__file__).resolve().parent
THEIRS, OURS = "kafka", "kadence"
Answer = dict[str, Any]


class Worker:
    """The process with the Spark session."""

    def __init__(self, python: Path, jars: list[str], scratch: Path) -> None:
        plan = json.dumps({"jars": jars, "scratch": str(scratch)})
        self._process = subprocess.Popen(
            [str(python), str(HERE / "conformity" / "worker.py"), plan],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(scratch / "worker.log").open("w"),
            text=True,
        )
        self._line()

    def ask(self, order: dict[str, Any]) -> Answer:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        answer: Answer = self._line()
        return answer

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the Spark process ended with {self._process.wait()}")
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate()


@dataclass(slots=True)
class Stage:
    """Where the checks run: topics that only get read are made once and shared."""

    world: World
    worker: Worker
    scratch: Path
    made: dict[str, tuple[str, dict[str, int]]] = field(default_factory=dict)
    number: int = 0

    def topic(self, check: Check) -> tuple[str, dict[str, int]]:
        changes = any(isinstance(step, Do) for step in check.steps)
        if not changes and check.setup in self.made:
            return self.made[check.setup]
        self.number += 1
        topic = f"parity-{check.setup}-{self.number}-"
        known = SETUPS[check.setup](self.world, topic)
        if not changes:
            self.made[check.setup] = (topic, known)
        return topic, known

    def run(self, check: Check) -> str | None:
        """What is otherwise than expected; None: nothing."""
        topic, known = self.topic(check)
        last: dict[str, Answer] = {}
        for at, step in enumerate(check.steps):
            if isinstance(step, Do):
                ACTIONS[step.action](self.world, topic)
                continue
            if isinstance(step, Back):
                self._write_for_connector(check)
                continue
            last = {
                side: self.worker.ask(self._order(check, step, side, topic, known)) for side in (THEIRS, OURS)
            }
            if at < len(check.steps) - 1 and (wrong := difference(Same(), last)):
                return f"step {at + 1}: {wrong}"
        return difference(check.expected, last)

    def _checkpoint(self, check: Check, side: str) -> Path:
        return self.scratch / "checkpoints" / side / check.name.replace(" ", "-").replace(",", "")

    def _write_for_connector(self, check: Check) -> None:
        for side in (THEIRS, OURS):
            rewrite_for_connector(self._checkpoint(check, side))

    def _order(
        self, check: Check, step: Read | Stream, side: str, topic: str, known: dict[str, int]
    ) -> dict[str, Any]:
        given = {
            "kafka.bootstrap.servers": self.world.bootstrap_servers,
            "subscribe": topic,
            **step.options,
        }
        values = {"topic": topic, **{name: str(value) for name, value in known.items()}}
        options = {name: Template(text).substitute(values) for name, text in given.items()}
        order: dict[str, Any] = {
            "format": side,
            # An empty text among a check's options takes the default away; a blank one is given as it is.
            "options": {
                n: text
                for n, text in options.items()
                if text or n not in ("subscribe", "kafka.bootstrap.servers")
            },
        }
        if isinstance(step, Read):
            return {**order, "kind": "batch", "schema": step.schema}
        return {
            **order,
            "kind": "stream",
            "format": step.by or side,
            "trigger": step.trigger,
            "checkpoint": str(self._checkpoint(check, side)),
        }


def difference(expected: Expected, answers: dict[str, Answer]) -> str | None:
    theirs, ours = answers[THEIRS], answers[OURS]
    outcome = {side: "error" if "error" in answer else "rows" for side, answer in answers.items()}
    told = "; ".join(f"{side}: {shown(answer)}" for side, answer in answers.items())
    match expected:
        case Same(batches):
            if outcome != {THEIRS: "rows", OURS: "rows"}:
                return told
            if theirs["rows"] != ours["rows"]:
                only = [row for row in ours["rows"] if row not in theirs["rows"]][:2]
                lacks = [row for row in theirs["rows"] if row not in ours["rows"]][:2]
                return f"{told}; ours alone: {only}; theirs alone: {lacks}"
            if batches and theirs["batches"] != ours["batches"]:
                return f"batches of {theirs['batches']} and of {ours['batches']} rows"
        case Refused(saying):
            if outcome != {THEIRS: "error", OURS: "error"} or saying not in ours["error"]:
                return told
        case Differs(of_theirs, of_ours, _):
            if outcome != {THEIRS: of_theirs, OURS: of_ours}:
                return told
    return None


def shown(answer: Answer) -> str:
    if "rows" in answer:
        return f"{len(answer['rows'])} rows"
    lines = [line.strip() for line in answer["error"].splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line or "Exception" in line] or lines
    return f"error: {telling[0][:300]} ... {telling[-1][:300]}"


def chosen(only: str) -> Iterator[tuple[str, Check]]:
    for kind, checks in CHECKS.items():
        for check in checks:
            if only in check.name:
                yield kind, check


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="checks with TEXT in their name")
    parser.add_argument("--lives", type=int, default=20, metavar="N", help="random lives of streams; 20")
    parser.add_argument("--seed", type=int, default=0, help="of the first life")
    given = parser.parse_args()
    python = environment()
    wrong: list[str] = []
    counted = {"the same": 0, "refused by both": 0, "different by design": 0}
    with (
        tempfile.TemporaryDirectory() as directory,
        Kafka({"log.cleaner.backoff.ms": "200", "log.retention.ms": "-1"}) as kafka,
    ):
        scratch = Path(directory)
        worker = Worker(python, connector_jars(scratch), scratch)
        try:
            stage = Stage(World(kafka.bootstrap_servers), worker, scratch)
            for kind, check in chosen(given.only):
                began = time.monotonic()
                found = stage.run(check)
                verdict = word(check.expected) if found is None else "OTHERWISE"
                print(f"{kind:8} {check.name:55} {verdict:20} {time.monotonic() - began:5.1f} s", flush=True)
                if found is None:
                    counted[verdict] += 1
                else:
                    print(f"         {found}", flush=True)
                    wrong.append(check.name)
            wrong += lives(stage, range(given.seed, given.seed + given.lives))
        finally:
            worker.close()
    total = sum(counted.values()) + len(wrong)
    figures = ", ".join(f"{count} {verdict}" for verdict, count in counted.items())
    print(
        f"\n{total} checks, pyspark {SPARK_VERSION}, Apache Kafka {KAFKA_VERSION}: {figures}, {len(wrong)} otherwise"
    )
    return 1 if wrong or not total + given.lives else 0


def lives(stage: Stage, seeds: range) -> list[str]:
    """Those that turned out otherwise."""
    wrong: list[str] = []
    reasons: Counter[str] = Counter()
    runs = rows = 0
    for seed in seeds:
        life = RealLife(seed, stage.world, stage.worker.ask, stage.scratch)
        began = time.monotonic()
        found = life.live()
        runs += life.runs
        rows += sum(life.sides[OURS].rows().values())
        reasons += Counter(life.differences)
        if found is not None:
            wrong.append(f"life {seed}")
            print(found, flush=True)
        print(f"life     {seed:<55} {life.runs} runs {time.monotonic() - began:22.1f} s", flush=True)
    if seeds:
        print(
            f"\n{len(seeds)} lives, {runs} runs of each side, {rows:,} rows, {len(wrong)} otherwise; what differed:"
        )
        for reason, text in REASONS.items():
            print(f"{reasons[reason]:6} {text}")
    return wrong


def word(expected: Expected) -> str:
    match expected:
        case Same():
            return "the same"
        case Refused():
            return "refused by both"
        case Differs():
            return "different by design"


if __name__ == "__main__":
    sys.exit(main())
