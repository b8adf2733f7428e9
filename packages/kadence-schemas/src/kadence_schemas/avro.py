"""Avro with a schema registry: serialiser and deserialiser.

fastavro writes and reads; the bytes are the same as those of confluent-kafka's serialiser, except for values of unions
that it writes as another type (`kadence_schemas.avro_unions`). As there, and in Java, a schema that is just ``bytes``
has no length before its data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import copy
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from kadence.columns.isolation import BadRecordError
from kadence.errors import ConfigError, SerializationError
from kadence_schemas.avro_schemas import (
    EXACT,
    Resolution,
    is_raw,
    library,
    name_of,
    parsed,
    with_default_values,
)
from kadence_schemas.avro_unions import Unions
from kadence_schemas.client import SchemaRegistryClient
from kadence_schemas.columns.avro_claims import claims_of
from kadence_schemas.framing import HEADER, Frame, said_of
from kadence_schemas.reading import Frames
from kadence_schemas.schemas import AVRO, Schema
from kadence_schemas.subjects import SubjectNameStrategy, may_name_contexts, topic_subject
from kadence_schemas.writing import SchemaIdIn, Subjects, Writing, schema_of

if TYPE_CHECKING:
    from kadence_schemas.columns.values import ValueColumns

__all__ = ["AvroDeserializer", "AvroSerializer"]

Headers = Any
Read = Callable[[bytes, int], Any]
"""Makes a value from bytes and the index at which its data begins."""


class AvroSerializer:
    """Writes values as Avro, with the id of their schema before them (Confluent's wire format).

    Give it to a producer as ``value_serializer=``. By default the first record of a topic registers the schema.

    Args:
        registry: a client, which many serialisers may share.
        schema: the schema as text, parsed, or as `Schema` with references. None: the subject's latest, with
            ``use_latest_version``.
        to_dict: turns an object into a value that fastavro writes: a dict for a record.
        auto_register: register the schema. False: the registry must have it.
        use_latest_version: write with the newest version of the subject, as it was within the last minute, and
            register nothing. It is not checked against ``schema``.
        normalize: let the registry normalise the schema first.
        subject_name_strategy: `topic_subject`, `record_subject`, `topic_record_subject`, their names ``topic``,
            ``record`` and ``topic_record``, or a function of topic, is_key and record name.
        is_key: whether it is for keys; the subject is ``TOPIC-key`` then. None: as the client uses it; on its own it is
            for values.
        schema_id_in: ``"data"``: the schema's id comes before the data. ``"header"``: its GUID, or its id where the
            registry gives no GUID, is in the header ``__value_schema_id`` or ``__key_schema_id``.
        strict: refuse a record with fields that the schema lacks, or without some of its fields.

    Raises:
        ConfigError: the schema is not an Avro schema.
        MissingDependencyError: fastavro is not installed (``pip install 'kadence[avro]'``).
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: str | Mapping[str, Any] | list[Any] | Schema | None = None,
        *,
        to_dict: Callable[[Any], Any] | None = None,
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
        subject_name_strategy: SubjectNameStrategy | str = topic_subject,
        is_key: bool | None = None,
        schema_id_in: SchemaIdIn = "data",
        strict: bool = False,
    ) -> None:
        fastavro = library()
        made = None if schema is None else schema_of(schema, AVRO)
        form = None
        if made is not None and not (made.references and may_name_contexts(subject_name_strategy)):
            form = parsed(registry.resolve_schema(made, is_new=auto_register))
        name = name_of(form) if made is None or form is not None else _name_in(made.schema_str)
        self._to_dict = to_dict
        self._strict = strict
        self._write = fastavro.schemaless_writer
        self._writing = Writing(
            registry,
            made,
            Subjects(subject_name_strategy, is_key=is_key, record=name),
            lambda found, subject: _form(
                form
                if found is made and form is not None
                else parsed(registry.resolve_schema(found, subject, is_new=found is made and auto_register)),
                strict=strict,
            ),
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            schema_id_in=schema_id_in,
        )

    def for_keys(self) -> AvroSerializer:
        """The serialiser for a producer's ``key.serializer``: the same for keys, unless ``is_key`` was given."""
        made = copy(self)
        made._writing = self._writing.for_keys()
        return made

    def serialize(self, topic: str, headers: Headers, data: Any, /) -> bytes:
        """The bytes of a value; see the class for what it raises."""
        header, (schema, is_raw, convert) = self._writing.of(topic, headers)
        value = data if self._to_dict is None else self._to_dict(data)
        if is_raw:
            return header + (value.encode() if isinstance(value, str) else bytes(value))
        if convert is not None:
            value = convert(value)
        sink = BytesIO()
        sink.write(header)
        self._write(sink, schema, value, strict=self._strict)
        return sink.getvalue()


