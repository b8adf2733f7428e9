"""What travels to the workers, and the producers that wait there between tasks."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType
from tests.spark.conftest import Cluster

from kadence.errors import ConfigError, RowsNotWrittenError
from kadence.spark.sink.clients import PRODUCERS
from kadence.spark.sink.options import parse
from kadence.spark.sink.writers import BatchWriter, Writes


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
