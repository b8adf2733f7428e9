"""`not_fetched()`: why each assigned partition is not being fetched, on three brokers."""

from __future__ import annotations

import asyncio

import pytest
from tests.consumer.support import Cluster, Shell, partitions, poll_until, read
from tests.patience import PATIENCE, once_inside

from kadence import (
    AsyncConsumer,
    Broker,
    Consumer,
    KafkaTimeoutError,
    NotFetched,
    NotFetchedReason,
    Producer,
    TopicPartition,
)
from kadence.consumer import shared_partition
from kadence.errors import RecordDeserializationError

pytestmark = [pytest.mark.needs("reading"), pytest.mark.brokers("virtual")]


def reasons(consumer: Consumer | AsyncConsumer) -> dict[int, NotFetchedReason]:
    return {partition.partition: why.reason for partition, why in consumer.not_fetched().items()}


def test_what_is_fetched_has_no_reason_and_what_is_paused_says_so_at_once(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    cluster.produce(topic, 2, partitions=2)
    consumer = cluster.consumer()
    consumer.assign(partitions(topic, 2))
    read(consumer, 2)
    poll_until(consumer, lambda: not reasons(consumer))
    consumer.pause([TopicPartition(topic, 1)])
    assert reasons(consumer) == {1: NotFetchedReason.PAUSED}
    consumer.resume([TopicPartition(topic, 1)])
    poll_until(consumer, lambda: not reasons(consumer))


def test_what_is_buffered_waits_for_the_application(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    cluster.produce(topic, 50, partitions=1, size=1000)
    consumer = cluster.consumer(max_partition_fetch_bytes=10_000, max_poll_records=1)
    consumer.assign(partitions(topic, 1))
    read(consumer, 1)
    poll_until(consumer, lambda: reasons(consumer) == {0: NotFetchedReason.BUFFERED}, max_records=1)
    read(consumer, 48)
    poll_until(consumer, lambda: not reasons(consumer))


@pytest.mark.brokers("virtual", "kafka")
def test_a_partition_that_does_not_exist_is_unknown(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    consumer = cluster.consumer()
    consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 77)])
    consumer.seek(TopicPartition(topic, 77), 0)
    poll_until(consumer, lambda: reasons(consumer) == {77: NotFetchedReason.UNKNOWN_TOPIC})
    (why,) = consumer.not_fetched().values()
    assert isinstance(why, NotFetched)
    assert why.detail == "UNKNOWN_TOPIC_OR_PARTITION"
    before = why.since
    poll_until(consumer, lambda: consumer.not_fetched()[TopicPartition(topic, 77)].since > before)


@pytest.mark.needs("groups")
def test_a_topic_that_does_not_exist_is_named(cluster: Cluster) -> None:
    """It has no partitions, so it stands there with −1 as its partition."""
    missing = cluster.name("orderz")
    consumer = cluster.consumer(group_id=cluster.name("g"), allow_auto_create_topics=False)
    consumer.subscribe([missing])
    poll_until(consumer, lambda: bool(consumer.not_fetched()))
    ((partition, why),) = consumer.not_fetched().items()
    assert partition == TopicPartition(missing, -1)
    assert why.reason is NotFetchedReason.UNKNOWN_TOPIC
    assert why.detail == f"topic '{missing}': UNKNOWN_TOPIC_OR_PARTITION"
    poll_until(consumer, lambda: consumer.not_fetched()[partition].since > why.since)
    consumer.unsubscribe()
    assert not consumer.not_fetched()


def test_a_timeout_names_what_it_waited_for(cluster: Cluster) -> None:
    consumer = cluster.consumer(allow_auto_create_topics=False)
    partition = TopicPartition(cluster.name("orderz"), 0)
    consumer.assign([partition])
    poll_until(consumer, lambda: reasons(consumer) == {0: NotFetchedReason.UNKNOWN_TOPIC})
    with pytest.raises(
        KafkaTimeoutError, match=f"no position for {partition} yet: the cluster does not know"
    ):
        consumer.position(partition, timeout=0)
    for call in (consumer.end_offsets, consumer.beginning_offsets):
        with pytest.raises(KafkaTimeoutError, match=f"{partition} does not exist"):
            call([partition], timeout=0.2)


