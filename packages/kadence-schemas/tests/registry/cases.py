"""What is written with a registry, by us and by confluent-kafka: schemas, values, and how. It needs neither of them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

TOPIC = "orders"


@dataclass(frozen=True)
class Case:
    """Some values of one schema.

    Attributes:
        kind: AVRO, PROTOBUF or JSON. schema: its text; of Protobuf the message's full name.
        needs: what is registered before, as subject and schema, each with the references that come before it.
        names: what the schema calls these. strategy: topic, record or topic_record.
        registered: whether the registry has the schema before; the serialiser registers nothing then.
        in_header: whether a header names the schema, by its GUID.
    """

    name: str
    kind: str
    schema: str
    values: list[Any]
    needs: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    strategy: str = "topic"
    is_key: bool = False
    normalize: bool = False
    registered: bool = False
    in_header: bool = False


def record(name: str, *fields: tuple[str, Any], **more: Any) -> str:
    made = {"type": "record", "name": name, "fields": [{"name": at, "type": kind} for at, kind in fields]}
    return json.dumps(made | more)


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


ORDER = record("Order", ("id", "long"), ("item", "string"), ("note", ["null", "string"]), namespace="shop")
MONEY = record(
    "Money", ("cents", "long"), ("unit", {"type": "enum", "name": "Unit", "symbols": ["EUR", "USD"]})
)
PRICE = record("Price", ("net", "Money"))
BASKET = record("Basket", ("price", "Price"), ("rest", "Money"), ("all", {"type": "array", "items": "Money"}))
DOLLAR, EURO = {"cents": 7, "unit": "USD"}, {"cents": -1, "unit": "EUR"}
EVERYTHING = record(
    "Everything",
    ("boolean", "boolean"),
    ("int", "int"),
    ("float", "float"),
    ("double", "double"),
    ("bytes", "bytes"),
    ("fixed", {"type": "fixed", "name": "Two", "size": 2}),
    ("map", {"type": "map", "values": ["int", "string", "null"]}),
    ("decimal", logical("bytes", "decimal", precision=9, scale=2)),
    ("date", logical("int", "date")),
    ("millis", logical("long", "timestamp-millis")),
    ("micros", logical("long", "timestamp-micros")),
    ("uuid", logical("string", "uuid")),
)
AT = datetime(2026, 11, 24, 12, 30, 5, 123456, UTC)
ALL = {
    "boolean": True,
    "int": -(2**31),
    "float": 0.5,
    "double": 1e300,
    "bytes": b"\x00\xff",
    "fixed": b"ab",
    "map": {"a": 1, "b": "ü", "c": None},
    "decimal": Decimal("-12.30"),
    "date": date(1969, 12, 31),
    "millis": AT,
    "micros": AT,
    "uuid": UUID(int=5),
}
ORDERS = [{"id": 1, "item": "book", "note": None}, {"id": -(2**63), "item": "✎" * 100, "note": ""}]

PERSON = json.dumps(
    {
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name"],
    }
)
FLAT = json.dumps(
    {
        "title": "Flat",
        "type": "object",
        "properties": {"owner": {"$ref": "person.json"}},
        "required": ["owner"],
    }
)
ADA = {"name": 'Ada ☃ \u007f\u2028 "quoted" \\', "age": 36, "more": [1.5, True, None, {"a": {}}]}

FIELD = descriptor_pb2.FieldDescriptorProto


def _files() -> list[Any]:
    unit = descriptor_pb2.FileDescriptorProto(name="shop/unit.proto", package="shop", syntax="proto3")
    unit.message_type.add(name="Unit").field.add(name="name", number=1, label=1, type=FIELD.TYPE_STRING)
    money = descriptor_pb2.FileDescriptorProto(name="shop/money.proto", package="shop", syntax="proto3")
    money.dependency.extend(["shop/unit.proto"])
    made = money.message_type.add(name="Money")
    made.field.add(name="cents", number=1, label=1, type=FIELD.TYPE_INT64)
    made.field.add(name="unit", number=2, label=1, type=FIELD.TYPE_MESSAGE, type_name=".shop.Unit")
    sale = descriptor_pb2.FileDescriptorProto(name="shop/sale.proto", package="shop", syntax="proto3")
    sale.dependency.extend(["google/protobuf/timestamp.proto", "shop/money.proto", "shop/unit.proto"])
    first = sale.message_type.add(name="Sale")
    first.field.add(name="id", number=1, label=1, type=FIELD.TYPE_INT64)
    first.field.add(name="price", number=2, label=1, type=FIELD.TYPE_MESSAGE, type_name=".shop.Money")
    first.field.add(
        name="at", number=3, label=1, type=FIELD.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp"
    )
    second = sale.message_type.add(name="Other")
    for number in range(70):
        inner = second.nested_type.add(name=f"Inner{number}")
        inner.field.add(name="text", number=1, label=1, type=FIELD.TYPE_STRING)
        inner.nested_type.add(name="Innermost").field.add(name="x", number=1, label=1, type=FIELD.TYPE_INT32)
    return [unit, money, sale]


def _pool() -> Any:
    from google.protobuf import timestamp_pb2

    pool = descriptor_pool.DescriptorPool()
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    for file in [known, *_files()]:
        pool.Add(file)
    return pool


_POOL = _pool()


def message_type(name: str) -> Any:
    """The class of a message."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


