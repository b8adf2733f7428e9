"""Advice in errors about schemas and columns: what is written by it is accepted. Without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it
from tests.spark.advice.rows import REGISTRY, Options, Row, follow

from kadence.errors import ConfigError, KafkaError
from kadence.types import TopicPartition
from kadence_schemas.schemas import ResolvedSchema
from kadence_spark.decode import options as decoding
from kadence_spark.decode.formats import arrow_of_side, decoder_of
from kadence_spark.decode.inference import decoded_ddl
from kadence_spark.decode.layout import layout_of
from kadence_spark.lakehouse.columns import arrow_schema, fit
from kadence_spark.lakehouse.delta import check_partitions
from kadence_spark.pipeline.columns import check_columns
from kadence_spark.pipeline.model import Output
from kadence_spark.sink.columns import COLUMNS as SINK_COLUMNS
from kadence_spark.sink.columns import HEADERS_TYPE, RecordColumns
from kadence_spark.source.offsets import NOT_BEGUN, Point
from kadence_spark.source.schema import COLUMNS, projection
from kadence_spark.source.start import Subscription, _at_times, check_existence


def struct(**columns: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


def laid_out(given: tuple[T.StructType, Options]) -> object:
    schema, options = given
    decode = decoding.parse({"value.format": "json", **options})
    assert decode is not None
    return layout_of(decode, schema, COLUMNS)


def inferred(given: Options) -> str:
    decode = decoding.parse(given)
    assert decode is not None
    return decoded_ddl(decode, given, COLUMNS)


def zoned(zone: str | None) -> object:
    """How JSON's times without a zone are read in a session with this one."""
    options = {"value.format": "json"} if zone is None else {"value.format": "json", "timeZone": zone}
    decode = decoding.parse(options)
    assert decode is not None
    times = pa.struct([("at", pa.timestamp("us", "UTC"))])
    return decoder_of(decode.value, times, "Mars/Phobos")


def chosen(column: tuple[str, str]) -> object:
    return projection([column], include_headers=False)


def exists(topics: str) -> None:
    check_existence(Subscription(tuple(topics.split(","))), [TopicPartition("orders", 0)])


def chosen_with(*, headers: bool) -> Callable[[tuple[str, str]], object]:
    return lambda column: projection([column], include_headers=headers)


def to_write(columns: list[tuple[str, str]]) -> object:
    return RecordColumns.of(columns, "t")


def by_columns(names: tuple[str, ...]) -> None:
    """A new Delta table of columns of these types, partitioned by these."""
    kinds = {
        "text": pa.string(),
        "number": pa.int64(),
        "day": pa.date32(),
        "truth": pa.bool_(),
        "ratio": pa.float64(),
    }
    left = names if len(names) == 4 else tuple(kinds)
    check_partitions(pa.schema([(name, kinds[name]) for name in left]), names)


def files(given: tuple[T.StructType, dict[str, Any]]) -> None:
    """Rows for a pipeline's files."""
    schema, how = given
    output = Output(format=how.get("format", "parquet"), path="table", partition_by=how.get("by", ()))
    check_columns(schema, output, "sink", how.get("zone", "UTC"))


def fitted(given: tuple[dict[str, pa.DataType], dict[str, pa.DataType], bool]) -> object:
    """Rows for a Delta or Iceberg table, with the option mergeSchema or without."""
    rows, table, may_add = given
    return fit(pa.schema(rows), pa.schema(table), may_add=may_add)


def begun_at(given: tuple[int, bool]) -> object:
    """Where a query begins by a time in a partition whose last record has the offset 5 and the time 500."""
    at, or_latest = given
    brokers: Any = SimpleNamespace(
        offsets_for_times=lambda times: {each: 5 if time <= 500 else None for each, time in times.items()},
        log_ends=lambda partitions: dict.fromkeys(partitions, 6),
    )
    found = _at_times("startingTimestamp", {TopicPartition("t", 0): at}, brokers, or_latest=or_latest)
    assert found == {TopicPartition("t", 0): 5 if at <= 500 else 6}
    return found


