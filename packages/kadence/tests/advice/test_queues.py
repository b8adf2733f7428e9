"""Advice in errors of share consumers: the settings, and the calls that follow it, work."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.patience import until

from kadence import AcknowledgeType, Admin, Broker, ConfigResource, Consumer, Producer, Retry, ShareConsumer
from kadence.config import ShareConsumerConfig
from kadence.config.share_consumer import _REFUSED
from kadence.errors import ConfigError, IllegalStateError, KafkaError, RecordDeserializationError

SERVERS = {"bootstrap.servers": "127.0.0.1:1", "group.id": "queue"}
OF_THE_GROUP = {
    "auto.offset.reset": ("share.auto.offset.reset", "earliest"),
    "isolation.level": ("share.isolation.level", "read_committed"),
    "session.timeout.ms": ("share.session.timeout.ms", "50000"),
    "heartbeat.interval.ms": ("share.heartbeat.interval.ms", "2000"),
}
"""Settings of a consumer that the group has here, and the name and a value there."""
INSTEAD: dict[str, tuple[str, Mapping[str, Any]]] = {
    "enable.auto.commit": (
        "choose share.acknowledgement.mode instead",
        {"share.acknowledgement.mode": "explicit"},
    ),
    "max.partition.fetch.bytes": ("set that instead", {"fetch.max.bytes": 1_000_000}),
    "max.poll.records.ratio": ("set that instead", {"max.poll.records": 10}),
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    quick = {
        "group.share.heartbeat.interval.ms": 100,
        "group.share.min.heartbeat.interval.ms": 100,
        "group.share.min.record.lock.duration.ms": 1000,
    }
    with Broker(topics={"t": 1}, config=quick) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for group in ("wanted", "bad"):
                resource = ConfigResource("group", group)
                admin.incremental_alter_configs({resource: {"share.auto.offset.reset": "earliest"}})
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number)
        yield broker.bootstrap_servers


@pytest.mark.parametrize("key", sorted(_REFUSED))
def test_without_a_key_that_a_queue_does_not_have_the_settings_are_accepted(key: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(_REFUSED[key])):
        ShareConsumerConfig.parse({**SERVERS, key: "1"})
    ShareConsumerConfig.parse(SERVERS)


@pytest.mark.parametrize("key", INSTEAD)
def test_the_key_that_counts_instead_is_accepted(key: str) -> None:
    advice, settings = INSTEAD[key]
    assert advice in _REFUSED[key]
    assert all(name in _REFUSED[key] for name in settings)
    ShareConsumerConfig.parse({**SERVERS, **settings})


@pytest.mark.parametrize("key", OF_THE_GROUP)
def test_the_setting_of_the_group_is_set(key: str, servers: str) -> None:
    name, value = OF_THE_GROUP[key]
    assert f"set {name} of the group instead: Admin.incremental_alter_configs" in _REFUSED[key]
    resource = ConfigResource("group", "settings")
    with Admin(bootstrap_servers=servers) as admin:
        admin.incremental_alter_configs({resource: {name: value}})
        assert admin.describe_configs([resource])[resource][name].value == value


def test_a_queue_has_a_name() -> None:
    with pytest.raises(ConfigError, match=re.escape("group.id is empty; give it the name of the queue")):
        ShareConsumerConfig.parse({**SERVERS, "group.id": ""})
    with pytest.raises(ConfigError, match=r"group\.id is required: a share group is the queue"):
        ShareConsumerConfig.parse({"bootstrap.servers": "127.0.0.1:1"})
    ShareConsumerConfig.parse(SERVERS)


def test_what_interceptors_would_see_is_reported(servers: str) -> None:
    """And a table is bounded by max_records=."""
    pytest.importorskip("pyarrow")
    assert "set_acknowledgement_commit_callback()" in _REFUSED["interceptors"]
    assert "poll_arrow(max_records=...)" in _REFUSED["max.poll.arrow.bytes"]
    reported: list[Any] = []
    with ShareConsumer(bootstrap_servers=servers, group_id="wanted") as consumer:
        consumer.set_acknowledgement_commit_callback(lambda *outcome: reported.append(outcome))
        consumer.subscribe("t")
        while not (table := consumer.poll_arrow(1, max_records=2)).num_rows:
            pass
        assert table.num_rows <= 2
        consumer.commit()
    assert [error for _, _, error in reported] == [None]


def poll_on(consumer: ShareConsumer[Any, Any]) -> None:
    """Until a poll raises."""
    while True:
        consumer.poll(1)
        consumer.commit()


CALLS: dict[str, tuple[Callable[[Any], object], type[Exception], str]] = {
    "acknowledges by itself": (
        lambda c: c.acknowledge("t", 0, 0),
        IllegalStateError,
        "acknowledge() needs share.acknowledgement.mode=explicit",
    ),
    "polls without topics": (lambda c: c.poll(1), IllegalStateError, "call subscribe() first"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_follows_the_advice_works(name: str, servers: str) -> None:
    wrong, error, advice = CALLS[name]
    with (
        ShareConsumer(bootstrap_servers=servers, group_id="wanted") as consumer,
        pytest.raises(error, match=re.escape(advice)),
    ):
        wrong(consumer)
    with ShareConsumer(
        bootstrap_servers=servers, group_id="wanted", share_acknowledgement_mode="explicit"
    ) as consumer:
        consumer.subscribe("t")
        for record in consumer:
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
            break


@pytest.mark.parametrize(
    "ending",
    [
        {"deserialization_errors": "reject"},
        {"deserialization_errors": "dead-letter", "dead_letter_topic": "t-bad"},
    ],
    ids=["reject", "dead-letter"],
)
def test_a_bad_record_that_is_rejected_or_written_elsewhere_does_not_return(
    ending: dict[str, Any], servers: str
) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "bad", "value_deserializer": "json"}
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"not JSON")
    with ShareConsumer(**settings) as consumer:
        consumer.subscribe("t")
        with pytest.raises(
            KafkaError, match=r"to end that, set deserialization\.errors to reject or dead-letter"
        ):
            poll_on(consumer)
    with ShareConsumer(**settings, **ending) as consumer:
        consumer.subscribe("t")
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"17")
        seen: list[Any] = []
        while 17 not in seen:
            seen += [record.value for record in consumer.poll(1)]
        consumer.commit()


def test_a_dead_letter_topic_that_is_read_is_no_way_to_later_attempts(servers: str) -> None:
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"once more")
    attempts: list[int] = []
    with ShareConsumer(bootstrap_servers=servers, group_id="wanted") as consumer:

        def handle(record: Any, context: Any) -> None:
            if record.value == b"once more":
                attempts.append(context.attempt)
                if context.attempt == 1:
                    raise OSError("not now")
                consumer.stop()

        consumer.subscribe("t")
        with pytest.raises(ConfigError, match=re.escape("use Retry(attempts=..., backoff=...)")):
            consumer.process(handle, dead_letter="t")
        consumer.process(handle, workers=1, retry=Retry(attempts=2, backoff=0.01))
    assert attempts == [1, 2]


def test_a_group_of_consumers_is_no_queue_until_it_is_deleted(servers: str) -> None:
    with Consumer(bootstrap_servers=servers, group_id="typed") as consumer:
        consumer.subscribe("t")
        consumer.poll(5)
    with ShareConsumer(bootstrap_servers=servers, group_id="typed") as consumer:
        consumer.subscribe("t")
        with pytest.raises(KafkaError, match=r"choose another group\.id, or delete the group first"):
            poll_on(consumer)
    with Admin(bootstrap_servers=servers) as admin:
        admin.delete_consumer_groups("typed")
    with ShareConsumer(bootstrap_servers=servers, group_id="typed") as consumer:
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.2)


EXPLICIT: dict[str, Any] = {"group_id": "wanted", "share_acknowledgement_mode": "explicit"}


def held(consumer: ShareConsumer[Any, Any], servers: str) -> Any:
    """The records of one poll, of which there is at least one."""
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"held")
    consumer.subscribe("t")
    while not (records := consumer.poll(1)):
        pass
    return records


def test_brokers_with_the_feature_have_share_groups() -> None:
    for level in (0, 1):
        with (
            Broker(topics={"t": 1}, config={"share.version": level}) as broker,
            ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="featured") as consumer,
        ):
            consumer.subscribe("t")
            if level:
                while not consumer.assignment():
                    consumer.poll(0.2)
            else:
                with pytest.raises(
                    KafkaError, match=re.escape("with the feature share.version at 1 or higher")
                ):
                    poll_on(consumer)


def test_each_record_is_acknowledged_before_the_next_poll(servers: str) -> None:
    with ShareConsumer(bootstrap_servers=servers, **EXPLICIT) as consumer:
        records = held(consumer, servers)
        with pytest.raises(IllegalStateError, match="each record needs it before the next poll"):
            consumer.poll(0)
        for record in records:
            consumer.acknowledge(record)
        consumer.poll(0)


ACKNOWLEDGEMENTS: dict[str, tuple[Callable[[Any, Any], object], type[Exception], str]] = {
    "two types": (
        lambda c, r: c.acknowledge(r, AcknowledgeType.ACCEPT, type=AcknowledgeType.RELEASE),
        TypeError,
        "acknowledge() takes one type",
    ),
    "no type": (
        lambda c, r: c.acknowledge(r, "accept"),
        TypeError,
        "a type is AcknowledgeType.ACCEPT, RELEASE, REJECT or RENEW",
    ),
    "half of a place": (
        lambda c, r: c.acknowledge(r.topic, r.partition),
        TypeError,
        "acknowledge(topic, partition, offset, type): a partition and an offset are wanted",
    ),
    "a number": (
        lambda c, r: c.acknowledge(r.offset),
        TypeError,
        "acknowledge() takes a record, several, a table of poll_arrow(), or a topic's name",
    ),
}


def test_what_acknowledge_takes(servers: str) -> None:
    with ShareConsumer(bootstrap_servers=servers, **EXPLICIT) as consumer:
        records = held(consumer, servers)
        one = records[0]
        for wrong, error, advice in ACKNOWLEDGEMENTS.values():
            with pytest.raises(error, match=re.escape(advice)):
                wrong(consumer, one)
        for kind in AcknowledgeType:
            consumer.acknowledge(one, kind)
            consumer.acknowledge(one, type=kind)
            consumer.acknowledge(one.topic, one.partition, one.offset, kind)
        consumer.acknowledge([one])
        consumer.acknowledge(records)
        assert [*consumer.commit().values()] == [None]


@pytest.mark.parametrize("kind", [AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT])
def test_a_bad_record_is_not_renewed(kind: AcknowledgeType, servers: str) -> None:
    with (
        ShareConsumer(bootstrap_servers=servers, value_deserializer="json", **EXPLICIT) as consumer,
        Producer(bootstrap_servers=servers) as producer,
    ):
        producer.send("t", b"no JSON")
        consumer.subscribe("t")
        bad = None
        while bad is None:
            try:
                consumer.acknowledge(consumer.poll(1))
            except RecordDeserializationError as error:
                bad = error
        place = *bad.partition, bad.offset
        with pytest.raises(IllegalStateError, match="cannot be renewed: accept, release or reject it"):
            consumer.acknowledge(*place, AcknowledgeType.RENEW)
        consumer.acknowledge(*place, kind)
        assert [*consumer.commit().values()] == [None]


def test_a_queue_has_no_retry_topic(servers: str) -> None:
    def handle(record: Any) -> None:
        consumer.stop()

    with ShareConsumer(bootstrap_servers=servers, group_id="wanted") as consumer:
        with Producer(bootstrap_servers=servers) as producer:
            producer.send("t", b"held")
        consumer.subscribe("t")
        with pytest.raises(ConfigError, match="is delivered again by itself; leave topic out"):
            consumer.process(handle, retry=Retry(topic="later"))
        assert consumer.process(handle, retry=Retry()).done


def test_a_table_that_is_acknowledged_says_which_records(servers: str) -> None:
    pytest.importorskip("pyarrow")
    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": "wanted",
        "share_acknowledgement_mode": "explicit",
    }
    with Producer(bootstrap_servers=servers) as producer:
        producer.send("t", b"of a table")
    with ShareConsumer(**settings) as consumer:
        consumer.subscribe("t")
        while not (table := consumer.poll_arrow(1)).num_rows:
            pass
        with pytest.raises(
            ValueError, match=r"has the columns topic, partition and offset; this one lacks topic"
        ):
            consumer.acknowledge(table.select(["value", "partition", "offset"]))
        consumer.acknowledge(table.select(["topic", "partition", "offset"]))
        assert [*consumer.commit().values()] == [None]


def test_locks_of_a_group_that_allows_it_are_renewed(servers: str, caplog: pytest.LogCaptureFixture) -> None:
    """At first it does not; the log line asks whether the setting is off."""
    group = ConfigResource("group", "renewing")
    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": "renewing",
        "share_acknowledgement_mode": "explicit",
    }
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
        lock = {"share.record.lock.duration.ms": "1000", "share.auto.offset.reset": "earliest"}
        admin.incremental_alter_configs({group: {**lock, "share.renew.acknowledge.enable": "false"}})
        producer.send("t", b"held").result(10)
        with ShareConsumer(**settings) as consumer, caplog.at_level(logging.WARNING, "kadence"):
            consumer.subscribe("t")
            while not consumer.poll(1):
                pass
            end = time.monotonic() + 20
            while "Is share.renew.acknowledge.enable of group renewing off?" not in caplog.text:
                assert time.monotonic() < end
                time.sleep(0.05)
        caplog.clear()
        admin.incremental_alter_configs({group: {"share.renew.acknowledge.enable": "true"}})
        with ShareConsumer(**settings) as consumer, caplog.at_level(logging.WARNING, "kadence"):
            consumer.subscribe("t")

            def is_renewed() -> bool:
                """On a machine that stops for a lock's time it is lost, and the record comes again."""
                while not (records := consumer.poll(1)):
                    pass
                time.sleep(2)
                consumer.acknowledge(records)
                return [*consumer.commit().values()] == [None]

            until(is_renewed, every=0)
        assert "cannot be renewed" not in caplog.text
