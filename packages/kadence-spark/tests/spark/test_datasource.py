"""What Spark sees of the source, without a running Spark."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, DataType, LongType, StructField, StructType
from tests.spark.source.memory import stream_options

import pyspark_kadence
from kadence.errors import ConfigError, MissingDependencyError
from kadence_spark.datasource import KadenceDataSource
from kadence_spark.source.offsets import NOT_BEGUN
from kadence_spark.source.planning import OffsetRange
from kadence_spark.source.reads import KadencePartition, Reads
from kadence_spark.source.start import Subscription
from kadence_spark.source.stream_reader import StreamReader

PASSWORD = "hunter2"


def source(**more: str) -> KadenceDataSource:
    options = CaseInsensitiveDict()
    options.update({"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"})
    options.update({name.replace("_", "."): text for name, text in more.items()})
    return KadenceDataSource(options)


def schema(name: str = "offset", kind: DataType | None = None) -> StructType:
    return StructType([StructField(name, kind or LongType()), StructField("value", BinaryType())])


def test_spark_finds_it_by_name() -> None:
    assert pyspark_kadence.DefaultSource is KadenceDataSource
    assert KadenceDataSource.name() == "kadence"


def test_the_connectors_schema_with_and_without_headers() -> None:
    columns = "key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int"
    headers = "headers:array<struct<key:string,value:binary>>"
    plain, whole = source().schema(), source(includeHeaders="TRUE").schema()
    assert isinstance(plain, StructType)
    assert plain.simpleString() == f"struct<{columns}>"
    assert isinstance(whole, StructType)
    assert whole.simpleString() == f"struct<{columns},{headers}>"


def test_mistakes_are_told_at_load() -> None:
    with pytest.raises(ConfigError, match="did you mean 'failOnDataLoss'"):
        source(failOnDataLos="true").schema()


def test_a_stream_tells_mistakes_when_it_is_first_asked_because_spark_hides_what_making_a_reader_raises() -> (
    None
):
    reader = source(endingOffsets="latest").streamReader(schema())
    with pytest.raises(ConfigError, match="for batch queries"):
        pickle.loads(pickle.dumps(reader)).initialOffset()
    reader.stop()
    with pytest.raises(ConfigError, match="no column 'amount'"):
        source().streamReader(schema("amount")).initialOffset()


def test_streams_need_a_newer_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.1.4")
    with pytest.raises(MissingDependencyError, match=r"4\.2 or newer"):
        source().streamReader(schema())


def test_what_travels_is_small_and_keeps_secrets_to_itself() -> None:
    reader = source(
        kafka_ssl_key_location="k", kafka_ssl_certificate_location="c", kafka_ssl_key_password=PASSWORD
    )
    reads = reader.streamReader(schema())._reads  # type: ignore[attr-defined]
    assert isinstance(reads, Reads)
    assert PASSWORD not in repr(reads)
    assert pickle.loads(pickle.dumps(reads)) == reads
    partition = KadencePartition((OffsetRange("t", 0, 5, 9),))
    copy = pickle.loads(pickle.dumps(partition))
    assert copy.task == partition.task
    assert repr(copy) == "KadencePartition(t-0 [5, 9))"
    assert len(pickle.dumps(partition)) < 300


def test_a_reader_is_pickled_before_it_has_asked_anything() -> None:
    reader = source().streamReader(schema())
    assert isinstance(pickle.loads(pickle.dumps(reader)), StreamReader)
    assert isinstance(pickle.loads(pickle.dumps(source().reader(schema()))), type(source().reader(schema())))


@pytest.mark.parametrize(
    ("more", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "9"}, ReadMaxRows(7)),
        ({"maxBytesPerTrigger": "9"}, ReadMaxBytes(9)),
        ({"minOffsetsPerTrigger": "3"}, ReadMinRows(3)),
    ],
)
def test_spark_is_told_that_there_is_a_limit(more: dict[str, str], limit: Any) -> None:
    reader = StreamReader(stream_options(**more), schema())
    assert reader.getDefaultReadLimit() == limit
    assert reader.initialOffset() == NOT_BEGUN
    assert reader.reportLatestOffset() is None
    reader.commit({})
    reader.stop()


def test_a_reader_whose_query_was_stopped_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's runner would print a traceback: it reads the end of the connection, and then cannot report that."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    reader = StreamReader(stream_options(), schema())
    reader.stop()
    with pytest.raises(ValueError, match="of its own"):
        _run(reader, ValueError("of its own"))
    assert ended == []
    with pytest.raises(EOFError):
        _run(reader, EOFError())
    assert ended == [0]


def _run(reader: StreamReader, problem: Exception) -> None:
    try:
        raise problem
    finally:
        reader.stop()


def test_the_partition_that_spark_makes_up_for_an_empty_plan_is_empty() -> None:
    assert list(source().reader(schema()).read(InputPartition(None))) == []


def test_max_poll_records_bounds_the_rows_of_a_batch() -> None:
    def rows(**more: str) -> int:
        return Reads.of(stream_options(**more), schema()).reading.max_rows

    assert rows() == 32_000
    assert rows(kafka_max_poll_records="100") == 100
    assert rows(kafka_max_poll_records="-1") == 32_000
    assert rows(kafka_max_poll_records="50000") == 32_000


def test_filters_are_spark_s_alone() -> None:
    """With a narrowed plan one load() would give its later queries too few rows."""
    reader = source().reader(schema())
    assert type(reader).pushFilters is DataSourceReader.pushFilters
    for value in ("true", "false"):
        with pytest.raises(
            ConfigError, match=r"pushdown is gone: .* Leave the option out\. To read less, give start"
        ):
            source(pushdown=value).schema()


# ---------------------------------------------------------------- CREATE TABLE


def new_table(**more: str) -> KadenceDataSource:
    """As Spark makes it for a CREATE TABLE: the properties, with options twice."""
    options = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t", **more}
    properties = CaseInsensitiveDict({"provider": "kadence", "owner": "me", "path": "file:/t", "team": "x"})
    properties.update({"option." + name: text for name, text in options.items()} | options)
    return KadenceDataSource(properties)


def test_a_table_keeps_its_options_in_its_schema() -> None:
    made, plain = new_table().schema(), source().schema()
    assert isinstance(made, StructType)
    assert isinstance(plain, StructType)
    assert made.simpleString() == plain.simpleString()
    stored = StructType.fromJson(json.loads(made.json()))
    table = KadenceDataSource(CaseInsensitiveDict())
    reader = pickle.loads(pickle.dumps(table)).reader(stored)
    assert reader._options.topics == Subscription(("t",))
    with_more = KadenceDataSource(CaseInsensitiveDict({"maxRecordsPerPartition": "7"})).reader(stored)
    assert with_more._options.max_records_per_partition == 7  # type: ignore[attr-defined]
    assert isinstance(table.streamReader(stored), StreamReader)
    other = source(subscribe="other").reader(stored)  # whoever takes the table's schema only
    assert other._options.topics == Subscription(("other",))  # type: ignore[attr-defined]


@pytest.mark.parametrize("table", [new_table(), KadenceDataSource(CaseInsensitiveDict())])
def test_a_table_is_for_reading(table: KadenceDataSource) -> None:
    """CREATE TABLE ... AS SELECT gives a writer the table's options, and INSERT gives it none."""
    with pytest.raises(ConfigError, match="is for reading"):
        table.writer(schema(), overwrite=False)


def test_what_a_table_cannot_keep_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"kafka\.sasl\.password: .* is a secret\. .*CREATE TEMPORARY VIEW"
    ) as caught:
        new_table(**{"kafka.sasl.password": PASSWORD}).schema()
    assert PASSWORD not in str(caught.value)
    # The advice for tables: all of the login goes with the query. Only then is there a table.
    assert "kafka.security.protocol and kafka.sasl.*" in str(caught.value)
    new_table(**{"kafka.bootstrap.servers": "localhost:1"}).schema()
    with pytest.raises(ConfigError, match=r"needs sasl\.username and sasl\.password"):
        new_table(**{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}).schema()
    with pytest.raises(ConfigError, match="a table cannot decode"):
        new_table(**{"value.format": "json"}).schema()
    with pytest.raises(ConfigError, match="did you mean 'subscribe'"):
        new_table(subscirbe="t").schema()
    with pytest.raises(ConfigError, match="only if the statement names no columns"):
        KadenceDataSource(CaseInsensitiveDict()).reader(schema())