INNER = struct(a=T.IntegerType())
LONG, TEXT, BYTES = T.LongType(), T.StringType(), T.BinaryType()
PURE = {
    "a field beside a decoded value": Row(
        laid_out,
        (struct(value=INNER, id=LONG), {}),
        "put it into value, or make value binary",
        ((struct(value=struct(a=T.IntegerType(), id=LONG)), {}), (struct(value=BYTES, id=LONG), {})),
    ),
    "a field of a column's name": Row(
        laid_out,
        (struct(offset=TEXT), {}),
        "put the fields into a column value of type struct<...>, or give Kafka's columns other names with the option "
        "metadataPrefix",
        ((struct(value=struct(offset=TEXT)), {}), (struct(offset=TEXT), {"metadataPrefix": "kafka_"})),
    ),
    "a required field": Row(
        laid_out,
        (T.StructType([T.StructField("id", LONG, nullable=False)]), {}),
        "leave NOT NULL out, since decoded values may be null",
        ((struct(id=LONG), {}),),
    ),
    "fields without a format": Row(
        laid_out,
        (struct(id=LONG), {"value.format": "binary", "key.format": "string"}),
        "with the option value.format it is a field of the value",
        ((struct(id=LONG), {"value.format": "json"}),),
    ),
    "JSON whose fields nobody knows": Row(
        inferred,
        {"value.format": "json"},
        "or the option value.schema with such a text",
        ({"value.format": "json", "value.schema": "id bigint, name string"},),
    ),
    "a subject of several topics": Row(
        inferred,
        {**REGISTRY, "subscribe": "t,u"},
        "or the option value.schema",
        ({**REGISTRY, "subscribe": "t,u", "value.schema": '{"type": "record", "name": "R", "fields": []}'},),
    ),
    "a session's time zone": Row(
        zoned, None, "or give the zone with the option timeZone, such as +01:00", ("+01:00", "Europe/Berlin")
    ),
    "a column that Kafka does not have": Row(
        chosen,
        ("amount", "int"),
        "a schema chooses from key, value, topic, partition, offset, timestamp, timestampType and, with "
        "includeHeaders=true, headers",
        tuple(COLUMNS.items()),
    ),
    "a column of another type": Row(
        chosen, ("value", "string"), "column 'value' is binary, not string; cast it", (("value", "binary"),)
    ),
    "a column of another type than asked for": Row(
        chosen,
        ("offset", "int"),
        "column 'offset' is bigint, not int; cast it after load()",
        (("offset", "bigint"),),
    ),
    "headers without their option": Row(
        chosen_with(headers=False),
        ("headers", HEADERS_TYPE),
        "need the option includeHeaders=true",
        (),
    ),
    "a column twice": Row(
        to_write,
        [("value", "string"), ("value", "binary")],
        "there are 2 columns 'value'; keep one of them",
        ([("value", "string")], [("value", "binary")]),
    ),
    "a document to write": Row(
        to_write,
        [("value", "struct<id:bigint>")],
        "turn it into text with to_json(value), or into bytes",
        ([("value", "string")], [("value", "binary")]),
    ),
    "a value in capitals": Row(to_write, [("Value", "string")], "rename 'Value'", ([("value", "string")],)),
    "rows without a value": Row(
        to_write,
        [("key", "string")],
        "the sink needs a column 'value' of type string or binary",
        ([("key", "string"), ("value", "string")], [("value", "binary")]),
    ),
    "a row of no topic": Row(
        lambda given: RecordColumns.of([("value", "string"), ("topic", "string")], given[1]).records(
            pa.record_batch({"value": ["v"], "topic": pa.array([given[0]], pa.string())})
        ),
        (None, None),
        "fill the column, or name one topic for all rows with the option topic",
        (("t", None), (None, "t")),
    ),
    "rows of no topic": Row(
        lambda columns: RecordColumns.of(columns, None),
        [("value", "string")],
        "the sink needs the option topic, or a column 'topic' of type string",
        ([("value", "string"), ("topic", "string")],),
    ),
    "a checkpoint of another source": Row(
        Point.from_json,
        {"sourceVersion": 1},
        "give this query a checkpointLocation of its own",
        (NOT_BEGUN, {"topic": {"0": 12}}),
    ),
    "a Delta table by a number": Row(
        by_columns,
        ("ratio",),
        "column ratio is double: tables are partitioned by texts, integers, dates and booleans",
        (("text",), ("number",), ("day",), ("truth",)),
    ),
    "a Delta table by a column that there is not": Row(
        by_columns, ("days",), "option partitionBy: there is no column days", (("day",),)
    ),
    "a Delta table by all columns": Row(
        by_columns,
        ("ratio", "text", "number", "day", "truth")[1:],
        "a table needs a column beside those that partition it",
        (("text", "number", "day"),),
    ),
    "a table's type that differs": Row(
        fitted,
        ({"id": pa.string()}, {"id": pa.int64()}, False),
        "column id is string in the rows and int64 in the table: cast it",
        (({"id": pa.int64()}, {"id": pa.int64()}, False),),
    ),
    "a column that the table does not have": Row(
        fitted,
        ({"id": pa.int64(), "more": pa.string()}, {"id": pa.int64()}, False),
        "leave it out of the rows, or add it with the option mergeSchema=true",
        (
            ({"id": pa.int64()}, {"id": pa.int64()}, False),
            ({"id": pa.int64(), "more": pa.string()}, {"id": pa.int64()}, True),
        ),
    ),
    "a column in capitals": Row(
        fitted,
        ({"ID": pa.int64()}, {"id": pa.int64()}, False),
        "rename it, case counts",
        (({"id": pa.int64()}, {"id": pa.int64()}, False),),
    ),
    "a type that no table has": Row(
        lambda rows: arrow_schema(rows, "Delta"),
        struct(a=T.CalendarIntervalType()),
        "cannot be written to Delta: cast it",
        (struct(a=TEXT),),
    ),
    "columns that differ in case": Row(
        lambda rows: arrow_schema(rows, "Delta"),
        struct(a=LONG, A=LONG),
        "the rows have more than one column 'a'; rename one of them",
        (struct(a=LONG, b=LONG),),
    ),
    "files by bytes": Row(
        files,
        (struct(a=BYTES, b=LONG), {"by": ("a",)}),
        "names of directories are texts: cast it",
        ((struct(a=TEXT, b=LONG), {"by": ("a",)}),),
    ),
    "files by local times": Row(
        files,
        (struct(at=T.TimestampType(), b=LONG), {"by": ("at",), "zone": "Europe/Berlin"}),
        "partition by a date, or set sql.session.timeZone of [spark] to UTC",
        (
            (struct(at=T.DateType(), b=LONG), {"by": ("at",), "zone": "Europe/Berlin"}),
            (struct(at=T.TimestampType(), b=LONG), {"by": ("at",), "zone": "UTC"}),
        ),
    ),
    "files by all columns": Row(
        files,
        (struct(a=TEXT), {"by": ("a",)}),
        "a table needs a column beside those that partition it",
        ((struct(a=TEXT, b=LONG), {"by": ("a",)}),),
    ),
    "the column of directories": Row(
        files,
        (struct(batch=LONG), {}),
        "which is the name of the directories; rename it",
        ((struct(batches=LONG), {}),),
    ),
    "structs in CSV": Row(
        files,
        (struct(a=INNER), {"format": "csv"}),
        "which CSV does not have; cast it, or take another format",
        (
            (struct(a=TEXT), {"format": "csv"}),
            *((struct(a=INNER), {"format": each}) for each in ("json", "orc")),
        ),
    ),
    "a time after the last record": Row(
        begun_at,
        (1000, False),
        "choose an earlier time, or set startingOffsetsByTimestampStrategy=latest",
        ((500, False), (1000, True)),
    ),
    "a topic that does not exist": Row(
        exists, "orders,order", "create it first, or check the option's spelling", ("orders",)
    ),
}


