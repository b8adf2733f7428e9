"""The configuration table: what is read, what is refused, and how it is said."""

from __future__ import annotations

import ast
import dataclasses
import json
import logging
import pickle
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import kadence
from kadence.config import AdminConfig, ClientConfig, ConsumerConfig, ProducerConfig, Secret, keys
from kadence.consumer.assignors import RangeAssignor
from kadence.errors import ConfigError

BOOTSTRAP = {"bootstrap.servers": "localhost:9092"}


def test_kafka_names_in_a_dict_and_snake_case_keywords_mean_the_same() -> None:
    by_dict = ConsumerConfig.parse({**BOOTSTRAP, "group.id": "g", "session.timeout.ms": "6000"})
    by_keyword = ConsumerConfig.parse(
        bootstrap_servers=["localhost:9092"], group_id="g", session_timeout_ms=6000
    )
    assert by_dict == by_keyword
    assert by_dict.session_timeout_ms == 6000


def test_defaults_are_those_of_the_kips() -> None:
    config = ConsumerConfig.parse(BOOTSTRAP)
    assert (config.max_poll_records, config.session_timeout_ms, config.max_poll_interval_ms) == (
        500,
        10_000,
        300_000,
    )


def test_assignors_are_named_as_in_kafka_and_in_java_or_given_as_objects() -> None:
    mine = RangeAssignor()
    java = "org.apache.kafka.clients.consumer."
    for given, meant in (
        ("range, roundrobin", ("range", "roundrobin")),
        ([f"{java}StickyAssignor", "range"], ("sticky", "range")),
        (f"{java}CooperativeStickyAssignor,{java}RoundRobinAssignor", ("cooperative-sticky", "roundrobin")),
        (mine, (mine,)),
        ([mine, "sticky"], (mine, "sticky")),
    ):
        config = ConsumerConfig.parse(BOOTSTRAP, partition_assignment_strategy=given)
        assert config.partition_assignment_strategy == meant
        assert config.group_protocol == "classic"


def test_b2_processing_timeout_is_the_larger_of_session_and_poll_interval() -> None:
    short = ConsumerConfig.parse(BOOTSTRAP, max_poll_interval_ms=4_000, session_timeout_ms=10_000)
    assert short.processing_timeout_ms == 10_000
    assert ConsumerConfig.parse(BOOTSTRAP).processing_timeout_ms == 300_000


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max.poll.record": 5}, "did you mean 'max.poll.records'?"),
        ({"session.timeout.ms": "soon"}, "session.timeout.ms: 'soon' is not a whole number >= 1"),
        ({"session.timeout.ms": True}, "session.timeout.ms: True is not"),
        ({"fetch.min.bytes": -1}, "fetch.min.bytes: -1 is not a whole number >= 0"),
        ({"auto.offset.reset": "first"}, "one of earliest, latest, none"),
        ({"heartbeat.interval.ms": 10_000}, "must be below session.timeout.ms"),
        ({"max.poll.records": 0}, "not at least 1, -1 or auto"),
        ({"group.id": ""}, "group.id is empty"),
        ({"enable.auto.commit": True}, "needs group.id"),
        ({"group.instance.id": "i"}, "needs group.id"),
        ({"group.id": "g", "group.instance.id": ""}, "1 to 249"),
        ({"group.id": "g", "group.instance.id": ".."}, "'..' is not a name"),
        ({"group.id": "g", "group.instance.id": "a b"}, "'a b' is not a name"),
        ({"group.id": "g", "group.instance.id": "x" * 250}, "1 to 249"),
        ({"partition.assignment.strategy": ""}, "at least one"),
        ({"partition.assignment.strategy": "range,range"}, "'range' is given twice"),
        ({"partition.assignment.strategy": [object()]}, "no assignor"),
        ({"partition.assignment.strategy": RangeAssignor}, "RangeAssignor()"),
        (
            {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.MyAssignor"},
            "see kadence.Assignor",
        ),
        ({"partition.assignment.strategy": "lucky"}, "'lucky' is none of"),
        (
            {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
            "name a broker's assignor in group.remote.assignor, or set group.protocol=classic",
        ),
        ({"group.protocol": "consumer", "session.timeout.ms": 6000}, "group.consumer.session.timeout.ms"),
        (
            {"group.protocol": "consumer", "heartbeat.interval.ms": 300},
            "group.consumer.heartbeat.interval.ms",
        ),
        (
            {"group.remote.assignor": "range", "group.protocol": "classic"},
            "group.remote.assignor needs group.protocol=consumer",
        ),
        (
            {"group.remote.assignor": "range", "session.timeout.ms": 6000},
            "group.remote.assignor needs group.protocol=consumer",
        ),
        ({"bootstrap.servers": "localhost"}, "'localhost' is not host:port"),
        ({"bootstrap.servers": "PLAINTEXT://a:9092"}, "'PLAINTEXT://a:9092' is not host:port"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is required"),
        ({"ssl.key.location": "key.pem"}, "needs ssl.certificate.location"),
    ],
)
def test_bad_configuration_says_what_was_given_and_what_to_do(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        ConsumerConfig.parse({**BOOTSTRAP, **given})
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ({}, "auto"),
        ({"group.remote.assignor": "range"}, "auto"),
        ({"session.timeout.ms": 6000}, "classic"),
        ({"heartbeat.interval.ms": 300}, "classic"),
        ({"group.protocol": "auto", "partition.assignment.strategy": "range"}, "classic"),
        ({"group.protocol": "consumer"}, "consumer"),
    ],
)
def test_c4_auto_is_the_default_and_means_classic_where_a_key_of_that_is_set(
    given: dict[str, object], protocol: str
) -> None:
    assert ConsumerConfig.parse({**BOOTSTRAP, **given}).group_protocol == protocol


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="given twice"):
        ConsumerConfig.parse({**BOOTSTRAP, "group.id": "a"}, group_id="b")
    with pytest.raises(ConfigError, match=r"group\.id is given twice: as 'group.id' and 'group_id'"):
        ConsumerConfig.parse({**BOOTSTRAP, "group.id": "a", "group_id": "b"})


