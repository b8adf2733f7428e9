"""Protobuf with a schema registry: serialiser and deserialiser.

The bytes are the same as those of confluent-kafka's serialiser, and so are registered schemas: the base64 of the
compiled file, and each imported file under the subject of its name.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kadence.columns.isolation import BadRecordError
from kadence.errors import ConfigError, MissingDependencyError, SerializationError
from kadence_schemas.client import SchemaRegistryClient
from kadence_schemas.descriptors import NO_REGISTRY, Messages
from kadence_schemas.framing import HEADER, Frame, place_of, said_of
from kadence_schemas.known_files import KNOWN_FILES
from kadence_schemas.reading import Frames
from kadence_schemas.schemas import PROTOBUF, Schema, SchemaReference
from kadence_schemas.subjects import SubjectNameStrategy, context_of, qualified, topic_subject
from kadence_schemas.writing import SchemaIdIn, Subjects, Writing

if TYPE_CHECKING:
    from kadence_schemas.columns.values import ValueColumns

__all__ = ["ProtobufDeserializer", "ProtobufSerializer"]

M = TypeVar("M")

Headers = Any


class ProtobufSerializer:
    """Writes Protobuf messages, with the id of their schema before them (Confluent's wire format).

    Give it to a producer as ``value_serializer=``. By default the first record of a topic registers the message's file,
    and those that it imports.

    Args:
        registry: a client, which many serialisers may share.
        message_type: the generated class of the messages.
        auto_register: register the schema. False: the registry must have it.
        use_latest_version: write the id of the subject's newest version, as it was within the last minute, and register
            nothing. Messages are not checked against it. normalize: let the registry normalise the schema first.
        skip_known_types: do not register Google's own files, such as ``google/protobuf/timestamp.proto``.
        subject_name_strategy: as for `AvroSerializer`; the record's name is the message's. is_key, schema_id_in: as for
            `AvroSerializer`.

    Raises:
        ConfigError: ``message_type`` is not a class of messages.
        MissingDependencyError: protobuf is not installed (``pip install 'kadence[protobuf]'``).
    """

    def __init__(
        self,
        registry: SchemaRegistryClient,
        message_type: type[Any],
        *,
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
        skip_known_types: bool = True,
        subject_name_strategy: SubjectNameStrategy | str = topic_subject,
        is_key: bool | None = None,
        schema_id_in: SchemaIdIn = "data",
    ) -> None:
        descriptor = _descriptor_of(message_type)
        self._registry = registry
        self._message_type = message_type
        self._file = descriptor.file
        self._auto_register = auto_register
        self._normalize = normalize
        self._skips = skip_known_types
        self._writing = Writing(
            registry,
            Schema(_text_of(descriptor.file), PROTOBUF),
            Subjects(subject_name_strategy, is_key=is_key, record=descriptor.full_name),
            lambda *_: None,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            schema_id_in=schema_id_in,
            place=place_of(_path_of(descriptor)),
            complete=self._with_references,
        )

    def for_keys(self) -> ProtobufSerializer:
        """The serialiser for a producer's ``key.serializer``: the same for keys, unless ``is_key`` was given."""
        made = copy(self)
        made._writing = self._writing.for_keys()
        return made

    def serialize(self, topic: str, headers: Headers, data: Any, /) -> bytes:
        """The bytes of a message; see the class for what it raises."""
        if not isinstance(data, self._message_type):
            raise SerializationError(
                f"this serialiser is for messages of type {self._message_type.__name__}, not {type(data).__name__}"
            )
        head, _ = self._writing.of(topic, headers)
        made: bytes = head + data.SerializeToString()
        return made

    def _with_references(self, schema: Schema, subject: str) -> Schema:
        return Schema(schema.schema_str, PROTOBUF, self._references(self._file, context_of(subject)))

    def _references(self, file: Any, context: str | None) -> tuple[SchemaReference, ...]:
        """The imported files, each registered or looked up under the subject of its name."""
        made = []
        for imported in file.dependencies:
            if self._skips and imported.name.startswith(KNOWN_FILES):
                continue
            subject = qualified(imported.name, context)
            schema = Schema(_text_of(imported), PROTOBUF, self._references(imported, context))
            if self._auto_register:
                self._registry.register_schema(subject, schema, normalize=self._normalize)
            found = self._registry.lookup_schema(subject, schema, normalize=self._normalize)
            made.append(SchemaReference(imported.name, subject, found.version))
        return tuple(made)


class ProtobufDeserializer(Generic[M]):
    """Reads Protobuf messages with the id of their schema before them (Confluent's wire format).

    Give it to a consumer as ``value_deserializer=``.

    Args:
        registry: a client, which many deserialisers may share. It may be None if ``message_type`` is given.
            message_type: the generated class to read into; the registry is not used then. None: messages of the types
            that the records name, from the registry's schemas. subject_name_strategy, is_key: as for
            `AvroDeserializer`.

    Raises:
        ConfigError: ``message_type`` is not a class of messages, or neither argument is given.
        MissingDependencyError: protobuf is not installed (``pip install 'kadence[protobuf]'``).
    """

    kind: Final = "protobuf"
    """Its name in ``poll_arrow(value=)``."""

    def __init__(
        self,
        registry: SchemaRegistryClient | None,
        message_type: type[M] | None = None,
        *,
        subject_name_strategy: SubjectNameStrategy | str | None = None,
        is_key: bool | None = None,
    ) -> None:
        record = None
        if message_type is not None:
            record = _descriptor_of(message_type).full_name
        elif registry is None:
            raise ConfigError("a ProtobufDeserializer needs a registry or a message_type")
        self._registry = registry
        self._message_type = message_type
        self._files: dict[tuple[int | str, str | None], Messages | ConfigError] = {}
        self._frames: Frames[Callable[[], Any]] = Frames(
            self._class_of,
            fixed=message_type,
            with_path=True,
            is_key=is_key,
            strategy=subject_name_strategy,
            record=record,
        )

    def for_keys(self) -> ProtobufDeserializer[M]:
        """The deserialiser for a consumer's ``key.deserializer``: the same for keys, unless ``is_key`` was given."""
        made = copy(self)
        made._frames = self._frames.for_keys(made._class_of)
        return made

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> M:
        """The message.

        Raises:
            SerializationError: the bytes are not a message of the type, or the schema does not exist.
            SchemaRegistryError: the registry does not answer.
        """
        # A single byte 0 means the first message, by far the most common one.
        known = None if headers else self._frames.quick.get(data[: HEADER + 1])
        make, start = known or self._frames.of(topic, headers, data)
        message = make()
        try:
            message.ParseFromString(data[start:])
        except _decode_error() as problem:
            raise SerializationError(
                f"not Protobuf of message {message.DESCRIPTOR.full_name}, {self._frames.said(topic, headers, data)}"
            ) from problem
        found: M = message
        return found

    def columns(self) -> ValueColumns[Any]:
        """A decoder of Arrow columns by this deserialiser's schemas. Each consumer makes its own for `poll_arrow`.

        Raises:
            ConfigError: there is no registry.
            MissingDependencyError: ptars or pyarrow is not installed (``pip install 'kadence[decode,arrow]'``).
        """
        from kadence_schemas.columns.values import protobuf_columns

        if self._registry is None:
            raise ConfigError("columns of Protobuf need a ProtobufDeserializer with a registry")
        message: Any = self._message_type
        return protobuf_columns(self._registry, None if message is None else message.DESCRIPTOR, self._frames)

    def _class_of(self, frame: Frame) -> Callable[[], Any]:
        assert self._registry is not None
        place = frame.schema, frame.subject
        files = self._files.get(place)
        if files is None:
            resolved = self._registry.resolve_one(frame.schema, PROTOBUF, frame.subject)
            try:
                files = Messages.of_registered(resolved, NO_REGISTRY)
            except ConfigError as problem:
                files = problem
            self._files[place] = files
        if isinstance(files, ConfigError):
            raise SerializationError(f"{said_of(frame.schema)} cannot be used: {files}")
        from google.protobuf import message_factory

        try:
            found: Callable[[], Any] = message_factory.GetMessageClass(files.at(frame.path))
        except BadRecordError as problem:
            raise SerializationError(f"{said_of(frame.schema)}: {problem}") from None
        return found


def _descriptor_of(message_type: Any) -> Any:
    _decode_error()
    from google.protobuf.message import Message

    if not (isinstance(message_type, type) and issubclass(message_type, Message)):
        raise ConfigError(
            "message_type must be a class generated by protoc or buf, not " + repr(message_type)
        )
    found: Any = message_type
    return found.DESCRIPTOR


def _text_of(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _path_of(descriptor: Any) -> tuple[int, ...]:
    """Indexes of a message and of those around it, outermost first."""
    path: list[int] = []
    while (outer := descriptor.containing_type) is not None:
        path.append([each.full_name for each in outer.nested_types].index(descriptor.full_name))
        descriptor = outer
    names = list(descriptor.file.message_types_by_name)
    return tuple(reversed([*path, names.index(descriptor.name)]))


def _decode_error() -> type[Exception]:
    try:
        from google.protobuf import message
    except ImportError as problem:
        raise MissingDependencyError("Protobuf needs protobuf: pip install 'kadence[protobuf]'") from problem
    found: type[Exception] = message.DecodeError
    return found