@pytest.mark.parametrize("row", PURE.values(), ids=PURE)
def test_schemas_that_follow_the_advice_are_accepted(row: Row) -> None:
    follow(row, KafkaError)


def test_headers_that_a_schema_names() -> None:
    chosen_with(headers=True)(("headers", HEADERS_TYPE))


@pytest.mark.parametrize("name", SINK_COLUMNS)
def test_a_column_that_is_cast_as_the_error_says(name: str) -> None:
    columns = {"value": "string", "topic": "string", name: "double"}
    with pytest.raises(ConfigError) as caught:
        RecordColumns.of(columns.items(), None)
    found = re.search(rf"cast it: CAST\({name} AS (.+)\)$", str(caught.value))
    assert found is not None
    RecordColumns.of({**columns, name: found[1]}.items(), None)


@pytest.mark.parametrize("side", ["value", "key"])
def test_protobuf_of_a_registry_of_texts(side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from google.protobuf import descriptor_pb2, empty_pb2

    def type_of(**more: str) -> object:
        given = {f"{side}.format": "protobuf", "schema.registry.url": "http://b:8081"}
        parsed = decoding.parse({**given, **{f"{side}.{name}": text for name, text in more.items()}})
        assert parsed is not None
        return arrow_of_side(parsed.value if side == "value" else parsed.key, "t")

    monkeypatch.setattr(
        "kadence_spark.decode.formats._newest", lambda *_: ResolvedSchema("PROTOBUF", "message")
    )
    with pytest.raises(ConfigError, match=rf"with the options {side}\.schema and {side}\.message"):
        type_of()
    file = descriptor_pb2.FileDescriptorProto.FromString(empty_pb2.DESCRIPTOR.serialized_pb)
    written = tmp_path / "empty.desc"
    written.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    assert type_of(schema=str(written), message="google.protobuf.Empty") is not None