def logged(argument: object) -> str:
    """An argument as a log line has it."""
    return logging.makeLogRecord({"msg": "%s %r", "args": (argument, argument)}).getMessage()


def test_secrets_show_in_no_repr_and_no_error() -> None:
    config = ConsumerConfig.parse(
        BOOTSTRAP, ssl_key_password="hunter2", ssl_key_location="k", ssl_certificate_location="c"
    )
    assert isinstance(config.ssl_key_password, Secret)
    assert "hunter2" not in repr(config)
    secret = config.ssl_key_password
    assert secret.reveal() == "hunter2"
    for shown in (str(secret), f"{secret}", f"{secret!s:>20}", repr([secret]), logged(secret)):
        assert "hunter2" not in shown
        assert "[hidden]" in shown
    again = ConsumerConfig.parse(
        BOOTSTRAP, ssl_key_password=secret, ssl_key_location="k", ssl_certificate_location="c"
    )
    assert again.ssl_key_password == secret
    # Broker(users=...) makes one of each password, which may be one already.
    assert Secret(secret).reveal() == "hunter2"
    with pytest.raises(TypeError, match="not JSON serializable"):
        json.dumps(secret)
    assert "hunter2" not in json.dumps(dataclasses.asdict(config), default=str)
    with pytest.raises(ConfigError) as error:
        ConsumerConfig.parse({**BOOTSTRAP, "ssl.key.password": 12345678})
    assert "12345678" not in str(error.value)


def test_without_a_group_there_is_nothing_to_commit() -> None:
    assert not ConsumerConfig.parse(BOOTSTRAP).auto_commit
    assert ConsumerConfig.parse(BOOTSTRAP, group_id="g").auto_commit


def test_weaker_acks_switch_idempotence_off_unless_it_was_asked_for() -> None:
    assert not ProducerConfig.parse(BOOTSTRAP, acks="1").enable_idempotence
    with pytest.raises(ConfigError, match="needs acks=all"):
        ProducerConfig.parse(BOOTSTRAP, acks="1", enable_idempotence=True)


def test_a_delivery_that_has_no_time_for_a_request_is_refused_if_both_were_set() -> None:
    with pytest.raises(ConfigError, match=r"linger_ms=500 must be below delivery\.timeout\.ms=500"):
        ProducerConfig.parse({**BOOTSTRAP, "delivery.timeout.ms": 500}, linger_ms=500)
    with pytest.raises(
        ConfigError,
        match=r"^delivery_timeout_ms=9999 is below linger\.ms=5 plus request\.timeout\.ms=9995, so records fail while "
        r"their request may still be answered; raise delivery_timeout_ms, or lower request\.timeout\.ms$",
    ):
        ProducerConfig.parse({**BOOTSTRAP, "request.timeout.ms": 9995}, delivery_timeout_ms=9999)
    just_enough = ProducerConfig.parse(BOOTSTRAP, delivery_timeout_ms=10_000, request_timeout_ms=9995)
    assert just_enough.delivery_timeout_ms == 10_000
    assert ProducerConfig.parse(BOOTSTRAP, delivery_timeout_ms=200).request_timeout_ms == 30_000


