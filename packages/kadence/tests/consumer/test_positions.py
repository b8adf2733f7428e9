"""Where reading stands, over whole brokers: leaders that move, records lost, topics made again, brokers replaced."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.consumer.support import Cluster, Shell, numbers, partitions, poll_until, read
from tests.patience import PATIENCE, until

from kadence import Admin, Broker, Consumer, OffsetAndMetadata, Producer, TopicPartition
from kadence.errors import (
    KafkaTimeoutError,
    LogTruncationError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.list_offsets import ListOffsetsRequest
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kadence_testing.kafka import free_ports

HOUR_MS = 3_600_000


# ------------------------------------------------------------ leaders


@pytest.mark.needs("reading", "leader moves")
def test_leaders_that_move_while_we_read_lose_and_repeat_nothing(cluster: Cluster) -> None:
    topic = cluster.topic(2)
    consumer = cluster.consumer(retry_backoff_ms=20)
    consumer.assign(partitions(topic, 2))
    found: list[int] = []
    for turn in range(6):
        cluster.produce(topic, 40, partitions=2, start=40 * turn)
        found += numbers(read(consumer, 40))
        cluster.move_leader(TopicPartition(topic, 0), turn % 3 + 1)
    assert sorted(found) == list(range(240))


def test_kip951_the_new_leader_is_read_without_any_answer_for_metadata() -> None:
    with Broker(nodes=3, topics={"t": 1}) as broker:
        broker.move_leader("t", 0, 1)
        _send(broker, b"0")
        with closing(_reader(broker, "t", client_id="reader")) as consumer:
            assert numbers(read(consumer, 1)) == [0]
            # From here on the consumer gets no answer about the cluster: only the old leader can tell it.
            with broker.faults.drop(MetadataRequest, where=lambda call: call.client_id == "reader") as silent:
                broker.move_leader("t", 0, 2)
                _send(broker, b"1")
                assert numbers(read(consumer, 1)) == [1]
                silent.wait()


# ------------------------------------------------------------ truncation, KIP-320


def _lose_two_of_four(broker: Broker, consumer: Consumer, producer: Producer) -> None:
    """The consumer has read 0–3; an unclean election loses 2 and 3, and others come in their place."""
    for number in range(4):
        producer.send("t", b"%d" % number).result(PATIENCE)
    assert numbers(read(consumer, 4)) == [0, 1, 2, 3]
    broker.elect_uncleanly("t", 0, 2)
    for number in (12, 13, 14, 15):
        producer.send("t", b"%d" % number).result(PATIENCE)


def test_kip320_after_an_unclean_election_nothing_of_the_new_log_is_missed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Going on at offset 4 would skip the records that stand at 2 and 3 now, and nobody would ever know."""
    with (
        Broker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        closing(_reader(broker, "t")) as consumer,
    ):
        _lose_two_of_four(broker, consumer, producer)
        assert numbers(read(consumer, 4)) == [12, 13, 14, 15]
        assert "records 2 to 3, which were read, are no longer in the log" in caplog.text


def test_kip320_without_a_policy_each_poll_raises_until_a_seek_goes_on() -> None:
    with (
        Broker(topics={"t": 1}) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        closing(_reader(broker, "t", auto_offset_reset="none")) as consumer,
    ):
        at = TopicPartition("t", 0)
        consumer.seek(at, 0)
        _lose_two_of_four(broker, consumer, producer)
        with pytest.raises(LogTruncationError) as caught:
            read(consumer, 1)
        error = caught.value
        assert (error.partition, error.position, error.diverging_offset) == (at, 4, 2)
        with pytest.raises(LogTruncationError):
            consumer.poll(0.3)
        consumer.seek(at, OffsetAndMetadata(error.diverging_offset or 0, error.leader_epoch))
        assert numbers(read(consumer, 4)) == [12, 13, 14, 15]


