"""What Protobuf's messages are in columns: what Google's library gives; and odd schemas, which raise nothing raw."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.registry.registry_server import RegistryServer

from kadence import ConfigError, SerializationError
from kadence.errors import SchemaNotFoundError
from kadence_schemas import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
)
from kadence_schemas.columns.protobuf import ProtobufFormat, arrow_of_message
from kadence_schemas.descriptors import Messages
from kadence_schemas.framing import head_of
from kadence_schemas.settings import RegistryOptions
from kadence_testing.schema_registry import SchemaRegistryServer

FIELD = descriptor_pb2.FieldDescriptorProto
OPTIONAL, REPEATED = FIELD.LABEL_OPTIONAL, FIELD.LABEL_REPEATED


def closed() -> Any:
    """A message of proto2 with an enum alone, in a list, a map, a oneof and in another message."""
    file = descriptor_pb2.FileDescriptorProto(name="side.proto", package="p", syntax="proto2")
    side = file.enum_type.add(name="Side")
    for number, name in enumerate(("NONE", "BUY", "SELL")):
        side.value.add(name=name, number=number)
    made = file.message_type.add(name="M")
    enum: Any = {"type": FIELD.TYPE_ENUM, "type_name": ".p.Side"}
    made.field.add(name="one", number=1, label=OPTIONAL, **enum)
    made.field.add(name="many", number=2, label=REPEATED, **enum)
    entry = made.nested_type.add(name="NamedEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=OPTIONAL, type=FIELD.TYPE_STRING)
    entry.field.add(name="value", number=2, label=OPTIONAL, **enum)
    made.field.add(
        name="named", number=3, label=REPEATED, type=FIELD.TYPE_MESSAGE, type_name=".p.M.NamedEntry"
    )
    inner = made.nested_type.add(name="Inner")
    inner.field.add(name="side", number=1, label=OPTIONAL, **enum)
    made.field.add(name="inner", number=4, label=OPTIONAL, type=FIELD.TYPE_MESSAGE, type_name=".p.M.Inner")
    made.field.add(name="inners", number=5, label=REPEATED, type=FIELD.TYPE_MESSAGE, type_name=".p.M.Inner")
    made.oneof_decl.add(name="choice")
    made.field.add(name="chosen", number=6, label=OPTIONAL, oneof_index=0, **enum)
    return Messages([file]).named("p.M")


def plain(message: Any) -> dict[str, Any]:
    """What Google's library gives, as columns have it."""

    def name(field: Any, number: int) -> str:
        return str(field.enum_type.values_by_number[number].name)

    kinds = message.DESCRIPTOR.fields_by_name
    side = kinds["one"]
    return {
        "one": name(side, message.one) if message.HasField("one") else None,
        "many": [name(side, each) for each in message.many],
        "named": sorted((key, name(side, each)) for key, each in message.named.items()),
        "inner": {"side": name(side, message.inner.side) if message.inner.HasField("side") else None}
        if message.HasField("inner")
        else None,
        "inners": [
            {"side": name(side, each.side) if each.HasField("side") else None} for each in message.inners
        ],
        "chosen": name(side, message.chosen) if message.HasField("chosen") else None,
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08\x01",
        b"\x08\x07",
        b"\x08\x02\x08\x07",
        b"\x10\x01\x10\x09\x10\x02",
        b"\x12\x03\x01\x09\x02",
        b"\x1a\x05\x0a\x01k\x10\x09\x1a\x05\x0a\x01l\x10\x02",
        b"\x22\x02\x08\x09",
        b"\x2a\x02\x08\x09\x2a\x02\x08\x01",
        b"\x30\x09",
        b"\x30\x01",
    ],
)
def test_a_number_that_a_closed_enum_does_not_have_is_not_set(data: bytes) -> None:
    message = closed()
    made = ProtobufFormat(message, arrow_of_message(message)).decode(
        pa.array([b"\x08\x01", data], pa.binary())
    )
    assert not made.bad
    row = made.column[1].as_py()
    assert {**row, "named": sorted(row["named"])} == plain(
        message_factory.GetMessageClass(message).FromString(data)
    )


