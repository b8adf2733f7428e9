"""The options ``kafka.*``: what reaches a client, what is left out with a word, what is refused."""

from __future__ import annotations

import logging

import pytest

from kadence.config import ConsumerConfig, ProducerConfig
from kadence.errors import ConfigError
from kadence_spark.client_settings import ANY_TIME, ClientSettings, Side, client_settings

SOURCE = Side(
    table=ConsumerConfig,
    refused={"auto.offset.reset": "see startingOffsets"},
    ignored={"group.instance.id": "x"},
)
SINK = Side(table=ProducerConfig, refused={"key.serializer": "keys are binary"})
SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}


def settings(side: Side = SOURCE, /, **given: str) -> ClientSettings:
    return client_settings(SERVERS | {name.replace("_", "."): text for name, text in given.items()}, side)


def test_keys_without_their_prefix_in_any_case_and_nothing_else() -> None:
    assert settings().values == {"bootstrap.servers": "localhost:9092"}
    assert settings(KAFKA_Fetch_Min_Bytes="7").values["fetch.min.bytes"] == "7"


@pytest.mark.parametrize("key", ANY_TIME)
def test_what_only_tunes_java_is_left_out_with_a_reason(key: str) -> None:
    found = settings(**{f"kafka.{key}": "x"})
    assert key not in found.values
    assert found.left_out[key]


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        ({"kafka_sasl_mechanism": "GSSAPI", "kafka_ssl_truststore_location": "/none.jks"}, 2),
        ({"kafka_sasl_jaas_config": "Login required password=hunter2;"}, 1),
        ({"kafka_security_protocol": "SSL", "kafka_sasl_mechanism": "PLAIN"}, 1),
        ({"kafka_security_protocol": "plaintext", "kafka_ssl_cipher_suites": "x"}, 1),
        (
            {
                "kafka_security_protocol": "SASL_PLAINTEXT",
                "kafka_sasl_mechanism": "PLAIN",
                "kafka_sasl_username": "u",
                "kafka_sasl_password": "hunter2",
                "kafka_ssl_truststore_location": "/none.jks",
            },
            1,
        ),
        ({"kafka_acks": "all", "kafka_group_instance_id": "me"}, 2),
    ],
)
def test_what_has_no_meaning_here_is_said_once(
    given: dict[str, str], gone: int, caplog: pytest.LogCaptureFixture
) -> None:
    found = settings(**given)
    assert len(found.left_out) == gone
    assert not found.left_out.keys() & found.values.keys()
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        found.tell()
    (line,) = caplog.messages
    assert all(f"kafka.{key}: " in line for key in found.left_out)
    assert "hunter2" not in line + repr(found)


def test_nothing_left_out_is_nothing_said(caplog: pytest.LogCaptureFixture) -> None:
    settings().tell()
    assert caplog.messages == []


def test_a_producer_leaves_out_what_consumers_need() -> None:
    found = settings(SINK, kafka_acks="all", kafka_max_poll_records="500")
    assert found.values["acks"] == "all"
    assert found.left_out == {"max.poll.records": "it is a key of the consumer"}
    with pytest.raises(ConfigError, match=r"kafka\.key\.serializer cannot be used: keys are binary"):
        settings(SINK, kafka_key_serializer="x")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka_auto_offset_reset": "none"}, "kafka.auto.offset.reset cannot be used: see startingOffsets"),
        (
            {"kafka_security_protocol": "SSL", "kafka_ssl_enabled_protocols": "TLSv1.2"},
            "ssl.enabled.protocols",
        ),
        ({"kafka_security_protocol": "SASL_SSL", "kafka_sasl_login_class": "X"}, "sasl.login.class"),
        ({"kafka_fetch_min_byte": "1"}, "did you mean 'fetch.min.bytes'"),
        ({"kafka_fetch_min_bytes": "many"}, "in the options kafka.*: fetch.min.bytes"),
        ({"kafka_bootstrap_servers": ""}, "bootstrap.servers"),
    ],
)
def test_what_would_change_a_meaning_is_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(**given)
    assert said in str(caught.value)
