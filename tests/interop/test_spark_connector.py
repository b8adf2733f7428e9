"""Spark's own Kafka connector, in Java, reads and writes the same on our broker as on real Apache Kafka.

The checks are those of `make parity-spark`, which runs both sources on one Kafka; here one source runs on two brokers.
The connector has a release for Spark 4.2, which works with 4.3. Of its jars the token provider cannot be had; three
small classes in bench/stand_in take its place (bench/spark.py).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from conftest import ON_CI
from tests.patience import PATIENCE
from tests.spark.processes import environment

from kadence.errors import MissingDependencyError
from kadence_broker import Broker
from kadence_spark.checkpoints import Checkpoint, rewrite_for_connector
from kadence_testing.kafka import Kafka

pytestmark = [pytest.mark.own_spark, pytest.mark.heavy]

if TYPE_CHECKING:
    from conformity.checks import Check
    from conformity.topics import World

BENCH = Path(__file__).resolve().parents[2] / "bench"

CHOSEN = (
    "between offsets",
    "between times",
    "committed records of transactions",
    "started again with other options",
    "committed records, and one more transaction",
)
"""Batches by offsets and by times, then streams to the end that are there, twice over one checkpoint."""


class Worker:
    """The process with the Spark session: bench/conformity/worker.py."""

    def __init__(self, jars: list[str], scratch: Path) -> None:
        plan = json.dumps({"jars": jars, "scratch": str(scratch)})
        self._log = (scratch / "worker.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, str(BENCH / "conformity" / "worker.py"), plan],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=environment(),
        )  # fmt: skip
        self._line()

    def ask(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"format": "kafka", **order}) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._line()
        return answer

    def _line(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the Spark process ended: see {self._log.name}"
        return json.loads(line)

    def close(self) -> None:
        self._process.communicate(timeout=PATIENCE)
        self._log.close()


@pytest.fixture(scope="module", autouse=True)
def _bench_on_path() -> Iterator[None]:
    """The benchmarks are programs, and no part of the package."""
    sys.path.insert(0, str(BENCH))
    yield
    sys.path.remove(str(BENCH))


@pytest.fixture(scope="module")
def worker(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    del kafka  # says whether Maven's jars are here
    from spark import connector_jars

    if shutil.which("javac") is None:
        pytest.skip(
            "NOT TESTED with Spark's connector: three classes need javac, as openjdk-17-jdk-headless has it"
        )
    scratch = tmp_path_factory.mktemp("connector")
    try:
        jars = connector_jars(scratch, Path(pyspark.__file__).parent / "jars")
    except MissingDependencyError as problem:
        if ON_CI:
            raise
        pytest.skip(str(problem))
    running = Worker(jars, scratch)
    yield running
    running.close()


@pytest.fixture(scope="module")
def worlds(kafka: Kafka) -> Iterator[list[World]]:
    """Ours and Kafka's; the rows of the topics are the same."""
    from conformity.topics import World

    with Broker() as broker:
        yield [World(broker.bootstrap_servers), World(kafka.bootstrap_servers)]


def answer(check: Check, worker: Worker, world: World, topic: str, checkpoint: Path) -> dict[str, Any]:
    """What the connector says to the last step."""
    from conformity.checks import Back, Do, Read
    from conformity.topics import ACTIONS, SETUPS

    known = {name: str(value) for name, value in SETUPS[check.setup](world, topic).items()}
    found: dict[str, Any] = {}
    for step in check.steps:
        if isinstance(step, Do):
            ACTIONS[step.action](world, topic)
            continue
        if isinstance(step, Back):
            rewrite_for_connector(checkpoint)
            continue
        given = {"kafka.bootstrap.servers": world.bootstrap_servers, "subscribe": topic, **step.options}
        options = {
            name: Template(text).substitute(known, topic=topic) for name, text in given.items() if text
        }
        if isinstance(step, Read):
            found = worker.ask(kind="batch", options=options, schema="")
        else:
            found = worker.ask(
                kind="stream", options=options, trigger=step.trigger, checkpoint=str(checkpoint)
            )
    return found


