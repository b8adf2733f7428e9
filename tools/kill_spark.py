"""kill -9 of a whole Spark application, again and again, and then an account of every row.

    make kill-spark ROUNDS=100
    make kill-spark ROUNDS=100 BROKER=kafka

A producer writes numbered records without a pause. An application (driver, JVM, Python runner and workers) streams them
from format("kadence") into a Parquet table, with a group. In each round it is started on the same checkpoint and
killed at a moment of chance: before its first batch, within one, between the table and the checkpoint. In the end it
runs once undisturbed. Each record must then be in the table exactly once, and the group must stand where the logs end.
SINK=topic kills a stream from topic to topic: kill_transactions.py.

POSIX with /proc (Linux): that is how the processes of an application are found.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from kadence import Admin
from killing import CONF, PARTITIONS, TOPIC, Application, Records, broker, logged, parser, scratch

GROUP = "kill-spark"


# ---------------------------------------------------------------- the application that is killed


def application(servers: str, directory: Path, *, to_the_end: bool) -> None:
    """Stream the topic into the table; says "started" when the query has begun."""
    from pyspark.sql import functions

    from kadence_spark import session

    spark = session("kill-spark", master="local[2]", conf=CONF)
    writer = (
        spark.readStream.format("kadence")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 20_000)
        .option("kafka.group.id", GROUP)
        .option("commitOffsets", "true")
        .load()
        .selectExpr("partition", "offset", "cast(value as string) as value")
        .writeStream.format("parquet")
        .option("path", str(directory / "table"))
        .option("checkpointLocation", str(directory / "checkpoint"))
    )
    query = (writer.trigger(availableNow=True) if to_the_end else writer).start()
    print("started", flush=True)
    query.awaitTermination()
    if to_the_end:
        table = spark.read.parquet(str(directory / "table")).groupBy("partition")
        counts = table.agg(
            functions.expr("count(*)"),
            functions.expr("count(distinct offset)"),
            functions.expr("max(offset)"),
            functions.expr("count_if(value != concat(partition, '/', offset))"),
        )
        (directory / "rows.json").write_text(json.dumps([tuple(row) for row in counts.collect()]))
    spark.stop()


# ---------------------------------------------------------------- rounds and the account


@dataclass(slots=True)
class Account:
    """What became of the records. The last four should be 0."""

    rounds: int
    batches: int
    rows: int = 0
    missing: int = 0
    twice: int = 0
    wrong: int = 0
    behind: int = 0

    @property
    def is_clean(self) -> bool:
        return not (self.missing or self.twice or self.wrong or self.behind)

    def __str__(self) -> str:
        return (
            f"{self.rounds} kills, {self.batches} batches, {self.rows:,} rows in the table: {self.missing} missing, "
            f"{self.twice} twice, {self.wrong} wrong; the group is {self.behind} offsets behind"
        )


def run(servers: str, directory: Path, rounds: int, seed: int, per_second: int = 2_000) -> Account:
    """``rounds`` kills, one undisturbed run, and the account."""
    chance = random.Random(seed)
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({TOPIC: PARTITIONS})
        with Records(servers, per_second) as records:
            for number in range(1, rounds + 1):
                _round(servers, directory, number, chance)
        last = _start(servers, directory, to_the_end=True)
        if last.wait() != 0:
            raise last.failure("the last run failed")
        return _account(admin, directory, rounds, records.sent)


def _start(servers: str, directory: Path, *, to_the_end: bool = False) -> Application:
    return Application(__file__, directory, servers, str(directory), to_the_end=to_the_end)


def _round(servers: str, directory: Path, number: int, chance: random.Random) -> None:
    began = time.monotonic()
    app = _start(servers, directory)
    if not app.started():
        raise app.failure(f"round {number}: the application ended by itself")
    # Some batches later, and then at once or within the next one; none later is within what a former kill left.
    batches, pause = chance.choice((0, 0, 1, 1, 2, 3)), chance.uniform(0, 0.5)
    enough = begun(directory) + batches
    while begun(directory) < enough and app.is_alive:
        time.sleep(0.02)
    time.sleep(pause)
    if not app.is_alive:
        raise app.failure(f"round {number}: the query failed")
    processes = app.kill()
    print(
        f"round {number}: {processes} processes killed {pause:.2f} s after batch {batches} since the start began, "
        f"{batches_done(directory)} batches done so far, {time.monotonic() - began:.0f} s",
        flush=True,
    )


def begun(directory: Path) -> int:
    return logged(directory / "checkpoint", "offsets")


def batches_done(directory: Path) -> int:
    return logged(directory / "checkpoint", "commits")


def _account(admin: Admin, directory: Path, rounds: int, sent: Counter[int]) -> Account:
    account = Account(rounds=rounds, batches=batches_done(directory))
    found = {partition: counts for partition, *counts in json.loads((directory / "rows.json").read_text())}
    committed = {tp.partition: at.offset for tp, at in admin.list_consumer_group_offsets(GROUP).items()}
    for partition, count in sent.items():
        rows, different, highest, wrong = found.get(partition, (0, 0, -1, 0))
        account.rows += rows
        account.missing += max(count - different, 0)
        account.twice += rows - different
        account.wrong += wrong + max(highest - (count - 1), 0)
        account.behind += count - committed.get(partition, 0)
    return account


def main() -> int:
    """Run the rounds; 1 when a row is missing, there twice or wrong."""
    given = parser(__doc__, arguments=2, rate=2_000).parse_args()
    if given.application:
        servers, place = given.application
        application(servers, Path(place), to_the_end=given.to_the_end)
        return 0
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    with scratch(given.keep) as directory, broker(given.broker) as servers:
        account = run(servers, directory, given.rounds, given.seed, given.rate)
    print(f"{account} ({given.broker} broker, {time.monotonic() - began:.0f} s)")
    return 0 if account.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