def with_times() -> Any:
    """A message with a duration and a timestamp, plain, repeated, in a map and in another message."""
    needs = ["google/protobuf/duration.proto", "google/protobuf/timestamp.proto"]
    file = descriptor_pb2.FileDescriptorProto(
        name="times.proto", package="p", syntax="proto3", dependency=needs
    )
    inner, outer = file.message_type.add(name="Inner"), file.message_type.add(name="Outer")
    entry = outer.nested_type.add(name="NamedEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=OPTIONAL, type=FIELD.TYPE_STRING)
    duration: dict[str, Any] = {"type": FIELD.TYPE_MESSAGE, "type_name": ".google.protobuf.Duration"}
    timestamp = {**duration, "type_name": ".google.protobuf.Timestamp"}
    entry.field.add(name="value", number=2, label=OPTIONAL, **duration)
    inner.field.add(name="took", number=1, label=OPTIONAL, **duration)
    outer.field.add(name="took", number=1, label=OPTIONAL, **duration)
    outer.field.add(name="at", number=2, label=OPTIONAL, **timestamp)
    outer.field.add(name="many", number=3, label=FIELD.LABEL_REPEATED, **duration)
    outer.field.add(
        name="named",
        number=4,
        label=FIELD.LABEL_REPEATED,
        type=FIELD.TYPE_MESSAGE,
        type_name=".p.Outer.NamedEntry",
    )
    outer.field.add(name="inner", number=5, label=OPTIONAL, type=FIELD.TYPE_MESSAGE, type_name=".p.Inner")
    return Messages([file]).named("p.Outer")


FAR_S = 20_000_000_000
"""634 years: as nanoseconds they have more than 64 bits. Google's longest duration is 10,000 years."""


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("where", ["took", "at", "many", "named", "inner"])
def test_a_time_that_does_not_fit_is_bad_and_not_another_one(where: str, sign: int) -> None:
    """ptars would make it the nearest one that fits."""
    message = with_times()
    made = message_factory.GetMessageClass(message)()
    good = made.SerializeToString()
    times = {
        "took": lambda: made.took,
        "at": lambda: made.at,
        "many": made.many.add,
        "named": lambda: made.named["k"],
        "inner": lambda: made.inner.took,
    }
    times[where]().seconds = sign * (10**15 if where == "at" else FAR_S)
    values = pa.array([good, made.SerializeToString(), good], pa.binary())
    decoded = ProtobufFormat(message, arrow_of_message(message)).decode(values)
    kind = "timestamp[us, tz=UTC]" if where == "at" else "duration[ns]"
    assert decoded.bad == {1: f"a time does not fit into {kind}"}
    assert [row is None for row in decoded.column.to_pylist()] == [False, True, False]


def test_times_that_fit_are_exact() -> None:
    message = with_times()
    made = message_factory.GetMessageClass(message)()
    made.took.seconds, made.took.nanos = 9_000_000_000, 1
    made.at.seconds = FAR_S
    values = pa.array([made.SerializeToString()], pa.binary())
    decoded = ProtobufFormat(message, arrow_of_message(message)).decode(values)
    assert not decoded.bad
    took, at = (decoded.column.field(place).cast(pa.int64())[0].as_py() for place in range(2))
    assert (took, at) == (9_000_000_000_000_000_001, FAR_S * 1_000_000)


def test_an_open_enum_has_the_text_of_the_number() -> None:
    """As Protobuf's JSON."""
    file = descriptor_pb2.FileDescriptorProto(name="side.proto", package="p", syntax="proto3")
    file.enum_type.add(name="Side").value.add(name="NONE", number=0)
    file.message_type.add(name="M").field.add(
        name="one", number=1, label=OPTIONAL, type=FIELD.TYPE_ENUM, type_name=".p.Side"
    )
    message = Messages([file]).named("p.M")
    made = ProtobufFormat(message, arrow_of_message(message)).decode(pa.array([b"\x08\x07"], pa.binary()))
    assert made.column.to_pylist() == [{"one": "7"}]


# ---------------------------------------------------------------- odd schemas


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as registry:
        yield registry


_NAMES = st.sampled_from(["", "a", "A", "b", "a.b", "1", "ü", "x" * 300, "value", "Inner"])
_NUMBERS = st.sampled_from([-1, 0, 1, 2, 2**29 - 1, 2**29, 19_000])


def _names() -> Any:
    """Names that are hardly ever the same, and now and then odd ones."""
    good = st.integers(1, 2_000).map(lambda number: f"n{number}")
    return st.integers(0, 14).flatmap(lambda chance: good if chance else _NAMES)


def _seldom(odd: Any, good: Any) -> Any:
    return st.integers(0, 9).flatmap(lambda chance: st.just(good) if chance else odd)


@st.composite
def _fields(draw: st.DrawFn) -> Any:
    if draw(st.integers(0, 9)):
        # Most are good alone, or hardly any file would be.
        number = draw(st.integers(1, 2_000))
        kind = draw(st.sampled_from([1, 3, 4, 8, 9, 12, 18]))
        return FIELD(name=f"f{number}", number=number, type=kind, label=draw(st.sampled_from([1, 3])))
    made = descriptor_pb2.FieldDescriptorProto(name=draw(_NAMES), number=draw(_NUMBERS))
    if draw(st.booleans()):
        made.type = draw(st.integers(1, 18))
    if draw(st.integers(0, 3)):
        made.label = draw(st.integers(1, 3))
    if draw(st.booleans()):
        made.type_name = draw(
            st.sampled_from(
                [".a", ".a.Inner", "A", ".google.protobuf.Timestamp", ".google.type.Date", ".none", ""]
            )
        )
    if not draw(st.integers(0, 3)):
        made.default_value = draw(st.sampled_from(["", "x", "1", "\\0"]))
    if not draw(st.integers(0, 3)):
        made.oneof_index = draw(st.integers(-1, 2))
    return made


@st.composite
def _messages(draw: st.DrawFn, depth: int = 2) -> Any:
    made = descriptor_pb2.DescriptorProto(name=draw(_names()), field=draw(st.lists(_fields(), max_size=4)))
    if depth:
        made.nested_type.extend(draw(st.lists(_messages(depth - 1), max_size=2)))
    if not draw(st.integers(0, 9)):
        made.options.map_entry = True
    if not draw(st.integers(0, 9)):
        made.oneof_decl.add(name=draw(_names()))
    for _ in range(draw(_seldom(st.just(1), 0))):
        side = made.enum_type.add(name=draw(_names()))
        for _ in range(draw(st.integers(0, 2)) if not draw(st.integers(0, 4)) else 0):
            side.value.add(name=draw(_names()), number=draw(st.integers(-1, 2)))
    return made


_DEPENDENCIES = st.sampled_from(
    ["google/protobuf/timestamp.proto", "google/type/date.proto", "google/type/none.proto", "x"]
)


@st.composite
def _files(draw: st.DrawFn) -> str:
    if not draw(st.integers(0, 9)):
        return draw(st.sampled_from(["", "%", "AAAA", 'syntax = "proto3";']))
    made = descriptor_pb2.FileDescriptorProto(
        name=draw(_names()),
        package=draw(st.sampled_from(["", "a", "a.b"])),
        syntax=draw(_seldom(st.sampled_from(["", "proto2", "proto9"]), "proto3")),
        message_type=draw(st.lists(_messages(), max_size=3)),
        dependency=draw(_seldom(st.lists(_DEPENDENCIES, max_size=2, unique=True), [])),
    )
    return base64.b64encode(made.SerializeToString()).decode()


_JSON_KEYS = st.sampled_from(
    [
        "type",
        "$ref",
        "$id",
        "id",
        "$schema",
        "properties",
        "items",
        "pattern",
        "enum",
        "anyOf",
        "not",
        "$defs",
        "minimum",
    ]
)
_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.sampled_from(
            [
                "",
                "string",
                "#",
                "#/$defs/a",
                "x.json",
                "http://[",
                "urn:x",
                "http://json-schema.org/draft-04/schema#",
                "(",
            ]
        ),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_JSON_KEYS, inner, max_size=4)),
    max_leaves=8,
)


