"""Avro's types as Arrow types, the same as those of Spark's own Avro reader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kadence.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["TIMES", "arrow_of", "nullable"]

TIMES: Final = frozenset(
    {
        "date",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    }
)
"""The supported logical types other than decimals; values of any other keep their underlying type."""

MOST_DIGITS: Final = 76
"""The most digits of an Arrow decimal."""


def nullable(union: list[Any]) -> Any:
    """The type of a union of one type, or of null and one other; None for other unions."""
    others = [item for item in union if item != "null"] or union
    return others[0] if len(others) == 1 and len(union) <= 2 else None


def arrow_of(schema: Any, wanted: pa.DataType | None = None, *, as_written: bool = False) -> pa.DataType:
    """The Arrow type of a parsed schema's values.

    Args:
        wanted: the query's type: for records only the fields that it names; None for all. as_written: times in the unit
            of the data. Otherwise microseconds, as in Spark.

    Raises:
        ConfigError: a type that cannot be a column, such as a union of several types, or a recursive record.
    """
    # fastavro's parser keeps definitions from references here.
    named = schema.get("__named_schemas", {}) if isinstance(schema, dict) else {}
    return _Types(dict(named), as_written=as_written).of(schema, wanted, "")


class _Types:
    def __init__(self, named: dict[str, Any], *, as_written: bool) -> None:
        self._named = named
        self._as_written = as_written
        self._open: list[str] = []

    def of(self, schema: Any, wanted: pa.DataType | None, path: str) -> pa.DataType:
        import pyarrow as pa

        if isinstance(schema, list):
            inner = nullable(schema)
            if inner is None:
                others = [item for item in schema if item != "null"]
                for group, kind in (({"int", "long"}, pa.int64()), ({"float", "double"}, pa.float64())):
                    if others and all(isinstance(item, str) and item in group for item in others):
                        return kind
                raise ConfigError(
                    f"field {path or '(all)'} is a union of several types, which cannot be a column"
                )
            return self.of(inner, wanted, path)
        if isinstance(schema, str):
            if schema in self._named:
                return self.of(self._named[schema], wanted, path)
            return self._primitive(schema, {}, path)
        kind = schema["type"]
        if kind in ("record", "error"):
            return self._record(schema, wanted, path)
        if "name" in schema:
            self._named[schema["name"]] = schema
        if kind == "array":
            element = wanted.value_type if wanted is not None and pa.types.is_list(wanted) else None
            return pa.list_(self.of(schema["items"], element, f"{path}[]"))
        if kind == "map":
            item = wanted.item_type if wanted is not None and pa.types.is_map(wanted) else None
            return pa.map_(pa.string(), self.of(schema["values"], item, f"{path}[]"))
        if isinstance(kind, dict | list):
            return self.of(kind, wanted, path)
        if kind in self._named and kind != "enum":
            return self.of(self._named[kind], wanted, path)
        return self._primitive(kind, schema, path)

    def _record(self, schema: Any, wanted: pa.DataType | None, path: str) -> pa.DataType:
        import pyarrow as pa

        name = schema["name"]
        if name in self._open:
            raise ConfigError(f"field {path} is a recursive record, which cannot be a column")
        self._named[name] = schema
        self._open.append(name)
        chosen = None
        if wanted is not None and pa.types.is_struct(wanted):
            chosen = {item.name: item.type for item in wanted}
        fields = [
            (
                item["name"],
                self.of(
                    item["type"],
                    None if chosen is None else chosen[item["name"]],
                    f"{path}.{item['name']}" if path else item["name"],
                ),
            )
            for item in schema["fields"]
            if chosen is None or item["name"] in chosen
        ]
        self._open.pop()
        return pa.struct(fields)

    def _primitive(self, kind: str, schema: dict[str, Any], path: str) -> pa.DataType:
        import pyarrow as pa

        logical = schema.get("logicalType")
        if logical == "decimal":
            precision, scale = schema["precision"], schema.get("scale", 0)
            if precision > MOST_DIGITS:
                raise ConfigError(
                    f"field {path or '(all)'} is a decimal of {precision} digits; a column has at most {MOST_DIGITS}"
                )
            return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)
        if logical == "date":
            return pa.date32()
        if logical in TIMES:
            unit = "ms" if self._as_written and logical.endswith("-millis") else "us"
            return pa.timestamp(unit, None if logical.startswith("local") else "UTC")
        known = {
            "null": pa.null(),
            "boolean": pa.bool_(),
            "int": pa.int32(),
            "long": pa.int64(),
            "float": pa.float32(),
            "double": pa.float64(),
            "string": pa.string(),
            "enum": pa.string(),
            "bytes": pa.binary(),
            "fixed": pa.binary(),
        }
        if kind not in known:
            raise ConfigError(f"Avro type {kind} cannot be a column")
        return known[kind]
