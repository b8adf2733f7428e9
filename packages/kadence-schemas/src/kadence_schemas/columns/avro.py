"""format avro. pyruhvro decodes whole batches into Arrow, for the types that it supports.

Fastavro decodes single records.

pyruhvro is faster by a factor of 50, but does not support bytes, fixed, decimals, local times and unions of several
types, nor schema resolution. So it is used only if the writer's schema has none of these, and the reader's differs only
by fields that are added as null, left out or moved. fastavro does everything else, including resolution.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kadence.columns.isolation import (
    BadRecordError,
    Decoded,
    WholeRefusedError,
    decode_isolating,
    is_panic,
    rows_of,
)
from kadence.errors import ConfigError
from kadence_schemas import avro_schemas
from kadence_schemas.avro_schemas import Resolution
from kadence_schemas.columns.avro_claims import claims_of
from kadence_schemas.columns.avro_types import TIMES, arrow_of, nullable
from kadence_schemas.columns.fitting import fit, fits, struct_of
from kadence_schemas.schemas import ResolvedSchema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AvroFormat", "parsed", "read_schema"]

_WHOLE: Final = {
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "string",
    "enum",
    "array",
    "map",
    "record",
}
"""The types that pyruhvro supports."""


def read_schema(option: str, text: str) -> str:
    """An Avro schema as JSON text: the option's value, or the content of the file that it names.

    Raises:
        ConfigError: neither.
    """
    if text.lstrip()[:1] in ("{", "[", '"'):
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except OSError as problem:
        raise ConfigError(
            f"option {option}: {text!r} is neither an Avro schema in JSON nor a file that can be read "
            f"({problem.strerror})"
        ) from None


def parsed(found: ResolvedSchema, *, is_writer: bool = False) -> Any:
    """A schema in the form for fastavro, with the logical types of columns.

    Args:
        is_writer: see `kadence_schemas.avro_schemas.parsed`.

    Raises:
        ConfigError: it is not an Avro schema.
    """
    return avro_schemas.parsed(found, TIMES | avro_schemas.NUMBERS, is_writer=is_writer)


class AvroFormat:
    """Makes values of one Arrow type from Avro's binary encoding.

    Args:
        writer: the schema that the data was written with, parsed.
        reader: the schema to read it with; None: the writer's, and further fields of the target are null.
        is_framed: a schema id comes before the data, see `kadence_schemas.avro_schemas.is_raw`.

    Raises:
        ConfigError: the data can never have the target's types.
    """

    def __init__(self, writer: Any, reader: Any, target: pa.DataType, *, is_framed: bool = False) -> None:
        self._is_raw = is_framed and avro_schemas.is_raw(writer)
        if self._is_raw:
            reader = None
        self._reading = Resolution(writer, reader, avro_schemas.NUMBERS)
        self._target = target
        self._arrow = arrow_of(reader if reader is not None else writer, target, as_written=True)
        problem = fits(self._arrow, target)
        if problem is not None:
            raise ConfigError(f"the query's schema does not fit the Avro schema: {problem}")
        self._whole = _refuse
        self._claims = None if self._is_raw else claims_of(writer)
        if self._claims is not None:
            return
        if _is_simple(writer) and (reader is None or _by_name(writer, reader)):
            self._whole = _whole_decoder(writer, target)

    def decode(self, values: pa.Array) -> Decoded:
        return decode_isolating(values, self._whole, self._careful)

    def _careful(self, values: pa.Array) -> Decoded:
        documents: list[Any] = []
        bad: dict[int, str] = {}
        for row, value in enumerate(values.to_pylist()):
            document = None
            try:
                if self._claims is not None:
                    self._claims.check(value)
                document = self._one(value)
            except BadRecordError as problem:
                bad[row] = str(problem)
            documents.append(document)
        return Decoded(rows_of(documents, self._column, bad), bad)

    def _column(self, documents: list[Any]) -> pa.Array:
        import pyarrow as pa

        try:
            return fit(pa.array(documents, self._arrow), self._target)
        except (pa.ArrowException, OverflowError):
            raise BadRecordError("a value does not fit the type of its field") from None

    def _one(self, value: bytes) -> Any:
        if self._is_raw:
            return value
        import fastavro

        try:
            return self._reading.one(io.BytesIO(value))
        except UnicodeDecodeError:
            raise BadRecordError("not Avro of this schema: a text is not UTF-8") from None
        except fastavro.read.SchemaResolutionError:
            raise BadRecordError("the writer's schema cannot be read with the reader's") from None
        except Exception as problem:  # noqa: BLE001 - what the bytes make it trip over can be anything
            raise BadRecordError(f"not Avro of this schema ({type(problem).__name__})") from None


def _refuse(values: pa.Array) -> pa.Array:
    raise WholeRefusedError


def _whole_decoder(writer: Any, target: pa.DataType) -> Any:
    try:
        import pyruhvro
    except ImportError:
        return _refuse
    text = json.dumps(_plain(writer))
    return partial(_whole, pyruhvro.deserialize_array, text, target)


def _whole(deserialize: Any, text: str, target: pa.DataType, values: pa.Array) -> pa.Array:
    import pyarrow as pa

    if not len(values):
        return pa.nulls(0, target)
    try:
        batch = deserialize(values.to_pylist(), text)
    except ValueError:
        raise WholeRefusedError from None
    except BaseException as problem:
        # Any other exception of this kind must not be caught here.
        if not is_panic(problem):
            raise
        raise WholeRefusedError from None
    if batch.num_rows != len(values):
        raise WholeRefusedError
    try:
        # pyruhvro has cut an int of more than 32 bits, which no writer produces, to 32 bits: that is not visible here.
        # pyruhvro does not check that strings are UTF-8; the full validation does.
        batch.validate(full=True)
        return fit(struct_of(batch), target)
    except (pa.ArrowInvalid, BadRecordError):
        raise WholeRefusedError from None


def _plain(schema: Any) -> Any:
    """The schema without the marks of fastavro's parser."""
    if isinstance(schema, Mapping):
        return {name: _plain(item) for name, item in schema.items() if not name.startswith("__")}
    return [_plain(item) for item in schema] if isinstance(schema, list) else schema


