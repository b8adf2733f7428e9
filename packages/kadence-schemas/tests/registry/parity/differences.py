"""The differences that are known. docs/schemas.md, "What differs", has the less rare ones in its own words.

Each is a question about one answer: whether it is what the line says, and not just any other answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from tests.registry.parity.plain import REFUSED, first_difference

__all__ = ["KNOWN", "NO_COLUMN", "Answer", "Known", "known"]

NO_COLUMN: Final = "(no column)"
"""A reader of columns says that the schema has a type that is none."""

_DAYS: Final = (
    date(1, 1, 1).toordinal() - date(1970, 1, 1).toordinal(),
    date(9999, 12, 31).toordinal() - date(1970, 1, 1).toordinal(),
)
_MICROS: Final = 86_400_000_000
_DIGITS_OF_ALL: Final = 76


@dataclass(frozen=True)
class Answer:
    """One reader's answer that is not the oracle's.

    Attributes:
        format, reader: who read. expected, found: in the form of `plain`. why: what the oracle says of a refusal.
        schema, writer: what it was read as, and what it was written with; of Avro and JSON parsed.
    """

    format: str
    reader: str
    expected: Any
    found: Any
    why: str
    schema: Any
    writer: Any

    @property
    def is_column(self) -> bool:
        return self.reader in ("columns", "spark")

    def has(self, test: Callable[[Any], bool]) -> bool:
        """Whether any value inside the expected one is such."""
        return any(map(test, _leaves(self.expected)))


@dataclass(frozen=True)
class Known:
    """A line of the table.

    Attributes:
        text: what differs. holds: whether an answer is that.
    """

    format: str
    text: str
    holds: Callable[[Answer], bool]


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield name
            yield from _leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _time(value: Any) -> tuple[str, int] | None:
    return value if isinstance(value, tuple) and value[0] in ("instant", "local", "day") else None


def _is_beyond_years(value: Any) -> bool:
    time = _time(value)
    if time is None:
        return False
    first, last = _DAYS
    return not first <= (time[1] if time[0] == "day" else time[1] // _MICROS) <= last


def _is_beyond_micros(value: Any) -> bool:
    time = _time(value)
    return time is not None and not -(2**63) <= time[1] < 2**63


def _has_precision_below(answer: Answer) -> bool:
    """Whether a decimal has more digits than some decimal type of the schema."""
    precisions = [int(each) for each in re.findall(r"'precision': (\d+)", str(answer.schema))]
    return bool(precisions) and answer.has(
        lambda each: isinstance(each, Decimal) and len(each.as_tuple().digits) > min(precisions)
    )


def _has_alias(schema: Any, name: str) -> bool:
    if isinstance(schema, dict):
        return (schema.get("name") == name and "aliases" in schema) or any(
            _has_alias(each, name) for each in schema.values()
        )
    return isinstance(schema, list) and any(_has_alias(each, name) for each in schema)


def _is_of_an_alias(answer: Answer) -> bool:
    field = re.search(r"missing required field (\w+)", answer.why)
    if field is not None:
        return _has_alias(answer.schema, field[1])
    union = re.search(r"Found ([\w.]+), expecting union\[(.*)\]", answer.why)
    if union is None:
        return False
    written = dict(_fields(answer.writer)).get(_short(union[1]), [])
    names = {field["name"] for field in written}
    read = dict(_fields(answer.schema))
    return any(
        names.intersection(field.get("aliases", ()))
        for each in union[2].split(",")
        for field in read.get(_short(each.strip()), ())
    )


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _fields(schema: Any) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The fields of each record of an Avro schema, by its name without namespace."""
    for each in schema if isinstance(schema, list) else schema.values() if isinstance(schema, dict) else ():
        yield from _fields(each)
    if isinstance(schema, dict) and schema.get("type") == "record":
        yield _short(schema["name"]), schema["fields"]


