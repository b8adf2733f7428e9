"""The JSON Schema of a pipeline's file, from the table in `model`: editors complete and check files with it."""

from __future__ import annotations

import json
from typing import Any

from kadence_spark.option_names import OF_SOURCE
from kadence_spark.pipeline.model import ANY_KEYS, Kind, Pipeline, keys, required

__all__ = ["json_schema", "schema_text"]

_SETTING = {"type": ["string", "number", "boolean"]}
_SETTINGS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {"anyOf": [_SETTING, {"$ref": "#/$defs/settings"}]},
}


def json_schema() -> dict[str, Any]:
    """The schema as a document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A pipeline of Kadence",
        **_table(Pipeline),
        "$defs": {"settings": _SETTINGS},
    }


def schema_text() -> str:
    """The schema as the text of its file."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _table(of: type) -> dict[str, Any]:
    known = keys(of)
    rest = "options" in known and known["options"][1].shape == ANY_KEYS
    properties = {name: _value(each, kind) for name, (each, kind) in known.items()}
    if of.__name__ == "SourceStep":
        properties |= {name: {**_SETTING, "description": text} for name, text in OF_SOURCE.items()}
        properties["kafka"] = {"$ref": "#/$defs/settings", "description": "Client settings by Kafka's names."}
    return {
        "type": "object",
        "properties": properties,
        # A pipeline's name is that of its file unless it says another.
        "required": [
            name for name, (each, _) in known.items() if required(each) and (of, name) != (Pipeline, "name")
        ],
        "additionalProperties": {"anyOf": [_SETTING, {"$ref": "#/$defs/settings"}]} if rest else False,
    }


def _value(each: Any, kind: Kind) -> dict[str, Any]:
    shown: dict[str, Any] = {"description": kind.doc}
    match kind.shape:
        case "table":
            assert kind.of is not None
            shown |= _table(kind.of)
        case "tables":
            assert kind.of is not None
            shown |= {"type": "array", "items": _table(kind.of)}
        case "any_keys":
            shown |= {"$ref": "#/$defs/settings"}
        case "boolean":
            shown |= {"type": "boolean"}
        case "texts":
            shown |= {"type": "array", "items": {"type": "string"}, "minItems": 1}
        case _:
            shown |= {"type": "string"}
    if kind.choices:
        shown["enum"] = list(kind.choices)
    if kind.pattern is not None:
        shown["pattern"] = f"^(?:{kind.pattern.pattern})$"
    if each.default is not None and isinstance(each.default, str | bool):
        shown["default"] = each.default
    return shown
