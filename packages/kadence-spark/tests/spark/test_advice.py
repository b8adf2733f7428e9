"""Advice in errors about options, patterns and pipeline files: what is written by it is accepted. Without Spark.

Advice that needs a query is followed in the tests of the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it
from pyspark.sql.datasource import CaseInsensitiveDict

from kadence.environment import Environment
from kadence.errors import ConfigError, KafkaError, MissingDependencyError
from kadence.types import TopicPartition
from kadence_schemas.schemas import ResolvedSchema
from kadence_spark.datasource import KadenceDataSource
from kadence_spark.decode import options as decoding
from kadence_spark.decode.formats import arrow_of_side, decoder_of
from kadence_spark.decode.inference import decoded_ddl
from kadence_spark.decode.layout import layout_of
from kadence_spark.lakehouse import options as lakehouse
from kadence_spark.lakehouse.columns import arrow_schema, fit
from kadence_spark.lakehouse.datasource import DeltaSource, IcebergSource
from kadence_spark.lakehouse.delta import check_partitions
from kadence_spark.pipeline import run
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.columns import check_columns
from kadence_spark.pipeline.directory import Shape
from kadence_spark.pipeline.model import Output
from kadence_spark.pipeline.reading import parse as pipeline_of
from kadence_spark.session import _tell_of_javas_settings, _tell_of_late_settings
from kadence_spark.sink import options as sink
from kadence_spark.sink.columns import COLUMNS as SINK_COLUMNS
from kadence_spark.sink.columns import HEADERS_TYPE, RecordColumns
from kadence_spark.source import options as source
from kadence_spark.source.java_regex import compiled
from kadence_spark.source.offsets import NOT_BEGUN, Point
from kadence_spark.source.schema import COLUMNS, projection
from kadence_spark.source.start import Subscription, _at_times, check_existence
from kadence_spark.table import options_of_new_table

SERVERS = {"kafka.bootstrap.servers": "b:9092"}
Options = Mapping[str, str]


def stream(given: Options) -> object:
    return source.parse({**SERVERS, **given}, streaming=True)


def batch(given: Options) -> object:
    return source.parse({**SERVERS, **given}, streaming=False)


def written(given: Options) -> object:
    return sink.parse({**SERVERS, **given})


def table(given: Options) -> object:
    return lakehouse.parse(given, "iceberg", streaming=False)


def kept(given: Options) -> object:
    """The options of a table that CREATE TABLE makes."""
    of_table = {f"option.{name}": text for name, text in {**SERVERS, "subscribe": "t", **given}.items()}
    return options_of_new_table({"provider": "kadence", **of_table})


class Row(NamedTuple):
    read: Callable[[Any], object]
    wrong: Any
    advice: str
    right: tuple[Any, ...]


REGISTRY = {"value.format": "avro", "schema.registry.url": "http://b:8081"}
OPTIONS = {
    "no topics": Row(
        stream,
        {},
        "exactly one of the options subscribe, subscribePattern and assign",
        ({"subscribe": "t"}, {"subscribePattern": "t.*"}, {"assign": '{"t": [0]}'}),
    ),
    "topics twice": Row(
        stream,
        {"subscribe": "t", "assign": '{"t": [0]}'},
        "exactly one of the options",
        ({"subscribe": "t"}, {"assign": '{"t": [0]}'}),
    ),
    "an empty subscription": Row(
        stream, {"subscribe": " , "}, "e.g. subscribe='orders,payments'", ({"subscribe": "orders,payments"},)
    ),
    "a path to read": Row(
        batch,
        {"path": "t"},
        "name the topics with the option subscribe, subscribePattern or assign",
        ({"subscribe": "t"}, {"subscribePattern": "t"}, {"assign": '{"t": [0]}'}),
    ),
    "the topic to read": Row(
        batch, {"topic": "t"}, "the option subscribe names the topics to read", ({"subscribe": "t"},)
    ),
    "an empty group": Row(
        stream,
        {"subscribe": "t", "kafka.group.id": " "},
        "name the group, or leave it out",
        ({"subscribe": "t", "kafka.group.id": "g"}, {"subscribe": "t"}),
    ),
    "pushdown": Row(
        batch,
        {"subscribe": "t", "pushdown": "true"},
        "give startingOffsets, endingOffsets, startingTimestamp, endingTimestamp or assign",
        (
            {"subscribe": "t", "startingOffsets": '{"t":{"0":1}}', "endingOffsets": '{"t":{"0":2}}'},
            {"subscribe": "t", "startingTimestamp": "1", "endingTimestamp": "2"},
            {"assign": '{"t": [0]}'},
        ),
    ),
    "a reset": Row(
        stream,
        {"subscribe": "t", "kafka.auto.offset.reset": "earliest"},
        "use startingOffsets for the start of a query, and failOnDataLoss for lost records",
        ({"subscribe": "t", "startingOffsets": "earliest", "failOnDataLoss": "false"},),
    ),
    "a deserialiser": Row(
        stream,
        {"subscribe": "t", "kafka.value.deserializer": "x"},
        "the option value.format decodes them",
        ({"subscribe": "t", "value.format": "json", "value.schema": "id bigint"},),
    ),
    "automatic commits": Row(
        stream,
        {"subscribe": "t", "kafka.enable.auto.commit": "true"},
        "commitOffsets=true commits offsets to kafka.group.id",
        ({"subscribe": "t", "commitOffsets": "true", "kafka.group.id": "g"},),
    ),
    "a client's setting": Row(
        stream,
        {"subscribe": "t", "security.protocol": "SSL"},
        "Client settings start with kafka.",
        ({"subscribe": "t", "kafka.security.protocol": "SSL"},),
    ),
    "a misspelt option": Row(
        stream,
        {"subscribe": "t", "startingOffset": "earliest"},
        "did you mean 'startingOffsets'?",
        ({"subscribe": "t", "startingOffsets": "earliest"},),
    ),
    "a pace of tasks": Row(
        batch,
        {"subscribe": "t", "kafka.max.poll.records": "auto"},
        "leave it out, or say how many rows an Arrow batch may have",
        ({"subscribe": "t"}, {"subscribe": "t", "kafka.max.poll.records": "10000"}),
    ),
    "a batch that begins at the end": Row(
        batch,
        {"subscribe": "t", "startingOffsets": "latest"},
        "It may be earliest, committed, or JSON with an offset for each partition",
        (
            {"subscribe": "t", "startingOffsets": "earliest"},
            {"subscribe": "t", "startingOffsets": "committed", "kafka.group.id": "g"},
            {"subscribe": "t", "startingOffsets": '{"t":{"0":5}}'},
        ),
    ),
    "an end at the beginning": Row(
        batch,
        {"subscribe": "t", "endingOffsets": '{"t":{"0":-2}}'},
        "-2 (earliest) is not allowed here",
        ({"subscribe": "t", "endingOffsets": '{"t":{"0":-1}}'},),
    ),
    "an empty pattern": Row(
        stream,
        {"subscribePattern": " "},
        "it would match every topic, which .* says clearly",
        ({"subscribePattern": ".*"},),
    ),
    "where bad records go": Row(
        batch,
        {"subscribe": "t", "value.format": "json", "columnNameOfCorruptRecord": "bad"},
        "put _error string and _raw binary into the schema",
        (
            {
                "subscribe": "t",
                "value.format": "json",
                "value.schema": "id bigint, _error string, _raw binary",
            },
        ),
    ),
    "a form of times": Row(
        batch,
        {"subscribe": "t", "value.format": "json", "timestampFormat": "dd.MM.yyyy"},
        "for another form make the field a string in the schema",
        ({"subscribe": "t", "value.format": "json", "value.schema": "at string"},),
    ),
    "an option of guesses": Row(
        batch,
        {"subscribe": "t", "value.format": "json", "samplingRatio": "0.1"},
        "it is for guessing a schema, and from_json with a schema ignores it; leave it out",
        ({"subscribe": "t", "value.format": "json"},),
    ),
    "an option of files": Row(
        batch,
        {"subscribe": "t", "value.format": "json", "multiLine": "true"},
        "it is for files, and a record is one document in UTF-8; leave it out",
        ({"subscribe": "t", "value.format": "json"},),
    ),
    "a serialiser": Row(
        written,
        {"topic": "t", "kafka.value.serializer": "x"},
        "keys and values are written unchanged; make the columns binary or string in Spark",
        ({"topic": "t"},),
    ),
    "a partitioner": Row(
        written,
        {"topic": "t", "kafka.partitioner": "random"},
        "the column partition chooses, or the key by murmur2_random",
        ({"topic": "t"},),
    ),
    "a start at the offsets of no group": Row(
        stream,
        {"subscribe": "t", "startingOffsets": "committed"},
        "startingOffsets=committed needs kafka.group.id, the group whose committed offsets are meant",
        ({"subscribe": "t", "startingOffsets": "committed", "kafka.group.id": "g"},),
    ),
    "commits to no group": Row(
        stream,
        {"subscribe": "t", "commitOffsets": "true"},
        "commitOffsets=true needs kafka.group.id, the group that gets the offsets",
        ({"subscribe": "t", "commitOffsets": "true", "kafka.group.id": "g"},),
    ),
    "a start that is no place": Row(
        stream,
        {"subscribe": "t", "startingOffsets": "first"},
        'is not one of earliest, latest, committed, and not JSON such as {"topic":{"0":23,"1":-1}}',
        (
            {"subscribe": "t", "startingOffsets": "earliest"},
            {"subscribe": "t", "startingOffsets": "latest"},
            {"subscribe": "topic", "startingOffsets": '{"topic":{"0":23,"1":-1}}'},
        ),
    ),
    "offsets of no partitions": Row(
        stream,
        {"subscribe": "topic", "startingOffsets": '{"topic":23}'},
        'needs an object of partitions; e.g. {"topic":{"0":23,"1":42}}',
        ({"subscribe": "topic", "startingOffsets": '{"topic":{"0":23,"1":42}}'},),
    ),
    "a topic without its partitions": Row(
        stream,
        {"assign": '{"topic":0}'},
        """'topic' needs a list of partition numbers, e.g. {"topic":[0,1]}""",
        ({"assign": '{"topic":[0,1]}'},),
    ),
    "no partition": Row(
        stream, {"assign": "{}"}, 'names no partition, e.g. {"topic":[0,1]}', ({"assign": '{"topic":[0,1]}'},)
    ),
    "the end of a stream": Row(
        stream,
        {"subscribe": "t", "endingOffsets": "latest"},
        "option endingOffsets is for batch queries; a stream has no end",
        ({"subscribe": "t"},),
    ),
    "a time that is none": Row(
        stream,
        {"subscribe": "t", "maxTriggerDelay": "soon"},
        "is not a time such as 15m, 30s or 500ms",
        tuple({"subscribe": "t", "maxTriggerDelay": each} for each in ("15m", "30s", "500ms")),
    ),
    "a size that is none": Row(
        stream,
        {"subscribe": "t", "maxBytesPerTrigger": "much"},
        "is not a size such as 64m, 1g or 500000",
        tuple({"subscribe": "t", "maxBytesPerTrigger": each} for each in ("64m", "1g", "500000")),
    ),
    "a copy of a topic without its id": Row(
        stream,
        {"subscribe": "t", "adoptTopicIds": "t"},
        "is not topic=id, with an id such as Zc3yHpHcQ-SEaDD5bUYm7w",
        ({"subscribe": "t", "adoptTopicIds": "t=Zc3yHpHcQ-SEaDD5bUYm7w"},),
    ),
    "where no time is late enough": Row(
        stream,
        {"subscribe": "t", "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "fail"},
        "startingOffsetsByTimestampStrategy is error or latest",
        tuple(
            {"subscribe": "t", "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": each}
            for each in ("error", "latest")
        ),
    ),
    "the number of a write without transactions": Row(
        written,
        {"topic": "t", "txnAppId": "a", "txnVersion": "1"},
        "options txnAppId and txnVersion need transactions=true",
        ({"topic": "t", "txnAppId": "a", "txnVersion": "1", "transactions": "true"},),
    ),
    "half of a write's number": Row(
        written,
        {"topic": "t", "txnAppId": "a", "transactions": "true"},
        "txnAppId and txnVersion go together: who writes, and the number of the write",
        ({"topic": "t", "txnAppId": "a", "txnVersion": "1", "transactions": "true"},),
    ),
    "decoding of nothing": Row(
        decoding.parse,
        {"value.schema": "id bigint"},
        "needs the option value.format or key.format",
        (
            {"value.schema": "id bigint", "value.format": "json"},
            {"key.schema": "id bigint", "key.format": "json"},
        ),
    ),
    "a flag of JSON": Row(
        decoding.parse,
        {**REGISTRY, "allowComments": "true"},
        "needs value.format=json or key.format=json",
        (
            {"value.format": "json", "allowComments": "true"},
            {**REGISTRY, "key.format": "json", "allowComments": "true"},
        ),
    ),
    "plain Avro of unknown schemas": Row(
        decoding.parse,
        {**REGISTRY, "value.wire": "plain"},
        "value.wire=plain needs the option value.schema",
        ({**REGISTRY, "value.wire": "plain", "value.schema": '"long"'},),
    ),
    "an empty topic": Row(
        written,
        {"topic": ""},
        "name the topic, or leave it out and give each row a column topic",
        ({"topic": "t"}, {}),
    ),
    "a path to write": Row(
        written, {"path": "t"}, "name the topic with the option topic or a column topic", ({"topic": "t"}, {})
    ),
    "a transactional id": Row(
        written,
        {"kafka.transactional.id": "x"},
        "transactions=true makes them, transactionalIdPrefix names them",
        ({"transactions": "true"}, {"transactions": "true", "transactionalIdPrefix": "x"}),
    ),
    "a partitioner's key": Row(
        written,
        {"acks": "all"},
        "did you mean 'kafka.acks'? Client settings start with kafka.",
        ({"kafka.acks": "all"},),
    ),
    "a table's path": Row(table, {"path": "t"}, "name the table with the option table", ({"table": "t"},)),
    "Avro without schemas": Row(
        decoding.parse,
        {"value.format": "avro"},
        "needs the option schema.registry.url, or value.schema",
        (REGISTRY, {"value.format": "avro", "value.schema": '"long"'}),
    ),
    "Protobuf without a message": Row(
        decoding.parse,
        {"value.format": "protobuf", "value.schema": "x.desc"},
        "needs the option value.message",
        ({"value.format": "protobuf", "value.schema": "x.desc", "value.message": "a.B"},),
    ),
    "a time zone": Row(
        decoding.parse,
        {"value.format": "json", "timeZone": "Mars/Phobos"},
        "such as Europe/Berlin, UTC or +01:00",
        tuple({"value.format": "json", "timeZone": zone} for zone in ("Europe/Berlin", "UTC", "+01:00")),
    ),
    "a user in a registry's address": Row(
        decoding.parse,
        {**REGISTRY, "schema.registry.url": "http://me:pw@b"},
        "use the option schema.registry.basic.auth.user.info for these",
        ({**REGISTRY, "schema.registry.basic.auth.user.info": "me:pw"},),
    ),
    "two logins of a registry": Row(
        decoding.parse,
        {
            **REGISTRY,
            "schema.registry.basic.auth.user.info": "me:pw",
            "schema.registry.bearer.auth.token": "t",
        },
        "give one",
        (
            {**REGISTRY, "schema.registry.basic.auth.user.info": "me:pw"},
            {**REGISTRY, "schema.registry.bearer.auth.token": "t"},
        ),
    ),
    "a login in a table": Row(
        kept,
        {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.username": "me", "kafka.sasl.password": "pw"},
        "leave out of the table all options that belong to this one",
        ({},),
    ),
    "decoding in a table": Row(
        kept,
        {"value.format": "json"},
        "CREATE TEMPORARY VIEW",
        ({},),
    ),
    "a pattern's set in a set": Row(
        compiled,
        "[a[b]]",
        r"write the resulting set, or \[ and \& for the characters",
        ("[ab]", r"[a\[b\]]", r"[a\&\&b]"),
    ),
    "a pattern's class": Row(
        compiled,
        r"\p{Klingon}",
        "or write the characters, such as [a-z]",
        ("[a-z]", r"\p{Lower}", r"\p{Alpha}"),
    ),
}


@pytest.mark.parametrize("row", OPTIONS.values(), ids=OPTIONS)
def test_options_that_follow_the_advice_are_accepted(row: Row) -> None:
    with pytest.raises(ConfigError, match=re.escape(row.advice)):
        row.read(row.wrong)
    for right in row.right:
        row.read(right)


PIPELINE = """\
name = "numbers"
checkpoint = "checkpoint"
[source]
servers = "broker:9092"
topics = ["numbers"]
[decode]
format = "json"
schema = "id bigint, at timestamp"
[sink]
path = "table"
"""
AGGREGATE = PIPELINE.replace(
    "[sink]\n", '[aggregate]\nsql = "SELECT at, count(*) AS n FROM rows GROUP BY at"\n[sink]\n'
)


def with_keys(keys: str, of: str = AGGREGATE) -> str:
    return of.replace("[aggregate]\n", f"[aggregate]\n{keys}\n")


def read(text: str, **variables: str) -> object:
    return checked(pipeline_of(text, "numbers.toml", variables), Environment(variables))


PIPELINES = {
    "JSON without columns": Row(
        read,
        PIPELINE.replace('schema = "id bigint, at timestamp"\n', ""),
        "schema is missing: the columns of the JSON as Spark DDL, such as 'id bigint, name string'",
        (PIPELINE.replace("id bigint, at timestamp", "id bigint, name string"),),
    ),
    "a delay without a watermark": Row(
        read,
        with_keys('delay = "10m"\nmode = "append"'),
        'name its column, such as watermark = "at"',
        (with_keys('delay = "10m"\nwatermark = "at"\nmode = "append"'),),
    ),
    "a watermark without a delay": Row(
        read,
        with_keys('watermark = "at"\nmode = "append"'),
        'needs a delay, such as delay = "10m"',
        (with_keys('delay = "10m"\nwatermark = "at"\nmode = "append"'),),
    ),
    "groups that may change": Row(
        read,
        with_keys('mode = "append"'),
        'such as watermark = "at", and a delay',
        (with_keys('delay = "10m"\nwatermark = "at"\nmode = "append"'),),
    ),
    "a variable that is not set": Row(
        read,
        PIPELINE.replace("broker:9092", "${SERVERS}"),
        "set it, or give a default as in ${SERVERS:-text}",
        (PIPELINE.replace("broker:9092", "${SERVERS:-b:9092}"),),
    ),
    "the connector's format": Row(
        read,
        PIPELINE.replace('path = "table"', 'topic = "sums"\nformat = "kafka"'),
        "a topic is written by format kadence; leave the format out",
        (PIPELINE.replace('path = "table"', 'topic = "sums"'),),
    ),
    "a value in place of a table": Row(
        read,
        PIPELINE.replace('[sink]\npath = "table"\n', "").replace("[source]", "sink = 5\n[source]"),
        "write [sink] with keys below it",
        (PIPELINE,),
    ),
    "a table in place of a list": Row(
        read,
        PIPELINE + '[expect]\nname = "a"\ncondition = "id > 0"\n',
        "write [[expect]] before each",
        (PIPELINE + '[[expect]]\nname = "a"\ncondition = "id > 0"\naction = "warn"\n',),
    ),
}


@pytest.mark.parametrize("row", PIPELINES.values(), ids=PIPELINES)
def test_a_pipeline_that_follows_the_advice_is_accepted(row: Row) -> None:
    with pytest.raises(ConfigError, match=re.escape(row.advice)):
        row.read(row.wrong)
    for right in row.right:
        row.read(right)


def test_a_variable_that_is_set() -> None:
    assert read(PIPELINE.replace("broker:9092", "${SERVERS}"), SERVERS="b:9092")


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
        "what is decoded may be null, so leave that out",
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
    with pytest.raises(KafkaError, match=re.escape(row.advice)):
        row.read(row.wrong)
    for right in row.right:
        row.read(right)


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


def shape(**changed: Any) -> Shape:
    """What batches of a table are like."""
    given = {"form": "csv", "partition_by": (), "columns": (("id", "int"),), "options": ()}
    return Shape(since=0, **{**given, **changed})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (shape(), shape(form="json")),
        (shape(), shape(partition_by=("id",))),
        (shape(), shape(columns=(("id", "int"), ("name", "string")))),
        (shape(), shape(options=(("sep", ";"),))),
    ],
    ids=["format", "partitions", "columns", "option"],
)
def test_a_table_that_is_written_otherwise(before: Shape, now: Shape) -> None:
    """A table of a new checkpoint has no batches yet, and so nothing to differ from."""
    told = before.objection(now, "table")
    assert told is not None
    assert told.endswith("put it back, or begin a new table with a checkpoint of its own")
    assert before.objection(before, "table") is None


def test_a_table_whose_column_has_another_type() -> None:
    before = shape(form="parquet")
    told = before.objection(shape(form="parquet", columns=(("id", "bigint"),)), "table")
    assert told is not None
    assert "column id is bigint now, and int in the table table: cast it in a transform" in told
    assert (
        before.objection(shape(form="parquet", columns=(("id", "int"), ("more", "string"))), "table") is None
    )


def a_source(**options: str) -> KadenceDataSource:
    given = CaseInsensitiveDict()
    given.update({"kafka.bootstrap.servers": "localhost:9092", **options})
    return KadenceDataSource(given)


COLUMNS_READ = T.StructType([T.StructField("value", T.BinaryType())])


def test_streams_of_an_older_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = a_source(subscribe="t"), a_source(topic="t")
    with monkeypatch.context() as patch:
        patch.setattr("pyspark.__version__", "4.1.4")
        with pytest.raises(
            MissingDependencyError, match=r"need PySpark 4\.2 or newer; batch queries work with this one"
        ):
            reads.streamReader(COLUMNS_READ)
        reads.reader(COLUMNS_READ)
        writes.streamWriter(COLUMNS_READ, overwrite=False)
        patch.setattr("pyspark.__version__", "4.0.1")
        with pytest.raises(
            MissingDependencyError, match=r"need PySpark 4\.1 or newer; batch writes work with this one"
        ):
            writes.streamWriter(COLUMNS_READ, overwrite=False)
        writes.writer(COLUMNS_READ, overwrite=False)
        patch.setattr("pyspark.__version__", "4.2.0")
        reads.streamReader(COLUMNS_READ)


def running(settings: Mapping[str, str], java: Mapping[str, str]) -> Any:
    """A session that was started with these settings, on a Java that was started with others."""
    config = SimpleNamespace(ConfigEntry=SimpleNamespace(findEntry=lambda _: "known"))
    jvm = SimpleNamespace(
        org=SimpleNamespace(
            apache=SimpleNamespace(spark=SimpleNamespace(internal=SimpleNamespace(config=config)))
        ),
        java=SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(getProperty=java.get))),
    )
    context = SimpleNamespace(
        _jvm=jvm, getConf=lambda: SimpleNamespace(getAll=lambda: list(settings.items()))
    )
    return SimpleNamespace(sparkContext=context, conf=SimpleNamespace(isModifiable=lambda _: False))


def test_settings_that_come_too_late_for_a_session(caplog: pytest.LogCaptureFixture) -> None:
    given = {"spark.ui.port": "4050", "spark.driver.memory": "2g"}
    _tell_of_late_settings(running({}, {}), given)
    (told,) = caplog.messages
    assert told.endswith("have no effect: spark.ui.port; stop() it first to start one with them")
    caplog.clear()
    _tell_of_late_settings(running(given, {}), given)
    assert not caplog.messages


def test_settings_that_come_too_late_for_java(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs until the program ends: a session that is stopped before the next one is no help."""
    given = {"spark.ui.port": "4050", "spark.driver.memory": "2g"}
    stopped_before = running(given, {"spark.driver.memory": "1g"})
    _tell_of_javas_settings(stopped_before, given)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    _tell_of_javas_settings(stopped_before, given)
    plain, submitted = caplog.messages
    assert plain.endswith(
        "have no effect: spark.driver.memory; start the program anew with them in its first session"
    )
    assert submitted.endswith("have no effect: spark.driver.memory; give them to spark-submit")
    caplog.clear()
    _tell_of_javas_settings(running({}, given), given)
    assert not caplog.messages


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


