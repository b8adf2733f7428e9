"""Advice in errors about options and patterns: what is written by it is accepted. Without Spark.

Advice that needs a query is followed in the tests of the query.
"""

from __future__ import annotations

import pytest
from tests.spark.advice.rows import REGISTRY, SERVERS, Options, Row, follow

from kadence.errors import ConfigError
from kadence_spark.decode import options as decoding
from kadence_spark.lakehouse import options as lakehouse
from kadence_spark.sink import options as sink
from kadence_spark.source import options as source
from kadence_spark.source.java_regex import compiled
from kadence_spark.table import options_of_new_table


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
    follow(row, ConfigError)