@pytest.mark.needs("groups", "stored epochs")
def test_the_epoch_of_a_committed_offset_is_in_the_next_commit_too(cluster: Cluster) -> None:
    """A client that forgets it can no longer tell, after a restart, that its records were truncated (KIP-320)."""
    topic, group = cluster.topic(1), cluster.name("g")
    (at,) = partitions(topic, 1)
    cluster.produce(topic, 10, partitions=1)
    with closing(cluster.consumer(group_id=group, enable_auto_commit=False)) as first:
        first.assign([at])
        read(first, 10)
        first.commit()
        told = first.committed([at])[at]
    assert told is not None
    assert (told.offset, told.leader_epoch) == (10, 0)
    with closing(cluster.consumer(group_id=group, enable_auto_commit=False)) as second:
        second.assign([at])
        assert second.position(at, timeout=20) == 10
        second.commit()
        assert second.committed([at])[at] == told


@pytest.mark.needs("groups", "unclean elections")
def test_a_group_that_restarts_is_told_of_a_truncation_while_it_was_away(cluster: Cluster) -> None:
    assert cluster.broker is not None
    topic, group = cluster.topic(1), cluster.name("g")
    (at,) = partitions(topic, 1)
    for number in range(4):
        cluster.produce(topic, 1, partitions=1, start=number)
    with closing(cluster.consumer(group_id=group, enable_auto_commit=False)) as first:
        first.assign([at])
        read(first, 4)
        first.commit()
    cluster.broker.elect_uncleanly(topic, 0, 2)
    cluster.produce(topic, 4, partitions=1, start=12)
    with closing(cluster.consumer(group_id=group)) as second:
        second.assign([at])
        assert numbers(read(second, 4)) == [12, 13, 14, 15]


@pytest.mark.needs("reading", "faults")
def test_a_check_that_is_never_answered_does_not_stop_a_partition(cluster: Cluster) -> None:
    """What kafka-python does after a leader change (its issue 3106): awaiting validation, for ever."""
    assert cluster.broker is not None
    topic = cluster.topic(1)
    (at,) = partitions(topic, 1)
    cluster.produce(topic, 5, partitions=1)
    consumer = cluster.consumer(request_timeout_ms=400, retry_backoff_ms=20)
    consumer.assign([at])
    read(consumer, 5)
    with cluster.broker.faults.drop(OffsetForLeaderEpochRequest, times=1) as swallowed:
        cluster.broker.move_leader(topic, 0, 1)
        cluster.produce(topic, 5, partitions=1, start=5)
        assert numbers(read(consumer, 5)) == [5, 6, 7, 8, 9]
        assert swallowed.hits == 1


# ------------------------------------------------------------ offset out of range


@pytest.mark.needs("reading")
@pytest.mark.parametrize("policy", ["earliest", "latest", "none", "by_duration:PT1H"])
def test_out_of_range_goes_where_the_policy_says(cluster: Cluster, policy: str) -> None:
    topic = cluster.topic(1)
    (at,) = partitions(topic, 1)
    cluster.produce(topic, 10, partitions=1)
    consumer = cluster.consumer(auto_offset_reset=policy)
    consumer.assign([at])
    consumer.seek(at, 5_000)
    if policy == "none":
        with pytest.raises(OffsetOutOfRangeError, match="has no offset 5000"):
            read(consumer, 1)
        with pytest.raises(OffsetOutOfRangeError, match="has no offset 5000"):
            consumer.poll(0.3)
        consumer.seek(at, 9)
        assert numbers(read(consumer, 1)) == [9]
        return
    if policy.startswith("by_duration") and cluster.kind == "mock":
        # It finds no offsets by time, and says so: then it is the end, as for `latest`.
        policy = "latest"
    if policy == "latest":
        poll_until(consumer, lambda: consumer.position(at) == 10)
        cluster.produce(topic, 1, partitions=1, start=10)
        assert numbers(read(consumer, 1)) == [10]
        return
    assert numbers(read(consumer, 10)) == list(range(10))


