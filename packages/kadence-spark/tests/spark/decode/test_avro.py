"""Avro: both decoders agree, schemas are resolved, ids of one batch differ."""

from __future__ import annotations

import io
import json
import random
import struct
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.luck import examples
from tests.records.batches import varint
from tests.registry.registry_server import RegistryServer

from kadence.columns.isolation import SMALL
from kadence.errors import ConfigError, MissingDependencyError, TransportError
from kadence_schemas.columns import avro
from kadence_schemas.columns.avro import AvroFormat, read_schema
from kadence_schemas.columns.avro_types import arrow_of
from kadence_schemas.schemas import ResolvedSchema
from kadence_spark.decode.formats import decoder_of
from kadence_spark.decode.inference import decoded_ddl
from kadence_spark.decode.options import DecodeOptions, parse
from kadence_spark.source.schema import COLUMNS


def parsed(text: str) -> Any:
    return avro.parsed(ResolvedSchema("AVRO", text))


def record(*fields: tuple[str, Any], name: str = "R", **more: Any) -> str:
    made = [{"name": field, "type": kind, **more.get(field, {})} for field, kind in fields]
    return json.dumps({"type": "record", "name": name, "fields": made})


def written(schema: str, *rows: Any) -> list[bytes]:
    known = fastavro.parse_schema(json.loads(schema))
    made = []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, known, row)
        made.append(out.getvalue())
    return made


def decode(schema: str, values: Sequence[bytes | None], reader: str | None = None, kind: Any = None) -> Any:
    theirs, ours = parsed(schema), None if reader is None else parsed(reader)
    target = kind or arrow_of(ours if ours is not None else theirs)
    decoded = AvroFormat(theirs, ours, target).decode(pa.array(values, pa.binary()))
    assert decoded.column.type == target
    return decoded.column.to_pylist(), decoded.bad


SIMPLE = record(
    ("id", "long"),
    ("n", ["null", "int"]),
    ("s", ["string", "null"]),
    ("f", "float"),
    ("b", "boolean"),
    ("e", {"type": "enum", "name": "E", "symbols": ["A", "B"]}),
    ("at", ["null", {"type": "long", "logicalType": "timestamp-millis"}]),
    ("tags", {"type": "array", "items": ["null", "string"]}),
    ("counts", {"type": "map", "values": "long"}),
    (
        "inner",
        [
            "null",
            {
                "type": "record",
                "name": "I",
                "fields": [{"name": "day", "type": {"type": "int", "logicalType": "date"}}],
            },
        ],
    ),
)
_rows = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "s": st.none() | st.text(max_size=5),
        "f": st.integers(-99, 99).map(float),
        "b": st.booleans(),
        "e": st.sampled_from("AB"),
        "at": st.none()
        | st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1)).map(  # noqa: DTZ001 - a bound
            lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
        ),
        "tags": st.lists(st.none() | st.text(max_size=3), max_size=3),
        "counts": st.dictionaries(st.text(max_size=2), st.integers(0, 9), max_size=2),
        "inner": st.none() | st.fixed_dictionaries({"day": st.dates(date(1900, 1, 1), date(2100, 1, 1))}),
    }
)


def damaged(value: bytes, at: int, byte: int) -> bytes:
    """One byte is another one."""
    at %= len(value)
    return value[:at] + bytes([byte]) + value[at + 1 :]


_damaged = st.builds(
    damaged, _rows.map(lambda row: written(SIMPLE, row)[0]), st.integers(0, 99), st.integers(0, 255)
)


@examples(20)
@given(st.lists(_rows, max_size=12), st.lists(st.binary(max_size=12) | _damaged, max_size=12), st.randoms())
def test_both_decoders_read_the_same_and_bad_ones_stay_alone(
    rows: list[dict[str, Any]], junk: list[bytes], luck: random.Random
) -> None:
    """Junk may happen to be Avro: the careful decoder is the judge, of each record alone as of all together."""
    values = [*written(SIMPLE, *rows), *junk, *written(SIMPLE, *rows[:1]) * SMALL]
    luck.shuffle(values)
    schema = parsed(SIMPLE)
    form = AvroFormat(schema, None, arrow_of(schema))
    both = form.decode(pa.array(values, pa.binary()))
    careful = form._careful(pa.array(values, pa.binary())) if values else both
    # pyruhvro cuts an int of more than 32 bits, which no writer makes, and the careful decoder refuses it.
    assume(not any("does not fit" in reason for reason in careful.bad.values()))
    assert both.column.equals(careful.column)
    assert both.bad == careful.bad
    for value in junk:
        alone = form.decode(pa.array([value], pa.binary()))
        assert bool(alone.bad) == (values.index(value) in both.bad)
    good = written(SIMPLE, *rows)
    found = form.decode(pa.array(good, pa.binary()))
    assert not found.bad
    shown = found.column.to_pylist()
    assert [{**row, "counts": dict(row["counts"])} for row in shown] == rows


