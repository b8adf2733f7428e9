"""Transactions through real Spark, whatever ends a task: readers of committed records see what the driver commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StringType
from tests.patience import until
from tests.spark.conftest import Cluster

from kadence.admin import NewTopic
from kadence.protocol import error_codes
from kadence.protocol.end_txn import EndTxnRequest
from kadence_broker import Broker
from kadence_broker.service import Call

pytestmark = pytest.mark.shared_spark

WIDE = 3000
"""So many characters that Python's workers pass rows on before they have all."""


@pytest.fixture(autouse=True)
def _small_batches(spark: SparkSession) -> Iterator[None]:
    """So that rows are written before the task ends."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


class Output:
    """A topic that is written in transactions, and what readers see of it."""

    def __init__(self, spark: SparkSession, cluster: Cluster) -> None:
        self._spark = spark
        self._cluster = cluster
        self.topic = f"out-{uuid.uuid4().hex[:8]}"
        # One partition: fewer than tasks.
        cluster.admin.create_topics([NewTopic(self.topic, 1, 1, {})])
        self.options = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": self.topic,
            "transactions": "true",
            "transactionalIdPrefix": self.topic,
        }

    def write(self, frame: DataFrame, **more: str) -> None:
        frame.write.format("kadence").options(**self.options, **more).mode("append").save()

    def seen(self, level: str = "read_committed") -> list[int]:
        reader = self._spark.read.format("kadence").option("subscribe", self.topic)
        reader.option("kafka.bootstrap.servers", self._cluster.bootstrap_servers)
        rows = reader.option("kafka.isolation.level", level).load().select("value").collect()
        return sorted(int(row.value) for row in rows)

    def ends(self) -> int:
        """How many records and marks brokers have taken."""
        found = self._cluster.admin.log_ranges([(self.topic, 0)])
        return sum(end for _, end in found.values())

    def open(self) -> list[str]:
        listed = self._cluster.admin.list_transactions(states=["Ongoing"])
        return [each.transactional_id for each in listed if each.transactional_id.startswith(self.topic)]

    def until_nothing_is_open(self) -> None:
        until(lambda: not self.open(), what=lambda: f"{self.open()} have ended")


@pytest.fixture
def output(spark: SparkSession, cluster: Cluster) -> Output:
    return Output(spark, cluster)


def test_a_job_is_seen_once_it_is_whole_and_one_that_failed_never(
    spark: SparkSession, output: Output, tmp_path: Path
) -> None:
    """It fails upstream of the sink, in SQL and in Python, or is cancelled; its other task is well."""
    output.write(spark.range(0, 400, numPartitions=2).selectExpr("cast(id as string) value"))
    until(lambda: output.seen() == list(range(400)), what="both tasks are visible")
    path = str(tmp_path)

    @partial(udf, returnType=StringType(), useArrow=False)
    def fails(number: int) -> str:
        if number == 1150:
            raise ValueError("not this one")
        return str(number)

    @partial(udf, returnType=StringType(), useArrow=False)
    def stops(number: int) -> str:
        import time

        while number == 1350 and not Path(path, "go").exists():
            time.sleep(0.01)
        return str(number).rjust(WIDE)

    ids = spark.range(1000, 1400, numPartitions=2)
    with pytest.raises(PySparkException, match="not this one"):
        output.write(ids.selectExpr("if(id = 1150, raise_error('not this one'), cast(id as string)) value"))
    with pytest.raises(PySparkException, match="not this one"):
        output.write(ids.select(fails("id").alias("value")))
    before = output.ends()

    def cancel() -> None:
        until(
            lambda: output.ends() >= before + 250,
            what="brokers have all rows of a task and some of the other",
        )
        spark.sparkContext.cancelAllJobs()

    with ThreadPoolExecutor() as threads:
        cancelled = threads.submit(cancel)
        with pytest.raises(Exception, match="cancel"):
            output.write(ids.select(stops("id").alias("value")))
        cancelled.result()
    assert output.seen() == list(range(400))
    assert len(output.seen("read_uncommitted")) > 400


class Stream:
    """One checkpoint, from the test's topic to the output."""

    def __init__(self, spark: SparkSession, cluster: Cluster, output: Output, directory: Path) -> None:
        self._spark = spark
        self._cluster = cluster
        self._output = output
        self._directory = directory

    def start(self, change: Callable[[DataFrame], DataFrame] | None = None, **options: str) -> StreamingQuery:
        reader = self._spark.readStream.format("kadence").option("subscribe", self._cluster.topic)
        reader.option("kafka.bootstrap.servers", self._cluster.bootstrap_servers)
        frame = (
            reader.option("startingOffsets", "earliest").option("minPartitions", "2").load().select("value")
        )
        writer = (change(frame) if change else frame).writeStream.format("kadence")
        writer.options(**self._output.options, **options).option("checkpointLocation", str(self._directory))
        return writer.trigger(availableNow=True).start()

    def run(self, change: Callable[[DataFrame], DataFrame] | None = None) -> None:
        self.start(change).awaitTermination()

    def forget_the_last_commit(self) -> None:
        """As if the driver had died just before Spark notes that the batch is done."""
        last = max((self._directory / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
        last.unlink()


@pytest.fixture
def stream(spark: SparkSession, cluster: Cluster, output: Output, tmp_path: Path) -> Stream:
    cluster.create(2)
    cluster.produce(range(400))
    return Stream(spark, cluster, output, tmp_path / "checkpoint")


def test_a_stream_that_fails_or_is_stopped_goes_on_with_each_row_once(
    cluster: Cluster, output: Output, stream: Stream, tmp_path: Path
) -> None:
    path = str(tmp_path)

    @partial(udf, returnType=StringType(), useArrow=False)
    def stops(value: bytes) -> str:
        import time

        while value == b"301" and not Path(path, "go").exists():
            time.sleep(0.01)
        return value.decode().rjust(WIDE)

    query = stream.start(lambda frame: frame.selectExpr("if(value = '301', raise_error('no'), value) value"))
    with pytest.raises(PySparkException):
        query.awaitTermination()
    before = output.ends()
    query = stream.start(lambda frame: frame.select(stops("value").alias("value")))
    until(lambda: output.ends() >= before + 250, what="brokers have all rows of a task and some of the other")
    query.stop()
    Path(path, "go").touch()
    stream.run()
    output.until_nothing_is_open()
    until(lambda: output.seen() == list(range(400)), what=output.seen)
    cluster.produce(range(400, 500))
    stream.run()
    until(lambda: output.seen() == list(range(500)), what=output.seen)
    names = {each.transactional_id for each in cluster.admin.list_transactions()}
    assert len([name for name in names if name.startswith(output.topic)]) <= 5, (
        "two sides, two tasks, the driver"
    )


def test_a_stream_s_batch_that_spark_repeats_is_not_written_again(
    cluster: Cluster, output: Output, stream: Stream
) -> None:
    stream.run()
    until(lambda: output.seen() == list(range(400)), what=output.seen)
    stream.forget_the_last_commit()
    stream.run()
    stream.forget_the_last_commit()
    stream.run(lambda frame: frame.selectExpr("concat('7', value) value"))
    cluster.produce(range(400, 450))
    stream.run()
    output.until_nothing_is_open()
    until(lambda: output.seen() == list(range(450)), what=output.seen)


@pytest.mark.parametrize("timed_out", [False, True])
def test_a_driver_that_dies_between_two_ends_has_its_batch_completed(
    embedded: Broker, cluster: Cluster, output: Output, stream: Stream, timed_out: bool
) -> None:
    """One task's transaction is committed; the other one is committed at the next start, or written again."""

    def is_the_second(call: Call) -> bool:
        name = str(call.message.transactional_id)
        return name.startswith(output.topic) and name.endswith("-1-0") and bool(call.message.committed)

    refused = error_codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with embedded.faults.error(EndTxnRequest, refused, where=is_the_second):
        query = stream.start()
        with pytest.raises(PySparkException, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
            query.awaitTermination()
    (left,) = output.open()
    assert left.endswith("-1-0")
    if timed_out:
        cluster.admin.fence_producers(left)
    cluster.produce(range(400, 450))
    stream.run()
    output.until_nothing_is_open()
    until(lambda: output.seen() == list(range(450)), what=output.seen)


def test_two_writes_of_one_batch_are_not_taken_for_each_other(
    spark: SparkSession, cluster: Cluster, output: Output, tmp_path: Path
) -> None:
    """In foreachBatch each write is a job of its own."""
    cluster.create(1)
    cluster.produce(range(20))

    def twice(rows: DataFrame, _batch: int) -> None:
        output.write(rows)
        output.write(rows.selectExpr("cast(cast(value as int) + 100 as string) value"))

    reader = spark.readStream.format("kadence").option("subscribe", cluster.topic)
    reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).option("startingOffsets", "earliest")
    rows = reader.load().selectExpr("cast(value as string) value")
    query = rows.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path))
    query.trigger(availableNow=True).start().awaitTermination()
    until(lambda: output.seen() == [*range(20), *range(100, 120)], what=output.seen)


