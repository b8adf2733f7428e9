"""Advice in errors about options, patterns and pipeline files: what is written by it is accepted. Without Spark.

Advice that needs a query is followed in the tests of the query.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it

from kadence.environment import Environment
from kadence.errors import ConfigError, KafkaError
from kadence.types import TopicPartition
from kadence_spark.decode import options as decoding
from kadence_spark.decode.formats import decoder_of
from kadence_spark.decode.inference import decoded_ddl
from kadence_spark.decode.layout import layout_of
from kadence_spark.lakehouse import options as lakehouse
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.reading import parse as pipeline_of
from kadence_spark.sink import options as sink
from kadence_spark.source import options as source
from kadence_spark.source.java_regex import compiled
from kadence_spark.source.schema import COLUMNS, projection
from kadence_spark.source.start import Subscription, check_existence
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
