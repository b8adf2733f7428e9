"""The source's columns: those of Spark's own Kafka connector, with their names and Spark's type names.

A user's ``.schema("offset long, value binary")`` is a projection: those columns, in that order. Spark does not prune
columns of a source in Python by itself, so only the user can leave out columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kadence.errors import ConfigError

__all__ = ["COLUMNS", "HEADERS", "all_columns", "projection"]

COLUMNS: Final[dict[str, str]] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""Names and types of the fixed columns. timestampType: -1 none, 0 set by the producer, 1 set by the broker."""

HEADERS: Final = "headers"
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"


def all_columns() -> dict[str, str]:
    """Names and types, with headers."""
    return COLUMNS | {HEADERS: _HEADERS_TYPE}


def projection(given: Iterable[tuple[str, str]], *, include_headers: bool) -> tuple[str, ...]:
    """The columns that a user's schema asks for, as (name, type in Spark's short form) pairs, in the spelling here.

    Raises:
        ConfigError: a name or type that the source does not have.
    """
    known = {name.lower(): (name, kind) for name, kind in all_columns().items()}
    chosen: list[str] = []
    for name, kind in given:
        ours = known.get(name.lower())
        if ours is None:
            raise ConfigError(
                f"the source has no column {name!r}; a schema chooses from {', '.join(COLUMNS)} and, with "
                "includeHeaders=true, headers. To give the value a structure decode it after load()"
            )
        if kind.replace(" ", "").lower() != ours[1]:
            raise ConfigError(f"column {name!r} is {ours[1]}, not {kind}; cast it after load()")
        if ours[0] == HEADERS and not include_headers:
            raise ConfigError("the schema names headers, which need the option includeHeaders=true")
        chosen.append(ours[0])
    return tuple(chosen)
