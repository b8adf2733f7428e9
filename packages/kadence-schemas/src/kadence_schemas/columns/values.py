"""Values with a schema id before them → one typed Arrow column, for `Consumer.poll_arrow`.

With a reader's schema the column's type is that schema's. Without one it has the fields of all schemas so far, null
where a record's own schema has none; a field with different types in two schemas has the wider one, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from kadence.columns.isolation import BadRecordError, Decoded
from kadence.errors import MissingDependencyError, SchemaNotFoundError
from kadence_schemas.client import SchemaRegistryClient, Wanted
from kadence_schemas.columns import avro, protobuf
from kadence_schemas.columns.avro_types import arrow_of
from kadence_schemas.columns.wire import BESIDE, Frame, FramedFormat, unusable
from kadence_schemas.descriptors import NO_REGISTRY, Messages
from kadence_schemas.reading import Frames
from kadence_schemas.schemas import AVRO, PROTOBUF, ResolvedSchema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ValueColumns", "avro_columns", "protobuf_columns"]

S = TypeVar("S")


class _GrownError(Exception):
    """A schema has new fields, so the column's type has changed."""


class _Format(Protocol):
    def decode(self, values: pa.Array) -> Decoded: ...


class ValueColumns(Generic[S]):
    """Decodes values of one kind. Used by one thread at a time.

    Args:
        read: makes the parsed form from a schema and a frame. type_of: its Arrow type. make: its decoder.
        target: the column's type; None: see the file's head. frames: how values name their schemas.

    Attributes:
        beside: the columns of records that `decode` needs in addition to the values.
    """

    beside: Final = BESIDE

    def __init__(
        self,
        registry: SchemaRegistryClient,
        kind: str,
        read: Callable[[ResolvedSchema, Frame], S],
        type_of: Callable[[S], pa.DataType],
        make: Callable[[S, pa.DataType], _Format],
        target: pa.DataType | None,
        frames: Frames[Any],
    ) -> None:
        self._frames = frames
        self._registry = registry
        self._kind = kind
        self._read = read
        self._type_of = type_of
        self._make = make
        self._is_fixed = target is not None
        self._format = self._new_format(target if target is not None else _nothing())

    def decode(self, values: pa.Array, headers: pa.Array = None, topics: pa.Array = None) -> Decoded:
        """A row for each value, and the reason for each that is bad.

        Args:
            headers, topics: the same records' columns `beside`.

        Raises:
            SchemaRegistryError: the registry does not answer.
        """
        while True:
            try:
                return self._format.decode(values, headers, topics)
            except _GrownError:
                self._format = self._new_format(self._target)

    def unknown(self, values: pa.Array, headers: pa.Array = None, topics: pa.Array = None) -> list[int]:
        """The rows whose schemas are not known yet. The others can be decoded without the registry."""
        return self._format.unknown(values, headers, topics)

    def _new_format(self, target: pa.DataType) -> FramedFormat:
        self._target = target
        return FramedFormat(
            target,
            self._decoders_for,
            with_path=self._kind == PROTOBUF,
            header=self._frames.header,
            subject=self._frames.subject,
        )

    def _decoders_for(self, frames: list[Frame]) -> dict[Frame, _Format | BadRecordError]:
        wanted = {frame: Wanted(frame.schema, frame.subject) for frame in frames}
        found = self._registry.resolve(set(wanted.values()), self._kind)
        schemas: dict[Frame, S | BadRecordError] = {}
        target = self._target
        for frame in frames:
            resolved = found[wanted[frame]]
            try:
                if isinstance(resolved, SchemaNotFoundError):
                    raise BadRecordError(str(resolved))
                made = schemas[frame] = self._read(resolved, frame)
                target = target if self._is_fixed else _grown(target, self._type_of(made))
            except Exception as problem:  # noqa: BLE001 - what a strange schema makes libraries trip over
                schemas[frame] = unusable(frame, problem)
        if target != self._target:
            self._target = target
            raise _GrownError
        return {frame: self._decoder(frame, schema) for frame, schema in schemas.items()}

    def _decoder(self, frame: Frame, schema: S | BadRecordError) -> _Format | BadRecordError:
        if isinstance(schema, BadRecordError):
            return schema
        try:
            return self._make(schema, self._target)
        except Exception as problem:  # noqa: BLE001 - as above
            return unusable(frame, problem)


def avro_columns(
    registry: SchemaRegistryClient, reader: ResolvedSchema | None, frames: Frames[Any]
) -> ValueColumns[Any]:
    """Columns of Avro values.

    Args:
        reader: the reader's schema, if any. frames: how values name their schemas.
    """
    schema = None if reader is None else avro.parsed(reader)
    return ValueColumns(
        registry,
        AVRO,
        lambda found, _: avro.parsed(found, is_writer=True),
        arrow_of,
        lambda writer, target: avro.AvroFormat(writer, schema, target, is_framed=True),
        None if schema is None else arrow_of(schema),
        frames,
    )


def protobuf_columns(registry: SchemaRegistryClient, message: Any, frames: Frames[Any]) -> ValueColumns[Any]:
    """Columns of Protobuf values.

    Args:
        message: the descriptor to read; None: the messages that the records name. frames: how values name their
            schemas.
    """
    return ValueColumns(
        registry,
        PROTOBUF,
        # Protobuf data is read by the reader's field numbers, regardless of the writer's names and types.
        lambda found, frame: (
            Messages.of_registered(found, NO_REGISTRY).at(frame.path) if message is None else message
        ),
        protobuf.arrow_of_message,
        protobuf.ProtobufFormat,
        None if message is None else protobuf.arrow_of_message(message),
        frames,
    )


def _nothing() -> pa.DataType:
    try:
        import pyarrow as pa
    except ImportError as problem:
        raise MissingDependencyError("Arrow needs pyarrow: pip install 'kadence[arrow]'") from problem
    return pa.null()


def _grown(target: pa.DataType, more: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    try:
        both = pa.unify_schemas(
            [pa.schema([("value", kind)]) for kind in (target, more)], promote_options="permissive"
        )
    except pa.ArrowException:
        raise BadRecordError("its fields have types that differ from those of earlier schemas") from None
    return both.field(0).type
