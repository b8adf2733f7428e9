"""The options of decoding, read and checked into values. They travel with the tasks, so secrets hide from repr."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn, TypeVar

from kadence.environment import REGISTRY
from kadence.errors import ConfigError
from kadence_schemas.settings import RegistryOptions, options_of

__all__ = [
    "INSTEAD",
    "OPTIONS",
    "DecodeOptions",
    "Format",
    "JsonOptions",
    "Mode",
    "SideOptions",
    "Syntax",
    "parse",
]

OPTIONS: Final[dict[str, str]] = {
    "value.format": "binary (default), string, json, json-strict, avro or protobuf.",
    "key.format": "The same for keys.",
    "value.schema": (
        "json: Spark's DDL text; avro: the reader's schema as JSON, or the name of its file; protobuf: the name of a "
        "file with a descriptor set."
    ),
    "key.schema": "The same for keys.",
    "value.message": "Protobuf only: the message's full name.",
    "key.message": "The same for keys.",
    "value.wire": (
        "confluent: magic byte and schema id come before the data; plain: only the data. Default: confluent for avro "
        "and protobuf with schema.registry.url, otherwise plain."
    ),
    "key.wire": "The same for keys.",
    "value.subject": (
        "The registry's subject with the schema for load() without a schema. Default, if subscribe names one topic: "
        "TOPIC-value or TOPIC-key. With a context, such as :.staging:orders-value, schema ids are looked up there, too."
    ),
    "key.subject": "The same for keys.",
    "value.flat": "Whether load() without a schema makes each field of the value a column. Default: false.",
    "metadataPrefix": "A prefix for the names of Kafka's columns, such as kafka_.",
    "mode": "permissive, dropmalformed or failfast: what happens to a record that cannot be decoded.",
    "timeZone": "json: the zone of times without one, such as Europe/Berlin. Default: the session's.",
    "allowComments": "json: Java comments. Default: false.",
    "allowUnquotedFieldNames": "json: names without quotes. Default: false.",
    "allowSingleQuotes": "json: names and strings in single quotes. Default: true.",
    "allowNumericLeadingZeros": "json: numbers that begin with 0. Default: false.",
    "allowNonNumericNumbers": "json: NaN, INF and Infinity, with or without a sign, as numbers. Default: true.",
    "allowBackslashEscapingAnyCharacter": "json: a backslash before any character. Default: false.",
    "allowUnquotedControlChars": "json: unescaped control characters in strings. Default: false.",
    "schema.registry.url": "Addresses of a schema registry, comma separated.",
    "schema.registry.basic.auth.user.info": "NAME:PASSWORD for the registry.",
    "schema.registry.bearer.auth.token": "A token for the registry.",
    "schema.registry.context": "The registry's context of schema ids and subjects, such as .staging.",
    "schema.registry.ssl.ca.location": "A PEM file with the certificate authorities to trust for the registry.",
    "schema.registry.ssl.certificate.location": "A PEM file with the client's certificate for the registry.",
    "schema.registry.ssl.key.location": "A PEM file with its key, if the certificate's file has none.",
    "schema.registry.ssl.key.password": "The key's password.",
}
"""Every option of this room, with a line for the reader."""

_BY_FORMAT: Final = (
    "times and dates are read as Spark's casts read them; for another form make the field a string in the schema, and "
    "use to_timestamp(field, form), to_timestamp_ntz or to_date on it"
)
_BY_SCHEMA: Final = "it is for guessing a schema, and from_json with a schema ignores it; leave it out"
_BY_FILE: Final = "it is for files, and a record is one document in UTF-8; leave it out"
INSTEAD: Final[dict[str, str]] = {
    "timestampFormat": _BY_FORMAT,
    "timestampNTZFormat": _BY_FORMAT,
    "dateFormat": _BY_FORMAT,
    "enableDateTimeParsingFallback": _BY_FORMAT,
    "locale": "decimals in texts are read as in en-US; for others make the field a string in the schema",
    "columnNameOfCorruptRecord": "put _error string and _raw binary into the schema",
    "primitivesAsString": _BY_SCHEMA,
    "prefersDecimal": _BY_SCHEMA,
    "inferTimestamp": _BY_SCHEMA,
    "samplingRatio": _BY_SCHEMA,
    "dropFieldIfAllNull": _BY_SCHEMA,
    "multiLine": _BY_FILE,
    "encoding": _BY_FILE,
    "charset": _BY_FILE,
    "lineSep": _BY_FILE,
    "maxNestingDepth": "it is 1000, Spark's default",
    "maxNumLen": "it is 1000, Spark's default",
    "maxStringLen": "there is no limit, as by Spark's default",
}
"""Options of ``from_json`` that are refused, and what to do."""

_Choice = TypeVar("_Choice", bound=Enum)


class Format(Enum):
    """What bytes are decoded from."""

    BINARY = "binary"
    STRING = "string"
    JSON = "json"
    STRICT_JSON = "json-strict"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def is_json(self) -> bool:
        """Whether it is one of the two."""
        return self in (Format.JSON, Format.STRICT_JSON)


class Mode(Enum):
    """What becomes of a record that cannot be decoded."""

    PERMISSIVE = "permissive"
    DROP = "dropmalformed"
    FAIL = "failfast"


@dataclass(frozen=True, slots=True)
class Syntax:
    """What is read beside JSON itself: Spark's options of these names, with its defaults."""

    comments: bool = False
    unquoted_names: bool = False
    single_quotes: bool = True
    leading_zeros: bool = False
    non_numeric: bool = True
    any_escape: bool = False
    control_chars: bool = False


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """How JSON is read. zone: the option timeZone."""

    zone: str | None = None
    syntax: Syntax = Syntax()


