"""`read` and `read_batches` on the embedded broker: what is in the table, and what is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import PATIENCE, overdue
from tests.registry.cases import record
from tests.registry.registry_server import RegistryServer

from kadence import (
    Admin,
    Broker,
    ConfigError,
    KafkaTimeoutError,
    MissingDependencyError,
    Producer,
    RecordDeserializationError,
    TopicPartition,
    read,
    read_batches,
)
from kadence.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kadence.protocol.fetch import FetchRequest
from kadence.reading import places, tables
from kadence_schemas import AvroDeserializer, AvroSerializer, SchemaRegistryClient
from kadence_testing.kafka import NO_EXPIRY


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    # Some tests write records of years ago, which the retention would delete after some minutes.
    with Broker(topics={"none": 2, "t": 2, "grows": 2, "newest": 2}, config=NO_EXPIRY) as broker:
        write(broker, "t", *(b"%d" % number for number in range(10)))
        yield broker


def write(broker: Broker, topic: str, *values: bytes | None, partitions: int = 2, **more: Any) -> None:
    """Value number N goes to partition N modulo their number, with the key kN."""
    with Producer(bootstrap_servers=broker.bootstrap_servers, **more) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, b"k%d" % number, partition=number % partitions)


def servers(broker: Broker) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers}


def values(table: pa.Table) -> list[Any]:
    return sorted(table["value"].to_pylist(), key=repr)


def test_a_topic_as_a_table(broker: Broker) -> None:
    table = read("t", **servers(broker))
    assert table.column_names == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]
    assert values(table) == [b"%d" % number for number in range(10)]
    for partition in (0, 1):
        rows = [row for row in table.to_pylist() if row["partition"] == partition]
        assert [row["offset"] for row in rows] == list(range(5))
        assert [row["key"] for row in rows] == [b"k%d" % (2 * n + partition) for n in range(5)]
    assert len(table.to_pandas()) == 10


def test_columns_kinds_partitions_and_keys(broker: Broker) -> None:
    table = read(
        "t", columns=["offset", "value"], key="text", value="text", partitions=[1], **servers(broker)
    )
    assert table.to_pydict() == {"offset": [0, 1, 2, 3, 4], "value": ["1", "3", "5", "7", "9"]}
    table = read("t", columns=["value"], keys=["k3", b"k4", "k99"], **servers(broker))
    assert values(table) == [b"3", b"4"]
    assert values(read("t", keys="k5", value="json", **servers(broker))) == [5]
    table = read("t", key="text", columns=["key", "headers"], keys="k0", **servers(broker))
    assert table.to_pylist() == [{"key": "k0", "headers": None}]


def test_partitions_are_whatever_counts(broker: Broker) -> None:
    """As a column of pandas has them."""

    class Number:
        def __index__(self) -> int:
            return 1

    partitions: Any = [Number()]
    assert read("t", partitions=partitions, **servers(broker)).num_rows == 5


def test_a_topic_without_records_has_the_columns(broker: Broker) -> None:
    table = read("none", value="text", columns=["value", "partition"], errors="null", **servers(broker))
    assert table.num_rows == 0
    assert table.schema == pa.schema(
        [("value", pa.string()), ("partition", pa.int32()), ("error", pa.string())]
    )
    assert read("none", value="json", **servers(broker)).schema.field("value").type == pa.null()
    assert list(read_batches("none", **servers(broker))) == []


def test_several_topics(broker: Broker) -> None:
    write(broker, "other", b"x")
    table = read(["t", "other", "none"], value="text", **servers(broker))
    assert set(table["topic"].to_pylist()) == {"t", "other"}
    assert table.num_rows == 11
    table = read(["t", "other"], {("t", 0): 4, ("t", 1): 5}, {("other", 0): 0}, **servers(broker))
    assert values(table) == [b"8"]


def test_ranges_by_offset_and_by_time(broker: Broker) -> None:
    at = 1_714_564_800_000
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(6):
            producer.send("timed", b"%d" % number, timestamp=at + number * 1000, partition=0).result(PATIENCE)
    second = datetime.fromtimestamp(at / 1000 + 1, UTC)
    for since, until, expected in (
        (second, None, [1, 2, 3, 4, 5]),
        (second.isoformat(), datetime.fromtimestamp(at / 1000 + 3, UTC), [1, 2]),
        ("earliest", second, [0]),
        ("latest", None, []),
        ("-1h", None, []),
        ({0: 4}, "latest", [4, 5]),
        ({0: 2}, {0: 4}, [2, 3]),
        ({0: 5}, {0: 2}, []),
        ({0: 2}, {0: 400}, [2, 3, 4, 5]),
        ({0: 77}, None, []),
    ):
        table = read("timed", since, until, value="json", **servers(broker))
        assert table["value"].to_pylist() == expected, (since, until)


def test_records_that_come_while_it_reads_are_not_in_it(broker: Broker) -> None:
    write(broker, "grows", *[b"x"] * 4)
    found = 0
    for table in read_batches("grows", max_poll_arrow_bytes=1, **servers(broker)):
        found += table.num_rows
        write(broker, "grows", b"later", b"later")
    assert found == 4


def test_aborted_and_open_transactions(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer:
        producer.init_transactions()
        for number in range(20):
            producer.begin_transaction()
            producer.send("atomic", b"%d" % number, partition=0).result(PATIENCE)
            producer.commit_transaction() if number % 4 == 0 else producer.abort_transaction()
        producer.begin_transaction()
        producer.send("atomic", b"open", partition=0).result(PATIENCE)
        assert values(read("atomic", value="json", **servers(broker))) == sorted([0, 4, 8, 12, 16], key=repr)
        table = read("atomic", isolation_level="read_uncommitted", **servers(broker))
        assert table.num_rows == 21
        # Only aborted records, and the markers behind them.
        assert read("atomic", {0: 2}, {0: 8}, **servers(broker)).num_rows == 0
        producer.abort_transaction()


def test_a_range_whose_beginning_was_deleted(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    write(broker, "deleted", *[b"%d" % number for number in range(6)], partitions=1)

    # Retention is faster than the reading that has looked the range up.
    def planned(*given: Any) -> Any:
        ranges = places.planned(*given)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.delete_records({TopicPartition("deleted", 0): before.pop()})
        return ranges

    monkeypatch.setattr(tables, "planned", planned)
    before: list[Any] = [6, 4]
    with pytest.raises(
        OffsetOutOfRangeError, match=r"offset 0 of deleted-0 .* auto_offset_reset='earliest'"
    ) as gone:
        read("deleted", value="json", **servers(broker))
    assert (gone.value.partition, gone.value.position) == (TopicPartition("deleted", 0), 0)
    before.append(5)
    with pytest.raises(OffsetOutOfRangeError, match="offset 4 "):
        list(read_batches("deleted", limit=2, **servers(broker)))
    left = read("deleted", value="json", auto_offset_reset="earliest", **servers(broker))
    assert left["value"].to_pylist() == []
    monkeypatch.undo()
    assert read("deleted", {0: 1}, **servers(broker)).num_rows == 0


def test_json_whose_fields_change_from_table_to_table(broker: Broker) -> None:
    documents = [b'{"a": 1}', None, b'{"a": 2.5, "b": "x"}', b'{"b": {"c": 1}}', b'{"a": 1}']
    write(broker, "json", *documents, partitions=1)
    table = read("json", value="json", max_poll_arrow_bytes=1, **servers(broker))
    assert table["value"].to_pylist() == [
        {"a": 1.0, "b": None},
        None,
        {"a": 2.5, "b": "x"},
        {"a": None, "b": '{"c":1}'},
        {"a": 1.0, "b": None},
    ]
    assert table.flatten().column_names[1:3] == ["value.a", "value.b"]


def test_bad_records(broker: Broker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for key, value in ((b"a", b"1"), (b"\xff", b"{"), (b"c", None), (b"\xff", b"4")):
            producer.send("bad", value, key, partition=0)
    with pytest.raises(
        RecordDeserializationError, match=r"the value of bad-0 at offset 1 is bad \(not JSON"
    ) as caught:
        read("bad", value="json", **servers(broker))
    assert (caught.value.partition, caught.value.offset, caught.value.field) == (("bad", 0), 1, "value")
    table = read("bad", key="text", value="json", errors="null", columns=["key", "value"], **servers(broker))
    assert table["key"].to_pylist() == ["a", None, "c", None]
    assert table["value"].to_pylist() == [1, None, None, 4]
    first, second, third, fourth = table["error"].to_pylist()
    assert (first, third, fourth) == (None, None, "key: not UTF-8: byte 0")
    assert second.startswith("key: not UTF-8: byte 0; value: not JSON")
    # A bad record that is not asked for is none.
    assert values(read("bad", value="json", keys=["a", "c"], **servers(broker))) == [1, None]
    assert read("bad", value="json", columns=["key"], **servers(broker)).num_rows == 4


def test_a_schema(broker: Broker) -> None:
    documents = [b'{"delay": 1, "from": {"city": "Oslo"}}', b'{"delay": "NA", "from": {"city": "Lima"}}']
    write(broker, "schema", *documents, partitions=1)
    given: dict[str, Any] = servers(broker) | {"value": "json", "schema": {"delay": "double"}}
    with pytest.raises(RecordDeserializationError, match="field delay: a text where double is expected"):
        read("schema", **given)
    table = read("schema", errors="null", columns=["value"], **given)
    assert table["value"].to_pylist() == [{"delay": 1.0}, {"delay": None}]
    assert table["error"].to_pylist() == [None, "value: field delay: a text where double is expected"]
    assert read("none", **given).schema.field("value").type == pa.struct([("delay", pa.float64())])
    # An odd field that is not asked for is none.
    given["schema"] = {"delay": "double", "from": {"city": str}}
    table = read("schema", columns=["offset", "from.city"], **given)
    assert table.to_pydict() == {"offset": [0, 1], "from.city": ["Oslo", "Lima"]}
    assert table.schema.field("from.city").type == pa.string()


def test_single_fields(broker: Broker) -> None:
    documents = [b'{"a": 1, "offset": 7}', None, b'{"a": 2.5, "b": {"c": "x"}}', b'{"d": 1}']
    write(broker, "fields", *documents, partitions=1)
    given: dict[str, Any] = servers(broker) | {"value": "json", "max_poll_arrow_bytes": 1}
    names = ["a", "offset", "value.offset", "b.c"]
    table = read("fields", columns=names, **given)
    assert table.column_names == names
    assert table["a"].to_pylist() == [1.0, None, 2.5, None]
    assert table["value.offset"].to_pylist() == [7, None, None, None]
    assert table["b.c"].to_pylist() == [None, None, "x", None]
    assert table["offset"].to_pylist() == [0, 1, 2, 3]
    table = read("fields", columns=["b", "value"], **given)
    assert table["b"].to_pylist() == [None, None, {"c": "x"}, None]
    assert read("none", columns=["a"], **given).num_rows == 0
    with pytest.raises(ValueError, match="no value has a field 'c'; there are: a, offset, b, d"):
        read("fields", columns=["c"], **given)


def test_the_newest_records(broker: Broker) -> None:
    at = 1_714_564_800_000
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(300):
            # Partition 1 has been quiet for long.
            partition = 1 if number < 100 else 0
            producer.send(
                "newest", b"%d" % number, b"k%d" % (number % 2), timestamp=at + number, partition=partition
            )
    given: dict[str, Any] = servers(broker) | {"value": "json"}
    assert read("newest", limit=120, **given)["value"].to_pylist() == [*range(180, 300)]
    found = read("newest", limit=120, columns=["value"], keys="k0", **given)
    assert sorted(found["value"].to_pylist()) == [*range(60, 300, 2)]
    assert read("newest", until={0: 50}, limit=2, partitions=[0], **given)["value"].to_pylist() == [148, 149]
    assert read("newest", limit=1_000, **given).num_rows == 300
    assert read("none", limit=5, **given).num_rows == 0
    found = [table.num_rows for table in read_batches("newest", limit=7, max_poll_arrow_bytes=1, **given)]
    assert sum(found) == 7
    assert read("newest", since="-3", partitions=[1], **given)["value"].to_pylist() == [97, 98, 99]
    assert read("newest", since="99", partitions=[1], **given)["value"].to_pylist() == [99]


def test_the_brokers_of_the_environment(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KADENCE_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    assert read("t").num_rows == 10
    overdue(
        lambda seconds: read(
            "t", bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=int(seconds * 1000)
        ),
        KafkaTimeoutError,
        match=r"127\.0\.0\.1:1",
    )


def test_that_no_broker_can_be_reached_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not after default.api.timeout.ms, which is a minute."""
    monkeypatch.setattr(tables, "REACHED_S", 2.0)
    with pytest.raises(
        KafkaTimeoutError, match=r"127.0.0.1:1.*refused; name brokers with bootstrap_servers="
    ):
        read("t", bootstrap_servers="127.0.0.1:1")


