"""JSON with a schema registry: serialiser and deserialiser.

The bytes are the same as those of confluent-kafka's serialiser without orjson: compact, UTF-8, in the order of the
dict.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, Final

from kadence.errors import ConfigError, MissingDependencyError, SerializationError
from kadence_schemas.client import SchemaRegistryClient
from kadence_schemas.framing import HEADER, Frame, said_of
from kadence_schemas.reading import Frames
from kadence_schemas.schemas import JSON, ResolvedSchema, Schema
from kadence_schemas.subjects import SubjectNameStrategy, may_name_contexts, topic_subject
from kadence_schemas.writing import SchemaIdIn, Subjects, Writing, schema_of

__all__ = ["JsonSchemaDeserializer", "JsonSchemaSerializer"]

Headers = Any
Check = Callable[[Any], None]

_MOST_SHOWN: Final = 100
"""How many characters of a place in a schema an error shows."""


_TOO_MANY_STEPS: Final = (
    "the check against its JSON Schema may take too long (docs/schemas.md, limits of JSON Schema)"
)


class JsonSchemaSerializer:
    """Writes values as JSON, with the id of their JSON Schema before them (Confluent's wire format).

    Give it to a producer as ``value_serializer=``. By default the first record of a topic registers the schema.

    Args:
        registry: a client, which many serialisers may share.
        schema: the JSON Schema as text, parsed, or as `Schema` with references. None: the subject's latest, with
            ``use_latest_version``. to_dict: turns an object into a value for JSON.
        validate: check each value against the schema. False: jsonschema is not needed.
        auto_register, use_latest_version, normalize, is_key, schema_id_in: as for `AvroSerializer`.
            subject_name_strategy: as for `AvroSerializer`; the record's name is the schema's title.

    Raises:
        ConfigError: the schema is not a JSON Schema.
        MissingDependencyError: jsonschema is not installed (``pip install 'kadence[json-schema]'``).
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        validate: bool = True,
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
        subject_name_strategy: SubjectNameStrategy | str = topic_subject,
        is_key: bool | None = None,
        schema_id_in: SchemaIdIn = "data",
    ) -> None:
        made = None if schema is None else schema_of(schema, JSON)
        parsed = None if made is None else _parsed(made.schema_str)
        check = None
        if made is not None and not (made.references and may_name_contexts(subject_name_strategy)):
            check = _check_of(registry.resolve_schema(made, is_new=auto_register), validate=validate)
        title = parsed.get("title") if isinstance(parsed, dict) else None
        self._to_dict = to_dict
        self._writing = Writing(
            registry,
            made,
            Subjects(subject_name_strategy, is_key=is_key, record=title if isinstance(title, str) else None),
            lambda found, subject: (
                check
                if found is made and check is not None
                else _check_of(
                    registry.resolve_schema(found, subject, is_new=found is made and auto_register),
                    validate=validate,
                )
            ),
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            schema_id_in=schema_id_in,
        )

    def for_keys(self) -> JsonSchemaSerializer:
        """The serialiser for a producer's ``key.serializer``: the same for keys, unless ``is_key`` was given."""
        made = copy(self)
        made._writing = self._writing.for_keys()
        return made

    def serialize(self, topic: str, headers: Headers, data: Any, /) -> bytes:
        """The bytes of a value; see the class for what it raises.

        Raises:
            SerializationError: the value does not match the schema. ValueError: it contains NaN or an infinity, which
                JSON lacks.
        """
        header, check = self._writing.of(topic, headers)
        value = data if self._to_dict is None else self._to_dict(data)
        check(value)
        return header + json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