@pytest.mark.parametrize("name", CHOSEN)
def test_it_reads_the_same(name: str, worker: Worker, worlds: list[World], tmp_path: Path) -> None:
    from conformity.checks import CHECKS

    (check,) = (each for kind in CHECKS.values() for each in kind if each.name == name)
    topic = f"connector-{CHOSEN.index(name)}"
    ours, kafkas = (
        answer(check, worker, world, topic, tmp_path / f"checkpoint-{number}")
        for number, world in enumerate(worlds)
    )
    assert ours == kafkas
    assert ours.get("rows"), ours


def test_a_job_moves_by_one_word_and_back(worker: Worker, worlds: list[World], tmp_path: Path) -> None:
    """A stream and a batch: each record is read once, whichever format the query has in a run."""
    world, topic, checkpoint = worlds[1], "moving", tmp_path / "checkpoint"
    world.create(topic, 2)
    options = {"kafka.bootstrap.servers": world.bootstrap_servers, "subscribe": topic}
    sizes = [0, 0]

    def places(answer: dict[str, Any]) -> list[tuple[int, int]]:
        assert "rows" in answer, answer
        return [(row[1], row[2]) for row in answer["rows"]]

    def more(count: int) -> None:
        for partition, size in enumerate(sizes):
            world.produce(topic, range(size, size + count), partition)
            sizes[partition] += count

    def stream(by: str) -> list[tuple[int, int]]:
        given = {**options, "startingOffsets": "earliest"}
        return places(
            worker.ask(
                kind="stream", format=by, options=given, trigger="availableNow", checkpoint=str(checkpoint)
            )
        )

    seen: list[tuple[int, int]] = []
    for run, by in enumerate(("kafka", "kadence", "kafka", "kadence", "kafka")):
        if run == 3:
            world.grow(topic, 3)
            sizes.append(0)
        more(11)
        if run and by == "kafka":
            assert rewrite_for_connector(checkpoint)
        seen += stream(by)
    everything = [(partition, offset) for partition, size in enumerate(sizes) for offset in range(size)]
    assert sorted(seen) == everything

    # A batch that Kadence has begun and not ended: the connector repeats it, where Kadence began it.
    world.grow(topic, 4)
    sizes.append(0)
    more(3)
    expected = stream("kadence")
    assert len(expected) == 4 * 3
    (checkpoint / "commits" / str(Checkpoint.read(checkpoint).last.number)).unlink()
    rewrite_for_connector(checkpoint)
    assert sorted(stream("kafka")) == sorted(expected)

    batches = [
        worker.ask(kind="batch", format=by, options=options, schema="")
        for by in ("kafka", "kadence", "kafka")
    ]
    assert batches[0] == batches[1] == batches[2]
    assert sorted(places(batches[0])) == [
        (partition, offset) for partition, size in enumerate(sizes) for offset in range(size)
    ]


def test_it_writes_the_same(worker: Worker, worlds: list[World], tmp_path: Path) -> None:
    """A batch, and a stream that copies what the batch wrote; read back in full, without the times of the writes."""

    def written(world: World) -> list[Any]:
        for topic in ("written", "copied"):
            world.create(topic, 3)
        options = {"kafka.bootstrap.servers": world.bootstrap_servers}
        checkpoint = str(tmp_path / world.bootstrap_servers)
        seen: list[Any] = [
            worker.ask(kind="write", options=options, topic="written", rows=60, of="", checkpoint=checkpoint),
            worker.ask(kind="write", options=options, topic="copied", of="written", checkpoint=checkpoint),
        ]
        for topic in ("written", "copied"):
            more = {"subscribe": topic, "includeHeaders": "true"}
            read = worker.ask(kind="batch", options=options | more, schema="")
            # Two tasks write at once, so a partition's order is nobody's: offsets and times go.
            seen.append(sorted([row[0], row[1], *row[5:]] for row in read["rows"]))
        return seen

    ours, kafkas = map(written, worlds)
    assert ours == kafkas
    assert [len(each) for each in ours] == [0, 0, 60, 60]
