"""Decoders of the columns ``key`` and ``value`` of a reading: bytes, texts, JSON, and values with a schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from kadence.columns.isolation import Decoded
from kadence.environment import REGISTRY
from kadence.errors import ConfigError
from kadence.parts import part

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KeyKind", "ValueKind", "decoder_of", "without_registry"]

KeyKind: TypeAlias = Literal["bytes", "text"]
ValueKind: TypeAlias = Literal["bytes", "text", "json", "avro", "protobuf"]

_REGISTERED: Final = ("avro", "protobuf")


class Decoder(Protocol):
    """Decodes a column of bytes.

    Attributes:
        beside: other columns of the same records that it needs.
    """

    @property
    def beside(self) -> tuple[str, ...]: ...

    def decode(self, values: pa.Array, *beside: pa.Array) -> Decoded: ...

    def fit(self, column: Any) -> Any:
        """A column that was decoded earlier, cast to the present type."""
        ...


def without_registry(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are the consumer's own."""
    return {
        name: value
        for name, value in config.items()
        if not name.startswith(REGISTRY) and name != "value.deserializer"
    }


def decoder_of(
    kind: ValueKind, config: Mapping[str, Any], name: str = "value", *, schema: pa.DataType | None = None
) -> Decoder | None:
    """The decoder of this kind of values; None for bytes.

    Args:
        config: may have a value.deserializer with a reader's schema, or the URL of the registry.
        schema: the type of JSON values; None: it is inferred.

    Raises:
        ValueError: there is no such kind. ConfigError: neither a registry nor a deserialiser is set.
    """
    kinds = ("bytes", "text") if name == "key" else ("bytes", "text", "json", *_REGISTERED)
    if kind not in kinds:
        raise ValueError(f"{name} is one of {', '.join(map(repr, kinds))}; not {kind!r}")
    if name == "value" and "value.deserializer" in config and kind not in _REGISTERED:
        raise ConfigError(
            f"value.deserializer is for value='avro' and value='protobuf'; with value={kind!r} it is not called",
            key="value.deserializer",
        )
    match kind:
        case "bytes":
            return None
        case "text":
            return _Texts()
        case "json":
            from kadence.reading.json_schema import SchemaColumns
            from kadence.reading.json_values import JsonColumns

            return JsonColumns() if schema is None else SchemaColumns(schema)
        case _:
            return _Registered(kind, config)


class _Texts:
    beside: tuple[str, ...] = ()

    def decode(self, values: pa.Array, *beside: pa.Array) -> Decoded:
        import pyarrow as pa

        try:
            return Decoded(values.cast(pa.string()))
        except pa.ArrowInvalid:
            pass
        texts: list[str | None] = []
        bad: dict[int, str] = {}
        for row, data in enumerate(values.to_pylist()):
            try:
                texts.append(None if data is None else data.decode())
            except UnicodeDecodeError as problem:
                bad[row] = f"not UTF-8: byte {problem.start}"
                texts.append(None)
        return Decoded(pa.array(texts, pa.string()), bad)

    def fit(self, column: Any) -> Any:
        return column


class _Registered:
    """Decodes by the schemas of a registry. Each column's type is wide enough for all schemas so far."""

    def __init__(self, kind: str, config: Mapping[str, Any]) -> None:
        deserializer = config.get("value.deserializer")
        if deserializer is None:
            deserializer = _deserializer(kind, config)
        if getattr(deserializer, "kind", None) != kind:
            raise ConfigError(
                f"value={kind!r} needs a value.deserializer of this format, from kadence_schemas",
                key="value.deserializer",
            )
        self._columns = deserializer.columns()
        self.beside: tuple[str, ...] = self._columns.beside

    def decode(self, values: pa.Array, *beside: pa.Array) -> Decoded:
        made: Decoded = self._columns.decode(values, *beside)
        return made

    def fit(self, column: Any) -> Any:
        return column


def _deserializer(kind: str, config: Mapping[str, Any]) -> Any:
    settings = {name: value for name, value in config.items() if name.startswith(REGISTRY)}
    if not settings:
        raise ConfigError(
            f"value={kind!r} needs the schemas: pass schema_registry_url='http://…', or a value_deserializer"
        )
    formats = part("kadence_schemas", kind)
    registry = formats.SchemaRegistryClient(settings)
    if kind == "avro":
        return formats.AvroDeserializer(registry)
    return formats.ProtobufDeserializer(registry)