def _reads_in_our_words(
    registry: RegistryServer, kind: str, schema: str, data: bytes, *readers: Callable[..., Any]
) -> None:
    """Records and columns: a value, or an error of ours that makes the record bad."""
    registry.schemas = {1: {"schema": schema, "schemaType": kind}}
    client = SchemaRegistryClient._of(RegistryOptions((registry.url,), retries=0), lambda _: None)
    for reader in readers:
        deserializer = reader(client)
        try:
            deserializer.deserialize("t", (), head_of(1) + data)
        except (SerializationError, ConfigError, SchemaNotFoundError):
            pass
        if hasattr(deserializer, "columns"):
            made = deserializer.columns().decode(pa.array([head_of(1) + data, None], pa.binary()))
            assert len(made.column) == 2


@examples(30)
@given(_files(), st.binary(max_size=12), st.sampled_from([b"\0", b"", b"\2\2", b"\4\0\0", b"\2\x0c"]))
def test_odd_protobuf_is_refused_in_our_own_words(
    registry: RegistryServer, schema: str, data: bytes, place: bytes
) -> None:
    _reads_in_our_words(registry, "PROTOBUF", schema, place + data, ProtobufDeserializer)


@examples(30)
@given(_JSON, st.one_of(_JSON.map(lambda value: json.dumps(value).encode()), st.binary(max_size=8)))
def test_odd_json_schemas_are_refused_in_our_own_words(
    registry: RegistryServer, schema: Any, data: bytes
) -> None:
    pytest.importorskip("jsonschema")
    _reads_in_our_words(registry, "JSON", json.dumps(schema), data, JsonSchemaDeserializer)