def test_a_topic_is_appended_to() -> None:
    with pytest.raises(ConfigError, match=re.escape('use .mode("append")')):
        a_source(topic="t").writer(COLUMNS_READ, overwrite=True)
    a_source(topic="t").writer(COLUMNS_READ, overwrite=False)


def test_options_that_a_table_does_not_have() -> None:
    bare = KadenceDataSource(CaseInsensitiveDict())
    with pytest.raises(ConfigError, match=re.escape("WITH ('kafka.bootstrap.servers'='...', ...)")):
        bare.schema()
    assert a_source(subscribe="t").schema()
    with pytest.raises(
        ConfigError, match=re.escape('df.write.format("kadence") with the options kafka.bootstrap')
    ):
        bare.writer(COLUMNS_READ, overwrite=False)
    a_source(topic="t").writer(COLUMNS_READ, overwrite=False)


@pytest.mark.parametrize(("kind", "reader"), [(DeltaSource, "delta"), (IcebergSource, "iceberg")])
def test_a_sink_of_tables_reads_none(kind: type[DeltaSource], reader: str) -> None:
    with pytest.raises(ConfigError, match=f"read them with the {reader} reader of your choice"):
        kind(CaseInsensitiveDict()).schema()


def test_a_pipeline_without_a_server_of_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(run, "session_apart", lambda name, **_: opened.append(name))
    pipeline = checked(pipeline_of(PIPELINE, "numbers.toml", {}), Environment({}))
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(ConfigError, match="unset the variable SPARK_REMOTE"):
        run.open_session(pipeline, Environment({}))
    monkeypatch.delenv("SPARK_REMOTE")
    run.open_session(pipeline, Environment({}))
    assert opened == ["numbers"]
