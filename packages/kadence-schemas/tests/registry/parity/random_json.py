"""JSON Schemas at random, documents that are of them or nearly so, and other versions of the schemas."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any, Final

import pyarrow as pa

__all__ = ["JsonSchemas", "arrow_of"]

_DRAFTS: Final = (
    None,
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
_SCALARS: Final = ("integer", "number", "string", "boolean")
_ARROW: Final = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "string": pa.string(),
    "boolean": pa.bool_(),
}


def arrow_of(schema: Any) -> pa.DataType | None:
    """The column for a schema; None where its values are of several types."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "object":
        found = [(name, arrow_of(each)) for name, each in schema.get("properties", {}).items()]
        fields = [(name, each) for name, each in found if each is not None]
        return pa.struct(fields) if fields else None
    if kind == "array":
        item = arrow_of(schema.get("items"))
        return None if item is None else pa.list_(item)
    return _ARROW.get(kind) if isinstance(kind, str) else None


class JsonSchemas:
    """One chain of versions."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._number = 0

    def new(self) -> Any:
        """An object's schema."""
        made = self._object(2)
        draft = self._chance.choice(_DRAFTS)
        return made if draft is None else {"$schema": draft, **made}

    def _object(self, depth: int) -> dict[str, Any]:
        properties = {self._name(): self._type(depth) for _ in range(self._chance.randint(1, 5))}
        made: dict[str, Any] = {"type": "object", "properties": properties}
        if self._chance.random() < 0.5:
            made["required"] = self._chance.sample(list(properties), self._chance.randint(1, len(properties)))
        if self._chance.random() < 0.3:
            made["additionalProperties"] = self._chance.choice([True, False, {"type": "string"}])
        return made

    def _name(self) -> str:
        self._number += 1
        return f"{self._chance.choice(['p', 'é', 'a b'])}{self._number}"

    def _type(self, depth: int) -> Any:
        draw = self._chance.random()
        if depth and draw < 0.2:
            return self._object(depth - 1)
        if depth and draw < 0.35:
            made = {"type": "array", "items": self._type(depth - 1)}
            if self._chance.random() < 0.3:
                made |= self._chance.choice([{"maxItems": 2}, {"minItems": 1}, {"uniqueItems": True}])
            return made
        if draw < 0.45:
            return {"type": ["null", self._chance.choice(_SCALARS)]}
        if draw < 0.55:
            word = self._chance.choice(["anyOf", "oneOf"])
            return {word: [{"type": "null"}, self._scalar(), self._scalar()]}
        if draw < 0.6:
            return self._chance.choice([{"enum": ["a", 1, None, 1.5]}, {"enum": [[1], {"a": 1}, True]}, {}])
        return self._scalar()

    def _scalar(self) -> dict[str, Any]:
        kind = self._chance.choice(_SCALARS)
        made: dict[str, Any] = {"type": kind}
        if self._chance.random() < 0.4:
            limits: dict[str, list[dict[str, Any]]] = {
                "integer": [{"minimum": 0}, {"maximum": 100}, {"multipleOf": 5}],
                "number": [{"minimum": -1.5}, {"multipleOf": 0.5}],
                "string": [{"minLength": 1}, {"maxLength": 2}, {"pattern": "^[a-z]*$"}, {"format": "date"}],
                "boolean": [{"enum": [True]}],
            }
            made |= self._chance.choice(limits[kind])
        return made

    def changed(self, schema: Any) -> Any:
        """Another version: properties come and go, limits fall, types widen or narrow."""
        made = deepcopy(schema)
        self._change(made)
        return made

    def _change(self, schema: Any) -> None:
        if not isinstance(schema, dict):
            return
        draw = self._chance.random()
        kind = schema.get("type")
        if kind in _SCALARS and draw < 0.3:
            schema["type"] = self._chance.choice(
                ["number", ["null", kind], "string", sorted({kind, "integer"})]
            )
        elif draw < 0.4:
            for word in ("minimum", "maximum", "pattern", "maxLength", "minItems", "required"):
                schema.pop(word, None)
        properties = schema.get("properties", {})
        for name in list(properties):
            if self._chance.random() < 0.1:
                del properties[name]
            else:
                self._change(properties[name])
        if "properties" in schema and self._chance.random() < 0.3:
            properties[self._name()] = self._type(1)
        if "required" in schema:
            # Draft 4 allows no empty list.
            kept = [name for name in schema["required"] if name in properties]
            schema["required"] = kept or ["absent"]
        self._change(schema.get("items"))

    def document(self, schema: Any) -> Any:
        """A value of the schema, mostly."""
        if not isinstance(schema, dict) or self._chance.random() < 0.03:
            return self._chance.choice([None, 1, 1.0, "a", [], {}, True, -0.5, 10**30])
        if "enum" in schema:
            return self._chance.choice(schema["enum"])
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.document(self._chance.choice(schema[word]))
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self._chance.choice(kind)
        if kind == "object":
            required = schema.get("required", ())
            made = {
                name: self.document(each)
                for name, each in schema.get("properties", {}).items()
                if name in required or self._chance.random() < 0.7
            }
            return made | ({"more": self._chance.choice(["x", 5])} if self._chance.random() < 0.15 else {})
        if kind == "array":
            return [self.document(schema.get("items")) for _ in range(self._chance.choice([0, 1, 1, 2, 3]))]
        values: dict[str, list[Any]] = {
            "integer": [0, 5, 100, -5, 2**53 + 1, 2**63 - 1, -(2**63)],
            "number": [0.5, -1.5, 5, 0.1, 1e300, 2.5e-7, -0.0],
            "string": ["", "a", "ab", "é✎", "𝕏", "abc", "2024-01-01", '"\\\n'],
            "boolean": [True, False],
        }
        return self._chance.choice(values.get(str(kind), [None]))
