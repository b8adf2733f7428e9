"""Bounds for a record in Avro: as many elements as it has bytes, and 100 nested records.

Nearly all values take a byte at least, so their number is bounded by the bytes. But elements of an array whose type
takes no bytes (null, a record without fields) are not: five bytes can claim a billion of them. And a recursive record,
in a field that the query leaves out, can be nested as deeply as it has bytes; fastavro follows until the stack is used
up. So data of such schemas, which are rare, is checked once before it is read.
"""

from __future__ import annotations

from typing import Any, Final

from kadence.columns.isolation import BadRecordError

__all__ = ["Claims", "claims_of"]

DEPTH: Final = 100
"""The default depth of Protobuf's readers."""

_FIXED: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def claims_of(schema: Any) -> Claims | None:
    """The check for data of a parsed schema; None if its bytes bound it."""
    claims = Claims(schema)
    return claims if claims.is_needed else None


class Claims:
    """The check for one schema's data.

    Attributes:
        is_needed: whether data can claim more elements than it has bytes, or unbounded nesting.
    """

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self._named: dict[str, Any] = {}
        self._takes_nothing: dict[str, bool] = {}
        if isinstance(schema, dict):
            # Where fastavro's parser leaves the definitions that came from elsewhere.
            self._named |= schema.get("__named_schemas", {})
        self.is_needed = False
        self._look_at(schema, ())

    def check(self, value: bytes) -> None:
        """Check one record.

        Raises:
            BadRecordError: it exceeds the bounds, or ends too early.
        """
        _Passage(value, self._named).pass_over(self._schema, 0)

    def _look_at(self, schema: Any, inside: tuple[str, ...]) -> bool:
        """Whether values of a type take no bytes; records its definitions, and whether the check is needed."""
        if isinstance(schema, list):
            for item in schema:
                self._look_at(item, inside)
            return False
        if isinstance(schema, str):
            if schema in inside:
                self.is_needed = True
                return True
            if schema in self._takes_nothing:
                return self._takes_nothing[schema]
            return self._look_at(self._named[schema], inside) if schema in self._named else schema == "null"
        kind = schema["type"]
        if "name" in schema:
            self._named[schema["name"]] = schema
        if kind in ("record", "error"):
            name = schema["name"]
            found = [self._look_at(field["type"], (*inside, name)) for field in schema["fields"]]
            self._takes_nothing[name] = all(found)
            return all(found)
        if kind == "array":
            # Not by |=, which would lose the result of the inner call.
            if self._look_at(schema["items"], inside):
                self.is_needed = True
            return False
        if kind == "map":
            self._look_at(schema["values"], inside)
            return False
        if kind == "fixed":
            return bool(schema["size"] == 0)
        return False if kind == "enum" else self._look_at(kind, inside)


class _Passage:
    """Goes through the bytes of one record without creating values."""

    def __init__(self, value: bytes, named: dict[str, Any]) -> None:
        self._value = value
        self._named = named
        self._at = 0
        self._elements = 0

    def pass_over(self, schema: Any, depth: int) -> None:
        if isinstance(schema, list):
            index = self._number()
            if not 0 <= index < len(schema):
                raise BadRecordError("not Avro of this schema (IndexError)")
            self.pass_over(schema[index], depth)
            return
        if isinstance(schema, str):
            schema = self._named.get(schema, {"type": schema})
        kind = schema["type"]
        if kind in ("record", "error"):
            if depth == DEPTH:
                raise BadRecordError(f"more than {DEPTH} nested records")
            for field in schema["fields"]:
                self.pass_over(field["type"], depth + 1)
        elif kind == "array":
            self._blocks(schema["items"], depth, with_keys=False)
        elif kind == "map":
            self._blocks(schema["values"], depth, with_keys=True)
        elif kind in ("int", "long", "enum"):
            self._number()
        elif kind in ("string", "bytes"):
            self._step(self._number())
        elif kind == "fixed":
            self._step(schema["size"])
        elif isinstance(kind, str) and kind in _FIXED:
            self._step(_FIXED[kind])
        else:
            self.pass_over(kind, depth)

    def _blocks(self, schema: Any, depth: int, *, with_keys: bool) -> None:
        while count := self._number():
            if count < 0:
                # The size of the block follows, for readers that skip it.
                count = -count
                self._number()
            self._elements += count
            if self._elements > len(self._value):
                raise BadRecordError("an array or map claims more elements than the record has bytes")
            for _ in range(count):
                if with_keys:
                    self._step(self._number())
                self.pass_over(schema, depth)

    def _step(self, size: int) -> None:
        if not 0 <= size <= len(self._value) - self._at:
            raise BadRecordError("not Avro of this schema (EOFError)")
        self._at += size

    def _number(self) -> int:
        raw = shift = 0
        while True:
            if self._at == len(self._value):
                raise BadRecordError("not Avro of this schema (EOFError)")
            byte = self._value[self._at]
            self._at += 1
            if shift > 63:
                # Further bytes would make a larger number, and take longer.
                raise BadRecordError("not Avro of this schema (a number has more than 64 bits)")
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