def _is_simple(schema: Any, *, outermost: bool = True) -> bool:
    """Whether pyruhvro supports all of a record; it accepts only records."""
    if isinstance(schema, str):
        # A name that is not a primitive type refers to another definition.
        return schema in _WHOLE and not outermost
    if isinstance(schema, list):
        inner = nullable(schema)
        # It turns a union of one type into a union; if that is null in a record that is null, Arrow ends the process.
        return not outermost and len(schema) == 2 and inner is not None and _is_simple(inner, outermost=False)
    kind = schema["type"]
    if isinstance(kind, dict | list):
        return _is_simple(kind, outermost=outermost)
    if kind not in _WHOLE or (outermost and kind != "record"):
        return False
    if schema.get("logicalType") not in (None, "date", "timestamp-millis", "timestamp-micros"):
        return False
    children = [field["type"] for field in schema.get("fields", ())]
    children += [schema[name] for name in ("items", "values") if name in schema]
    return all(_is_simple(child, outermost=False) for child in children)


def _by_name(writer: Any, reader: Any) -> bool:
    """Whether reading with the reader's schema only means taking fields by name, and null for missing ones."""
    if writer == reader:
        return True
    if isinstance(writer, list) or isinstance(reader, list):
        mine, theirs = (
            nullable(schema) if isinstance(schema, list) else schema for schema in (writer, reader)
        )
        # A null that the reader does not allow is an error, which fastavro finds.
        if mine is None or theirs is None or (isinstance(writer, list) and not isinstance(reader, list)):
            return False
        return _by_name(mine, theirs)
    if not isinstance(writer, dict) or not isinstance(reader, dict):
        return False
    if writer["type"] != reader["type"] or reader.get("aliases"):
        return False
    if writer["type"] == "record" and writer["name"] == reader["name"]:
        have = {field["name"]: field["type"] for field in writer["fields"]}
        return all(
            not field.get("aliases")
            and (
                _by_name(have[field["name"]], field["type"])
                if field["name"] in have
                else "default" in field and field["default"] is None
            )
            for field in reader["fields"]
        )
    return writer["type"] in ("array", "map") and all(
        _by_name(writer[name], reader[name]) for name in ("items", "values") if name in writer
    )
