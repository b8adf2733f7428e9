"""The columns of a record: those of Spark's own Kafka connector. Checked once on the driver, with Spark's type names.

A column is found by its exact name, as in the connector; other columns are not written. On the executors the same
columns are selected from Arrow batches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kadence.errors import ConfigError, SerializationError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["COLUMNS", "HEADERS_TYPE", "RecordColumns"]

HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"

COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "topic": ("string",),
    "partition": ("int",),
    "headers": (HEADERS_TYPE,),
}
"""Names and allowed types. value is required, and topic unless the option has one."""


@dataclass(frozen=True, slots=True)
class RecordColumns:
    """The columns of one query that are written.

    Attributes:
        names: their names, as in `COLUMNS`. topic: of all rows; None: from the column topic.
    """

    names: tuple[str, ...]
    topic: str | None

    @classmethod
    def of(cls, given: Iterable[tuple[str, str]], topic: str | None) -> RecordColumns:
        """Choose from a query's columns.

        Args:
            given: name and type, in Spark's short form, of each. topic: the option.

        Raises:
            ConfigError: a column is missing, has another type than allowed, or exists twice.
        """
        columns = list(given)
        chosen = []
        for name, allowed in COLUMNS.items():
            if name == "topic" and topic is not None:
                continue
            types = [kind for column, kind in columns if column == name]
            if len(types) > 1:
                raise ConfigError(f"there are {len(types)} columns {name!r}; keep one of them")
            if types and _plain(types[0]) not in allowed:
                raise ConfigError(
                    f"column {name!r} is {types[0]}, and must be {' or '.join(allowed)}; {_cure(name, types[0])}"
                )
            if types:
                chosen.append(name)
        _must_have(chosen, [column for column, _ in columns], topic)
        return cls(tuple(chosen), topic)

    def records(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of ``rows`` that are written.

        Raises:
            SerializationError: a row has no topic.
        """
        # The producer would use a column timestamp, too, which Spark's connector does not write.
        records = rows.select(list(self.names))
        if self.topic is None and records.column("topic").null_count:
            raise SerializationError(
                "a row has null in its column topic, so its topic is unknown; fill the column, or name one "
                "topic for all rows with the option topic"
            )
        return records


def _plain(kind: str) -> str:
    """The type without a collation, which does not change its bytes."""
    return "string" if kind.startswith("string collate ") else kind


def _cure(name: str, kind: str) -> str:
    if name == "headers":
        return f"cast it: CAST(headers AS {HEADERS_TYPE})"
    if kind.startswith(("struct", "array", "map")) and name in ("value", "key"):
        return f"turn it into text with to_json({name}), or into bytes"
    return f"cast it: CAST({name} AS {COLUMNS[name][0]})"


def _must_have(chosen: list[str], columns: list[str], topic: str | None) -> None:
    for name in ("value", "topic"):
        if name in chosen or (name == "topic" and topic is not None):
            continue
        alike = [column for column in columns if column.lower() == name]
        there = f"rename {alike[0]!r}" if alike else f"there are {', '.join(columns)}"
        if name == "value":
            raise ConfigError(f"the sink needs a column 'value' of type string or binary; {there}")
        raise ConfigError(f"the sink needs the option topic, or a column 'topic' of type string; {there}")