def test_a_batch_that_says_its_number_is_written_once(
    spark: SparkSession, cluster: Cluster, output: Output, tmp_path: Path
) -> None:
    """Spark repeats a batch in foreachBatch; a job is started twice."""
    cluster.create(2)
    cluster.produce(range(20))
    fails = [True]

    def written(rows: DataFrame, number: int) -> None:
        output.write(rows, txnAppId="a", txnVersion=str(number))
        other = rows.selectExpr("cast(cast(value as int) + 100 as string) value")
        output.write(other, txnAppId="b", txnVersion=str(number))
        if fails.pop():
            raise ValueError("after both writes")

    def run() -> None:
        reader = spark.readStream.format("kadence").option("subscribe", cluster.topic)
        reader.option("kafka.bootstrap.servers", cluster.bootstrap_servers).option(
            "startingOffsets", "earliest"
        )
        rows = reader.load().selectExpr("cast(value as string) value")
        query = rows.writeStream.foreachBatch(written).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(PySparkException, match="after both writes"):
        run()
    fails.append(False)
    run()
    until(lambda: output.seen() == [*range(20), *range(100, 120)], what=output.seen)
    cluster.produce(range(20, 30))
    fails.append(False)
    run()
    until(lambda: output.seen() == [*range(30), *range(100, 130)], what=output.seen)
    with pytest.raises(PySparkException, match="the checkpoint, or txnVersion, is older"):
        output.write(spark.range(3).selectExpr("cast(id as string) value"), txnAppId="a", txnVersion="0")
    output.until_nothing_is_open()
    assert output.seen() == [*range(30), *range(100, 130)]