@pytest.mark.needs("reading", "offsets by time")
@pytest.mark.brokers("embedded", "kafka")
def test_kip1106_a_reader_without_an_offset_starts_so_long_ago(cluster: Cluster) -> None:
    topic = cluster.topic(1)
    now = time.time_ns() // 1_000_000
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number, age_ms in enumerate((3 * HOUR_MS, 2 * HOUR_MS, HOUR_MS // 2, 0)):
            producer.send(topic, b"%d" % number, partition=0, timestamp=now - age_ms).result(PATIENCE)
    consumer = cluster.consumer(auto_offset_reset="by_duration:PT1H")
    consumer.assign(partitions(topic, 1))
    assert numbers(read(consumer, 2)) == [2, 3]
    young = cluster.consumer(auto_offset_reset="by_duration:PT0S")
    young.assign(partitions(topic, 1))
    assert young.position(TopicPartition(topic, 0), timeout=20) == 4, "nothing is that young: the end"


# ------------------------------------------------------------ topics made again


def _again(cluster: Cluster, topic: str) -> None:
    def made() -> bool:
        # Kafka deletes in the background, and refuses the name until it is done.
        with suppress(TopicAlreadyExistsError):
            cluster.create_topic(topic, 1)
            return True
        return False

    if cluster.kind != "kafka":
        cluster.delete_topic(topic)
        until(made, every=0.1)
        return
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        before = admin.describe_topics([topic])[topic].topic_id

        def has_followed() -> bool:
            """Kafka's controller answers before its broker, which takes records into the deleted topic until then."""
            try:
                return admin.describe_topics([topic])[topic].topic_id != before
            except UnknownTopicOrPartitionError:
                return False

        cluster.delete_topic(topic)
        until(made, every=0.1)
        until(has_followed, every=0.1)


@pytest.mark.needs("reading", "topic deletion")
def test_kip516_a_topic_made_again_while_we_read_is_read_from_its_own_start(cluster: Cluster) -> None:
    """At the old one's offset lies another record now: whoever goes on there skips what came before it."""
    topic = cluster.topic(1)
    cluster.produce(topic, 10, partitions=1)
    consumer = cluster.consumer(retry_backoff_ms=50)
    consumer.assign(partitions(topic, 1))
    assert numbers(read(consumer, 10)) == list(range(10))
    _again(cluster, topic)
    cluster.produce(topic, 25, partitions=1, start=100)
    assert numbers(read(consumer, 25)) == list(range(100, 125))


@pytest.mark.needs("groups", "topic deletion")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_kip516_a_group_goes_on_with_a_topic_made_again(cluster: Cluster, protocol: str) -> None:
    topic = cluster.topic(1)
    cluster.produce(topic, 10, partitions=1)
    consumer = cluster.consumer(
        group_id=cluster.name("g"),
        group_protocol=protocol,
        retry_backoff_ms=50,
        metadata_max_age_ms=500,
        auto_commit_interval_ms=100,
    )
    consumer.subscribe(topic)
    assert numbers(read(consumer, 10)) == list(range(10))
    _again(cluster, topic)
    cluster.produce(topic, 25, partitions=1, start=100)
    seen: set[int] = set()
    end = time.monotonic() + PATIENCE
    while seen < set(range(100, 125)):
        assert time.monotonic() < end, f"{sorted(seen)} of the new topic came: {consumer!r}"
        seen.update(number for number in numbers(consumer.poll(0.2)) if number >= 100)


# ------------------------------------------------------------ offsets of many partitions


@pytest.mark.needs("reading", "several brokers", "faults")
def test_one_broker_that_fails_does_not_lose_the_offsets_of_the_others(cluster: Cluster) -> None:
    assert cluster.broker is not None
    topic = cluster.topic(9)
    cluster.produce(topic, 90, partitions=9)
    consumer = cluster.consumer(retry_backoff_ms=20)
    faults = cluster.broker.faults
    with (
        faults.observe(ListOffsetsRequest) as asked,
        faults.error(
            ListOffsetsRequest, ec.NOT_LEADER_OR_FOLLOWER, where=lambda call: call.node_id == 2, times=3
        ) as refused,
    ):
        ends = consumer.end_offsets(partitions(topic, 9), timeout=20)
        assert ends == dict.fromkeys(partitions(topic, 9), 10)
        nodes = [call.node_id for call in asked.calls]
    assert refused.hits == 3
    assert (nodes.count(1), nodes.count(2), nodes.count(3)) == (1, 4, 1)


@pytest.mark.needs("reading", "several brokers", "faults")
def test_a_broker_that_hangs_keeps_no_other_from_being_asked_again(cluster: Cluster) -> None:
    assert cluster.broker is not None
    topic = cluster.topic(3)
    cluster.produce(topic, 3, partitions=3)
    consumer = cluster.consumer(request_timeout_ms=1_500, retry_backoff_ms=20)
    faults = cluster.broker.faults
    with (
        faults.drop(ListOffsetsRequest, where=lambda call: call.node_id == 2, times=1),
        faults.error(
            ListOffsetsRequest, ec.LEADER_NOT_AVAILABLE, where=lambda call: call.node_id == 3, times=2
        ) as refused,
        faults.observe(ListOffsetsRequest) as asked,
    ):
        assert consumer.beginning_offsets(partitions(topic, 3), timeout=20) == dict.fromkeys(
            partitions(topic, 3), 0
        )
        order = [call.node_id for call in asked.calls]
    assert refused.hits == 2
    assert order.index(3, order.index(3) + 1) < len(order) - 1, "asked again before the one that hangs was"
    assert order[-1] == 2


# ------------------------------------------------------------ all brokers replaced, KIP-899 and KIP-1102


class Door:
    """A TCP address that stays, in front of whatever broker is there: what a load balancer or a name is."""

    def __init__(self, target: str) -> None:
        self.target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                outside, _ = self._listener.accept()
                host, _, port = self.target.rpartition(":")
                try:
                    inside = socket.create_connection((host, int(port)), timeout=5)
                except OSError:
                    outside.close()
                    continue
                self._sockets += [outside, inside]
                for source, sink in ((outside, inside), (inside, outside)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def door(broker: Broker) -> Iterator[Door]:
    made = Door(broker.bootstrap_servers)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("group", ["g", None])
def test_kip899_a_consumer_finds_brokers_that_were_all_replaced(group: str | None) -> None:
    old = Broker(topics={"t": 1})
    try:
        with (
            door(old) as entrance,
            Broker(topics={"t": 1}) as new,
            closing(
                Consumer(
                    bootstrap_servers=entrance.address,
                    group_id=group,
                    auto_offset_reset="earliest",
                    retry_backoff_ms=20,
                )
            ) as consumer,
        ):
            if group is None:
                consumer.assign([("t", 0)])
            else:
                consumer.subscribe("t")
            _send(old, b"1")
            assert numbers(read(consumer, 1)) == [1]
            entrance.target = new.bootstrap_servers
            old.close()
            _send(new, b"2", b"3")
            assert numbers(read(consumer, 2)) == [2, 3]
    finally:
        old.close()


def test_kip899_a_consumer_finds_other_brokers_when_its_own_swallow_everything() -> None:
    with (
        Broker(topics={"t": 1}) as old,
        Broker(topics={"t": 1}) as new,
        door(old) as entrance,
        closing(
            Consumer(
                bootstrap_servers=entrance.address,
                auto_offset_reset="earliest",
                request_timeout_ms=400,
                retry_backoff_ms=20,
            )
        ) as consumer,
    ):
        consumer.assign([("t", 0)])
        _send(old, b"1")
        assert numbers(read(consumer, 1)) == [1]
        entrance.target = new.bootstrap_servers
        with old.faults.drop(None):
            _send(new, b"2", b"3")
            assert numbers(read(consumer, 2)) == [2, 3]


def test_kip899_with_strategy_none_only_the_known_brokers_are_tried() -> None:
    old = Broker(topics={"t": 1})
    try:
        with (
            door(old) as entrance,
            Broker(topics={"t": 1}) as new,
            closing(
                Consumer(
                    bootstrap_servers=entrance.address,
                    auto_offset_reset="earliest",
                    retry_backoff_ms=20,
                    metadata_recovery_strategy="none",
                )
            ) as consumer,
        ):
            consumer.assign([("t", 0)])
            _send(old, b"1")
            assert numbers(read(consumer, 1)) == [1]
            with new.faults.observe() as seen:
                entrance.target = new.bootstrap_servers
                old.close()
                assert list(consumer.poll(1.0)) == []
                assert len(seen) == 0
    finally:
        old.close()


def test_kip1102_a_broker_that_says_so_is_believed() -> None:
    """REBOOTSTRAP_REQUIRED: this broker answers, but is not to be asked any more."""
    with (
        Broker(topics={"t": 1}) as old,
        Broker(topics={"t": 1}) as new,
        door(old) as entrance,
        closing(
            Consumer(bootstrap_servers=entrance.address, auto_offset_reset="earliest", retry_backoff_ms=20)
        ) as consumer,
    ):
        consumer.assign([("t", 0)])
        _send(old, b"1")
        assert numbers(read(consumer, 1)) == [1]
        entrance.target = new.bootstrap_servers
        with old.faults.error(MetadataRequest, ec.REBOOTSTRAP_REQUIRED):
            old.move_leader("t", 0, 1)
            _send(new, b"2", b"3")
            assert numbers(read(consumer, 2)) == [2, 3]


@pytest.mark.parametrize("checks", [True, False])
def test_kip1242_a_stranger_at_the_address_of_our_broker_is_not_read_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, checks: bool
) -> None:
    """The broker moves, and one of another cluster gets its address."""
    with ExitStack() as stack:
        (port,) = free_ports(1)
        old = stack.enter_context(Broker(port, topics={"t": 1}, data_dir=tmp_path))
        entrance = stack.enter_context(door(old))
        consumer = stack.enter_context(
            Consumer(
                bootstrap_servers=entrance.address,
                auto_offset_reset="earliest",
                retry_backoff_ms=20,
                metadata_cluster_check_enable=checks,
            )
        )
        consumer.assign([("t", 0)])
        _send(old, b"1")
        assert numbers(read(consumer, 1)) == [1]
        entrance.target = "127.0.0.1:1"
        old.close()
        stranger = stack.enter_context(Broker(port, topics={"t": 1}))
        with stranger.faults.observe(FetchRequest) as read_from:
            _send(stranger, b"7", b"8")
            # A consumer that checks meets it once only, maybe as soon as it listens.
            until(
                lambda: "is not node 1 of cluster" in caplog.text if checks else read_from.messages,
                what="the stranger is met",
            )
        moved = stack.enter_context(Broker(data_dir=tmp_path))
        entrance.target = moved.bootstrap_servers
        _send(moved, b"2", b"3")
        assert numbers(read(consumer, 2)) == ([2, 3] if checks else [7, 8])


# ------------------------------------------------------------ helpers


def _reader(broker: Broker, topic: str, **settings: Any) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        **{"auto_offset_reset": "earliest", "retry_backoff_ms": 20, **settings},
    )
    consumer.assign([(topic, 0)])
    return consumer


def _send(broker: Broker, *values: bytes) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value, partition=0).result(PATIENCE)


# ------------------------------------------------------------ offsets that are asked for


@pytest.mark.needs("reading")
@pytest.mark.parametrize("name", ["beginning_offsets", "end_offsets", "offsets_for_times"])
@pytest.mark.brokers("embedded")
def test_a_call_for_offsets_names_the_partition_that_does_not_exist(
    cluster: Cluster, shell: Shell, name: str
) -> None:
    there, nowhere = TopicPartition(cluster.topic(1), 0), TopicPartition(cluster.topic(1), 9)
    consumer = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    given = {there: 0, nowhere: 0} if name == "offsets_for_times" else [there, nowhere]
    with pytest.raises(KafkaTimeoutError, match=f"did not finish in time: {nowhere} does not exist"):
        shell.do(lambda: getattr(consumer, name)(given, timeout=1))
    shell.do(consumer.close)