class AvroDeserializer:
    """Reads values that are Avro with the id of their schema before them (Confluent's wire format).

    Give it to a consumer as ``value_deserializer=``. A value that names an unknown
    schema, or does not match it, is bad (``deserialization.errors``). If the registry does not answer, no value is bad:
    the poll raises, and the next one tries again.

    Args:
        registry: a client, which many deserialisers may share.
        schema: the reader's schema, as text, parsed or as `Schema`: fields are matched by name, defaults replace fields
            that the writer lacked, and numbers are widened. None: values are as written. from_dict: turns the result of
            fastavro into an object.
        return_record_name: records in unions are pairs of name and dict.
        subject_name_strategy: names the subject in which ids are looked up, as for `AvroSerializer`: each context has
            its own ids. None: they are looked up in the client's context.
        is_key: whether it is for keys, and reads the header ``__key_schema_id``. None: as the client uses it.

    Raises:
        ConfigError: the schema is not an Avro schema.
        MissingDependencyError: fastavro is not installed (``pip install 'kadence[avro]'``).
    """

    kind: Final = "avro"
    """Its name in ``poll_arrow(value=)``."""

    def __init__(
        self,
        registry: SchemaRegistryClient,
        schema: str | Mapping[str, Any] | list[Any] | Schema | None = None,
        *,
        from_dict: Callable[[Any], Any] | None = None,
        return_record_name: bool = False,
        subject_name_strategy: SubjectNameStrategy | str | None = None,
        is_key: bool | None = None,
    ) -> None:
        library()
        self._registry = registry
        self._schema = None if schema is None else registry.resolve_schema(schema_of(schema, AVRO))
        self._reader = None if self._schema is None else parsed(self._schema)
        self._from_dict = from_dict
        self._with_names = return_record_name
        self._frames = Frames(
            self._read_of, is_key=is_key, strategy=subject_name_strategy, record=name_of(self._reader)
        )

    def for_keys(self) -> AvroDeserializer:
        """The deserialiser for a consumer's ``key.deserializer``: the same for keys, unless ``is_key`` was given."""
        made = copy(self)
        made._frames = self._frames.for_keys(made._read_of)
        return made

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> Any:
        """The value.

        Raises:
            SerializationError: the bytes do not match the schema that they name, or it does not exist.
            SchemaRegistryError: the registry does not answer.
        """
        known = None if headers else self._frames.quick.get(data[:HEADER])
        read, start = known or self._frames.of(topic, headers, data)
        made = read(data, start)
        return made if self._from_dict is None else self._from_dict(made)

    def columns(self) -> ValueColumns[Any]:
        """A decoder of Arrow columns by this deserialiser's schemas. Each consumer makes its own for `poll_arrow`.

        Raises:
            ConfigError: the reader's schema has a type that cannot be a column.
            MissingDependencyError: pyarrow is not installed (``pip install 'kadence[arrow]'``).
        """
        from kadence_schemas.columns.values import avro_columns

        return avro_columns(self._registry, self._schema, self._frames)

    def _read_of(self, frame: Frame) -> Read:
        resolved = self._registry.resolve_one(frame.schema, AVRO, frame.subject)
        try:
            return self._reading(said_of(frame.schema), parsed(resolved, is_writer=True))
        except ConfigError as problem:
            return _refusing(f"{said_of(frame.schema)} cannot be used: {problem}")

    def _reading(self, said: str, writer: Any) -> Read:
        if is_raw(writer):
            return lambda data, start: data[start:]
        claims = claims_of(writer)
        read_one = Resolution(writer, self._reader, with_names=self._with_names).one

        def read(data: bytes, start: int) -> Any:
            source = BytesIO(data)
            source.seek(start)
            try:
                if claims is not None:
                    claims.check(data[start:])
                return read_one(source)
            except BadRecordError as problem:
                raise SerializationError(f"{said}: {problem}") from None
            except MemoryError:
                raise
            except OverflowError:
                raise SerializationError(
                    f"{said}: a date or time is outside the years 1 to 9999, the range of Python; "
                    "poll_arrow and Spark read it"
                ) from None
            except Exception as problem:
                raise SerializationError(f"not Avro of {said} ({type(problem).__name__})") from problem

        return read


def _name_in(text: str) -> str | None:
    """The name of a schema whose context, and thus its references, are not known yet."""
    try:
        return name_of(json.loads(text))
    except (ValueError, RecursionError) as problem:
        raise ConfigError(f"this is not an Avro schema: {problem}") from None


def _form(schema: Any, *, strict: bool) -> tuple[Any, bool, Callable[[Any], Any] | None]:
    """A schema, whether values are written unchanged, and the conversion of its unions' values."""
    if isinstance(schema, dict) and schema["type"] == "record":
        # For a missing field fastavro writes the default exactly as in the schema.
        schema = with_default_values(schema, schema, EXACT)
    return schema, is_raw(schema), Unions(schema, strict=strict).convert


def _refusing(reason: str) -> Read:
    def read(data: bytes, start: int) -> Any:
        raise SerializationError(reason)

    return read