def test_types_that_only_fastavro_reads() -> None:
    schema = record(
        ("dec", {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}),
        ("fix", {"type": "fixed", "name": "F", "size": 2}),
        ("raw", "bytes"),
        ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("id", {"type": "string", "logicalType": "uuid"}),
        ("time", {"type": "int", "logicalType": "time-millis"}),
        ("num", ["null", "int", "long"]),
        ("either", ["null", "string", "int"]),
    )
    row = {
        "dec": Decimal("12.34"),
        "fix": b"ab",
        "raw": b"\x00",
        "local": datetime(2024, 1, 2, 3),  # noqa: DTZ001 - it has no zone
        "id": "6fa459ea-ee8a-3ca4-894e-db77e160355e",
        "time": 5,
        "num": 2**40,
        "either": 7,
    }
    plain = json.loads(schema)
    del plain["fields"][4]["type"]["logicalType"], plain["fields"][5]["type"]["logicalType"]
    values = written(json.dumps(plain), row)
    kind = pa.struct(
        [
            ("dec", pa.decimal128(6, 2)),
            ("fix", pa.binary()),
            ("raw", pa.binary()),
            ("local", pa.timestamp("us")),
            ("id", pa.string()),
            ("time", pa.int32()),
            ("num", pa.int64()),
        ]
    )
    (found,), bad = decode(schema, values, kind=kind)
    assert not bad
    assert found == {name: row[name] for name in kind.names}
    with pytest.raises(
        ConfigError, match="field either is a union of several types, which cannot be a column"
    ):
        arrow_of(parsed(schema))


OLD = record(("id", "int"), ("gone", "string"))
NEW = record(
    ("id", "long"),
    ("more", ["null", "string"]),
    ("word", "string"),
    more={"default": None},
    word={"default": "x"},
)


def test_the_readers_schema_is_the_one_that_counts() -> None:
    old = written(OLD, {"id": 5, "gone": "g"})
    assert decode(OLD, old, NEW) == ([{"id": 5, "more": None, "word": "x"}], {})
    by_name = record(("more", ["null", "string"]), ("id", "int"), more={"default": None})
    assert decode(OLD, old, by_name) == ([{"more": None, "id": 5}], {})
    renamed = record(("key", "int"), key={"aliases": ["id"]})
    assert decode(OLD, old, renamed) == ([{"key": 5}], {})
    rows, bad = decode(OLD, old, record(("id", "string")))
    assert rows == [None]
    assert bad == {0: "the writer's schema cannot be read with the reader's"}


def test_the_querys_columns_without_a_readers_schema() -> None:
    kind = pa.struct([("new", pa.string()), ("id", pa.int64())])
    assert decode(OLD, written(OLD, {"id": 5, "gone": ""}), kind=kind) == ([{"new": None, "id": 5}], {})
    with pytest.raises(ConfigError, match="a string cannot be read as int32"):
        decode(OLD, [], kind=pa.struct([("gone", pa.int32())]))
    with pytest.raises(ConfigError, match="field id is int32, which cannot be read as string"):
        decode(OLD, [], kind=pa.struct([("id", pa.string())]))


def test_a_record_inside_itself_is_no_column() -> None:
    tree = record(("next", ["null", "R"]), ("v", "int"))
    with pytest.raises(ConfigError, match="field next is a recursive record"):
        arrow_of(parsed(tree))
    values = written(tree, {"next": {"next": None, "v": 2}, "v": 1})
    assert decode(tree, values, kind=pa.struct([("v", pa.int32())])) == ([{"v": 1}], {})


EMPTY = {"type": "record", "name": "E", "fields": []}
NOTHING: dict[str, Any] = {
    "null": "null",
    "record": EMPTY,
    "record of such": {"type": "record", "name": "F", "fields": [{"name": "e", "type": EMPTY}]},
    "fixed": {"type": "fixed", "name": "X", "size": 0},
}
"""Types whose values take no bytes."""