@examples(15)
@given(_JSON, st.binary(max_size=8))
def test_schemas_of_another_kind_are_refused_in_our_own_words(
    registry: RegistryServer, schema: Any, data: bytes
) -> None:
    _reads_in_our_words(registry, "AVRO", json.dumps(schema), data, AvroDeserializer, ProtobufDeserializer)


# ---------------------------------------------------------------- references of JSON Schema


@pytest.mark.parametrize(
    ("root", "reference"),
    [
        ({"$id": "http://shop.example/price.json"}, "money.json"),
        ({"$id": "http://shop.example/prices/price.json"}, "../money.json"),
        (
            {"id": "http://shop.example/price.json", "$schema": "http://json-schema.org/draft-04/schema#"},
            "money.json",
        ),
        ({"$id": "price.json"}, "money.json"),
        ({}, "money.json"),
        ({"$id": "http://shop.example/price.json"}, "http://other.example/money.json"),
    ],
)
@pytest.mark.parametrize("fragment", ["", "#/definitions/cents"])
@pytest.mark.parametrize("own", [None, "http://elsewhere.example/cents.json"])
def test_a_reference_is_resolved_beside_the_schemas_own_address(
    root: dict[str, Any], reference: str, fragment: str, own: str | None
) -> None:
    """As Java does: the name of a reference is resolved against the root's ``$id``, too."""
    pytest.importorskip("jsonschema")
    cents = {"type": "integer"}
    money = {**cents, "definitions": {"cents": cents}} | ({} if own is None else {"$id": own})
    price = {**root, "type": "object", "properties": {"net": {"$ref": reference + fragment}}}
    with SchemaRegistryServer() as server:
        server.add("money", json.dumps(money), "JSON")
        client = SchemaRegistryClient(server.url, max_retries=0)
        schema = Schema(json.dumps(price), "JSON", (SchemaReference(reference, "money", 1),))
        serializer = JsonSchemaSerializer(client, schema)
        data = serializer.serialize("t", [], {"net": 5})
        assert JsonSchemaDeserializer(client).deserialize("t", (), data) == {"net": 5}
        with pytest.raises(SerializationError, match="'type' fails"):
            serializer.serialize("t", [], {"net": "x"})


def test_a_reference_that_leads_nowhere_is_named() -> None:
    pytest.importorskip("jsonschema")
    schema = json.dumps({"$id": "http://shop.example/a.json", "properties": {"net": {"$ref": "money.json"}}})
    with SchemaRegistryServer() as server:
        serializer = JsonSchemaSerializer(SchemaRegistryClient(server.url), schema)
        with pytest.raises(SerializationError, match=r"its \$ref 'money.json' leads nowhere"):
            serializer.serialize("t", [], {"net": 5})
