"""Protobuf files that serialisers do not register, because every library has them: they are known when reading."""

from __future__ import annotations

import datetime
import importlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kadence_schemas import ProtobufDeserializer, ProtobufSerializer, SchemaRegistryClient
from kadence_schemas.known_files import _files, known_file
from kadence_testing.schema_registry import SchemaRegistryServer

FIELD = descriptor_pb2.FieldDescriptorProto


@pytest.fixture
def client() -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryServer() as server:
        yield SchemaRegistryClient(server.url, max_retries=0)


def order() -> Any:
    """A class whose messages have a date, money, a colour and Connect's decimal."""
    file = descriptor_pb2.FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    made = file.message_type.add(name="Order")
    kinds = [
        ("date", "google.type.Date"),
        ("money", "google.type.Money"),
        ("color", "google.type.Color"),
        ("decimal", "confluent.type.Decimal"),
    ]
    pool = descriptor_pool.DescriptorPool()
    for number, (name, kind) in enumerate(kinds, 1):
        made.field.add(name=name, number=number, label=1, type=FIELD.TYPE_MESSAGE, type_name=f".{kind}")
        imported = kind.lower().replace(".", "/") + ".proto"
        file.dependency.append(imported)
    wrappers = descriptor_pb2.FileDescriptorProto()
    importlib.import_module("google.protobuf.wrappers_pb2").DESCRIPTOR.CopyToProto(wrappers)
    for each in (wrappers, *map(known_file, file.dependency), file):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@pytest.mark.parametrize("skips", [True, False])
def test_what_is_not_registered_is_known_when_reading(client: SchemaRegistryClient, skips: bool) -> None:
    kind = order()
    value = kind(
        date={"year": 2026, "month": 11, "day": 29},
        money={"currency_code": "EUR", "units": 5},
        color={"red": 0.5, "alpha": {"value": 1.0}},
        decimal={"value": b"\x05", "scale": 2},
    )
    data = ProtobufSerializer(client, kind, skip_known_types=skips).serialize("t", (), value)
    assert ("google/type/date.proto" in client.get_subjects()) is not skips
    for deserializer in (ProtobufDeserializer(client), ProtobufDeserializer(client, kind)):
        found: Any = deserializer.deserialize("t", (), data)
        assert str(found) == str(value)
        made = deserializer.columns().decode(pa.array([data], pa.binary()))
        assert not made.bad
        row = made.column[0].as_py()
        assert row["date"] == datetime.date(2026, 11, 29)
        assert row["money"]["units"] == 5
        assert row["decimal"]["value"] == b"\x05"


@pytest.mark.parametrize("name", sorted(name for name in _files() if name.startswith("google/type/")))
def test_the_copies_are_the_librarys(name: str) -> None:
    module = importlib.import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    theirs = descriptor_pb2.FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(theirs)
    theirs.ClearField("options")
    assert known_file(name) == theirs


def test_the_files_of_confluent() -> None:
    names = [name for name in _files() if name.startswith("confluent/")]
    assert names == ["confluent/type/decimal.proto", "confluent/type/variant.proto", "confluent/meta.proto"]
