"""Protobuf: batches through ptars, judged by Google's own runtime."""

from __future__ import annotations

import base64
import re
import struct
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message, message_factory
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.luck import examples
from tests.registry.registry_server import RegistryServer

from kadence.columns.isolation import SMALL
from kadence.errors import ConfigError, MissingDependencyError
from kadence_schemas.columns.protobuf import ProtobufFormat, arrow_of_message
from kadence_schemas.descriptors import Messages
from kadence_spark.decode.formats import decoder_of
from kadence_spark.decode.inference import decoded_ddl
from kadence_spark.decode.options import DecodeOptions, parse
from kadence_spark.source.schema import COLUMNS

FIELD = descriptor_pb2.FieldDescriptorProto


def definitions() -> Any:
    """Two messages, one of them with another inside, as protoc would make of a .proto file."""
    file = descriptor_pb2.FileDescriptorProto(name="sale.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kinds = file.enum_type.add(name="Kind")
    kinds.value.add(name="NONE", number=0)
    kinds.value.add(name="BIG", number=1)
    sale = file.message_type.add(name="Sale")
    line = sale.nested_type.add(name="Line")
    line.field.add(name="text", number=1, label=1, type=FIELD.TYPE_STRING)
    sale.oneof_decl.add(name="_note")
    fields: list[tuple[str, Any, dict[str, Any]]] = [
        ("id", FIELD.TYPE_INT64, {}),
        ("big", FIELD.TYPE_UINT64, {}),
        ("note", FIELD.TYPE_STRING, {"proto3_optional": True, "oneof_index": 0}),
        ("kind", FIELD.TYPE_ENUM, {"type_name": ".shop.Kind"}),
        ("lines", FIELD.TYPE_MESSAGE, {"type_name": ".shop.Sale.Line", "label": 3}),
        ("at", FIELD.TYPE_MESSAGE, {"type_name": ".google.protobuf.Timestamp"}),
    ]
    for number, (name, kind, more) in enumerate(fields, start=1):
        sale.field.add(**{"name": name, "number": number, "label": 1, "type": kind, **more})
    other = file.message_type.add(name="Other")
    other.field.add(name="x", number=1, label=1, type=FIELD.TYPE_INT32)
    return file


MESSAGES = Messages([definitions()])
SALE = MESSAGES.named("shop.Sale")
Sale = message_factory.GetMessageClass(SALE)
KIND = pa.struct(
    [
        ("id", pa.int64()),
        ("big", pa.decimal128(20, 0)),
        ("note", pa.string()),
        ("kind", pa.string()),
        ("lines", pa.list_(pa.field("element", pa.struct([("text", pa.string())])))),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


def sale(number: int) -> bytes:
    made = Sale(id=number, big=2**64 - 1, kind="BIG", lines=[{"text": "a"}, {}])
    made.at.FromDatetime(datetime(2024, 1, 2, tzinfo=UTC))
    return bytes(made.SerializeToString())


def test_fields_become_columns() -> None:
    decoded = ProtobufFormat(SALE, KIND).decode(pa.array([sale(1), None, b""], pa.binary()))
    assert decoded.column.type == KIND
    assert not decoded.bad
    first, second, third = decoded.column.to_pylist()
    assert first == {
        "id": 1,
        "big": 2**64 - 1,
        "note": None,
        "kind": "BIG",
        "lines": [{"text": "a"}, {"text": ""}],
        "at": datetime(2024, 1, 2, tzinfo=UTC),
    }
    assert second is None
    assert third == {"id": 0, "big": 0, "note": None, "kind": "NONE", "lines": [], "at": None}


LONG_TAG = re.compile(rb"[\x80-\xff]{4}[\x10-\x7f]")
"""A field's number above 32 bits. Python's runtime refuses it; ptars takes its low bits."""


@examples(30)
@given(
    st.lists(
        st.binary(max_size=12) | st.builds(lambda at, n: sale(n)[:at], st.integers(0, 40), st.integers(0, 9)),
        max_size=20,
    )
)
def test_it_refuses_what_the_runtime_refuses(values: list[bytes]) -> None:
    assume(not any(LONG_TAG.search(value) for value in values))
    batch = [*values, *[sale(3)] * (SMALL + 1)]
    decoded = ProtobufFormat(SALE, pa.struct([("id", pa.int64())])).decode(pa.array(batch, pa.binary()))
    for row, value in enumerate(batch):
        try:
            expected = Sale.FromString(value).id
        except message.DecodeError:
            assert row in decoded.bad
            assert decoded.column[row].as_py() is None
        else:
            assert decoded.column[row].as_py() == {"id": expected}


def test_types_that_never_fit() -> None:
    with pytest.raises(
        ConfigError,
        match=r"does not fit message shop\.Sale: field id is int64, which cannot be read as string",
    ):
        ProtobufFormat(SALE, pa.struct([("id", pa.string())]))


def options(**given: str) -> DecodeOptions:
    made = parse(
        {"value.format": "protobuf"} | {name.replace("_", "."): text for name, text in given.items()}
    )
    assert made is not None
    return made


def test_a_descriptor_set(tmp_path: Path) -> None:
    file = tmp_path / "sale.desc"
    file.write_bytes(descriptor_pb2.FileDescriptorSet(file=[definitions()]).SerializeToString())
    made = options(value_schema=str(file), value_message="shop.Sale.Line")
    assert "`value` struct<`text` string>" in decoded_ddl(made, {}, COLUMNS)
    line = pa.array([b"\x0a\x01x"], pa.binary())
    assert decoder_of(made.value, pa.struct([("text", pa.string())])).decode(line).column.to_pylist() == [
        {"text": "x"}
    ]
    with pytest.raises(ConfigError, match=r"there is no message 'shop\.None'"):
        decoded_ddl(options(value_schema=str(file), value_message="shop.None"), {}, COLUMNS)
    with pytest.raises(ConfigError, match="'nowhere' cannot be read"):
        decoded_ddl(options(value_schema="nowhere", value_message="x"), {}, COLUMNS)
    file.write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match="is not a descriptor set; protoc"):
        decoded_ddl(options(value_schema=str(file), value_message="x"), {}, COLUMNS)


def test_messages_by_their_place_and_id(registry: RegistryServer) -> None:
    schema = base64.b64encode(definitions().SerializeToString()).decode()
    registry.schemas[4] = registry.subjects["t-value"] = {"schema": schema, "schemaType": "PROTOBUF"}
    made = options(schema_registry_url=registry.url)
    ddl = decoded_ddl(made, {"subscribe": "t"}, COLUMNS)
    assert (
        "`value` struct<`id` bigint, `big` decimal(20,0), `note` string, `kind` string, `lines` array<" in ddl
    )
    assert registry.asked[-1] == "/subjects/t-value/versions/latest?format=serialized"
    head = struct.pack(">bI", 0, 4)
    values = [
        head + b"\x00" + sale(7),
        head + b"\x04\x00\x00" + b"\x0a\x01x",
        head + b"\x02\x02" + b"\x08\x05",
        head + b"\x02\x0c",
        head + b"\xff\xff\xff\xff\xff\xff",
        head,
    ]
    kind = pa.struct([("id", pa.int64()), ("text", pa.string()), ("x", pa.int32())])
    decoded = decoder_of(made.value, kind).decode(pa.array(values, pa.binary()))
    assert decoded.column.to_pylist() == [
        {"id": 7, "text": None, "x": None},
        {"id": None, "text": "x", "x": None},
        {"id": None, "text": None, "x": 5},
        None,
        None,
        None,
    ]
    assert decoded.bad == {
        3: "its schema has no message at [6]",
        4: "the index path of its message cannot be read",
        5: "the index path of its message cannot be read",
    }


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ptars", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kadence\[decode\]'"):
        ProtobufFormat(SALE, KIND)


def test_a_message_inside_itself_is_bytes() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="tree.proto", syntax="proto3")
    tree = file.message_type.add(name="Tree")
    tree.field.add(name="next", number=1, label=1, type=FIELD.TYPE_MESSAGE, type_name=".Tree")
    assert arrow_of_message(Messages([file]).named("Tree")) == pa.struct([("next", pa.binary())])


def test_what_the_decoder_would_not_survive_is_kept_from_it(capfd: pytest.CaptureFixture[str]) -> None:
    endless = sale(1) + b"\x1a" + b"\xff" * 9 + b"\x01"
    nested = b"\xa3\x06" * 300_000
    inside = sale(2) + b"\x2a\x0b\x0a" + b"\xfe" + b"\xff" * 8 + b"\x01"
    unknown = sale(4) + b"\xa2\x06" + b"\xff" * 9 + b"\x01"
    values = [
        endless,
        sale(-1),
        nested,
        inside,
        unknown,
        Sale(note="x" * 50_000).SerializeToString(),
        sale(3),
    ]
    found = ProtobufFormat(SALE, KIND).decode(pa.array(values, pa.binary()))
    assert found.bad == dict.fromkeys((0, 2, 3, 4), "not Protobuf of this message")
    assert [row and row["id"] for row in found.column.to_pylist()] == [None, -1, None, None, None, 0, 3]
    assert capfd.readouterr().err == ""