@pytest.mark.brokers("embedded")
def test_another_thread_may_ask_while_a_poll_waits(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    consumer = cluster.consumer()
    consumer.assign(partitions(topic, 1))
    consumer.pause(partitions(topic, 1))
    seen: list[dict[int, NotFetchedReason]] = []

    def ask() -> None:
        seen.append(reasons(consumer))
        consumer.wakeup()

    asking = once_inside(ask)
    with pytest.raises(Exception, match="wakeup"):
        consumer.poll(30)
    asking.join()
    assert seen == [{0: NotFetchedReason.PAUSED}]


@pytest.mark.needs("leader moves", "leaderless partitions")
def test_a_partition_that_nobody_leads(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    consumer = cluster.consumer(metadata_max_age_ms=500)
    consumer.assign(partitions(topic, 2))
    poll_until(consumer, lambda: not reasons(consumer))
    cluster.move_leader(TopicPartition(topic, 1), -1)
    poll_until(consumer, lambda: reasons(consumer).get(1) is NotFetchedReason.NO_LEADER)
    cluster.move_leader(TopicPartition(topic, 1), 1)
    poll_until(consumer, lambda: not reasons(consumer))


def test_a_broker_that_is_gone_is_unreachable() -> None:
    with Broker(topics={"t": 1}) as broker:
        consumer = Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
        consumer.assign([TopicPartition("t", 0)])
        poll_until(consumer, lambda: not reasons(consumer))
    try:
        poll_until(consumer, lambda: reasons(consumer) == {0: NotFetchedReason.BROKER_UNREACHABLE})
        assert "broker" in consumer.not_fetched()[TopicPartition("t", 0)].detail
    finally:
        consumer.close(timeout=1)


def test_the_event_loop_s_consumer_answers_the_same(broker: Broker) -> None:
    async def work() -> dict[int, NotFetchedReason]:
        async with AsyncConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
            await consumer.assign([TopicPartition("t", 0)])
            consumer.pause([TopicPartition("t", 0)])
            return reasons(consumer)

    broker.create_topic("t", 1)
    assert asyncio.run(asyncio.wait_for(work(), PATIENCE)) == {0: NotFetchedReason.PAUSED}


def test_a_hung_transaction_is_named(broker: Broker, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its readers are up to date by Kafka's lag, which ends at the last stable offset."""
    monkeypatch.setattr(shared_partition, "_OPEN_MS", 0)
    broker.create_topic("t", 1)
    partition = TopicPartition("t", 0)
    settings = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
    with Producer(bootstrap_servers=broker.bootstrap_servers) as plain:
        with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="hung") as producer:
            plain.send("t", b"0").result(PATIENCE)
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"1").result(PATIENCE)
            plain.send("t", b"2").result(PATIENCE)
            subject = shell.make(isolation_level="read_committed", **settings)
            shell.do(lambda: subject.assign([partition]))
            assert [record.value for record in shell.do(lambda: subject.poll(PATIENCE))] == [b"0"]
            why = subject.not_fetched()[partition]
            assert why.reason is NotFetchedReason.OPEN_TRANSACTION
            assert why.detail == "last stable offset 1, high watermark 3"
            assert subject.current_lag(partition) == 0
            found = {(name.name, name.tags.get("reason")): value for name, value in subject.metrics().items()}
            assert found["records-behind-open-transactions", None] == 2
            assert found["partitions-not-fetched", "open_transaction"] == 1
            producer.abort_transaction()
        assert [record.value for record in shell.do(lambda: subject.poll(PATIENCE))] == [b"2"]
        assert partition not in subject.not_fetched()
        shell.do(subject.close)


def test_a_record_that_raises_with_each_poll_is_named(broker: Broker, shell: Shell) -> None:
    broker.create_topic("t", 1)
    partition = TopicPartition("t", 0)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in (b"0", b"bad", b"2"):
            producer.send("t", value)
    subject = shell.make(
        bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", value_deserializer=int
    )
    shell.do(lambda: subject.assign([partition]))
    assert [record.value for record in shell.do(lambda: subject.poll(PATIENCE))] == [0]
    assert subject.not_fetched().get(partition) is None
    for times in (1, 2, 3):
        with pytest.raises(RecordDeserializationError):
            shell.do(lambda: subject.poll(PATIENCE))
        found = {(name.name, name.tags.get("reason")): value for name, value in subject.metrics().items()}
        assert found["polls-raised", None] == times
        assert found["partitions-not-fetched", "poll_raises"] == 1
    why = subject.not_fetched()[partition]
    assert why.reason is NotFetchedReason.POLL_RAISES
    assert why.detail == "offset 1: RecordDeserializationError, raised 3 times"
    shell.do(lambda: subject.seek(partition, 2))
    assert [record.value for record in shell.do(lambda: subject.poll(PATIENCE))] == [2]
    assert partition not in subject.not_fetched()
    shell.do(subject.close)
