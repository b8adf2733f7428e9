"""What travels to the workers, and the producers that wait there between tasks."""

from __future__ import annotations

import io
import pickle
from contextlib import closing, nullcontext
from types import FunctionType

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.patience import PATIENCE, until
from tests.spark.conftest import Cluster

from kadence import Admin, Broker, Consumer, TopicPartition
from kadence.errors import (
    ConfigError,
    IllegalStateError,
    KafkaTimeoutError,
    RowsNotWrittenError,
    TransactionAbortedError,
)
from kadence_spark.sink.clients import PRODUCERS, WRITERS
from kadence_spark.sink.options import parse
from kadence_spark.sink.spark_task import check_input_ended
from kadence_spark.sink.writers import BatchWriter, Writes, told
from kadence_testing.clock import FakeClock


def schema(*columns: str) -> StructType:
    made = StructType()
    for column in columns:
        made.add(column, "binary")
    return made


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def test_what_travels_is_picklable_and_keeps_secrets_to_itself() -> None:
    options = parse(
        {
            "kafka.bootstrap.servers": "localhost:9092",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.key.password": "sesame",
            "topic": "t",
        }
    )
    writes = Writes.of(options, schema("value"))
    assert pickle.loads(pickle.dumps(writes)) == writes
    assert "sesame" not in repr(writes)


def test_a_topic_cannot_be_overwritten() -> None:
    options = parse({"kafka.bootstrap.servers": "localhost:9092", "topic": "t"})
    with pytest.raises(ConfigError, match=r'use \.mode\("append"\)'):
        BatchWriter(options, schema("value"), overwrite=True)


def test_a_producer_serves_the_next_task_unless_its_task_failed(cluster: Cluster) -> None:
    cluster.create(1, **{"max.message.bytes": "1000"})
    options = parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": cluster.topic})
    writes = Writes.of(options, schema("value"))
    before = len(PRODUCERS)
    assert writes.write(iter([rows(b"a", b"b"), rows(b"c")])).rows == 3
    assert writes.write(iter([])).rows == 0
    assert len(PRODUCERS) == before + 1
    with pytest.raises(RowsNotWrittenError, match=rf"row 1 for {cluster.topic}-0: .*max\.message\.bytes"):
        writes.write(iter([rows(b"d", b"x" * 5000)]))
    assert len(PRODUCERS) == before
    assert cluster.ends()[0] >= 3


def committed(cluster: Cluster) -> list[bytes]:
    """What readers of committed records see in the test's topic."""
    seen: list[bytes] = []
    partition = TopicPartition(cluster.topic, 0)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed") as reader:
        reader.assign([partition])
        reader.seek_to_beginning()
        end = reader.end_offsets([partition])[partition]
        while reader.position(partition) < end:
            seen += [record.value for record in reader.poll(PATIENCE) if record.value is not None]
    return seen


def test_a_job_s_rows_count_when_the_driver_says_so_and_its_worker_keeps_one_producer(
    cluster: Cluster,
) -> None:
    cluster.create(1)
    given = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": cluster.topic}
    options = parse({**given, "transactions": "true", "transactionalIdPrefix": cluster.topic})
    before = len(WRITERS)
    aborted, kept = (BatchWriter(options, schema("value"), overwrite=False) for _ in range(2))
    accepted = aborted.write(iter([rows(b"a"), rows(b"b")]))
    worker = pickle.loads(pickle.dumps(kept))
    done = [worker.write(iter([rows(b"c", b"d")])), worker.write(iter([]))]
    assert len(WRITERS) == before + 1
    assert committed(cluster) == []
    aborted.abort([accepted, None])
    with pytest.raises(TransactionAbortedError, match="a task's transaction is no longer open"):
        aborted.commit([accepted])
    kept.commit(done)
    until(lambda: committed(cluster) == [b"c", b"d"], what=lambda: committed(cluster))
    ongoing = [each.transactional_id for each in cluster.admin.list_transactions(states=["Ongoing"])]
    # Other files' tests write to this cluster, too.
    assert [name for name in ongoing if name.startswith(cluster.topic)] == []


def test_a_batch_that_takes_longer_than_its_transactions_may_be_open() -> None:
    """The broker has a clock of the test's."""
    clock = FakeClock()
    with (
        Broker(topics={"t": 1}, clock=clock) as broker,
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        closing(WRITERS),
    ):

        def is_open() -> bool:
            return bool(admin.list_transactions(states=["Ongoing"]))

        def open_for(seconds: int, timeout_ms: int, *, ends: bool = False) -> None:
            given = {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "topic": "t",
                "transactions": "true",
                "kafka.transaction.timeout.ms": str(timeout_ms),
            }
            writer = BatchWriter(parse(given), schema("value"), overwrite=False)
            written = writer.write(iter([rows(b"v")]))
            assert is_open()
            clock.advance(seconds * 1000)
            until(lambda: is_open() is not ends)
            writer.commit([written])

        with pytest.raises(
            TransactionAbortedError,
            match=r"open for longer than kafka\.transaction\.timeout\.ms, .*: raise that, or make the batch smaller",
        ):
            open_for(90, 60_000, ends=True)
        open_for(90, 120_000)
        open_for(30, 60_000)


def test_an_abort_that_cannot_be_made_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise KafkaTimeoutError("no broker")

    with told():
        fails()
    assert "could not be aborted; the next start of the query does it" in caplog.text


@pytest.mark.parametrize(("left", "is_given_up"), [(b"", True), (b"\xff\xff\xff\xfc", False)])
def test_rows_that_come_to_a_stop_without_spark_s_mark_have_not_ended(left: bytes, is_given_up: bool) -> None:
    """The worker's input is looked for where Spark has it: in a function of its own that reads ``infile``."""

    def main(infile: io.BufferedReader) -> None:
        check_input_ended()

    def called_in(module: str) -> None:
        names = {"__name__": module, "check_input_ended": check_input_ended}
        FunctionType(main.__code__, names)(io.BufferedReader(io.BytesIO(left)))

    called_in("anybody")
    with pytest.raises(IllegalStateError, match="given up") if is_given_up else nullcontext():
        called_in("pyspark.worker")
