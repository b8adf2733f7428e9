"""The canonical text that Confluent's registry makes of an Avro schema before it compares or stores it.

It equals the output of ``Schema.toString()`` of Avro for Java: attributes in a fixed order, without defaults (the order
"ascending", the enclosing namespace), and a type's name alone if it has no other attributes. Properties that Avro does
not know come last, in their own order.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

__all__ = ["avro_text"]

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_RESERVED: Final = frozenset(
    {"type", "name", "namespace", "doc", "fields", "items", "values", "symbols", "size", "aliases"}
)
_FIELD_RESERVED: Final = frozenset({"type", "name", "doc", "default", "order", "aliases"})


def avro_text(schema: Any, *, normalized: bool = False) -> str:
    """The text of a schema that is parsed JSON.

    Args:
        normalized: sort properties that Avro does not know by name.
    """
    made = _written(schema, "", normalized)
    return json.dumps(made, separators=(",", ":"), ensure_ascii=False)


def _written(schema: Any, space: str, normalized: bool) -> Any:
    """Any schema, inside the namespace ``space``. Other values are returned unchanged, for the check of schemas."""
    if isinstance(schema, str):
        return schema if schema in _PRIMITIVES else _relative(schema, space)
    if isinstance(schema, list):
        return [_written(each, space, normalized) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    if kind in ("record", "error", "enum", "fixed"):
        return _named(schema, space, normalized)
    inner = {"array": "items", "map": "values"}.get(kind) if isinstance(kind, str) else None
    others = _others(schema, _RESERVED, normalized)
    if inner is not None:
        return {"type": kind, inner: _written(schema.get(inner), space, normalized), **others}
    written = _written(kind, space, normalized)
    return {"type": written, **others} if others and isinstance(kind, str) else written


def _named(schema: Mapping[str, Any], outer: str, normalized: bool) -> dict[str, Any]:
    """A record, an enum or a fixed."""
    space, _, name = str(schema.get("name", "")).rpartition(".")
    if not space:
        given = schema.get("namespace")
        space = given if isinstance(given, str) else outer
    made = {"type": schema["type"], "name": name}
    if space != outer:
        made["namespace"] = space
    if isinstance(schema.get("doc"), str):
        made["doc"] = schema["doc"]
    reserved = _RESERVED
    if schema["type"] == "enum":
        made["symbols"] = schema.get("symbols")
        reserved |= {"default"}
        if isinstance(schema.get("default"), str):
            made["default"] = schema["default"]
    elif schema["type"] == "fixed":
        made["size"] = schema.get("size")
    else:
        fields = schema.get("fields")
        if isinstance(fields, list):
            fields = [_field(each, space, normalized) for each in fields]
        made["fields"] = fields
    made.update(_others(schema, reserved, normalized))
    aliases = schema.get("aliases")
    if aliases:
        made["aliases"] = [_relative(str(each), space) for each in aliases]
    return made


def _field(field: Any, space: str, normalized: bool) -> Any:
    if not isinstance(field, dict):
        return field
    made = {"name": field.get("name"), "type": _written(field.get("type"), space, normalized)}
    if isinstance(field.get("doc"), str):
        made["doc"] = field["doc"]
    if "default" in field:
        made["default"] = field["default"]
    order = field.get("order")
    if isinstance(order, str) and order.lower() != "ascending":
        made["order"] = order.lower()
    if field.get("aliases"):
        made["aliases"] = field["aliases"]
    return made | _others(field, _FIELD_RESERVED, normalized)


def _relative(name: str, space: str) -> str:
    """A name as it is written inside a namespace."""
    own, _, simple = name.rpartition(".")
    return simple if own == space and simple not in _PRIMITIVES else name


def _others(schema: Mapping[str, Any], reserved: Collection[str], normalized: bool) -> dict[str, Any]:
    names = [name for name in schema if name not in reserved]
    return {name: schema[name] for name in (sorted(names) if normalized else names)}