@pytest.mark.parametrize("items", NOTHING.values(), ids=NOTHING)
def test_an_array_has_no_more_elements_than_its_record_has_bytes(items: Any) -> None:
    """Five bytes can claim billions of elements that take none; each becomes an object."""
    schema = record(("s", "string"), ("a", ["null", {"type": "array", "items": items}]), ("n", "int"))
    few, many = (b"\2x" + b"\2" + varint(count) + b"\0" + b"\x0e" for count in (3, 20_000_000))
    target = pa.struct({"s": pa.string(), "n": pa.int32()})
    documents, bad = decode(schema, [few, many, few], kind=target)
    assert documents == [{"s": "x", "n": 7}, None, {"s": "x", "n": 7}]
    assert bad == {1: "an array or map claims more elements than the record has bytes"}


def test_records_in_records_without_an_end() -> None:
    """fastavro's reader is in C, and leaves the process where there is no more stack."""
    schema = record(("id", "int"), ("next", ["null", "R"]))
    shallow, deep = (b"\2" * (2 * count) + b"\2\0" for count in (50, 1_000_000))
    target = pa.struct({"id": pa.int32()})
    documents, bad = decode(schema, [shallow, deep, shallow[:-1]], kind=target)
    assert documents == [{"id": 1}, None, None]
    assert bad == {1: "more than 100 nested records", 2: "not Avro of this schema (EOFError)"}
    endless = record(("id", "int"), ("self", "R"))
    assert decode(endless, [b"\2" * 1_000], kind=target)[1] == {0: "more than 100 nested records"}


def test_all_types_are_passed_over_where_elements_are_counted() -> None:
    """A schema that can claim much of little is read twice; nothing else is different."""
    enum = {"type": "enum", "name": "C", "symbols": ["A", "B"]}
    fixed = {"type": "fixed", "name": "G", "size": 3}
    fields: list[tuple[str, Any]] = [
        ("nulls", {"type": "array", "items": "null"}),
        ("b", "boolean"),
        ("i", "int"),
        ("l", "long"),
        ("f", "float"),
        ("d", "double"),
        ("s", "string"),
        ("y", "bytes"),
        ("e", enum),
        ("g", fixed),
        ("m", {"type": "map", "values": "long"}),
        ("u", ["null", "string"]),
        ("r", {"type": "record", "name": "I", "fields": [{"name": "c", "type": ["null", "C"]}]}),
        ("z", {"type": "array", "items": "I"}),
    ]
    row = {
        "nulls": [None],
        "b": True,
        "i": -(2**31),
        "l": 2**63 - 1,
        "f": 0.5,
        "d": 0.25,
        "s": "é" * 100,
        "y": b"\0\xff",
        "e": "B",
        "g": b"abc",
        "m": {"a": 1, "b": -1},
        "u": "text",
        "r": {"c": "A"},
        "z": [{"c": None}, {"c": "B"}],
    }
    schema = record(*fields)
    [value] = written(schema, row)
    # A block of elements may say how many bytes it has: its count is below zero then.
    blocks = value.replace(b"\4\2a\2\2b\1\0", b"\3\x0c\2a\2\2b\1\0")
    assert blocks != value
    documents, bad = decode(schema, [value, blocks, *(value[:size] for size in range(len(value)))])
    expected = row | {"m": list(row["m"].items())}  # type: ignore[attr-defined]
    assert documents == [expected, expected] + [None] * len(value)
    assert sorted(bad) == list(range(2, len(value) + 2))


def test_what_pyruhvro_takes_and_fastavro_does_not_is_refused_either_way() -> None:
    """A text that is not UTF-8, whoever decodes the batch."""
    rows, reasons = decode(record(("s", "string")), [b"\x02\xff"] * 2 + [b"\x02a"] * 2 * SMALL)
    assert list(reasons) == [0, 1]
    assert rows[:2] == [None, None]
    assert None not in rows[2:]


def test_primitives() -> None:
    assert decode('"string"', [*written('"string"', "a"), None, b"\x02"]) == (
        ["a", None, None],
        {2: "not Avro of this schema (EOFError)"},
    )


def test_a_schema_is_json_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "a.avsc"
    file.write_text('"long"')
    assert read_schema("value.schema", str(file)) == '"long"'
    with pytest.raises(
        ConfigError, match=r"neither an Avro schema in JSON nor a file that can be read \(No such file"
    ):
        read_schema("value.schema", "nowhere.avsc")
    with pytest.raises(ConfigError, match="this is not an Avro schema"):
        parsed('{"type":"strange"}')


