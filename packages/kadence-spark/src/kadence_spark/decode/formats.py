"""Makes the decoder of keys or of values from the options: format, framing and schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from kadence.columns.isolation import BadRecordError, Decoded
from kadence.errors import ConfigError, SchemaNotFoundError
from kadence_schemas.client import SchemaRegistryClient, Wanted
from kadence_schemas.columns.wire import BESIDE, DecodersFor, Frame, FramedFormat, unusable
from kadence_schemas.framing import KEY_HEADER, VALUE_HEADER
from kadence_schemas.schemas import AVRO, PROTOBUF, ResolvedSchema
from kadence_schemas.settings import RegistryOptions
from kadence_schemas.subjects import context_of
from kadence_spark.decode.json_times import zone_of
from kadence_spark.decode.options import Format, SideOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from kadence_spark.decode.json_shapes import Rules

__all__ = ["SideDecoder", "arrow_of_side", "decoder_of"]


@lru_cache(maxsize=8)
def client_of(options: RegistryOptions) -> SchemaRegistryClient:
    """What this worker knows of a registry."""
    return SchemaRegistryClient._of(options)


class SideDecoder(Protocol):
    """Decodes the keys or the values of a batch; framed ones get the columns that `beside` names, too."""

    def decode(self, values: pa.Array, *beside: pa.Array) -> Decoded: ...


def beside(side: SideOptions) -> tuple[str, ...]:
    """The columns of the records that a side's decoder gets beside its own."""
    return BESIDE if side.framed else ()


def _framed(
    side: SideOptions, target: pa.DataType, decoders: DecodersFor, *, with_path: bool = False
) -> SideDecoder:
    header = KEY_HEADER if side.name == "key" else VALUE_HEADER
    return FramedFormat(target, decoders, with_path=with_path, header=header)


@lru_cache(maxsize=64)
def decoder_of(side: SideOptions, target: Any, zone: str | None = None) -> SideDecoder:
    """The decoder for one Arrow type. A worker keeps it, and with it what it has learned from a registry.

    Args:
        zone: the session's time zone; None: it is not known.

    Raises:
        ConfigError: the schema cannot be had or read, or its types are never those of the query.
        MissingDependencyError: the format needs a library of the extra ``decode``.
    """
    if side.format is Format.AVRO:
        return _avro(side, target)
    if side.format is Format.PROTOBUF:
        return _protobuf(side, target)
    made: SideDecoder
    if side.format is Format.STRING:
        from kadence_spark.decode.texts import TextFormat

        made = TextFormat()
    else:
        from kadence_spark.decode.json_values import JsonFormat

        made = JsonFormat(target, _rules(side, target, zone))
    return _framed(side, target, _always(made)) if side.framed else made


def _rules(side: SideOptions, target: pa.DataType, zone: str | None) -> Rules:
    from kadence_spark.decode.json_shapes import STRICT, Rules, has_zoned_times

    if side.format is Format.STRICT_JSON:
        return STRICT
    name = side.json.zone or zone
    if name is None or not has_zoned_times(target):
        return Rules(None, side.json.syntax)
    found = zone_of(name)
    if found is None:
        raise ConfigError(
            f"the session's time zone is {name}, which this Python does not know: pip install tzdata for the workers, "
            "or give the zone with the option timeZone, such as +01:00"
        )
    return Rules(found, side.json.syntax)


def _avro(side: SideOptions, target: pa.DataType) -> SideDecoder:
    from kadence_schemas.columns import avro

    reader = None
    if side.schema is not None:
        reader = avro.parsed(_schema_of_option(side))
    registry = side.registry
    if registry is None or not side.framed:
        made = avro.AvroFormat(reader, None, target, is_framed=side.framed)
        return _framed(side, target, _always(made)) if side.framed else made

    def decoder(found: ResolvedSchema, frame: Frame) -> SideDecoder:
        writer = avro.parsed(found, is_writer=True)
        return avro.AvroFormat(writer, reader, target, is_framed=True)

    return _framed(side, target, _registered(side, registry, AVRO, decoder))