def test_avro(broker: Broker, registry: RegistryServer) -> None:
    client = SchemaRegistryClient(registry.url)
    old = AvroSerializer(client, record("Order", ("id", "int")))
    new = AvroSerializer(client, record("Order", ("id", "long"), ("note", "string")))
    made = [
        old.serialize("avro", (), {"id": 1}),
        None,
        new.serialize("avro", (), {"id": 2, "note": "x"}),
        b"what?",
    ]
    write(broker, "avro", *made, partitions=1)
    given: dict[str, Any] = servers(broker) | {"value": "avro", "max_poll_arrow_bytes": 1, "errors": "null"}
    table = read("avro", schema_registry_url=registry.url, **given)
    rows = [{"id": 1, "note": None}, None, {"id": 2, "note": "x"}, None]
    assert table["value"].to_pylist() == rows
    assert [reason is None for reason in table["error"].to_pylist()] == [True, True, True, False]
    reader = AvroDeserializer(client, record("Order", ("id", "double")))
    table = read("avro", value_deserializer=reader, **given)
    assert table["value"].to_pylist() == [{"id": 1.0}, None, {"id": 2.0}, None]
    table = read("avro", schema_registry_url=registry.url, columns=["id", "note", "partition"], **given)
    assert table.select(["id", "note"]).to_pydict() == {
        "id": [1, None, 2, None],
        "note": [None, None, "x", None],
    }