@pytest.mark.parametrize(
    ("settings", "delivery"), [({"request.timeout.ms": 180_000}, 180_005), ({"linger.ms": 100_000}, 130_000)]
)
def test_the_default_of_delivery_grows_with_what_was_set(
    settings: dict[str, int], delivery: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert ProducerConfig.parse({**BOOTSTRAP, **settings}).delivery_timeout_ms == delivery
    (name, value), *_ = settings.items()
    assert f"delivery.timeout.ms raised from 120000 to {delivery}, because" in caplog.text
    assert f"{name}={value}" in caplog.text


def test_every_row_of_the_table_is_documented_and_its_default_is_allowed() -> None:
    for row in keys(ConsumerConfig):
        assert row.name
        assert row.doc.endswith(".") or row.doc.endswith("off.")
        if row.choices:
            assert row.default in (*row.choices, None)
        if isinstance(row.default, int) and row.low is not None:
            assert row.default >= row.low


@pytest.mark.parametrize(
    ("given", "kept", "duration_ms"),
    [
        ("earliest", "earliest", None),
        ("LATEST", "latest", None),
        ("by_duration:PT1H", "by_duration:PT1H", 3_600_000),
        ("By_Duration: p1dt12h", "by_duration:P1DT12H", 129_600_000),
        ("by_duration:PT1M1.5S", "by_duration:PT1M1.5S", 61_500),
        ("by_duration:PT0S", "by_duration:PT0S", 0),
    ],
)
def test_kip1106_reset_policies(given: str, kept: str, duration_ms: int | None) -> None:
    config = ConsumerConfig.parse(BOOTSTRAP, auto_offset_reset=given)
    assert (config.auto_offset_reset, config.reset_duration_ms) == (kept, duration_ms)


@pytest.mark.parametrize(
    "given", ["by_duration:1h", "by_duration:-PT1H", "by_duration:PT", "by_duration:P1W", "by_duration:"]
)
def test_kip1106_a_duration_that_is_none_says_how_they_are_written(given: str) -> None:
    with pytest.raises(ConfigError) as error:
        ConsumerConfig.parse(BOOTSTRAP, auto_offset_reset=given)
    assert "auto.offset.reset: " in str(error.value)
    assert "by_duration:PT1H" in str(error.value)


@pytest.mark.parametrize("given", ["by_duration", "earliest:PT1H", ""])
def test_kip1106_what_is_no_policy_names_those_there_are(given: str) -> None:
    with pytest.raises(ConfigError, match="one of earliest, latest, none, by_duration"):
        ConsumerConfig.parse(BOOTSTRAP, auto_offset_reset=given)


def test_faults_of_a_value_are_told_beside_those_of_types_and_names() -> None:
    given = {
        "bootstrap.servers": "kafka://localhost:9092,localhost",
        "group_idd": "g",
        "group.id": "",
        "auto.offset.reset": "oldest",
        "session.timeout.ms": "long",
    }
    with pytest.raises(ConfigError) as error:
        ConsumerConfig.parse(given)
    told = str(error.value).splitlines()
    assert told[0] == "6 mistakes in the consumer's settings:"
    assert {line.removeprefix("- ").split(": ")[0] for line in told[1:]} == {
        "bootstrap.servers",
        "unknown consumer configuration key 'group_idd'",
        "group.id is empty; give it a name, or leave it out to use assign()",
        "auto.offset.reset",
        "session.timeout.ms",
    }


ROOMS = {ConsumerConfig: "consumer", ProducerConfig: "producer", AdminConfig: "admin"}
SHARED = ("client", "connection", "net", "security")


def names_read(room: str) -> Iterator[str]:
    """What the modules of a room read of other objects; ``prefix_*`` where the rest of a name is computed."""
    for file in sorted((Path(kadence.__file__).parent / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                yield node.attr
            elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                yield f"{node.values[0].value!s}*"


@pytest.mark.parametrize("config", ROOMS)
def test_every_key_that_a_client_takes_is_read_by_it(config: type[ClientConfig]) -> None:
    """Whoever sets a key that nothing reads believes that it acts."""
    read = {name for room in (ROOMS[config], *SHARED) for name in names_read(room)}
    for name, member in vars(config).items():
        if isinstance(member, property) and member.fget is not None and name in read:
            read |= set(member.fget.__code__.co_names)
    patterns = [each for each in read if re.fullmatch(r"[a-z_]+_\*", each)]
    unread = {each.name for each in dataclasses.fields(config)} - read
    assert sorted(name for name in unread if not any(fnmatch(name, each) for each in patterns)) == []


def test_an_error_carries_its_key() -> None:
    for settings, key in (
        ({"group.idd": "g"}, "group.idd"),
        ({"session.timeout.ms": "long"}, "session.timeout.ms"),
        ({"heartbeat.interval.ms": 60_000}, "heartbeat.interval.ms"),
        ({"security.protocol": "SASL_SSL"}, "security.protocol"),
        ({"fetch.min.bytes": -5, "group.idd": "g"}, "fetch.min.bytes"),
    ):
        with pytest.raises(ConfigError) as raised:
            ConsumerConfig.parse({"bootstrap.servers": "b:1", **settings})
        assert raised.value.key == key
        assert pickle.loads(pickle.dumps(raised.value)).key == key
