"""Single fields of values as columns: ``columns=["amount", "from.city"]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kadence.reading.json_values import fitted

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["field_of", "fit_field", "path_to", "top_level"]


def path_to(kind: pa.DataType, name: str) -> list[str] | None:
    """The names of the fields on the path to one, from the outermost on; None: there is no such field.

    Args:
        name: ``city``, ``from.city``, or ``value.from.city``, as ``flatten()`` calls it. Names of fields may have dots.
    """
    found = _path(kind, name)
    return _path(kind, name.removeprefix("value.")) if found is None and name.startswith("value.") else found


def _path(kind: pa.DataType, name: str) -> list[str] | None:
    import pyarrow as pa

    if not pa.types.is_struct(kind):
        return None
    names = {field.name: field.type for field in kind}
    if name in names:
        return [name]
    parts = name.split(".")
    for number in range(1, len(parts)):
        first = ".".join(parts[:number])
        rest = _path(names[first], ".".join(parts[number:])) if first in names else None
        if rest is not None:
            return [first, *rest]
    return None


def field_of(values: Any, name: str) -> Any:
    """One field of a column of values; all null if the values have no field of this name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    path = path_to(values.type, name)
    return pa.chunked_array([pa.nulls(len(values))]) if path is None else pc.struct_field(values, path)


def fit_field(column: Any, kind: pa.DataType, name: str) -> Any:
    """A field that was picked earlier, cast to the type that it has in values of this type."""
    import pyarrow as pa

    path = path_to(kind, name)
    if path is None:
        return column
    for step in path:
        kind = kind.field(step).type
    return pa.chunked_array([fitted(chunk, kind) for chunk in column.chunks], kind)


def top_level(kind: pa.DataType, names: Sequence[str]) -> pa.DataType:
    """A type with only the fields on the paths to these.

    Raises:
        ValueError: there is no field of a name.
    """
    import pyarrow as pa

    wanted = set()
    for name in names:
        path = path_to(kind, name)
        if path is None:
            raise ValueError(f"columns: the schema has no field {name!r}")
        wanted.add(path[0])
    return pa.struct([field for field in kind if field.name in wanted])
