"""kill -9 of a Spark application that writes a topic into a Delta and an Iceberg table, and an account of every row.

    make kill-lakehouse ROUNDS=100
    make kill-lakehouse ROUNDS=100 BROKER=kafka ARGS='--keep DIR'
    make kill-lakehouse ROUNDS=100 ARGS=--without-spark
    make kill-lakehouse ROUNDS=100 ARGS='--drivers 2'

A producer writes numbered records without a pause. An application streams them by format("kadence-delta") and by
format("kadence-iceberg") at once. In each round it is started on the same checkpoints and killed: at a moment of
chance, or right before or right after the commit of one of the tables, where it is held until it is dead. In the end it
runs once undisturbed. DuckDB then reads the files of both tables: each record must be there exactly once.

Starting Spark takes nearly all of a round. Without it, a process does with the tables what Spark's driver and tasks
have the sink do, with a checkpoint like Spark's, as fast as it can: many kills then come in the midst of a commit.

With --drivers 2 two applications stream the topic into the same two tables at once, each with checkpoints of its own
and with a column that only it has and adds (mergeSchema). One of them is killed and started again, the other one goes
on. Each record must then be there exactly once for each of them, with the value of its column.

POSIX with /proc (Linux), as `killing`, whose parts it uses.
"""

from __future__ import annotations

import importlib
import itertools
import multiprocessing
import os
import random
import signal
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from kadence import Admin
from killing import CONF, PARTITIONS, TOPIC, Application, Records, broker, logged, parser, scratch

KINDS = ("delta", "iceberg")
NAMES = "abcdefgh"
"""Of the drivers. Each has a directory of its own beside the tables."""
_HOLD = "KADENCE_KILL_LAKEHOUSE"
"""The directory in which a file says where to hold, and one that it is held there."""


def options(kind: str, directory: Path) -> dict[str, str]:
    """Those of the sink."""
    if kind == "delta":
        return {"path": str(directory / "table"), "mergeSchema": "true"}
    return {
        "mergeSchema": "true",
        "table": "kill.rows",
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{directory}/catalogue.db",
        "catalog.warehouse": f"file://{directory}/warehouse",
    }


# ---------------------------------------------------------------- the application that is killed


def held_sources() -> list[Any]:
    """The two sinks, held before or after their commits where the file says so."""
    from kadence_spark.lakehouse.datasource import DeltaSource, IcebergSource
    from kadence_spark.lakehouse.options import parse
    from kadence_spark.lakehouse.writers import StreamWriter

    def hold(kind: str, where: str) -> None:
        directory = Path(os.environ[_HOLD])
        place = directory / "hold"
        if place.exists() and place.read_text() == f"{kind} {where}":
            (directory / "held").touch()
            time.sleep(3600)

    class Held(StreamWriter):
        def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
            hold(self._kind, "before")
            super().commit(messages, batchId)
            hold(self._kind, "after")

    class HeldDelta(DeltaSource):
        @classmethod
        def name(cls) -> str:
            return "held-delta"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return Held("delta", parse(self.options, "delta", streaming=True), schema, overwrite=overwrite)

    class HeldIceberg(IcebergSource):
        @classmethod
        def name(cls) -> str:
            return "held-iceberg"

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return Held(
                "iceberg", parse(self.options, "iceberg", streaming=True), schema, overwrite=overwrite
            )

    return [HeldDelta, HeldIceberg]


def application(servers: str, place: Path, *, to_the_end: bool) -> None:
    """Be the driver with that directory, and stream the topic into both tables; says "started" when both have begun."""
    from kadence_spark import session

    name = place.name

    spark = session("kill-lakehouse", master="local[2]", conf=CONF)
    for source in held_sources():
        spark.dataSource.register(source)
    queries = []
    for kind in KINDS:
        writer = (
            spark.readStream.format("kadence")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", TOPIC)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 20_000)
            .load()
            .selectExpr(
                f"'{name}' as driver",
                "partition",
                "offset",
                "cast(value as string) as value",
                f"offset as of_{name}",
                "timestamp",
            )
            .writeStream.format(f"held-{kind}")
            .options(**options(kind, place.parent))
            .option("checkpointLocation", str(place / f"checkpoint-{kind}"))
        )
        queries.append((writer.trigger(availableNow=True) if to_the_end else writer).start())
    print("started", flush=True)
    if not to_the_end:
        # Whichever fails ends the application: the other one would go on alone.
        spark.streams.awaitAnyTermination()
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _start(servers: str, place: Path, *, to_the_end: bool = False) -> Application:
    return Application(__file__, place, servers, str(place), to_the_end=to_the_end, **{_HOLD: str(place)})


# ---------------------------------------------------------------- the same without Spark


