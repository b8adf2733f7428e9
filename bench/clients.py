"""One client reading one topic, in a process of its own: ``python bench/clients.py NAME PLAN`` prints one JSON line.

Every client joins a fresh group, reads from the start, and touches key, value and offset of each record
in a ``for`` loop. The clock starts when the first records arrive, so joining is not counted; it stops at
``count`` records or after ``seconds``. CPU is that of all threads of the process in the same span.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FIRST_RECORDS_WITHIN = 60.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read and how.

    Attributes:
        count: records to time. seconds: or stop after this long.
        work: turns of an empty loop to do for each record, standing for the application's own work.
        ca: certificate to trust; "" means plaintext.
        java: the command that starts Kafka's ConsumerPerformance; only the Java clients need it.
    """

    bootstrap: str
    topic: str
    count: int
    seconds: float
    group: str
    work: int = 0
    ca: str = ""
    java: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """Records timed, wall and CPU seconds for them, and the peak of memory that the process ever held."""

    records: int
    seconds: float
    cpu_seconds: float
    peak_rss_mb: float


def spin(turns: int) -> None:
    """The application's work on one record: Python that holds the interpreter."""
    for _ in range(turns):
        pass


class Timer:
    """Counts from its creation, which is the moment the first records have arrived."""

    def __init__(self, plan: Plan) -> None:
        self.records = 0
        self._count = plan.count
        self._started = time.perf_counter()
        self._stop_at = self._started + plan.seconds
        self._cpu = time.process_time()

    def running(self) -> bool:
        return self.records < self._count and time.perf_counter() < self._stop_at

    def result(self) -> Result:
        seconds = time.perf_counter() - self._started
        cpu = time.process_time() - self._cpu
        return Result(self.records, seconds, cpu, peak_rss_mb())


def peak_rss_mb() -> float:
    """The most memory this program ever held.

    Not getrusage's figure: on Linux that survives exec, and would be our parent's.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("/proc/self/status does not tell the peak of memory; the benchmark runs on Linux")


def timed(plan: Plan, poll: Callable[[], Any], touch: Callable[[Any, int], int]) -> Result:
    """Poll until something comes, then time ``touch(poll(), work)`` until the plan is fulfilled."""
    patience = time.perf_counter() + FIRST_RECORDS_WITHIN
    while not touch(poll(), 0):
        if time.perf_counter() > patience:
            raise SystemExit(f"no record of {plan.topic} within {FIRST_RECORDS_WITHIN:g} s")
    timer = Timer(plan)
    while timer.running():
        timer.records += touch(poll(), plan.work)
    return timer.result()


def touch_attributes(records: Any, work: int) -> int:
    """Kadence's records: key, value and offset are attributes."""
    touched = 0
    for record in records:
        key, value, offset = record.key, record.value, record.offset  # noqa: F841  (touching is the point)
        if work:
            spin(work)
        touched += 1
    return touched


def touch_methods(messages: Any, work: int) -> int:
    """confluent-kafka's messages: key, value and offset are method calls, and errors come as messages."""
    touched = 0
    for message in messages:
        if message.error():
            raise SystemExit(str(message.error()))
        key, value, offset = message.key(), message.value(), message.offset()  # noqa: F841
        if work:
            spin(work)
        touched += 1
    return touched


def touch_by_partition(batches: Any, work: int) -> int:
    """kafka-python and aiokafka: a dictionary of lists."""
    return sum(touch_attributes(records, work) for records in batches.values())


def touch_table(table: Any, _work: int) -> int:
    """An Arrow table: keys, values and offsets are read by one vector operation each, as its users do."""
    import pyarrow.compute as pc

    if table.num_rows:
        for column in ("key", "value"):
            pc.sum(pc.binary_length(table.column(column)))
        pc.max(table.column("offset"))
    return int(table.num_rows)


def kadence(plan: Plan, **overrides: Any) -> Any:
    from kadence import Consumer

    config: dict[str, Any] = {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "group.protocol": "classic",
        "auto.offset.reset": "earliest",
    }
    if plan.ca:
        config |= {"security.protocol": "SSL", "ssl.ca.location": plan.ca}
    consumer = Consumer(config | overrides)
    consumer.subscribe([plan.topic])
    return consumer


def kadence_objects(plan: Plan) -> Result:
    with kadence(plan, **{"enable.auto.commit": False}) as consumer:
        return timed(plan, lambda: consumer.poll(1.0), touch_attributes)


def kadence_plain(plan: Plan) -> Result:
    import kadence.records

    if kadence.records.IMPLEMENTATION != "python":
        raise SystemExit("the plain decoder was asked for (KADENCE_EXTENSION=off), and another one is loaded")
    return kadence_objects(plan)


def kadence_arrow(plan: Plan, **tuning: Any) -> Result:
    import pyarrow.compute  # noqa: F401  (imported before the clock starts)

    with kadence(plan, **{"enable.auto.commit": False, "max.poll.records": 20_000} | tuning) as consumer:
        return timed(plan, lambda: consumer.poll_arrow(1.0), touch_table)


