"""Advice about what brokers lack, refuse and send: the client that follows it gets on."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.patience import overdue
from tests.records.batches import batch, record

from kadence import Admin, Broker, ConfigResource, Consumer, NewTopic, Producer, TopicPartition
from kadence.config import ConsumerConfig
from kadence.connection.sent import check_length
from kadence.errors import (
    ClosedError,
    CommitFailedError,
    CorruptRecordError,
    DeadLetterError,
    KafkaError,
    MalformedMessageError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedRecordFormatError,
)
from kadence.net import ConnectionConfig
from kadence.net.logins import Logins
from kadence.protocol import error_codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.end_txn import EndTxnRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.produce import ProduceRequest
from kadence.protocol.sasl_handshake import SaslHandshakeRequest
from kadence.records import FetchedRecords
from kadence.security import Credentials, Secret

PARTITION = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    config = {"auto.create.topics.enable": False, "group.min.session.timeout.ms": 500}
    with Broker(topics={"t": 1}, config=config) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number)
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    yield shared
    shared.faults.clear()


def polled_on(consumer: Consumer[Any, Any]) -> None:
    """Until a poll raises."""
    while True:
        consumer.poll(0.1)


def test_a_broker_without_static_membership(broker: Broker) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "static",
        "group_protocol": "classic",
    }
    broker.faults.limit(JoinGroupRequest, 4)
    with Consumer(**settings, group_instance_id="one") as consumer:
        consumer.subscribe("t")
        with pytest.raises(KafkaError, match=re.escape("unset group.instance.id for this broker")):
            polled_on(consumer)
    with Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.subscribe("t")
        assert consumer.poll(10)


def test_a_broker_without_logins(broker: Broker) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": "me", "sasl_password": "pw"}
    broker.faults.limit(SaslHandshakeRequest, 0)
    with (
        Admin(
            bootstrap_servers=broker.bootstrap_servers, security_protocol="SASL_PLAINTEXT", **login
        ) as admin,
    ):
        overdue(
            lambda seconds: admin.describe_cluster(timeout=seconds),
            KafkaError,
            match=re.escape("set security.protocol=PLAINTEXT or SSL"),
        )
    with Admin(bootstrap_servers=broker.bootstrap_servers, security_protocol="PLAINTEXT") as admin:
        assert admin.describe_cluster(timeout=10).nodes


def test_a_broker_without_transactions(broker: Broker) -> None:
    def offers(call: Any) -> Any:
        answer = call.handler.refuse(call, error_codes.NONE)
        answer.api_keys = [each for each in answer.api_keys if each.api_key != EndTxnRequest.API_KEY]
        return answer

    broker.faults.respond(ApiVersionsRequest, offers)
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="old") as producer,
        pytest.raises(
            KafkaError, match=re.escape("the brokers have no transactions; leave out transactional.id")
        ),
    ):
        producer.init_transactions()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("t", b"plain").result(10)


def test_a_broker_that_gives_no_producer_id(broker: Broker) -> None:
    broker.faults.error(InitProducerIdRequest, error_codes.CLUSTER_AUTHORIZATION_FAILED)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        with pytest.raises(KafkaError) as caught:
            producer.send("t", b"v").result(10)
        assert "enable.idempotence=false works without one" in "".join(caught.value.__notes__)
    with Producer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=False) as producer:
        producer.send("t", b"v").result(10)


def test_a_record_that_the_broker_finds_too_large(broker: Broker) -> None:
    topic = ConfigResource("topic", "small")
    with (
        Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": 1000})])
        with pytest.raises(
            RecordTooLargeError,
            match=r"\(max\.message\.bytes of the topic, .*\); raise that, or send a smaller record",
        ):
            producer.send("small", b"v" * 2000).result(10)
        producer.send("small", b"v" * 500).result(10)
        admin.incremental_alter_configs({topic: {"max.message.bytes": "3000"}})
        producer.send("small", b"v" * 2000).result(10)


def test_a_close_that_gives_records_time(broker: Broker) -> None:
    advice = re.escape("call close() later, or with a longer timeout")
    with broker.faults.drop(ProduceRequest):
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        future = producer.send("t", b"v")
        producer.close(timeout=0)
        with pytest.raises(ClosedError, match=advice):
            future.result(10)
    with broker.faults.delay(ProduceRequest, 0.5):
        longer = Producer(bootstrap_servers=broker.bootstrap_servers)
        future = longer.send("t", b"v")
        longer.close(timeout=20)
        assert future.result(0).topic == "t"
        later = Producer(bootstrap_servers=broker.bootstrap_servers)
        future = later.send("t", b"v")
        future.result(10)
        later.close(timeout=0)


def test_a_topic_to_read_that_is_not_there(broker: Broker) -> None:
    missing = TopicPartition("made", 0)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([missing])
        with pytest.raises(
            UnknownTopicOrPartitionError,
            match=re.escape("create it (kadence topics create made) or correct its name"),
        ):
            polled_on(consumer)
        consumer.assign([PARTITION])
        assert consumer.poll(10)
        with (
            Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
            Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ):
            admin.create_topics([NewTopic("made", 1)])
            producer.send("made", b"there").result(10)
        consumer.assign([missing])
        assert [record.value for record in consumer.poll(10)] == [b"there"]


def test_a_timeout_is_given_in_seconds(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    with (
        Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        caplog.at_level(logging.WARNING, "kadence"),
    ):
        consumer.assign([PARTITION])
        assert consumer.poll(1000)
        assert "timeouts are seconds here, so 1000 ms are 1.0" in caplog.text
        caplog.clear()
        consumer.seek_to_beginning([PARTITION])
        assert consumer.poll(1.0)
        assert not caplog.messages


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_polls_in_time_commits(
    protocol: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """Each record takes a quarter of a second, and five of them are more than the interval."""
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_protocol": protocol,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "max_poll_records": 5,
        "max_poll_interval_ms": 1000,
    }
    if protocol == "classic":
        settings |= {"session_timeout_ms": 1000, "heartbeat_interval_ms": 200}

    def works(group: str, **changed: Any) -> None:
        with Consumer(**{**settings, "group_id": f"{group}-{protocol}", **changed}) as consumer:
            consumer.subscribe("t")
            done = 0
            while done < 5:
                for _ in (records := consumer.poll(10)):
                    time.sleep(0.25)
                    done += 1
                consumer.commit(records)

    with (
        caplog.at_level(logging.WARNING, "kadence"),
        pytest.raises(
            CommitFailedError,
            match=re.escape("(poll more often, process less per poll by max.poll.records, or raise it)"),
        ),
    ):
        works("slow")
    assert (
        "Poll more often, process less per poll (max.poll.records), or raise max.poll.interval.ms"
        in caplog.text
    )
    works("long", max_poll_interval_ms=60_000)
    works("less", max_poll_records=1)


def test_a_batch_that_is_larger_than_a_response_may_be() -> None:
    size = 300_000_000
    with pytest.raises(MalformedMessageError, match=re.escape("raise fetch.max.bytes")):
        check_length(size, limit_with(), "b:9092")
    check_length(size, limit_with(fetch_max_bytes=size), "b:9092")


def limit_with(**settings: Any) -> int:
    return ConnectionConfig.of(
        ConsumerConfig.parse({}, bootstrap_servers="b:9092", **settings)
    ).max_frame_bytes


def test_a_password_in_the_open(caplog: pytest.LogCaptureFixture) -> None:
    def talks(mechanism: str, context: Any = None) -> None:
        credentials = Credentials(mechanism, "me", Secret("pw"))
        config = ConnectionConfig(bootstrap=(), credentials=credentials, ssl_context=context)
        Logins(config, credentials, lambda: None).about_to_talk("192.0.2.1")

    talks("PLAIN")
    assert "use security.protocol=SASL_SSL, or a SCRAM mechanism, which does not send it" in caplog.text
    caplog.clear()
    talks("SCRAM-SHA-256")
    talks("PLAIN", object())
    assert not caplog.messages


def read_from(data: bytes, offset: int = 0) -> list[int]:
    return [each.offset for each in FetchedRecords(data, "t", 0, offset).take(-1)]


def test_damaged_records_are_sought_past() -> None:
    good = record(0, 0, b"k", b"v")
    data = batch(good + b"\0" * 8, 2) + batch(good, 1, base_offset=2)
    reader = FetchedRecords(data, "t", 0, 0)
    assert [each.offset for each in reader.take(-1)] == [0]
    with pytest.raises(CorruptRecordError) as caught:
        reader.take(-1)
    found = re.search(r"to go on without these records, seek to (\d+)", str(caught.value))
    assert found is not None
    assert read_from(data, int(found[1])) == [2]


def test_a_batch_of_an_old_format_is_sought_past() -> None:
    """Its fields do not say how many records it has; the log behind it is what a fetch from a later offset brings."""
    good = record(0, 0, b"k", b"v")
    old = bytearray(batch(good, 1))
    old[16] = 1
    after = batch(good, 1, base_offset=1)
    with pytest.raises(UnsupportedRecordFormatError, match="to go on without these records, seek past them"):
        read_from(bytes(old) + after)
    assert read_from(after, 1) == [1]


def test_dead_letters_that_their_topic_refuses(broker: Broker) -> None:
    """They are sought past; or their topic is corrected."""
    topic = ConfigResource("topic", "letters")
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics(
            [NewTopic("bad", 1), NewTopic("letters", 1, configs={"cleanup.policy": "compact"})]
        )
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in (b"\xff", b"1"):
                producer.send("bad", value)
        bad = TopicPartition("bad", 0)
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "value_deserializer": "string",
            "deserialization_errors": "dead-letter",
            "dead_letter_topic": "letters",
        }
        with Consumer(**settings) as consumer:
            consumer.assign({bad: 0})
            with pytest.raises(
                DeadLetterError, match=re.escape("seek() past them, or correct the topic's settings")
            ):
                polled_on(consumer)
            consumer.seek(bad, 1)
            assert [record.value for record in consumer.poll(10)] == ["1"]
        with Consumer(**settings) as consumer:
            consumer.assign({bad: 0})
            with pytest.raises(DeadLetterError):
                polled_on(consumer)
            admin.incremental_alter_configs({topic: {"cleanup.policy": "delete"}})
            while not (records := consumer.poll(10)):
                pass
            assert [record.value for record in records] == ["1"]