@dataclass(frozen=True, slots=True)
class SideOptions:
    """How keys or values are decoded.

    Attributes:
        name: "key" or "value". schema, message, subject: see `OPTIONS`.
        framed: whether a schema id comes before the data.
        json: for json only.
    """

    name: str
    format: Format
    schema: str | None = None
    message: str | None = None
    framed: bool = False
    subject: str | None = None
    registry: RegistryOptions | None = None
    json: JsonOptions = JsonOptions()


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """See `OPTIONS`. mode: None where the user left it to us."""

    value: SideOptions
    key: SideOptions
    mode: Mode | None
    flat: bool
    prefix: str


def parse(given: Mapping[str, str]) -> DecodeOptions | None:
    """The options, or None where neither keys nor values are decoded.

    Raises:
        ConfigError: says what was given, what is allowed and what to do.
    """
    values = {name.lower(): text.strip() for name, text in given.items()}
    registry = _registry(values)
    value, key = _side("value", values, registry), _side("key", values, registry)
    mode = _one_of("mode", values, Mode)
    flat = _flag("value.flat", values, default=False)
    if value.format is Format.BINARY and key.format is Format.BINARY:
        named = {name.lower(): name for name in OPTIONS if not name.endswith(".format")}
        for name in values:
            if name in named:
                raise ConfigError(
                    f"option {named[name]} needs the option value.format or key.format", key=named[name]
                )
        return None
    if Format.JSON not in (value.format, key.format):
        for name in ("timeZone", *_FLAGS):
            if name.lower() in values:
                raise ConfigError(f"option {name} needs value.format=json or key.format=json", key=name)
    return DecodeOptions(value, key, mode, flat, values.get("metadataprefix", ""))


def _side(name: str, values: Mapping[str, str], registry: RegistryOptions | None) -> SideOptions:
    form = _one_of(f"{name}.format", values, Format) or Format.BINARY
    with_schema = form in (Format.AVRO, Format.PROTOBUF)
    wire = values.get(f"{name}.wire", "confluent" if with_schema and registry else "plain").lower()
    if wire not in ("confluent", "plain"):
        raise ConfigError(f"option {name}.wire: {wire!r} is not confluent or plain", key=f"{name}.wire")
    side = SideOptions(
        name=name,
        format=form,
        schema=values.get(f"{name}.schema") or None,
        message=values.get(f"{name}.message") or None,
        framed=wire == "confluent" and form is not Format.BINARY,
        subject=values.get(f"{name}.subject") or None,
        registry=registry,
        json=_json(values) if form is Format.JSON else JsonOptions(),
    )
    if with_schema and side.schema is None and registry is None:
        raise ConfigError(
            f"{name}.format={form.value} needs the option schema.registry.url, or {name}.schema with the schema itself",
            key=f"{name}.format",
        )
    if with_schema and side.schema is None and not side.framed:
        raise ConfigError(
            f"{name}.wire=plain needs the option {name}.schema: no record says which schema it was written with",
            key=f"{name}.wire",
        )
    if form is Format.PROTOBUF and side.schema is not None and side.message is None:
        raise ConfigError(
            f"{name}.schema of format protobuf needs the option {name}.message, a message's full name",
            key=f"{name}.schema",
        )
    return side


_FLAGS: Final = {
    "allowComments": "comments",
    "allowUnquotedFieldNames": "unquoted_names",
    "allowSingleQuotes": "single_quotes",
    "allowNumericLeadingZeros": "leading_zeros",
    "allowNonNumericNumbers": "non_numeric",
    "allowBackslashEscapingAnyCharacter": "any_escape",
    "allowUnquotedControlChars": "control_chars",
}


def _json(values: Mapping[str, str]) -> JsonOptions:
    plain = Syntax()
    given = {field: _flag(name, values, default=getattr(plain, field)) for name, field in _FLAGS.items()}
    zone = values.get("timezone")
    if zone is not None:
        from kadence_spark.decode.json_times import zone_of

        if zone_of(zone) is None:
            raise ConfigError(
                f"option timeZone: {zone!r} is no time zone that is known here, such as Europe/Berlin, UTC or +01:00; "
                "where Python knows no regions, pip install tzdata",
                key="timeZone",
            )
    return JsonOptions(zone, Syntax(**given))


def _flag(name: str, values: Mapping[str, str], *, default: bool) -> bool:
    text = values.get(name.lower(), str(default)).lower()
    if text not in ("true", "false"):
        raise ConfigError(f"option {name}: {text!r} is not true or false", key=name)
    return text == "true"


def _registry(values: Mapping[str, str]) -> RegistryOptions | None:
    return options_of(
        {name.removeprefix(REGISTRY): text for name, text in values.items() if name.startswith(REGISTRY)}
    )


def _one_of(name: str, values: Mapping[str, str], choices: type[_Choice]) -> _Choice | None:
    text = values.get(name)
    if text is None:
        return None
    try:
        return choices(text.lower())
    except ValueError:
        _wrong(name, text, [str(choice.value) for choice in choices])


def _wrong(name: str, text: str, allowed: list[str]) -> NoReturn:
    raise ConfigError(f"option {name}: {text!r} is not one of {', '.join(allowed)}", key=name)
