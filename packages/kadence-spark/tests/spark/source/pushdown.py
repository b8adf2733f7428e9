"""``make parity-pushdown``: random queries over one ``load()``, with Spark pushing filters to the source and without.

python -m tests.spark.source.pushdown
python -m tests.spark.source.pushdown --seed 5 --queries 200

Each answer must be the one that the same query has over rows that were read once and are kept in Spark's cache. All
queries are over one load(), so each finds what the ones before it have left there.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from tests.spark.source.queries import PARTITIONS, RECORDS, START_MS, STEPS_MS, Queries, Side

from kadence import Admin, Broker, Producer, TopicPartition
from kadence.admin import NewTopic
from kadence_spark import session
from kadence_spark.datasource import KadenceDataSource

__all__ = ["Difference", "Pair", "fill"]

SETTING = "spark.sql.python.filterPushdown.enabled"
ZONE = "America/New_York"
_QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
"""For the rows that are kept: no classes made for a query, and no jobs for its parts."""

DELETED = 3
"""So many records of the first partition are deleted: its offsets begin later."""


def fill(bootstrap_servers: str, topic: str) -> int:
    """Make the topic, and say how many records it has: with keys and nulls, headers, and many times."""
    chance = random.Random(topic)
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        # Their times are years ago: a broker would delete them in minutes.
        admin.create_topics([NewTopic(topic, PARTITIONS, 1, {"retention.ms": "-1"})])
        with Producer(bootstrap_servers=bootstrap_servers) as producer:
            when = START_MS
            for number in range(RECORDS):
                when += chance.choice(STEPS_MS)
                producer.send(
                    topic,
                    None if number % 11 == 0 else str(number).encode(),
                    None if number % 7 == 0 else f"k{chance.randrange(8)}".encode(),
                    partition=number % (PARTITIONS - 1),
                    timestamp=when,
                    headers=chance.choice(([], [("a", b"1")], [("a", b"1"), ("b", None)])),
                )
        admin.delete_records({TopicPartition(topic, 0): DELETED})
    return RECORDS - DELETED


@dataclass(frozen=True)
class Difference:
    """What a query had for an answer, and should have had."""

    number: int
    query: str
    said: str

    def __str__(self) -> str:
        return f"query {self.number}: {self.query}\n  {self.said}"


class Pair:
    """The same topic in two sessions: one load() where filters are pushed, and rows that are kept.

    Args:
        spark: the sessions are new ones beside it. source: what reads where filters are pushed.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap_servers: str,
        topic: str,
        source: type[DataSource] = KadenceDataSource,
    ) -> None:
        self.topic = topic
        options = {
            "kafka.bootstrap.servers": bootstrap_servers,
            "subscribe": topic,
            "includeHeaders": "true",
        }
        pushes, keeps = (spark.newSession() for _ in range(2))
        for session_, settings in ((pushes, {SETTING: "true"}), (keeps, {SETTING: "false", **_QUICK})):
            for setting, value in {"spark.sql.session.timeZone": ZONE, **settings}.items():
                session_.conf.set(setting, value)
        if source is not KadenceDataSource:
            pushes.dataSource.register(source)
        self.kept = keeps.read.format("kadence").options(**options).load().cache()
        self._pushed = Side.of(pushes, pushes.read.format(source.name()).options(**options).load())
        self._plain = Side.of(keeps, self.kept)

    def ask(self, seed: int, queries: int) -> Iterator[Difference | None]:
        """What is wrong with each query's answer."""
        random_queries = Queries(seed, self.topic)
        for number, step in enumerate(random_queries.take(queries)):
            if not self.kept.storageLevel.useMemory:
                self.kept.cache()  # a query has given back a frame with the same rows, and these with it
            expected = step.answer(self._plain)
            if step.keeps and not expected:
                random_queries.forget(step.keeps)
            try:
                found = step.answer(self._pushed)
            except PySparkException as problem:
                yield Difference(number, str(step), str(problem))
                continue
            right, ours = (Counter(map(repr, rows)) for rows in (expected, found))
            if ours == right:
                yield None
                continue
            missing, extra = ((one - other).elements() for one, other in ((right, ours), (ours, right)))
            yield Difference(
                number,
                str(step),
                f"{len(found)} rows for {len(expected)}; missing {list(missing)[:2]}, too many {list(extra)[:2]}",
            )

    def close(self) -> None:
        """Give back what is cached, also by queries."""
        for side in (self._pushed, self._plain):
            for frame in side.frames.values():
                frame.unpersist()


def main() -> int:
    """Print each difference; the exit status is 1 if there is one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--queries", type=int, default=1000)
    given = parser.parse_args()
    settings = {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
    }
    spark = session("parity-pushdown", master="local[2]", conf=settings)
    begun, wrong = time.monotonic(), 0
    with Broker() as broker:
        fill(broker.bootstrap_servers, "pushdown")
        pair = Pair(spark, broker.bootstrap_servers, "pushdown")
        for number, found in enumerate(pair.ask(given.seed, given.queries), 1):
            if found is not None:
                wrong += 1
                print(found, flush=True)
            if number % 100 == 0:
                print(f"{number} queries, {time.monotonic() - begun:.0f} s", flush=True)
    version = spark.version
    spark.stop()
    print(
        f"PySpark {version}, seed {given.seed}: {given.queries} queries over one load(), "
        f"{given.queries - wrong} the same, {wrong} differ, {time.monotonic() - begun:.0f} s"
    )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