def _protobuf(side: SideOptions, target: pa.DataType) -> SideDecoder:
    from kadence_schemas.columns.protobuf import ProtobufFormat
    from kadence_schemas.descriptors import Messages

    if side.schema is not None:
        made = ProtobufFormat(
            Messages.of_file(f"{side.name}.schema", side.schema).named(side.message or ""), target
        )
        return _framed(side, target, _always(made), with_path=True) if side.framed else made

    def decoder(found: ResolvedSchema, frame: Frame) -> SideDecoder:
        messages = Messages.of_registered(found, _descriptor_set(side))
        return ProtobufFormat(messages.at(frame.path), target)

    decoders = _registered(side, _registry(side), PROTOBUF, decoder)
    return _framed(side, target, decoders, with_path=True)


def _descriptor_set(side: SideOptions) -> str:
    return f"name a descriptor set with the options {side.name}.schema and {side.name}.message"


def _always(decoder: SideDecoder) -> DecodersFor:
    return lambda frames: dict.fromkeys(frames, decoder)


def _registered(
    side: SideOptions,
    options: RegistryOptions,
    kind: str,
    make: Callable[[ResolvedSchema, Frame], SideDecoder],
) -> DecodersFor:
    """Decoders by the schemas of a registry, whose ids are in the context of the side's subject."""
    subject = side.subject if context_of(side.subject) is not None else None

    def made(found: ResolvedSchema | SchemaNotFoundError, frame: Frame) -> SideDecoder | BadRecordError:
        if isinstance(found, SchemaNotFoundError):
            return BadRecordError(str(found))
        try:
            return make(found, frame)
        except Exception as problem:  # noqa: BLE001 - what a strange schema makes libraries trip over
            return unusable(frame, problem)

    def decoders_for(frames: list[Frame]) -> dict[Frame, SideDecoder | BadRecordError]:
        wanted = {frame: Wanted(frame.schema, subject) for frame in frames}
        found = client_of(options).resolve(set(wanted.values()), kind)
        return {frame: made(found[wanted[frame]], frame) for frame in frames}

    return decoders_for


def arrow_of_side(side: SideOptions, subject: str) -> pa.DataType:
    """The type of an Avro or Protobuf side: of its schema, or of the subject's newest one.

    Raises:
        ConfigError: there is none.
    """
    if side.format is Format.AVRO:
        from kadence_schemas.columns import avro
        from kadence_schemas.columns.avro_types import arrow_of

        if side.schema is not None:
            return arrow_of(avro.parsed(_schema_of_option(side)))
        return arrow_of(avro.parsed(_newest(side, subject, AVRO), is_writer=True))
    from kadence_schemas.columns.protobuf import arrow_of_message
    from kadence_schemas.descriptors import Messages

    if side.schema is not None:
        messages = Messages.of_file(f"{side.name}.schema", side.schema)
    else:
        messages = Messages.of_registered(_newest(side, subject, PROTOBUF), _descriptor_set(side))
    return arrow_of_message(messages.named(side.message) if side.message else messages.at((0,)))


def _schema_of_option(side: SideOptions) -> ResolvedSchema:
    from kadence_schemas.columns.avro import read_schema

    return ResolvedSchema(AVRO, read_schema(f"{side.name}.schema", side.schema or ""))


def _newest(side: SideOptions, subject: str, kind: str) -> ResolvedSchema:
    try:
        return client_of(_registry(side)).resolve_latest(subject, kind)
    except SchemaNotFoundError as problem:
        raise ConfigError(f"{problem}; the option value.subject or key.subject names another") from None


def _registry(side: SideOptions) -> RegistryOptions:
    assert side.registry is not None, "options.py asks for one where there is no schema"
    return side.registry