CASES = [
    Case("record", "AVRO", ORDER, ORDERS),
    Case("everything", "AVRO", EVERYTHING, [ALL]),
    Case("key", "AVRO", ORDER, ORDERS, is_key=True),
    Case("by record", "AVRO", ORDER, ORDERS, strategy="record"),
    Case("by topic and record", "AVRO", ORDER, ORDERS, strategy="topic_record"),
    Case("normalized", "AVRO", ORDER, ORDERS, normalize=True),
    Case("registered", "AVRO", ORDER, ORDERS, registered=True),
    Case("string", "AVRO", '"string"', ["", "ü"]),
    Case("bytes as they are", "AVRO", '"bytes"', [b"", b"\x00raw"]),
    Case("long", "AVRO", ' {"type": "long"} ', [0, -1, 2**62]),
    Case("union", "AVRO", json.dumps([json.loads(ORDER), json.loads(MONEY)]), [*ORDERS, DOLLAR]),
    Case("reference", "AVRO", PRICE, [{"net": EURO}], [("money", MONEY)], ["Money"]),
    Case(
        "references of references",
        "AVRO",
        BASKET,
        [{"price": {"net": EURO}, "rest": DOLLAR, "all": [DOLLAR, EURO]}],
        [("money", MONEY), ("price", PRICE)],
        ["Money", "Price"],
    ),
    Case(
        "first message",
        "PROTOBUF",
        "shop.Sale",
        [{}, {"id": 5, "price": {"cents": 3, "unit": {"name": "EUR"}}}],
    ),
    Case("second message", "PROTOBUF", "shop.Other", [{}]),
    Case("nested message", "PROTOBUF", "shop.Other.Inner69", [{"text": "x"}]),
    Case(
        "message nested deeper",
        "PROTOBUF",
        "shop.Other.Inner2.Innermost",
        [{"x": -1}],
        strategy="topic_record",
    ),
    Case("no imports", "PROTOBUF", "shop.Unit", [{"name": "EUR"}], strategy="record", is_key=True),
    Case("object", "JSON", PERSON, [ADA, {"name": ""}]),
    Case("object by title", "JSON", PERSON, [ADA], strategy="record"),
    Case("object with a reference", "JSON", FLAT, [{"owner": ADA}], [("person", PERSON)], ["person.json"]),
    Case("record by header", "AVRO", ORDER, ORDERS, in_header=True),
    Case("key by header", "AVRO", ORDER, ORDERS, is_key=True, in_header=True),
    Case("registered, by header", "AVRO", ORDER, ORDERS, registered=True, in_header=True),
    Case("bytes as they are, by header", "AVRO", '"bytes"', [b"", b"\0\0\0\0\1raw"], in_header=True),
    Case("first message by header", "PROTOBUF", "shop.Sale", [{"id": 5}], in_header=True),
    Case("nested message by header", "PROTOBUF", "shop.Other.Inner69", [{"text": "x"}], in_header=True),
    Case("object by header", "JSON", PERSON, [ADA], in_header=True),
]