def kadence_arrow_best(plan: Plan) -> Result:
    """With room to prefetch, as confluent-kafka's best settings have, though a fraction of it."""
    return kadence_arrow(plan, **{"buffer.memory": 134_217_728, "max.partition.fetch.bytes": 8_388_608})


def confluent(plan: Plan, at_once: int, **tuning: Any) -> Result:
    from confluent_kafka import Consumer

    config: dict[str, Any] = {
        "bootstrap.servers": plan.bootstrap,
        "group.id": plan.group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if plan.ca:
        config |= {"security.protocol": "ssl", "ssl.ca.location": plan.ca}
    consumer = Consumer(config | tuning)
    consumer.subscribe([plan.topic])
    # consume() waits for its whole number or its whole timeout, so the timeout only bounds the tail.
    result = timed(plan, lambda: consumer.consume(at_once, 1.0), touch_methods)
    consumer.close()
    return result


def confluent_default(plan: Plan) -> Result:
    return confluent(plan, 500)


def confluent_best(plan: Plan) -> Result:
    """The best of 50 settings tried: queues that never fill (a full one pauses its partition for a second).

    Bigger fetches did not help, and neither did bigger batches: at ``consume(10000)`` Python's cyclic
    collector walks the messages in hand, and the rate halves.
    """
    tuning = {
        "queued.min.messages": 10_000_000,
        "queued.max.messages.kbytes": 524_288,
        "fetch.queue.backoff.ms": 0,
    }
    return confluent(plan, 500, **tuning)


def kafka_python(plan: Plan) -> Result:
    from kafka import KafkaConsumer

    options: dict[str, Any] = {"security_protocol": "SSL", "ssl_cafile": plan.ca} if plan.ca else {}
    consumer = KafkaConsumer(
        plan.topic,
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )
    result = timed(plan, lambda: consumer.poll(1000, max_records=500), touch_by_partition)
    consumer.close()
    return result


def aiokafka(plan: Plan) -> Result:
    return asyncio.run(_aiokafka(plan))


async def _aiokafka(plan: Plan) -> Result:
    """The same loop as `timed` inside the event loop, where this client's background tasks live."""
    from aiokafka import AIOKafkaConsumer
    from aiokafka.helpers import create_ssl_context

    options: dict[str, Any] = {}
    if plan.ca:
        options = {"security_protocol": "SSL", "ssl_context": create_ssl_context(cafile=plan.ca)}
    consumer = AIOKafkaConsumer(
        plan.topic,
        bootstrap_servers=plan.bootstrap,
        group_id=plan.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )
    await consumer.start()
    try:
        while not touch_by_partition(await consumer.getmany(timeout_ms=1000, max_records=500), 0):
            pass
        timer = Timer(plan)
        while timer.running():
            batches = await consumer.getmany(timeout_ms=1000, max_records=500)
            timer.records += touch_by_partition(batches, plan.work)
        return timer.result()
    finally:
        await consumer.stop()


def java(plan: Plan, protocol: str) -> Result:
    """Kafka's own ConsumerPerformance. Its CPU includes the start of the JVM, which it cannot leave out."""
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as config:
        config.write(f"group.protocol={protocol}\nenable.auto.commit=false\nauto.offset.reset=earliest\n")
        config.flush()
        command = [
            *plan.java,
            "--bootstrap-server",
            plan.bootstrap,
            "--topic",
            plan.topic,
            "--group",
            plan.group,
        ]
        command += ["--num-records", str(plan.count), "--command-config", config.name, "--hide-header"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    figures = done.stdout.strip().splitlines()[-1:] or [""]
    fields = [text.strip() for text in figures[0].split(",")]
    if done.returncode or len(fields) < 10:
        raise SystemExit(f"ConsumerPerformance ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    fetch_seconds = float(fields[7]) / 1000
    return Result(int(fields[4]), fetch_seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


CLIENTS: dict[str, Callable[[Plan], Result]] = {
    "kadence": kadence_objects,
    "kadence-plain": kadence_plain,
    "kadence-arrow": kadence_arrow,
    "kadence-arrow-best": kadence_arrow_best,
    "confluent-default": confluent_default,
    "confluent-best": confluent_best,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
    "java-classic": lambda plan: java(plan, "classic"),
    "java-new": lambda plan: java(plan, "consumer"),
}


def run(name: str, plan: Plan, timeout: float = 180.0) -> Result | str:
    """Run client ``name`` in a process of its own; a reason in words when it fails."""
    environment = dict(os.environ)
    if name == "kadence-plain":
        environment["KADENCE_EXTENSION"] = "off"
    command = [sys.executable, __file__, name, json.dumps(asdict(plan))]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return f"not done after {timeout:g} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
        return lines[-1]
    return Result(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(asdict(CLIENTS[sys.argv[1]](Plan(**json.loads(sys.argv[2]))))), flush=True)
