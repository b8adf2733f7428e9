"""poll_arrow(value=...): values of a registry's schemas as typed columns, on the embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from tests.consumer.support import Shell
from tests.patience import PATIENCE, until
from tests.registry.cases import message_type, record
from tests.registry.registry_server import RegistryServer

from kadence import (
    AsyncConsumer,
    Broker,
    ConfigError,
    Consumer,
    DeadLetterError,
    NotFetchedReason,
    Producer,
    RecordDeserializationError,
    SchemaRegistryError,
    TopicPartition,
)
from kadence_schemas import (
    AvroDeserializer,
    AvroSerializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    SchemaRegistryClient,
)
from kadence_schemas.settings import RegistryOptions

OLD = record("Order", ("id", "int"), ("item", "string"))
NEW = record("Order", ("id", "long"), ("note", ["null", "string"]))
TORN = record("Order", ("id", "string"))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def client(registry: RegistryServer) -> SchemaRegistryClient:
    return SchemaRegistryClient._of(RegistryOptions((registry.url,), retries=0), lambda _: None)


def write(broker: Broker, topic: str, *values: bytes | None, partition: int = 0) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value, partition=partition)


def avro(client: SchemaRegistryClient, schema: str, **value: Any) -> bytes:
    return AvroSerializer(client, schema).serialize("orders", (), value)


def reading(
    broker: Broker, deserializer: Any, *partitions: tuple[str, int], **more: Any
) -> Consumer[Any, Any]:
    consumer: Consumer[Any, Any] = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=deserializer,
        **more,
    )
    consumer.assign(list(partitions))
    return consumer


def poll(consumer: Consumer[Any, Any], rows: int = 1, **more: Any) -> pa.Table:
    """Poll until that many rows have come."""
    found: list[pa.Table] = []

    def enough() -> bool:
        found.append(consumer.poll_arrow(0.1, value="avro", **more))
        return bool(sum(table.num_rows for table in found) >= rows)

    until(enough)
    return pa.concat_tables(found, promote_options="permissive")


def test_values_are_structs_of_all_schemas_so_far(broker: Broker, client: SchemaRegistryClient) -> None:
    write(broker, "grows", avro(client, OLD, id=1, item="a"), None)
    with reading(broker, AvroDeserializer(client), ("grows", 0)) as consumer:
        first = poll(consumer, 2)
        assert first.schema.field("value").type == pa.struct([("id", pa.int32()), ("item", pa.string())])
        assert first["value"].to_pylist() == [{"id": 1, "item": "a"}, None]
        assert first.column_names[:2] == ["key", "value"]
        assert first["offset"].to_pylist() == [0, 1]
        write(broker, "grows", avro(client, NEW, id=2, note="n"), avro(client, OLD, id=3, item="b"))
        second = poll(consumer, 2, columns=["value"])
        assert second.column_names == ["value"]
        assert second["value"].to_pylist() == [
            {"id": 2, "item": None, "note": "n"},
            {"id": 3, "item": "b", "note": None},
        ]
        assert second.schema.field("value").type.field("id").type == pa.int64()


def test_a_readers_schema_makes_one_type(broker: Broker, client: SchemaRegistryClient) -> None:
    reader = record("Order", ("id", "long"), ("item", ["null", "string"])).replace(
        '"type": ["null", "string"]', '"type": ["null", "string"], "default": null'
    )
    write(broker, "one", avro(client, OLD, id=1, item="a"), avro(client, NEW, id=2, note="n"))
    with reading(broker, AvroDeserializer(client, reader), ("one", 0)) as consumer:
        table = poll(consumer, 2, columns=["offset", "value"])
    assert table.schema.field("value").type == pa.struct([("id", pa.int64()), ("item", pa.string())])
    assert table["value"].to_pylist() == [{"id": 1, "item": "a"}, {"id": 2, "item": None}]


def test_bytes_are_as_they_are(broker: Broker, client: SchemaRegistryClient) -> None:
    """As `poll` returns them, and Confluent's serialisers write them: without Avro's length before them."""
    write(
        broker,
        "raw",
        *(AvroSerializer(client, '"bytes"').serialize("raw", (), each) for each in (b"", b"ab")),
    )
    for reader in (None, '"bytes"'):
        with reading(broker, AvroDeserializer(client, reader), ("raw", 0)) as consumer:
            table = poll(consumer, 2, columns=["value"])
        assert table.schema.field("value").type == pa.binary()
        assert table["value"].to_pylist() == [b"", b"ab"]


def test_protobuf(broker: Broker, client: SchemaRegistryClient) -> None:
    pytest.importorskip("ptars")
    unit = message_type("shop.Unit")
    write(broker, "proto", ProtobufSerializer(client, unit).serialize("proto", (), unit(name="EUR")))
    for deserializer in (ProtobufDeserializer(client), ProtobufDeserializer(client, unit)):
        with reading(broker, deserializer, ("proto", 0)) as consumer:
            table = consumer.poll_arrow(30, value="protobuf")
            assert table["value"].to_pylist() == [{"name": "EUR"}]


def test_messages_without_fields(client: SchemaRegistryClient) -> None:
    """Beside others in one topic, alone, and with what they do not have."""
    pytest.importorskip("ptars")
    empty, unit = message_type("shop.Other"), message_type("shop.Unit")
    nothing = ProtobufSerializer(client, empty).serialize("t", (), empty())
    something = ProtobufSerializer(client, unit).serialize("u", (), unit(name="EUR"))
    columns = ProtobufDeserializer[Any](client).columns()
    alone = columns.decode(pa.array([nothing, nothing + b"\x08\1", None], pa.binary()))
    assert (alone.column.to_pylist(), alone.bad) == ([{}, {}, None], {})
    mixed = columns.decode(pa.array([something, nothing, nothing], pa.binary()))
    assert (mixed.column.to_pylist(), mixed.bad) == ([{"name": "EUR"}, {"name": None}, {"name": None}], {})


def test_a_table_ends_before_the_first_bad_record_of_each_partition(
    broker: Broker, client: SchemaRegistryClient
) -> None:
    with Broker(topics={"bad": 2}) as own:
        good = [avro(client, OLD, id=number, item="x") for number in range(6)]
        write(own, "bad", good[0], good[1], b"plain text", good[2], partition=0)
        write(own, "bad", good[3], avro(client, TORN, id="text"), partition=1)
        seen: list[tuple[int, int]] = []
        refused: list[tuple[int, int]] = []
        stood: list[int] = []
        with reading(own, AvroDeserializer(client), ("bad", 0), ("bad", 1)) as consumer:

            def read() -> bool:
                try:
                    table = consumer.poll_arrow(0.1, value="avro")
                except RecordDeserializationError as error:
                    refused.append((error.partition.partition, error.offset))
                    stood.append(consumer.position(error.partition))
                    # It is raised until somebody goes on behind it.
                    if refused.count(refused[-1]) == 2:
                        consumer.seek(error.partition, error.offset + 1)
                else:
                    assert table["value"].null_count == 0
                    seen.extend(zip(*table.select(["partition", "offset"]).to_pydict().values(), strict=True))
                return len(seen) == 4 and len(refused) == 4

            until(read)
        assert [place for place in seen if place[0] == 0] == [(0, 0), (0, 1), (0, 3)]
        assert [place for place in seen if place[0] == 1] == [(1, 0)]
        assert sorted(refused) == [(0, 2), (0, 2), (1, 1), (1, 1)]
        assert stood == [offset for _, offset in refused]


def test_bad_rows_are_left_out_and_counted(broker: Broker, client: SchemaRegistryClient) -> None:
    good = avro(client, OLD, id=1, item="x")
    write(broker, "skipped", b"plain text", good, b"", good)
    with reading(broker, AvroDeserializer(client), ("skipped", 0), deserialization_errors="skip") as consumer:
        assert poll(consumer, 2)["offset"].to_pylist() == [1, 3]
        assert consumer.position(("skipped", 0)) == 4
        assert [value for name, value in consumer.metrics().items() if "skipped" in name.name] == [2]


def test_a_registry_that_is_away_costs_no_row(
    broker: Broker, registry: RegistryServer, client: SchemaRegistryClient
) -> None:
    write(broker, "away", avro(client, OLD, id=1, item="x"))
    registry.fixed = 500, b""
    with reading(broker, AvroDeserializer(client), ("away", 0), deserialization_errors="skip") as consumer:
        for _ in range(2):
            with pytest.raises(SchemaRegistryError):
                poll(consumer)
        registry.fixed = None
        assert poll(consumer)["value"].to_pylist() == [{"id": 1, "item": "x"}]


def test_asyncio(broker: Broker, client: SchemaRegistryClient) -> None:
    write(broker, "async", avro(client, OLD, id=1, item="x"))

    async def run() -> Any:
        consumer: AsyncConsumer[Any, Any] = AsyncConsumer(
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(client),
        )
        async with consumer:
            await consumer.assign([("async", 0)])
            return (await consumer.poll_arrow(30, value="avro"))["value"].to_pylist()

    assert asyncio.run(run()) == [{"id": 1, "item": "x"}]


def test_what_decodes_no_columns(broker: Broker, client: SchemaRegistryClient) -> None:
    others: tuple[Any, ...] = (
        None,
        JsonSchemaDeserializer(None, validate=False),
        ProtobufDeserializer[Any](client),
    )
    for deserializer in others:
        with (
            reading(broker, deserializer, ("t", 0)) as consumer,
            pytest.raises(ConfigError, match=r"poll_arrow\(value='avro'\) needs the value\.deserializer"),
        ):
            consumer.poll_arrow(value="avro")
    with reading(broker, AvroDeserializer(client), ("t", 0)) as consumer:
        assert consumer.poll_arrow(value="avro").num_rows == 0
        assert consumer.poll_arrow(value="avro", columns=["offset"]).column_names == ["offset"]


def test_rows_before_a_bad_one_are_not_taken_for_processed(
    broker: Broker, client: SchemaRegistryClient
) -> None:
    """Neither by the next automatic commit, nor where the loop ends by an exception."""
    write(broker, "proved", avro(client, OLD, id=1, item="x"), b"plain text")

    def work() -> None:
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="proved",
            auto_offset_reset="earliest",
            value_deserializer=AvroDeserializer(client),
        ) as consumer:
            consumer.subscribe("proved")
            until(lambda: consumer.poll_arrow(0.1, value="avro").num_rows == 1)
            assert consumer.position(("proved", 0)) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        work()
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="proved") as consumer:
        found = consumer.committed([("proved", 0)])[TopicPartition("proved", 0)]
        assert found is None or found.offset == 0


def test_bad_rows_are_dead_letters_as_those_of_a_poll(client: SchemaRegistryClient) -> None:
    good = [avro(client, OLD, id=number, item="x") for number in range(4)]
    with Broker(topics={"t": 2, "by-poll": 1, "as-arrow": 1}) as own:
        with Producer(bootstrap_servers=own.bootstrap_servers) as producer:
            for value in (good[0], b"plain text", good[1]):
                producer.send(
                    "t", value, b"key", partition=0, headers={"a": b"b"}, timestamp=1_700_000_000_123
                )
            for value in (b"", good[2], b"\0\0\0\0\1", good[3]):
                producer.send("t", value, partition=1)
        letters: dict[str, list[Any]] = {}
        for topic in ("by-poll", "as-arrow"):
            more = {"deserialization_errors": "dead-letter", "dead_letter_topic": topic}
            with reading(own, AvroDeserializer(client), ("t", 0), ("t", 1), **more) as consumer:
                found: list[int] = []

                def read(topic: str = topic, consumer: Any = consumer, found: list[int] = found) -> bool:
                    if topic == "by-poll":
                        found += [each.value["id"] for each in consumer.poll(0.1)]
                    else:
                        table = consumer.poll_arrow(0.1, value="avro", columns=["value"])
                        found += [each["id"] for each in table["value"].to_pylist()]
                    return len(found) == 4

                until(read)
                assert sorted(found) == [0, 1, 2, 3]
                assert [
                    v for name, v in consumer.metrics().items() if name.name == "records-dead-lettered-total"
                ] == [3]
            with Consumer(bootstrap_servers=own.bootstrap_servers, auto_offset_reset="earliest") as reader:
                reader.assign([(topic, 0)])
                letters[topic] = sorted(
                    ((each.value, each.key, dict(each.headers)) for each in (next(reader) for _ in range(3))),
                    key=repr,
                )
                assert not reader.poll(0.2)
        for each in (*letters["by-poll"], *letters["as-arrow"]):
            # What refused it has other words.
            del each[2]["kadence.error.message"]
        assert letters["as-arrow"] == letters["by-poll"]


def test_dead_letters_that_cannot_be_written_cost_no_row(
    broker: Broker, client: SchemaRegistryClient
) -> None:
    write(broker, "unwritten", b"plain text", avro(client, OLD, id=1, item="x"))
    more = {"deserialization_errors": "dead-letter", "dead_letter_topic": "no/such"}
    with reading(broker, AvroDeserializer(client), ("unwritten", 0), **more) as consumer:
        for _ in range(2):
            with pytest.raises(DeadLetterError, match="no/such"):
                poll(consumer)
        assert consumer.position(("unwritten", 0)) == 0
        assert why(consumer, "unwritten") == "offset 0: DeadLetterError, raised 2 times"


@pytest.mark.parametrize("read", ["poll", "poll_arrow"])
def test_the_rows_before_a_refused_letter_come_first(
    broker: Broker, client: SchemaRegistryClient, read: str
) -> None:
    topic = f"refused-{read}"
    write(broker, topic, avro(client, OLD, id=1, item="x"), b"plain text", avro(client, OLD, id=3, item="y"))
    more = {"deserialization_errors": "dead-letter", "dead_letter_topic": "no/such"}
    with reading(broker, AvroDeserializer(client), (topic, 0), **more) as consumer:

        def ids() -> list[int]:
            if read == "poll":
                return [each.value["id"] for each in consumer.poll(PATIENCE)]
            table = consumer.poll_arrow(PATIENCE, value="avro", columns=["value"])
            return [each["id"] for each in table["value"].to_pylist()]

        assert ids() == [1]
        for _ in range(2):
            with pytest.raises(DeadLetterError, match="no/such"):
                ids()
            assert consumer.position((topic, 0)) == 1
        consumer.seek((topic, 0), 2)
        assert ids() == [3]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_the_rows_before_a_schema_that_the_registry_withholds_come_first(
    broker: Broker, registry: RegistryServer, client: SchemaRegistryClient, errors: str, *, is_async: bool
) -> None:
    topic = f"withheld-{errors}-{is_async}"
    known, new = avro(client, OLD, id=1, item="x"), avro(client, NEW, id=2, note="y")
    write(broker, topic, known, known, new, known)
    # It has asked for none of them.
    fresh = SchemaRegistryClient._of(RegistryOptions((registry.url,), retries=0), lambda _: None)
    shell = Shell("asyncio" if is_async else "threads")
    consumer = shell.make(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(fresh),
        deserialization_errors=errors,
    )

    def offsets(most: int | None = None) -> list[int]:
        found: list[int] = shell.do(lambda: consumer.poll_arrow(PATIENCE, max_records=most, value="avro"))[
            "offset"
        ].to_pylist()
        return found

    shell.do(lambda: consumer.assign([(topic, 0)]))
    assert offsets(1) == [0]
    registry.fixed = 500, b""
    assert offsets() == [1]
    for _ in range(2):
        with pytest.raises(SchemaRegistryError):
            offsets()
    registry.fixed = None
    assert offsets() == [2, 3]
    shell.do(consumer.close)
    if shell.runner is not None:
        shell.runner.close()


def why(consumer: Any, topic: str) -> str | None:
    """Why `not_fetched` says that polls raise."""
    found = consumer.not_fetched().get(TopicPartition(topic, 0))
    return found.detail if found is not None and found.reason is NotFetchedReason.POLL_RAISES else None


def test_a_row_that_raises_with_each_poll_is_named(broker: Broker, client: SchemaRegistryClient) -> None:
    write(
        broker, "named", avro(client, OLD, id=1, item="x"), b"plain text", avro(client, OLD, id=3, item="y")
    )
    with reading(broker, AvroDeserializer(client), ("named", 0)) as consumer:
        assert poll(consumer)["offset"].to_pylist() == [0]
        assert why(consumer, "named") is None
        for times in ("once", "2 times", "3 times"):
            with pytest.raises(RecordDeserializationError):
                poll(consumer)
            assert why(consumer, "named") == f"offset 1: RecordDeserializationError, raised {times}"
        assert [value for name, value in consumer.metrics().items() if name.name == "polls-raised"] == [3]
        consumer.seek(("named", 0), 2)
        assert poll(consumer)["offset"].to_pylist() == [2]
        assert why(consumer, "named") is None


@pytest.mark.parametrize("is_async", [False, True])
def test_a_registry_that_is_away_is_why_nothing_comes(
    broker: Broker, registry: RegistryServer, client: SchemaRegistryClient, *, is_async: bool
) -> None:
    topic = f"why-{is_async}"
    write(broker, topic, avro(client, OLD, id=1, item="x"))
    registry.fixed = 500, b""
    shell = Shell("asyncio" if is_async else "threads")
    consumer = shell.make(
        bootstrap_servers=broker.bootstrap_servers,
        auto_offset_reset="earliest",
        value_deserializer=AvroDeserializer(client),
    )
    shell.do(lambda: consumer.assign([(topic, 0)]))
    for times in ("once", "2 times"):
        with pytest.raises(SchemaRegistryError):
            shell.do(lambda: consumer.poll_arrow(PATIENCE, value="avro"))
        assert why(consumer, topic) == f"offset 0: SchemaRegistryError, raised {times}"
    registry.fixed = None
    assert shell.do(lambda: consumer.poll_arrow(PATIENCE, value="avro")).num_rows == 1
    assert why(consumer, topic) is None
    shell.do(consumer.close)
    if shell.runner is not None:
        shell.runner.close()