def test_without_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyruhvro it is slower; without fastavro it says what to install."""
    values = written(OLD, {"id": 5, "gone": "g"})
    monkeypatch.setitem(sys.modules, "pyruhvro", None)
    assert decode(OLD, values)[0] == [{"id": 5, "gone": "g"}]
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'kadence\[avro\]'"):
        parsed(OLD)


# ---------------------------------------------------------------- with a registry


def framed(schema_id: int, data: bytes) -> bytes:
    return struct.pack(">bI", 0, schema_id) + data


def options(registry: RegistryServer, **more: str) -> DecodeOptions:
    given = {"value.format": "avro", "schema.registry.url": registry.url}
    made = parse(given | {name.replace("_", "."): text for name, text in more.items()})
    assert made is not None
    return made


def test_ids_of_one_batch_differ_and_rows_keep_their_order(registry: RegistryServer) -> None:
    first, second = record(("id", "int")), record(("name", "string"), ("id", "long"))
    registry.schemas = {1: {"schema": first}, 2: {"schema": second}}
    registry.subjects["t-value"] = {"schema": second}
    values: list[bytes | None] = []
    expected: list[Any] = []
    for number in range(300):
        if number % 3:
            values.append(framed(1, *written(first, {"id": number})))
            expected.append({"name": None, "id": number})
        else:
            values.append(framed(2, *written(second, {"id": number, "name": "x"})))
            expected.append({"name": "x", "id": number})
    junk = {7: framed(9, b""), 8: b"\x00\x00", 9: b"plain text", 10: None, 11: framed(1, b""), 12: b""}
    for row, value in junk.items():
        values[row], expected[row] = value, None
    kind = pa.struct([("name", pa.string()), ("id", pa.int64())])
    side = options(registry).value
    decoded = decoder_of(side, kind).decode(pa.array(values, pa.binary()))
    assert decoded.column.to_pylist() == expected
    assert decoded.bad == {
        7: "schema id 9 is not in the registry",
        8: "2 bytes are too few for a schema id",
        9: "it has no schema id: its first byte is neither 0 nor 1",
        11: "not Avro of this schema (EOFError)",
        12: "0 bytes are too few for a schema id",
    }
    again = decoder_of(side, kind).decode(pa.array(values[:7], pa.binary()).slice(2))
    assert again.column.to_pylist() == expected[2:7]
    # Each once: the wait for a registry that learns of an id late is 0 here, so nothing is asked again.
    assert sorted(registry.asked) == ["/schemas/ids/1", "/schemas/ids/2", "/schemas/ids/9"]


def test_a_schema_that_cannot_be_used_makes_its_own_records_bad(registry: RegistryServer) -> None:
    """As in records and columns: the task goes on with the records of other schemas."""
    good = record(("id", "int"))
    registry.schemas = {1: {"schema": good}, 2: {"schema": '{"type": "strange"}'}, 3: {"schema": '"string"'}}
    values = [framed(1, *written(good, {"id": 5})), framed(2, b"\x02"), framed(3, b"\x02a")]
    kind = pa.struct([("id", pa.int64())])
    decoded = decoder_of(options(registry).value, kind).decode(pa.array(values, pa.binary()))
    assert decoded.column.to_pylist() == [{"id": 5}, None, None]
    assert list(decoded.bad) == [1, 2]
    assert decoded.bad[1].startswith("schema id 2 cannot be used: this is not an Avro schema")
    assert "schema id 3 cannot be used: the query's schema does not fit the Avro schema" in decoded.bad[2]


def test_an_address_that_answers_404_makes_no_record_bad(registry: RegistryServer) -> None:
    registry.fixed = 404, b"<html>no such page</html>"
    with pytest.raises(TransportError, match=r"unlike a registry: .* \(option schema\.registry\.url\)"):
        decoder_of(options(registry, mode="permissive").value, pa.struct([("id", pa.int64())])).decode(
            pa.array([framed(1, b"\x02")])
        )


def test_a_schema_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(ConfigError, match="nested too deep"):
        parsed("[" * 100_000)
    with pytest.raises(ConfigError, match="nested too deep"):
        parsed('{"type":"array","items":' * 900 + '"int"' + "}" * 900)


def test_columns_from_the_newest_schema_with_references(registry: RegistryServer) -> None:
    registry.subjects["money"] = {"schema": record(("cents", "long"), name="Money")}
    registry.subjects["t-value"] = {
        "schema": record(
            ("price", "Money"), ("at", {"type": "long", "logicalType": "timestamp-micros"}), name="Sale"
        ),
        "references": [{"name": "Money", "subject": "money", "version": 1}],
    }
    ddl = decoded_ddl(options(registry), {"subscribe": "t"}, COLUMNS)
    assert "`value` struct<`price` struct<`cents` bigint>, `at` timestamp>, `topic` string" in ddl
    flat = decoded_ddl(options(registry, value_flat="true"), {"subscribe": "t"}, COLUMNS)
    assert flat.startswith("`price` struct<`cents` bigint>, `at` timestamp, `key` binary")
    with pytest.raises(ConfigError, match=r"name it with the option value\.subject"):
        decoded_ddl(options(registry), {"subscribe": "t,u"}, COLUMNS)
    assert decoded_ddl(options(registry, value_subject="t-value"), {"subscribe": "t,u"}, COLUMNS) == ddl
    # Or load() is given the fields: the records' own ids say how each was written.
    registry.schemas = {7: {"schema": record(("cents", "long"), name="Money")}}
    decoder = decoder_of(options(registry).value, pa.struct([("cents", pa.int64())]))
    assert decoder.decode(pa.array([framed(7, b"\x02")])).column.to_pylist() == [{"cents": 1}]
    # Or the option value.schema.
    own = options(registry, value_schema=record(("cents", "long"), name="Money"))
    assert "`value` struct<`cents` bigint>" in decoded_ddl(own, {"subscribe": "t,u"}, COLUMNS)


def test_a_subject_that_the_topic_does_not_have_is_named(registry: RegistryServer) -> None:
    registry.subjects["shop.Order"] = {"schema": record(("id", "long"))}
    with pytest.raises(ConfigError, match=r"the option value\.subject or key\.subject names another"):
        decoded_ddl(options(registry), {"subscribe": "t"}, COLUMNS)
    for side in ("value", "key"):
        named = options(
            registry, **{"value_format": "binary", f"{side}_format": "avro", f"{side}_subject": "shop.Order"}
        )
        assert f"`{side}` struct<`id` bigint>" in decoded_ddl(named, {"subscribe": "t"}, COLUMNS)


def test_a_decimal_with_more_digits_than_sparks_is_read_as_one_that_its_values_fit() -> None:
    wide = record(("n", {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 2}))
    given = parse({"value.format": "avro", "value.schema": wide})
    assert given is not None
    with pytest.raises(
        ConfigError, match=r"give load\(\) a schema with a type that its values fit, such as decimal\(38,2\)"
    ):
        decoded_ddl(given, {"subscribe": "t"}, COLUMNS)
    decoder = decoder_of(given.value, pa.struct([("n", pa.decimal128(38, 2))]))
    decoded = decoder.decode(pa.array(written(wide, {"n": Decimal("12.34")})))
    assert (decoded.column.to_pylist(), decoded.bad) == ([{"n": Decimal("12.34")}], {})


def test_a_schema_that_does_not_fit_makes_its_records_bad(registry: RegistryServer) -> None:
    registry.schemas = {1: {"schema": record(("id", "int"))}, 2: {"schema": record(("id", "string"))}}
    values = [framed(1, b"\x02"), framed(2, b"\x02a")]
    decoded = decoder_of(options(registry).value, pa.struct([("id", pa.int64())])).decode(pa.array(values))
    assert decoded.column.to_pylist() == [{"id": 1}, None]
    assert "the query's schema does not fit the Avro schema" in decoded.bad[1]


def test_the_frame_is_cut_off_where_the_schema_is_given() -> None:
    made = parse({"value.format": "avro", "value.schema": '"long"', "value.wire": "confluent"})
    assert made is not None
    decoded = decoder_of(made.value, pa.int64()).decode(pa.array([framed(5, b"\x04"), None]))
    assert decoded.column.to_pylist() == [2, None]


@pytest.mark.parametrize(
    ("wire", "values"), [("confluent", [framed(5, b"ab"), None]), ("plain", [b"\x04ab", None])]
)
def test_bytes_behind_a_schema_id_are_as_they_are(wire: str, values: list[bytes | None]) -> None:
    made = parse({"value.format": "avro", "value.schema": '"bytes"', "value.wire": wire})
    assert made is not None
    decoded = decoder_of(made.value, pa.binary()).decode(pa.array(values, pa.binary()))
    assert (decoded.column.to_pylist(), decoded.bad) == ([b"ab", None], {})
