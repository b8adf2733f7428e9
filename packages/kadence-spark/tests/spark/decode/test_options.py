"""The options of decoding: what is taken, what is refused in which words, and that secrets stay hidden."""

from __future__ import annotations

import pytest

from kadence.errors import ConfigError
from kadence_spark.decode.inference import decoded_ddl
from kadence_spark.decode.options import DecodeOptions, Format, Mode, parse
from kadence_spark.source.schema import COLUMNS

REGISTRY = {"value.format": "avro", "schema.registry.url": "http://127.0.0.1:1, http://127.0.0.1:2/"}


def options(**given: str) -> DecodeOptions:
    made = parse({name.replace("_", "."): text for name, text in given.items()})
    assert made is not None
    return made


def test_nothing_to_decode_is_none() -> None:
    assert parse({}) is None
    assert parse({"value.format": "binary"}) is None


def test_names_and_words_take_any_case() -> None:
    made = parse({"VALUE.FORMAT": "Json", "Mode": "FailFast"})
    assert made is not None
    assert (made.value.format, made.key.format, made.mode) == (Format.JSON, Format.BINARY, Mode.FAIL)


def test_a_registry_means_confluents_wire_format() -> None:
    made = parse(REGISTRY)
    assert made is not None
    assert made.value.framed
    assert made.value.registry is not None
    assert made.value.registry.urls == ("http://127.0.0.1:1", "http://127.0.0.1:2")
    plain = parse({**REGISTRY, "value.wire": "plain", "value.schema": '"long"'})
    assert plain is not None
    assert not plain.value.framed


def test_secrets_hide() -> None:
    for name in ("basic.auth.user.info", "bearer.auth.token", "ssl.key.password"):
        assert "hidden" not in repr(parse({**REGISTRY, f"schema.registry.{name}": "hidden"}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"value.format": "xml"},
            "option value.format: 'xml' is not one of binary, string, json, json-strict, avro, protobuf",
        ),
        ({"value.format": "json", "mode": "strict"}, "option mode: 'strict' is not one of permissive"),
        ({"mode": "failfast"}, "option mode needs the option value.format or key.format"),
        ({"value.format": "avro"}, "needs the option schema.registry.url, or value.schema"),
        ({**REGISTRY, "value.wire": "plain"}, "value.wire=plain needs the option value.schema"),
        (
            {"value.format": "json", "value.wire": "glue"},
            "option value.wire: 'glue' is not confluent or plain",
        ),
        ({"value.format": "protobuf", "value.schema": "x.desc"}, "needs the option value.message"),
        (
            {"value.format": "json", "timeZone": "Mars/Phobos"},
            "option timeZone: 'Mars/Phobos' is no time zone",
        ),
        ({"value.format": "json", "allowComments": "1"}, "option allowComments: '1' is not true or false"),
        ({"value.format": "json-strict", "timeZone": "UTC"}, "option timeZone needs value.format=json"),
        ({"value.format": "json", "value.flat": "yes"}, "option value.flat: 'yes' is not true or false"),
        ({"value.format": "json", "schema.registry.ssl.ca.location": "x"}, "need schema.registry.url"),
        ({**REGISTRY, "schema.registry.url": "host:8081"}, "an address begins with http:// or https://"),
        (
            {**REGISTRY, "schema.registry.url": "http://u:hidden@host"},
            "an address must not contain a name and password",
        ),
        (
            {
                **REGISTRY,
                "schema.registry.bearer.auth.token": "hidden",
                "schema.registry.basic.auth.user.info": "a:hidden",
            },
            "give one",
        ),
    ],
)
def test_what_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse(given)
    assert "hidden" not in str(caught.value)


def test_columns_without_a_schema() -> None:
    ddl = decoded_ddl(options(value_format="string"), {}, COLUMNS)
    assert ddl.startswith("`key` binary, `value` string, `topic` string")
    assert ddl.endswith("`timestampType` int, `_error` string, `_raw` binary")
    made = options(
        value_format="json", value_schema="id bigint, `a b` string", key_format="string", mode="failfast"
    )
    assert decoded_ddl(made, {}, COLUMNS).startswith(
        "`key` string, `value` struct<id bigint, `a b` string>, `topic`"
    )
    assert "_error" not in decoded_ddl(made, {}, COLUMNS)
    made = options(value_format="json", value_schema="id bigint", value_flat="true", metadataPrefix="kafka_")
    assert decoded_ddl(made, {}, COLUMNS).startswith("id bigint, `kafka_key` binary, `kafka_topic` string")


def test_json_without_a_schema_says_what_to_do() -> None:
    with pytest.raises(ConfigError, match=r"give load\(\) a schema, such as \.schema\(\"id bigint"):
        decoded_ddl(options(value_format="json"), {}, COLUMNS)