def test_it_ends_when_no_broker_sends_anything() -> None:
    with Broker(topics={"t": 1}) as broker:
        write(broker, "t", b"1", b"2", partitions=1)
        with broker.faults.drop(FetchRequest):
            overdue(
                lambda seconds: read(
                    "t",
                    default_api_timeout_ms=int(seconds * 1000),
                    request_timeout_ms=int(seconds * 800),
                    **servers(broker),
                ),
                KafkaTimeoutError,
                match=r"of t-0 nothing came for [\d.]+ s \(default.api.timeout.ms\)",
            )
    with pytest.raises(KafkaTimeoutError):
        read("t", bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=200)


def test_an_iterator_that_is_left_closes_its_consumer(broker: Broker) -> None:
    batches = read_batches("t", max_poll_arrow_bytes=1, **servers(broker))
    assert next(batches).num_rows
    batches.close()  # type: ignore[attr-defined]
    assert list(batches) == []
    # One that nobody asked has none.
    read_batches("t", bootstrap_servers="127.0.0.1:1")


@pytest.mark.parametrize(
    ("given", "kind", "complaint"),
    [
        ({"group_id": "g"}, ConfigError, "joins no group"),
        ({"group.id": "g"}, ConfigError, "joins no group"),
        (
            {"value": "xml"},
            ValueError,
            "value is one of 'bytes', 'text', 'json', 'avro', 'protobuf'; not 'xml'",
        ),
        ({"key": "json"}, ValueError, "key is one of 'bytes', 'text'; not 'json'"),
        ({"errors": "skip"}, ValueError, "'raise' or 'null'"),
        ({"columns": ["valu"]}, ValueError, "no column 'valu'"),
        ({"partitions": 0}, TypeError, r"such as \[0, 2\], not 0"),
        ({"partitions": ["0"]}, TypeError, r"such as \[0, 2\]"),
        ({"keys": [7]}, TypeError, "texts or bytes, not 7"),
        ({"since": "-1h", "until": "-2h"}, ValueError, "'-2h', is earlier than since, '-1h'"),
        ({"topics": []}, ValueError, "needs a topic"),
        (
            {"valeu": "json"},
            ConfigError,
            "no 'valeu': did you mean 'value'\\? read\\(\\) itself has topics, since, until, ",
        ),
        ({"rows": 10}, ConfigError, "unknown consumer .* 'rows'.* itself has .*, limit, errors, progress"),
        ({"max_records": 10}, ConfigError, "itself has topics"),
        ({"limit": 0}, ValueError, "limit is a number of records, at least 1, not 0"),
        ({"limit": "10"}, ValueError, "limit is a number"),
        ({"schema": {"a": int}}, ValueError, "schema is for value='json', not for value='bytes'"),
        ({"schema": {"a": "what"}, "value": "json"}, ValueError, "schema of a is a schema of pyarrow"),
        (
            {"schema": {"a": int}, "value": "json", "columns": ["b"]},
            ValueError,
            "the schema has no field 'b'",
        ),
        ({"columns": ["a", "a"], "value": "json"}, ValueError, "'a'"),
        ({"columns": [], "value": "json"}, ValueError, "columns is empty"),
        (
            {"columns": ["error"], "value": "json", "errors": "null"},
            ValueError,
            "name the field 'value.error'",
        ),
        ({"value": "avro"}, ConfigError, "schema_registry_url"),
        ({"value": "avro", "value_deserializer": int}, ConfigError, "of this format"),
        ({"value_deserializer": int}, ConfigError, "it is not called"),
        ({"key_deserializer": int}, ConfigError, "decodes keys by"),
        ({"deserialization_errors": "skip"}, ConfigError, "errors='null'"),
    ],
)
def test_arguments_that_are_not_allowed(given: Any, kind: type[Exception], complaint: str) -> None:
    for call in (read, read_batches):
        with pytest.raises(kind, match=complaint):
            call(**{"topics": "t", "bootstrap_servers": "127.0.0.1:1", **given})


def test_what_does_not_exist(broker: Broker) -> None:
    for given, complaint in (
        ({"topics": "nix"}, "topic 'nix' does not exist"),
        ({"topics": "t", "partitions": [0, 2]}, "topic 't' has no partition 2; it has 0 to 1"),
    ):
        with pytest.raises(UnknownTopicOrPartitionError, match=complaint):
            read(**{**given, **servers(broker)})
    with pytest.raises(ValueError, match="since: 5 is not a partition that is read"):
        read("t", {5: 0}, **servers(broker))
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "nix" not in admin.list_topics()


def test_without_pyarrow_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingDependencyError, match=r"read\(\) needs pyarrow: pip install 'kadence\[arrow\]'"
    ):
        read("t", bootstrap_servers="127.0.0.1:1")
