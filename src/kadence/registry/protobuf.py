"""Protobuf with a schema registry: serialiser and deserialiser.

What is written is, byte for byte, what confluent-kafka's serialiser writes, and so is what is registered: the base64 of
the compiled file, each file that it imports under the subject of its name.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from kadence.errors import ConfigError, MissingDependencyError, SerializationError
from kadence.registry.client import SchemaRegistryClient
from kadence.registry.columns.isolation import BadRecordError
from kadence.registry.descriptors import Messages
from kadence.registry.framing import HEADER, id_of, message_place, place_of
from kadence.registry.schemas import PROTOBUF, Schema, SchemaReference
from kadence.registry.subjects import SubjectNameStrategy, topic_subject
from kadence.registry.writing import Subjects, Writing

if TYPE_CHECKING:
    from kadence.registry.columns.values import ValueColumns

__all__ = ["ProtobufDeserializer", "ProtobufSerializer"]

M = TypeVar("M")

Headers = Any

KNOWN_FILES: Final = ("google/protobuf/", "google/type/", "confluent/")
"""What every registry and library knows by itself."""


class ProtobufSerializer:
    """Writes Protobuf messages, with the id of their schema before them (Confluent's wire format).

    It is given as ``value_serializer=`` of a producer. The first record of a topic registers the message's file, and
    those that it imports.

    Args:
        registry: a client, which many serialisers may share.
        message_type: the generated class of the messages.
        auto_register: register the schema. False: the registry must have it.
        use_latest_version: write the id of the subject's newest version, as it was within the last minute, and register
            nothing. Nothing checks that messages fit it.
        normalize: let the registry bring the schema into one form first.
        skip_known_types: do not register Google's own files, such as ``google/protobuf/timestamp.proto``.
        subject_name_strategy: as that of `AvroSerializer`; the record's name is the message's.
        is_key: whether it is for keys; the subject is ``TOPIC-key`` then.

    Raises:
        ConfigError: ``message_type`` is no class of messages.
        MissingDependencyError: protobuf is not installed (``pip install kadence[protobuf]``).
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
        is_key: bool = False,
    ) -> None:
        descriptor = _descriptor_of(message_type)
        self._registry = registry
        self._message_type = message_type
        self._file = descriptor.file
        self._place = place_of(_path_of(descriptor))
        self._auto_register = auto_register
        self._normalize = normalize
        self._skips = skip_known_types
        self._writing = Writing(
            registry,
            Schema(_text_of(descriptor.file), PROTOBUF),
            Subjects(subject_name_strategy, is_key=is_key, record=descriptor.full_name),
            lambda _: None,
            auto_register=auto_register,
            use_latest_version=use_latest_version,
            normalize=normalize,
            complete=self._with_references,
        )

    def serialize(self, topic: str, headers: Headers, data: Any, /) -> bytes:
        """The bytes of a message; see the class for what it raises."""
        if not isinstance(data, self._message_type):
            raise SerializationError(
                f"this serialiser is for messages of type {self._message_type.__name__}, not {type(data).__name__}"
            )
        header, _ = self._writing.of(topic)
        made: bytes = header + self._place + data.SerializeToString()
        return made

    def _with_references(self, schema: Schema) -> Schema:
        return Schema(schema.schema_str, PROTOBUF, self._references(self._file))

    def _references(self, file: Any) -> tuple[SchemaReference, ...]:
        """The files that one imports, each registered or looked up under the subject of its name."""
        made = []
        for imported in file.dependencies:
            if self._skips and imported.name.startswith(KNOWN_FILES):
                continue
            schema = Schema(_text_of(imported), PROTOBUF, self._references(imported))
            if self._auto_register:
                self._registry.register_schema(imported.name, schema, normalize=self._normalize)
            found = self._registry.lookup_schema(imported.name, schema, normalize=self._normalize)
            made.append(SchemaReference(imported.name, imported.name, found.version))
        return tuple(made)


class ProtobufDeserializer(Generic[M]):
    """Reads Protobuf messages with the id of their schema before them (Confluent's wire format).

    It is given as ``value_deserializer=`` of a consumer.

    Args:
        registry: a client, which many deserialisers may share. It may be None where ``message_type`` is given.
        message_type: the generated class to read into; nothing is asked of the registry then. None: messages of the
            types that the records name, made from the registry's schemas.

    Raises:
        ConfigError: ``message_type`` is no class of messages, or neither argument is given.
        MissingDependencyError: protobuf is not installed (``pip install kadence[protobuf]``).
    """

    kind: Final = "protobuf"
    """What ``poll_arrow(value=)`` calls it."""

    def __init__(self, registry: SchemaRegistryClient | None, message_type: type[M] | None = None) -> None:
        if message_type is not None:
            _descriptor_of(message_type)
        elif registry is None:
            raise ConfigError("a ProtobufDeserializer needs a registry or a message_type")
        self._registry = registry
        self._message_type = message_type
        self._known: dict[tuple[int, tuple[int, ...]], Callable[[], Any]] = {}
        self._files: dict[int, Messages | ConfigError] = {}

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> M:
        """The message.

        Raises:
            SerializationError: the bytes are no message of the type, or there is no such schema.
            SchemaRegistryError: the registry does not answer.
        """
        schema_id = id_of(data)
        # One byte 0 is the first message's place, which is nearly always meant.
        path: tuple[int, ...] = (0,)
        start = HEADER + 1
        if data[HEADER:start] != b"\0":
            path, start = message_place(data)
        make: Callable[[], Any] | None = self._message_type or self._known.get((schema_id, path))
        if make is None:
            make = self._known[schema_id, path] = self._class_of(schema_id, path)
        message = make()
        try:
            message.ParseFromString(data[start:])
        except _decode_error() as problem:
            raise SerializationError(
                f"not Protobuf of message {message.DESCRIPTOR.full_name}, schema id {schema_id}"
            ) from problem
        found: M = message
        return found

    def columns(self) -> ValueColumns[Any]:
        """What decodes whole columns with the same schemas, for one consumer's ``poll_arrow(value="protobuf")``.

        Raises:
            ConfigError: there is no registry.
            MissingDependencyError: ptars or pyarrow is not installed (``pip install kadence[decode,arrow]``).
        """
        from kadence.registry.columns.values import protobuf_columns

        if self._registry is None:
            raise ConfigError("columns of Protobuf need a ProtobufDeserializer with a registry")
        message: Any = self._message_type
        return protobuf_columns(self._registry, None if message is None else message.DESCRIPTOR)

    def _class_of(self, schema_id: int, path: tuple[int, ...]) -> Callable[[], Any]:
        assert self._registry is not None
        files = self._files.get(schema_id)
        if files is None:
            resolved = self._registry.resolve_one(schema_id, PROTOBUF)
            try:
                files = Messages.of_registered(resolved)
            except ConfigError as problem:
                files = problem
            self._files[schema_id] = files
        if isinstance(files, ConfigError):
            raise SerializationError(f"schema id {schema_id} cannot be used: {files}")
        from google.protobuf import message_factory

        try:
            found: Callable[[], Any] = message_factory.GetMessageClass(files.at(path))
        except BadRecordError as problem:
            raise SerializationError(f"schema id {schema_id}: {problem}") from None
        return found


def _descriptor_of(message_type: Any) -> Any:
    _decode_error()
    from google.protobuf.message import Message

    if not (isinstance(message_type, type) and issubclass(message_type, Message)):
        raise ConfigError("message_type is a class that protoc or buf generated, not " + repr(message_type))
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
