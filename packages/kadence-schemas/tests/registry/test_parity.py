"""140 documents of `make parity-schemas`, and what it has found; tests/spark/decode/test_avro_java.py has 60 more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from tests.luck import seeds
from tests.registry.parity import json_schema, protobuf
from tests.registry.parity.counted import Counted
from tests.registry.parity.random_protobuf import FIELD, class_of
from tests.registry.parity.registered import Registered
from tests.registry.test_avro_resolution import as_columns, as_record, fixed, written

from kadence.columns.isolation import BadRecordError
from kadence.errors import ConfigError
from kadence_schemas import ProtobufDeserializer
from kadence_schemas.avro_readers import READERS
from kadence_schemas.columns.protobuf import ProtobufFormat, arrow_of_message
from kadence_spark.decode.formats import decoder_of
from kadence_spark.decode.options import Format, SideOptions
from kadence_testing.schema_registry import SchemaRegistryServer


@pytest.fixture
def registered() -> Iterator[Registered]:
    with SchemaRegistryServer() as server, Registered(server) as registered:
        yield registered


def explained(counted: Counted, documents: int) -> None:
    assert not counted.unexplained, "\n".join(map(str, counted.unexplained[:5]))
    assert counted.documents >= documents
    assert counted.answers


@pytest.mark.parametrize("seed", seeds(1))
def test_protobuf(registered: Registered, tmp_path: Path, seed: int) -> None:
    counted = Counted()
    protobuf.run(registered, Random(seed), 70, counted, tmp_path)
    explained(counted, 70)


@pytest.mark.parametrize("seed", seeds(1))
def test_json(registered: Registered, seed: int) -> None:
    counted = Counted()
    json_schema.run(registered, Random(seed), 70, counted)
    explained(counted, 70)


# ---------------------------------------------------------------- what it has found


def of(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


@pytest.mark.parametrize("number", [16_777_217, 2**31 - 1, -16_777_219, 2**53 + 2**29 + 1, -(2**63), 5, 0])
@pytest.mark.parametrize("read", [as_record, as_columns])
def test_a_whole_number_that_is_read_as_a_float_has_its_digits(read: Any, number: int) -> None:
    data = written(of(("v", "long")), {"v": number})
    # NumPy and C round a whole number at once; by way of a double the fourth would be another.
    expected = pa.array([number], pa.int64()).cast(pa.float32(), safe=False)[0].as_py()
    assert read(of(("v", "long")), of(("v", ["null", "float"])), data) == {"v": expected}
    assert READERS["long-kadence-float"](number, {}, None) == expected


def test_a_fixed_decimal_of_more_digits_than_its_type_allows_is_not_rounded() -> None:
    decimal = {**fixed(5), "logicalType": "decimal", "precision": 11, "scale": 1}
    schema = of(("v", decimal))
    data = written(schema, {"v": (549_755_813_887).to_bytes(5, "big")})
    assert str(as_record(schema, None, data)["v"]) == "54975581388.7"


@pytest.mark.parametrize(("kind", "logical"), [("int", "time-millis"), ("long", "time-micros")])
@pytest.mark.parametrize("outside", [-1, 86_400_000_000])
def test_a_time_of_day_outside_the_day_is_bad(kind: str, logical: str, outside: int) -> None:
    number = outside if outside < 0 or kind == "long" else outside // 1_000
    schema = of(("v", {"type": kind, "logicalType": logical}))
    with pytest.raises(BadRecordError, match="not within a day"):
        as_record(schema, None, written(schema, {"v": number}))


def test_a_union_of_one_type_in_a_record_that_is_null() -> None:
    """Arrow ended the process."""
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "x", "type": [{"type": "array", "items": "int"}]}],
    }
    schema = of(("v", ["null", inner]))
    assert as_columns(schema, None, written(schema, {"v": None})) == {"v": None}
    assert as_columns(schema, None, written(schema, {"v": {"x": [1]}})) == {"v": {"x": [1]}}


def definitions(*fields: tuple[str, int, Any]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="m.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="M")
    for name, number, kind in fields:
        message.field.add(name=name, number=number, label=1, type=kind)
    return file


def test_columns_of_a_class_go_by_its_numbers(registered: Registered) -> None:
    writer = definitions(("was", 1, FIELD.TYPE_INT32), ("other", 2, FIELD.TYPE_STRING))
    of_writer = class_of(writer)
    made = registered.protobuf(writer, of_writer, [of_writer(was=7, other="a")])
    reader = class_of(definitions(("now", 1, FIELD.TYPE_INT64), ("was", 3, FIELD.TYPE_BOOL)))
    deserializer = ProtobufDeserializer(registered.client, reader)
    data = made.header + made.bodies[0]
    decoded = deserializer.columns().decode(pa.array([data], pa.binary()))
    assert decoded.column.to_pylist() == [{"now": 7, "was": False}]
    assert deserializer.deserialize("t", (), data).now == 7


def test_a_message_without_fields_has_rows(registered: Registered) -> None:
    file = definitions()
    kind = class_of(file)
    made = registered.protobuf(file, kind, [kind(), kind()])
    decode = ProtobufDeserializer(registered.client).columns().decode
    values = [made.header + made.bodies[0], None, b"no frame", made.header + made.bodies[1]]
    decoded = decode(pa.array(values, pa.binary()))
    assert decoded.column.to_pylist() == [{}, None, None, {}]
    assert list(decoded.bad) == [2]


def test_definitions_that_the_decoder_cannot_take_are_refused() -> None:
    file = definitions(("kind", 1, FIELD.TYPE_ENUM))
    file.message_type[0].field[0].type_name = ".p.Kind"
    kinds = file.enum_type.add(name="Kind")
    for name, number in (("A", 0), ("B", 1), ("C", 1)):
        kinds.value.add(name=name, number=number)
    with pytest.raises(ConfigError, match=r"ptars cannot read the definitions of message p\.M"):
        arrow_of_message(class_of(file).DESCRIPTOR)


@pytest.mark.parametrize(("name", "in_columns"), [(".p.I", 120), (".google.protobuf.Int64Value", 0)])
def test_a_message_that_stands_in_the_data_twice(name: str, in_columns: int) -> None:
    """Of a wrapper such as Int64Value a column has the last one alone."""
    file = definitions(("inner", 1, FIELD.TYPE_MESSAGE))
    file.dependency.append("google/protobuf/wrappers.proto")
    file.message_type[0].field[0].type_name = name
    file.message_type.add(name="I").field.add(name="value", number=1, label=1, type=FIELD.TYPE_INT64)
    kind = class_of(file)
    data = kind(inner={"value": 120}).SerializeToString() + kind(inner={}).SerializeToString()
    assert kind.FromString(data).inner.value == 120
    decode = ProtobufFormat(kind.DESCRIPTOR, arrow_of_message(kind.DESCRIPTOR)).decode
    [row] = decode(pa.array([data], pa.binary())).column.to_pylist()
    assert row["inner"] == (in_columns if name != ".p.I" else {"value": in_columns})


@pytest.mark.parametrize("form", [Format.JSON, Format.STRICT_JSON])
def test_a_whole_number_beyond_64_bits(form: Format) -> None:
    """docs/schemas.md, what differs: as decimal(38,0) it is read."""
    data = pa.array([b'{"n": %d}' % 10**30], pa.binary())
    side = SideOptions("value", form)
    assert list(decoder_of(side, pa.struct([("n", pa.int64())])).decode(data).bad) == [0]
    made = decoder_of(side, pa.struct([("n", pa.decimal128(38, 0))])).decode(data)
    assert (made.column.to_pylist(), made.bad) == ([{"n": 10**30}], {})