def _is_wrapper_in_the_data_twice(answer: Answer) -> bool:
    """Whether the field that differs is a wrapper, and has what is written of none."""
    path, _, found = first_difference(answer.expected, answer.found)
    field = re.search(
        rf'name: "{path.rpartition(".")[2]}" [^{{}}]*type_name: ".google.protobuf.(\w+)"', answer.schema
    )
    return field is not None and field[1].endswith("Value") and not found


def _is_other_member_of_a_oneof(answer: Answer) -> bool:
    """Whether the field that differs is one of a oneof, of which the data has two."""
    path, expected, _ = first_difference(answer.expected, answer.found)
    name = path.rpartition(".")[2]
    return expected is None and bool(re.search(rf'name: "{name}" [^{{}}]*oneof_index', answer.schema))


def _is_beyond_int64(value: Any) -> bool:
    return isinstance(value, int) and not -(2**63) <= value < 2**63


KNOWN: Final = [
    Known(
        "avro",
        "a union of several types, and a record inside itself, is no column",
        lambda it: it.is_column and it.found == NO_COLUMN,
    ),
    Known(
        "avro",
        "a text that is not UTF-8 makes its record bad; Java puts U+FFFD into it",
        lambda it: it.found == REFUSED and it.has(lambda each: isinstance(each, str) and "\ufffd" in each),
    ),
    Known(
        "avro",
        "a date or time beyond the years 1 to 9999 is bad in records",
        lambda it: it.reader == "records" and it.found == REFUSED and it.has(_is_beyond_years),
    ),
    Known(
        "avro",
        "a time that has no number of microseconds in 64 bits is bad in columns",
        lambda it: it.is_column and it.found == REFUSED and it.has(_is_beyond_micros),
    ),
    Known(
        "avro",
        "a decimal with more digits than its precision is bad in columns",
        lambda it: it.is_column and it.found == REFUSED and _has_precision_below(it),
    ),
    Known(
        "avro",
        "a text that is no UUID is a text in columns; Java and records refuse it",
        lambda it: it.is_column and it.expected == REFUSED and "UUID string" in it.why,
    ),
    Known(
        "avro",
        "a time of day outside the day is a number in columns; Java and records refuse it",
        lambda it: it.is_column and it.expected == REFUSED and "OfDay" in it.why,
    ),
    Known(
        "avro",
        "a field's alias counts in a record of another name, too; Java asks for an alias of the record",
        lambda it: it.expected == REFUSED and _is_of_an_alias(it),
    ),
    Known(
        "avro",
        "a default that is an array in a union stands for a missing field; Java fails",
        lambda it: it.expected == REFUSED and "AvroRuntimeException: Not an array: [" in it.why,
    ),
    Known(
        "avro",
        "a union that is read as one type with a logical type is read; Java converts it twice, and fails",
        lambda it: it.expected == REFUSED and "expected generic type" in it.why,
    ),
    Known(
        "avro",
        "a decimal of no bytes is 0; Java refuses it",
        lambda it: it.expected == REFUSED and it.why == "Zero length BigInteger",
    ),
    Known(
        "protobuf",
        "of a wrapper that stands in the data twice a column has the last one alone",
        lambda it: it.is_column and _is_wrapper_in_the_data_twice(it),
    ),
    Known(
        "protobuf",
        "of a oneof in a message that stands in the data several times a column has each member",
        lambda it: it.is_column and _is_other_member_of_a_oneof(it),
    ),
    Known(
        "json",
        "a whole number beyond 64 bits is no bigint of Spark",
        lambda it: it.reader == "spark" and it.found == REFUSED and it.has(_is_beyond_int64),
    ),
    Known(
        "json",
        "Spark checks no schema",
        lambda it: it.reader == "spark" and it.expected == REFUSED,
    ),
]


def known(answer: Answer) -> Known | None:
    """The line that explains an answer."""
    return next((each for each in KNOWN if each.format == answer.format and each.holds(answer)), None)
