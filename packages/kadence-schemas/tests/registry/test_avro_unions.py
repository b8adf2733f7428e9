"""The type of a union that a value is written as: the one of its own type, as in Avro for Java, wherever it stands."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.registry.test_avro_resolution import DATE, LOCAL, MICROS, MILLIS, decimal, fixed, of, record

from kadence.errors import SerializationError
from kadence_schemas import AvroDeserializer, AvroSerializer, SchemaRegistryClient
from kadence_schemas.avro_schemas import parsed
from kadence_schemas.avro_unions import Unions
from kadence_schemas.schemas import ResolvedSchema
from kadence_testing.schema_registry import SchemaRegistryServer

FIVE = datetime(2026, 1, 1, 5, tzinfo=UTC)
DAY = date(2026, 1, 1)
BIG = 2**53 + 1
CLOCK_MILLIS, CLOCK_MICROS = (
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
)
UUIDS = {"type": "string", "logicalType": "uuid"}
NUMBERS, TIMES = of("Numbers", ("x", "double")), of("Times", ("x", DATE), ("y", "int", {"default": 1}))
WHOLE = of("Whole", ("x", "long"))

_topics = count()


@pytest.fixture(scope="module")
def client() -> Any:
    with SchemaRegistryServer() as server:
        yield SchemaRegistryClient(server.url)


def there_and_back(client: SchemaRegistryClient, schema: Any, value: Any, **how: Any) -> tuple[bytes, Any]:
    topic = f"t{next(_topics)}"
    data = AvroSerializer(client, schema, **how).serialize(topic, [], value)
    return data[5:], AvroDeserializer(client).deserialize(topic, [], data)


JAVA: list[tuple[list[Any], Any, int]] = [
    ([DATE, MILLIS], FIVE, 1),
    ([MILLIS, DATE], FIVE, 0),
    ([DATE, MILLIS], DAY, 0),
    ([MILLIS, DATE], DAY, 1),
    ([DATE, LOCAL], FIVE.replace(tzinfo=None), 1),
    (["double", "long"], BIG, 1),
    (["double", "long"], 2.5, 0),
    (["null", "float", "long"], 2**33 + 1, 2),
    (["null", "double", "int"], 5, 2),
    (["null", "double", "int"], None, 0),
    ([DATE, "long"], 2**33, 1),
    ([MILLIS, "int"], 5, 1),
    (["float", "double"], 0.5, 1),
    ([DATE, "string"], "2026-01-01", 1),
    ([DATE, "string"], "hello", 1),
    (["bytes", "string"], "a", 1),
    ([{"type": "array", "items": "int"}, "bytes"], b"a", 1),
]
"""A union, a value, and the place of the type that Avro for Java writes it as, as ``test_avro_java.py`` checks."""

AS_PYTHON: list[tuple[list[Any], Any, int]] = [
    ([CLOCK_MILLIS, CLOCK_MICROS], time(1, 2, 3, 4), 1),
    ([CLOCK_MILLIS, CLOCK_MICROS], time(1, 2, 3, 4_000), 0),
    (["null", "float", "long"], 16_777_217, 2),
    ([DATE, "long"], 5, 1),
    (["double", "string"], 5, 0),
    (["float", "double"], 5, 1),
    (["string", "float"], 5, 1),
    (["int", "long"], 2**31, 1),
    (["long", "int"], 5, 0),
    (["int", "double"], 2**31, 1),
    ([decimal(4, 2), decimal(9, 4, fixed(4))], Decimal("1.2345"), 1),
    ([decimal(4, 4, fixed(2)), decimal(3, 1, fixed(5, "G"))], Decimal("99.9"), 1),
    ([decimal(11, 1, fixed(5)), decimal(35, 4)], Decimal(-54_975_581_389), 1),
    (["string", decimal(4, 2)], Decimal("1.23"), 1),
    ([UUIDS, "int"], UUID(int=5), 0),
    (["boolean", "double"], True, 0),
    (["double", {"type": "map", "values": ["double", "long"]}], {"a": BIG, "b": 0.5}, 1),
    (["double", {"type": "array", "items": ["double", "long"]}], [BIG, 0.5], 1),
    ([NUMBERS, WHOLE], {"x": BIG}, 1),
    ([WHOLE, NUMBERS], {"x": 0.5}, 1),
    ([TIMES, of("At", ("x", MILLIS), ("y", "int"))], {"x": FIVE, "y": 3}, 1),
    ([{"type": "map", "values": "double"}, WHOLE], {"x": BIG}, 1),
]
"""The same where Java has other types."""


@pytest.mark.parametrize(("union", "value", "place"), [*JAVA, *AS_PYTHON], ids=repr)
def test_a_value_is_written_as_its_own_type(
    client: SchemaRegistryClient, union: list[Any], value: Any, place: int
) -> None:
    for schema, made in (
        (record(union), {"v": value}),
        (union, value),
        (record({"type": "array", "items": union}), {"v": [value]}),
        (record({"type": "map", "values": union}), {"v": {"k": value}}),
        (record(["null", record(union, name="Inner")]), {"v": {"v": value}}),
    ):
        data, found = there_and_back(client, schema, made)
        assert found == made
        if schema is union:
            assert data[0] == 2 * place


@pytest.mark.parametrize(
    ("union", "value"),
    [
        (["double", "string"], BIG),
        (["float", "string"], 16_777_217),
        (["float", "double"], 10**400),
        ([DATE, "string"], FIVE),
        ([decimal(4, 2), "double"], Decimal("1.234")),
        ([UUIDS, "int"], "no UUID"),
        ([{"type": "array", "items": "int"}, "bytes"], 5),
        (["double", "long"], "5"),
    ],
    ids=repr,
)
def test_a_value_that_no_type_holds_is_refused(client: SchemaRegistryClient, union: Any, value: Any) -> None:
    for schema, made, name in (
        (record(union), {"v": value}, "v"),
        (record({"type": "array", "items": union}), {"v": [value]}, r"v\[\]"),
        (union, value, r"\(all\)"),
    ):
        with pytest.raises(SerializationError, match=rf"field {name}: no type of its union \(.*\) holds"):
            there_and_back(client, schema, made)


@pytest.mark.parametrize("kind", [decimal(4, 2), decimal(4, 2, fixed(2))], ids=["bytes", "fixed"])
def test_the_zeros_of_an_exponent_are_digits(client: SchemaRegistryClient, kind: Any) -> None:
    """As in Java, which refuses it; fastavro does not count them, and two bytes do not hold 1000.00."""
    for schema, path in (
        (record(kind), "v"),
        (record({"type": "array", "items": kind}), r"v\[\]"),
        (record(record(kind, name="Inner")), r"v\.v"),
    ):

        def value(number: str, path: str = path) -> Any:
            made = Decimal(number)
            return {"v": [made] if path.endswith("]") else {"v": made} if path.endswith(".v") else made}

        for number in ("1E+1", "-9E+1", "12", "0E+9", "99.99"):
            assert there_and_back(client, schema, value(number))[1] == value(number)
        for number, digits in (("1E+2", 5), ("-1E+3", 6), ("1.2E+40", 43)):
            said = rf"field {path}: Decimal\('{re.escape(number)}'\) has {digits} digits .* precision is 4"
            with pytest.raises(SerializationError, match=said):
                there_and_back(client, schema, value(number))
    with pytest.raises(SerializationError, match="no type of its union"):
        there_and_back(client, record(["null", kind, "string"]), {"v": Decimal("1E+2")})


def test_a_pair_names_the_type(client: SchemaRegistryClient) -> None:
    union = ["double", "long", NUMBERS, WHOLE]
    for value, found in (
        (("double", 5), 5.0),
        (("Numbers", {"x": 5}), {"x": 5.0}),
        ({"-type": "Numbers", "x": 5}, {"x": 5.0}),
        ({"x": 5}, {"x": 5}),
    ):
        read = there_and_back(client, record(union), {"v": value})[1]["v"]
        assert repr(read) == repr(found)


def test_a_default_and_a_missing_field(client: SchemaRegistryClient) -> None:
    schema = record(
        ["double", "long"],
        {"name": "at", "type": [MILLIS, DATE], "default": 5},
        {"name": "none", "type": ["null", DATE, MILLIS]},
    )
    moment = datetime(1970, 1, 1, 0, 0, 0, 5_000, UTC)
    assert there_and_back(client, schema, {"v": 1})[1] == {"v": 1, "at": moment, "none": None}
    with pytest.raises(ValueError, match="missing"):
        there_and_back(client, schema, {"v": 1}, strict=True)


def test_a_record_inside_itself(client: SchemaRegistryClient) -> None:
    tree = record(["double", "long"], {"name": "next", "type": ["null", "R"]})
    value = {"v": BIG, "next": {"v": 0.5, "next": {"v": 1, "next": None}}}
    assert there_and_back(client, tree, value)[1] == value


@pytest.mark.parametrize(
    "schema",
    [
        ["null", "string"],
        ["null", "double"],
        ["null", MILLIS],
        ["int", "long", "string", "boolean"],
        ["null", {"type": "array", "items": "double"}, "string"],
        [of("P", ("x", "int")), of("Q", ("y", "string"))],
        of("Tree", ("next", ["null", "Tree"]), ("x", "double")),
    ],
)
def test_other_schemas_cost_nothing(schema: Any) -> None:
    assert Unions(parsed(ResolvedSchema("AVRO", json.dumps(schema)))).convert is None


_SINGLE = st.floats(width=32)
_VALUES: dict[str, Any] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "number": st.integers(-(2**65), 2**65) | st.integers(-10, 10) | st.sampled_from([BIG, 2**24 + 1, 2**31]),
    "float": _SINGLE | st.floats(),
    "text": st.sampled_from(["", "a", "2026-01-01", "A"]) | st.text(max_size=3),
    "bytes": st.binary(max_size=3),
    "day": st.dates(),
    "clock": st.times(),
    "moment": st.datetimes(timezones=st.just(UTC)).map(
        lambda each: each.replace(microsecond=each.microsecond // 1_000 * 1_000)
    ),
    "decimal": st.decimals(-1_000, 1_000, places=2),
}
_BRANCHES = [
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "bytes",
    DATE,
    CLOCK_MILLIS,
    MILLIS,
    MICROS,
    CLOCK_MICROS,
    decimal(6, 2),
    fixed(2),
    {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    {"type": "array", "items": "int"},
    {"type": "map", "values": "double"},
]


def _kind(schema: Any) -> str:
    return str(schema["type"] if isinstance(schema, dict) else schema)


_UNIONS = st.lists(st.sampled_from(_BRANCHES), min_size=3, max_size=5, unique_by=_kind)


def _is_rounded(union: list[Any], value: Any, found: Any) -> bool:
    """Types with fewer digits than Python's."""
    if isinstance(value, float):
        return "float" in union and "double" not in union and isinstance(found, float)
    return isinstance(value, time) and found == value.replace(microsecond=value.microsecond // 1_000 * 1_000)


def _is_underlying(union: list[Any], value: Any, found: Any) -> bool:
    """A number, text or bytes that a logical type was given as, where the union has no plain type for it."""
    if not isinstance(found, date | time | Decimal) or isinstance(value, bool | float):
        return False
    if isinstance(value, int):
        return not ("long" in union or ("int" in union and abs(value) < 2**31))
    return "bytes" not in union if isinstance(value, bytes) else str(found) == value and "string" not in union


@examples(150)
@given(_UNIONS, st.one_of(*_VALUES.values()))
def test_a_value_is_read_as_it_was_or_is_refused(
    client: SchemaRegistryClient, union: list[Any], value: Any
) -> None:
    try:
        _, found = there_and_back(client, record(union), {"v": value})
    except SerializationError:
        return
    except ValueError as problem:
        # A union that fastavro writes rightly is left to it.
        if "do not match" not in str(problem):
            raise
        return
    found = found["v"]
    is_same = found == value or (isinstance(value, float) and math.isnan(value) and math.isnan(found))
    assert is_same or _is_rounded(union, value, found) or _is_underlying(union, value, found)