class JsonSchemaDeserializer:
    """Reads values that are JSON with the id of their JSON Schema before them (Confluent's wire format).

    Give it to a consumer as ``value_deserializer=``.

    Args:
        registry: a client, which many deserialisers may share. It may be None if ``schema`` is given, or ``validate``
            is False; it is not used then. schema: the schema to check values against, instead of the writer's: as text,
            parsed or as `Schema`.
        from_dict: turns a value into an object.
        validate: check each value against the schema. False: jsonschema is not needed.
        subject_name_strategy, is_key: as for `AvroDeserializer`.

    Raises:
        ConfigError: the schema is not a JSON Schema, or neither a registry nor a schema is given.
        MissingDependencyError: jsonschema is not installed (``pip install 'kadence[json-schema]'``).
    """

    def __init__(
        self,
        registry: SchemaRegistryClient | None,
        schema: str | Mapping[str, Any] | Schema | None = None,
        *,
        from_dict: Callable[[Any], Any] | None = None,
        validate: bool = True,
        subject_name_strategy: SubjectNameStrategy | str | None = None,
        is_key: bool | None = None,
    ) -> None:
        check: Check | None = None if validate else _nothing
        self._registry = registry
        self._from_dict = from_dict
        if schema is not None and validate:
            check = _check_of(_resolved(registry, schema_of(schema, JSON)), validate=True)
        if check is None:
            if registry is None:
                raise ConfigError("a JsonSchemaDeserializer that validates needs a registry or a schema")
            _jsonschema()
        self._frames = Frames(self._check_of, fixed=check, is_key=is_key, strategy=subject_name_strategy)

    def for_keys(self) -> JsonSchemaDeserializer:
        """The deserialiser for a consumer's ``key.deserializer``: the same for keys, unless ``is_key`` was given."""
        made = copy(self)
        made._frames = self._frames.for_keys(made._check_of)
        return made

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> Any:
        """The value.

        Raises:
            SerializationError: the bytes are not JSON, do not match the schema that they name, or it does not exist.
            SchemaRegistryError: the registry does not answer.
        """
        known = None if headers else self._frames.quick.get(data[:HEADER])
        check, start = known or self._frames.of(topic, headers, data)
        try:
            value = json.loads(data[start:])
        except (ValueError, RecursionError) as problem:
            raise SerializationError(
                "no JSON comes after the schema id" if start else "it is not JSON"
            ) from problem
        check(value)
        return value if self._from_dict is None else self._from_dict(value)

    def _check_of(self, frame: Frame) -> Check:
        assert self._registry is not None
        # Not in the `try`: a refusal by the registry says nothing about the schema.
        resolved = self._registry.resolve_one(frame.schema, JSON, frame.subject)
        try:
            return _check_of(resolved, validate=True)
        except ConfigError as problem:
            return _refusing(f"{said_of(frame.schema)} cannot be used: {problem}")


def _resolved(registry: SchemaRegistryClient | None, schema: Schema) -> ResolvedSchema:
    if registry is not None:
        return registry.resolve_schema(schema)
    if schema.references:
        raise ConfigError("a schema with references needs the registry that has them")
    return ResolvedSchema(JSON, schema.schema_str)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as problem:
        raise ConfigError(f"this is not a JSON Schema: {problem}") from None
    except RecursionError:
        raise ConfigError("this JSON Schema is nested too deeply") from None


def _check_of(resolved: ResolvedSchema, *, validate: bool) -> Check:
    """The check of values against a schema.

    Raises:
        ConfigError: it is not a JSON Schema.
    """
    schema = _parsed(resolved.text)
    if not validate:
        return _nothing
    _jsonschema()
    from referencing.exceptions import Unresolvable

    from kadence_schemas.bounded import BoundedSchema
    from kadence_schemas.steps import TooManyStepsError

    references = _all_references(resolved, {})
    try:
        bounded = BoundedSchema(schema, references)
    except MemoryError:
        raise
    except TooManyStepsError:
        raise ConfigError("this JSON Schema is too large, or compares too much, to be checked") from None
    # Something that is not a schema, such as 5 or {"$schema": 5}, may cause any Python error.
    except Exception as problem:  # noqa: BLE001
        raise ConfigError(f"this is not a JSON Schema: {type(problem).__name__}") from None

    def check(value: Any) -> None:
        try:
            refusal = bounded.refusal(value)
        except TooManyStepsError:
            raise SerializationError(_TOO_MANY_STEPS) from None
        except RecursionError:
            raise SerializationError("the value or its schema is nested too deeply") from None
        except Unresolvable as problem:
            raise SerializationError(
                f"its JSON Schema cannot be used: its $ref {str(problem.ref)[:_MOST_SHOWN]!r} leads nowhere"
            ) from problem
        except Exception as problem:
            # An unresolvable reference, or an invalid pattern.
            raise SerializationError(
                f"its JSON Schema cannot be used ({type(problem).__name__})"
            ) from problem
        if refusal is not None:
            # Not the message, which contains the value, nor the place in the value: names of a map may be secret.
            keyword, place = refusal
            raise SerializationError(
                f"it does not match its JSON Schema: {keyword!r} fails at {place[:_MOST_SHOWN] or 'its top'!r}"
            )

    return check


def _all_references(resolved: ResolvedSchema, made: dict[str, Any]) -> dict[str, Any]:
    for name, reference in resolved.references:
        if name not in made:
            made[name] = _parsed(reference.text)
            _all_references(reference, made)
    return made


def _nothing(value: Any) -> None:
    """Accepts everything."""


def _refusing(reason: str) -> Check:
    def check(value: Any) -> None:
        raise SerializationError(reason)

    return check


def _jsonschema() -> None:
    try:
        import jsonschema  # noqa: F401
    except ImportError as problem:
        raise MissingDependencyError(
            "checking JSON Schemas needs jsonschema: pip install 'kadence[json-schema]', or pass validate=False"
        ) from problem
