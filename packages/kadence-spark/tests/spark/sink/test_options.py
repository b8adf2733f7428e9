"""Options of the sink."""

from __future__ import annotations

import logging

import pytest

from kadence.errors import ConfigError
from kadence_spark.sink.options import parse
from kadence_spark.stamp import Stamp

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_client_settings_and_topic() -> None:
    options = parse({**SERVERS, "kafka.ACKS": "1", "Topic": " t ", "includeHeaders": "true"})
    assert options.client == {"bootstrap.servers": "localhost:9092", "acks": "1"}
    assert options.topic == "t"


def test_transactions_have_names() -> None:
    assert parse(SERVERS).transactional_prefix is None
    assert parse({**SERVERS, "transactions": "TRUE"}).transactional_prefix == "spark-kafka-sink"
    named = parse({**SERVERS, "transactions": "true", "transactionalIdPrefix": "team-a"})
    assert named.transactional_prefix == "team-a"
    assert "transactional.id" not in named.client


def test_a_batch_may_say_who_writes_it_and_its_number() -> None:
    given = {**SERVERS, "transactions": "true", "txnAppId": "nightly", "txnVersion": "7"}
    assert parse(given).stamp == Stamp("nightly", 7)
    with pytest.raises(ConfigError, match="are for batches: a stream has its query's id"):
        parse(given, streaming=True)


def test_secrets_are_not_shown() -> None:
    options = parse({**SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.key.password": "sesame"})
    assert options.client["ssl.key.password"] == "sesame"
    assert "sesame" not in repr(options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"topic": "t"}, "option kafka.bootstrap.servers is needed"),
        ({**SERVERS, "topic": " "}, "option topic is empty"),
        (
            {**SERVERS, "kafka.key.serializer": "x"},
            "option kafka.key.serializer cannot be used: keys and values are written",
        ),
        ({**SERVERS, "kafka.value.serializer": "x"}, "option kafka.value.serializer cannot be used"),
        (
            {**SERVERS, "kafka.transactional.id": "x"},
            "each task needs its own; transactions=true makes them",
        ),
        ({**SERVERS, "transactions": "yes"}, "option transactions: 'yes' is not true or false"),
        (
            {**SERVERS, "transactions": "true", "kafka.acks": "1"},
            "needs enable.idempotence=true and acks=all",
        ),
        ({**SERVERS, "transactions": "true", "txnAppId": "a"}, "go together"),
        ({**SERVERS, "txnAppId": "a", "txnVersion": "1"}, "need transactions=true"),
        ({**SERVERS, "transactions": "true", "txnAppId": "a", "txnVersion": "-1"}, "'-1' is not a number"),
        ({**SERVERS, "transactions": "true", "txnAppId": "a", "txnVersion": "9" * 5000}, "is not a number"),
        ({**SERVERS, "kafka.acks": "2"}, "acks"),
        ({**SERVERS, "kafka.asks": "1"}, "did you mean 'acks'"),
        ({**SERVERS, "acks": "1"}, "did you mean 'kafka.acks'"),
        ({**SERVERS, "topics": "t"}, "did you mean 'topic'"),
        ({**SERVERS, "path": "/t"}, r"save\(\) and start\(\) take no path"),
        ({**SERVERS, "colour": "blue"}, "unknown option 'colour': known are topic"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(given)


def test_options_of_source_and_spark_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kadence.spark"):
        parse({**SERVERS, "startingoffsets": "earliest", "checkpointLocation": "/c"})
    assert "options of the source have no effect on the sink: startingOffsets" in caplog.text