def pretend(kind: str, place: Path, batches: int | None, begun: Any) -> None:
    """Be driver and tasks of a stream of numbers, for so many batches, or until killed; sets an event at the start."""
    import pyarrow as pa

    from kadence_spark.lakehouse.commit import commit_once
    from kadence_spark.lakehouse.options import parse
    from kadence_spark.lakehouse.task import write_rows
    from kadence_spark.stamp import Stamp

    library = importlib.import_module(f"kadence_spark.lakehouse.{kind}")
    parsed = parse(options(kind, place.parent), kind, streaming=True)
    done = itertools.count() if batches is None else range(batches)
    begun.set()
    for _ in done:
        number = _begun(place, kind, "commits")
        start = _end(place, kind, number - 1)
        if _begun(place, kind) == number:
            _log(place, kind, "offsets", number, start + random.randint(1, 50))
        offsets = range(start, _end(place, kind, number))
        rows = pa.table(
            {
                "driver": [place.name] * len(offsets),
                "partition": pa.array([0] * len(offsets), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
                "value": [f"0/{offset}" for offset in offsets],
                f"of_{place.name}": pa.array(offsets, pa.int64()),
            }
        )
        writer = library.prepared(parsed, rows.schema)
        tasks = (rows.slice(0, len(rows) // 2), rows.slice(len(rows) // 2))
        files = [file for task in tasks for file in write_rows(iter(task.to_batches()), writer)]
        commit_once(partial(library.opened, parsed), files, Stamp(f"pretended-{place.name}", number))
        _log(place, kind, "commits", number, 0)


def _end(directory: Path, kind: str, number: int) -> int:
    return 0 if number < 0 else int((directory / f"checkpoint-{kind}" / "offsets" / str(number)).read_text())


def _log(directory: Path, kind: str, log: str, number: int, value: int) -> None:
    place = directory / f"checkpoint-{kind}" / log
    place.mkdir(parents=True, exist_ok=True)
    (place / "new").write_text(str(value))
    (place / "new").rename(place / str(number))


def run_without_spark(directory: Path, drivers: list[Path], rounds: int, seed: int) -> bool:
    """``rounds`` kills for each table, and the account; whether it is clean."""
    chance = random.Random(seed)
    # Forked from one that has imported everything.
    processes = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["__main__", "deltalake", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"]
    )

    def started(kind: str, place: Path, batches: int | None) -> Any:
        begun = processes.Event()
        process = processes.Process(target=pretend, args=(kind, place, batches, begun))
        process.start()
        begun.wait()
        return process

    def ended(kind: str, process: Any, code: int) -> None:
        process.join()
        if process.exitcode != code:
            raise SystemExit(f"{kind}: the process ended by itself")

    clean = []
    for kind in KINDS:
        again = 0
        lives = {place: started(kind, place, None) for place in drivers}
        for number in range(rounds):
            place = chance.choice(drivers)
            time.sleep(chance.uniform(0, 1))
            lives[place].kill()
            ended(kind, lives[place], -signal.SIGKILL)
            again += _begun(place, kind) > _begun(place, kind, "commits")
            if number < rounds - 1:
                lives[place] = started(kind, place, None)
        for place, process in lives.items():
            if process.exitcode is None:
                process.kill()
                ended(kind, process, -signal.SIGKILL)
            ended(kind, started(kind, place, 1), 0)
        batches = " and ".join(str(_begun(place, kind, "commits")) for place in drivers)
        print(
            f"{kind}: {rounds} kills, {batches} batches, {again} times one was begun and not known to be done",
            flush=True,
        )
        sent = {(place.name, 0): _end(place, kind, _begun(place, kind, "commits") - 1) for place in drivers}
        clean.append(_account(kind, directory, drivers, sent))
    return all(clean)


# ---------------------------------------------------------------- rounds and the account


def run(
    servers: str,
    directory: Path,
    drivers: list[Path],
    rounds: int,
    seconds: float,
    seed: int,
    per_second: int,
) -> bool:
    """``rounds`` kills, or as many as begin in that time, one undisturbed run, and the account; whether it is clean."""
    ends = time.monotonic() + seconds
    chance = random.Random(seed)
    with Admin(bootstrap_servers=servers) as admin:
        admin.create_topics({TOPIC: PARTITIONS})
    places: Counter[str] = Counter()
    halves: Counter[str] = Counter()
    lives: dict[Path, Application] = {}
    with Records(servers, per_second) as records:
        for number in range(1, rounds + 1):
            if time.monotonic() > ends:
                break
            victim = chance.choice(drivers)
            for place in drivers:
                if place != victim and place not in lives:
                    lives[place] = _begun_life(servers, place, "", number)
            place, app = victim, lives.pop(victim, None)
            places[_round(servers, place, app, number, chance)] += 1
            halves.update(kind for kind in KINDS if _begun(place, kind) > _begun(place, kind, "commits"))
    for app in lives.values():
        if not app.is_alive:
            raise app.failure("the last round: a query of the other driver failed")
        app.kill()
    for place in drivers:
        (place / "hold").unlink(missing_ok=True)
    # At once: they still find each other in the tables.
    for last in [_start(servers, place, to_the_end=True) for place in drivers]:
        if last.wait() != 0:
            raise last.failure("the last run failed")
    told = ", ".join(f"{count} {place}" for place, count in sorted(places.items()))
    print(f"{places.total()} kills: {told}")
    for kind in KINDS:
        batches = " and ".join(str(_begun(place, kind, "commits")) for place in drivers)
        print(f"{kind}: {batches} batches, {halves[kind]} times one was begun and not known to be done")
    sent = {(place.name, partition): count for place in drivers for partition, count in records.sent.items()}
    clean = [_account(kind, directory, drivers, sent) for kind in KINDS]
    return all(clean)


def _begun_life(servers: str, place: Path, hold: str, number: int) -> Application:
    """A life whose queries have begun; it will be held there."""
    (place / "held").unlink(missing_ok=True)
    (place / "hold").write_text(hold)
    app = _start(servers, place)
    if not app.started():
        raise app.failure(f"round {number}: the application ended by itself")
    return app


def _round(servers: str, directory: Path, app: Application | None, number: int, chance: random.Random) -> str:
    """Start, unless it runs, and kill; where it was killed."""
    began = time.monotonic()
    held = directory / "held"
    place = chance.choice(
        (*(f"{kind} {where}" for kind in KINDS for where in ("before", "after")), *[""] * 4)
    )
    if app is None:
        app = _begun_life(servers, directory, place, number)
    else:
        (directory / "hold").write_text(place)
    if place:
        while not held.exists() and app.is_alive:
            time.sleep(0.02)
    else:
        batches = chance.choice((0, 0, 1, 2))
        enough = {kind: _begun(directory, kind) + batches for kind in KINDS}
        while app.is_alive and any(_begun(directory, kind) < enough[kind] for kind in KINDS):
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 1.5))
    if not app.is_alive:
        raise app.failure(f"round {number}: a query failed")
    processes = app.kill()
    where = f"{place.split()[1]} the commit of {place.split()[0]}" if place else "at random"
    so_far = ", ".join(f"{_begun(directory, kind)} batches of {kind}" for kind in KINDS)
    print(
        f"round {number}: {processes} processes of {directory.name} killed {where}; {so_far}, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )
    return where


def _begun(directory: Path, kind: str, log: str = "offsets") -> int:
    return logged(directory / f"checkpoint-{kind}", log)


def _files(kind: str, directory: Path) -> list[str]:
    """Those of the table, by its own library."""
    if kind == "delta":
        from deltalake import DeltaTable

        return list(DeltaTable(str(directory / "table")).file_uris())
    from pyiceberg.catalog import load_catalog

    settings = {
        name.removeprefix("catalog."): value
        for name, value in options(kind, directory).items()
        if name.startswith("catalog.")
    }
    table = load_catalog("default", **settings).load_table("kill.rows")
    return [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]


def _account(kind: str, directory: Path, drivers: list[Path], sent: dict[tuple[str, int], int]) -> bool:
    """Of each partition of each driver, by its name."""
    import duckdb

    files = _files(kind, directory)
    # What the columns of each driver hold, its own and those of the others.
    own = " or ".join(
        f"of_{place.name} is distinct from if(driver = '{place.name}', \"offset\", null)" for place in drivers
    )
    wanted = (
        'driver, partition, count(*), count(distinct "offset"), max("offset"), '
        f"count_if(value != concat(partition, '/', \"offset\") or {own})"
    )
    with duckdb.connect() as connection:
        found = connection.read_parquet(files, union_by_name=True).aggregate(wanted).fetchall()
    counts = {(driver, partition): rest for driver, partition, *rest in found}
    wrong = sum(rest[0] for place, rest in counts.items() if place not in sent)
    lost = twice = rows = 0
    for place, count in sent.items():
        there, different, highest, differ = counts.get(place, (0, 0, -1, 0))
        rows += there
        lost += max(count - different, 0)
        twice += there - different
        wrong += differ + max(highest - (count - 1), 0)
    print(
        f"{kind}: {sum(sent.values()):,} rows to write, {rows:,} rows in {len(files):,} files read by DuckDB: "
        f"{lost} lost, {twice} twice, {wrong} wrong"
    )
    return not (lost or twice or wrong)


def main() -> int:
    """Run the rounds; 1 when a row is lost, there twice or wrong."""
    known = parser(__doc__, arguments=2, rate=600)
    known.add_argument("--minutes", type=float, default=float("inf"), help="no round begins later")
    known.add_argument(
        "--without-spark", action="store_true", help="much faster: kill what pretends to be Spark"
    )
    known.add_argument(
        "--drivers",
        type=int,
        choices=range(1, len(NAMES) + 1),
        default=1,
        help="that write the same tables at once",
    )
    given = known.parse_args()
    if given.application:
        servers, place = given.application
        application(servers, Path(place), to_the_end=given.to_the_end)
        return 0
    began = time.monotonic()
    print(f"seed {given.seed}", flush=True)
    with scratch(given.keep) as directory:
        drivers = [directory / name for name in NAMES[: given.drivers]]
        for place in drivers:
            place.mkdir(exist_ok=True)
        if given.without_spark:
            return 0 if run_without_spark(directory, drivers, given.rounds, given.seed) else 1
        with broker(given.broker) as servers:
            seconds = 60 * given.minutes
            is_clean = run(servers, directory, drivers, given.rounds, seconds, given.seed, given.rate)
    print(f"{given.broker} broker, {time.monotonic() - began:.0f} s")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
