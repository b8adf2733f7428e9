"""Share consumers and the embedded broker, over sockets: what hangs on threads, connections and processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.configs import set_configs
from tests.consumer.holding import needs_the_lock
from tests.patience import until
from tests.share.holding import held_for

from kadence import Admin, Broker, NewTopic, Producer, Record, ShareConsumer, TopicPartition
from kadence.admin import ConfigResource
from kadence.errors import DisconnectedError, InvalidRecordStateError, NotLeaderError
from kadence.net import drain, native_heartbeat
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import ShareFetchRequest
from kadence_testing.kafka import Kafka

COUNT = 20

FAST = {
    "group.share.min.heartbeat.interval.ms": 200,
    "group.share.heartbeat.interval.ms": 200,
    "group.share.assignment.interval.ms": 0,
}
"""Members hear quickly of what moves. A lock holds for 30 s, as by default: a machine that pauses ends none."""

LOCK_MS = 4_500
"""The native thread renews with a third of it left: a machine may pause for that long."""

SHORT_LOCKS = {
    **FAST,
    "group.share.min.record.lock.duration.ms": LOCK_MS,
    "group.share.record.lock.duration.ms": LOCK_MS,
}
"""For tests of what outlasts a lock."""


def from_the_start(broker: Broker) -> None:
    """The queue begins with the oldest records."""
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.incremental_alter_configs(
            {ConfigResource("group", "q"): {"share.auto.offset.reset": "earliest"}}
        )


@contextmanager
def serving(config: dict[str, int]) -> Iterator[Broker]:
    """With a topic of some records, and a queue that reads it from its start."""
    with Broker(topics={"t": 2}, config=config) as broker:
        from_the_start(broker)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number)
        yield broker


@pytest.fixture
def served() -> Iterator[Broker]:
    with serving(FAST) as broker:
        yield broker


@pytest.fixture
def locking_briefly() -> Iterator[Broker]:
    with serving(SHORT_LOCKS) as broker:
        yield broker


def settings_of(broker: Broker, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": broker.bootstrap_servers, "group_id": "q", **more}


def polled(consumer: ShareConsumer, count: int = 1) -> list[Record]:
    """At least so many records, as soon as they come."""
    found: list[Record] = []

    def has_some() -> bool:
        found.extend(consumer.poll(0.2))
        return len(found) >= count

    until(has_some, every=0)
    return found


def rest_of(broker: Broker) -> list[Record]:
    """What another member gets that polls for longer than a lock holds."""
    found: list[Record] = []
    with ShareConsumer(**settings_of(broker)) as other:
        other.subscribe("t")
        for _ in range(6):
            found += other.poll(0.2 * LOCK_MS / 1000)
    return found


@needs_the_lock
@pytest.mark.skipif(not native_heartbeat.AVAILABLE, reason="Windows has no native heartbeat")
def test_q2_an_interpreter_held_for_longer_than_a_lock_loses_none(locking_briefly: Broker) -> None:
    with locking_briefly.faults.observe(ShareAcknowledgeRequest) as said:
        told = held_for(1.5 * LOCK_MS / 1000, settings_of(locking_briefly))
    assert told["lock"] == LOCK_MS / 1000
    assert set(told["deliveries"]) == {1}
    assert told["errors"] == []
    assert len(said) >= 3, "renewals, and the acknowledgement"
    assert [record for record in rest_of(locking_briefly) if record.delivery_count != 1] == []


def test_q2_work_that_takes_longer_than_a_lock_is_delivered_once(locking_briefly: Broker) -> None:
    with ShareConsumer(**settings_of(locking_briefly)) as consumer:
        consumer.subscribe("t")
        seen = polled(consumer)
        consumer.poll(0)
        other = rest_of(locking_briefly)
        assert consumer.commit() is not None
    offsets = [(record.partition, record.offset) for record in (*seen, *other)]
    assert len(offsets) == len(set(offsets))


def test_q4_a_lost_connection_is_told_and_the_records_come_again(served: Broker) -> None:
    with ShareConsumer(**settings_of(served)) as consumer:
        consumer.subscribe("t")
        seen = {(record.partition, record.offset) for record in polled(consumer)}
        with served.faults.disconnect(ShareAcknowledgeRequest, times=1):
            results = consumer.commit(timeout=10)
        assert any(error is not None for error in results.values())
        again: dict[tuple[int, int], int | None] = {}
        while len(again) < len(seen):
            for record in polled(consumer):
                if (record.partition, record.offset) in seen:
                    again[record.partition, record.offset] = record.delivery_count
    assert set(again.values()) == {2}


def test_q4_a_connection_that_is_lost_while_nothing_is_asked_ends_the_locks_at_once(served: Broker) -> None:
    """Others have the records by then: the handlers are to hear of it before the next renewal is due."""
    with Admin(bootstrap_servers=served.bootstrap_servers) as admin:
        admin.incremental_alter_configs(
            {ConfigResource("group", "q"): {"share.record.lock.duration.ms": "60000"}}
        )
    with ShareConsumer(**settings_of(served)) as consumer:
        consumer.subscribe("t")
        polled(consumer)

        def held() -> float:
            return sum(value for name, value in consumer.metrics().items() if name.name == "records-held")

        assert held() > 0
        assert consumer.lock_timeout == 60
        began = time.monotonic()
        served.disconnect_clients()
        until(lambda: held() == 0)
        assert time.monotonic() - began < 25
        assert {type(error) for error in consumer.commit(timeout=10).values()} == {DisconnectedError}


def test_q4_closing_releases_what_was_not_accepted_at_once(served: Broker) -> None:
    with ShareConsumer(**settings_of(served, share_lock_renewal=False)) as consumer:
        consumer.subscribe("t")
        seen = {(record.partition, record.offset) for record in polled(consumer)}
    with ShareConsumer(**settings_of(served)) as other:
        other.subscribe("t")
        again = [record for record in polled(other) if (record.partition, record.offset) in seen]
    assert again
    assert {record.delivery_count for record in again} == {2}


def test_an_assignment_counts_as_a_rebalance_in_the_metrics(served: Broker) -> None:
    with ShareConsumer(**settings_of(served)) as consumer:
        consumer.subscribe("t")
        polled(consumer)
        found = {name.name: value for name, value in consumer.metrics().items()}
    assert found["rebalance-total"] == 1
    assert found["rebalance-rate-per-hour"] > 0


def test_a_queue_that_was_idle_goes_on_in_its_session(served: Broker) -> None:
    """Its fetches were repeated without the interpreter, each with an epoch of its own."""
    with ShareConsumer(**settings_of(served, fetch_max_wait_ms=100)) as consumer:
        consumer.subscribe("t")
        polled(consumer)
        consumer.commit()
        with served.faults.observe(ShareFetchRequest) as fetches:

            def has_fetched_often() -> bool:
                assert not consumer.poll(1.0)
                return len(fetches) >= 4

            until(has_fetched_often, every=0)
            epochs = [message.share_session_epoch for message in fetches.messages]
        assert epochs == list(range(epochs[0], epochs[0] + len(epochs)))
        with Producer(bootstrap_servers=served.bootstrap_servers) as producer:
            producer.send("t", b"late")
        (record,) = polled(consumer)
        assert (record.value, record.delivery_count) == (b"late", 1)
        assert [error for error in consumer.commit().values() if error is not None] == []


@pytest.mark.skipif(not drain.COMPILED, reason="Python alone sends each fetch itself")
def test_an_idle_loop_of_polls_wakes_no_thread(served: Broker) -> None:
    """A poll goes on with the fetches of the one before it, and none of them outlasts its poll."""
    with ShareConsumer(**settings_of(served)) as consumer:
        consumer.subscribe("t")
        polled(consumer)
        consumer.commit()
        state = consumer._core._shared_state
        with served.faults.observe(ShareFetchRequest) as fetches:

            def wakes_nobody() -> bool:
                # On a busy machine an answer may come between two polls.
                wakes, before = state.wakes, len(fetches)
                assert not consumer.poll(0.7)
                assert not consumer.poll(0.7)
                return state.wakes == wakes and len(fetches) >= before + 2

            until(wakes_nobody, every=0)
            waits = [message.max_wait_ms for message in fetches.messages]
        assert any(100 <= wait < 500 for wait in waits), "the last one of a poll"
        assert max(waits) <= 500


def test_q4_records_of_a_leader_that_moved_are_void_and_come_from_the_new_one() -> None:
    with (
        Broker(topics={"t": 1}, nodes=2, config=FAST) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ShareConsumer(**settings_of(broker)) as consumer,
    ):
        from_the_start(broker)
        consumer.subscribe("t")
        producer.send("t", b"first")
        polled(consumer)
        consumer.commit()
        producer.send("t", b"second")
        (held,) = polled(consumer)
        for node_id in (1, 2):
            broker.move_leader("t", 0, node_id)
        (error,) = consumer.commit(timeout=10).values()
        # The latter if a fetch ahead has got the record from the new leader before.
        assert isinstance(error, NotLeaderError | InvalidRecordStateError)

        def is_accepted() -> bool:
            (again,) = polled(consumer)
            assert (again.value, again.offset) == (b"second", held.offset)
            (error,) = consumer.commit().values()
            assert error is None or isinstance(error, NotLeaderError | InvalidRecordStateError)
            return error is None

        # The leader in between may have given it out, too.
        until(is_accepted, every=0)


def test_q4_records_of_a_leader_that_was_away_come_again_before_their_old_locks_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One answer refuses what is said of them and gives them out again: these have new locks."""
    with (
        Broker(topics={"t": 1}, nodes=2, config=FAST) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ShareConsumer(**settings_of(broker)) as consumer,
    ):
        from_the_start(broker)
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.incremental_alter_configs(
                {ConfigResource("group", "q"): {"share.record.lock.duration.ms": "60000"}}
            )
        consumer.subscribe("t")
        producer.send("t", b"job")
        (held,) = polled(consumer)
        assert consumer.lock_timeout == 60
        began = time.monotonic()
        for node_id in (2, 1, 2, 1):
            broker.move_leader("t", 0, node_id)
        (again,) = polled(consumer)
        assert again.offset == held.offset
        assert consumer.commit() == {TopicPartition("t", 0): None}
        assert time.monotonic() - began < 25
    (line,) = [each for each in caplog.messages if "could not be acknowledged" in each]
    assert line.startswith("1 record of t-0 could not be acknowledged, and may be delivered again: ")


def says_something(call: Any) -> bool:
    """Whether a request acknowledges records."""
    return any(
        partition.acknowledgement_batches for topic in call.message.topics for partition in topic.partitions
    )


def test_q4_process_logs_acknowledgements_that_fail(caplog: pytest.LogCaptureFixture) -> None:
    deliveries = []
    with (
        Broker(topics={"t": 1}, config=FAST) as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ShareConsumer(**settings_of(broker)) as consumer,
    ):
        from_the_start(broker)
        producer.send("t", b"once and again")
        consumer.subscribe("t")
        for request in (ShareFetchRequest, ShareAcknowledgeRequest):
            broker.faults.disconnect(request, times=1, where=says_something)

        def handle(record: Record) -> None:
            deliveries.append(record.delivery_count)
            if len(deliveries) > 1:
                broker.faults.clear()
                consumer.stop()

        consumer.process(handle, workers=1)
    assert deliveries == [1, 2]
    (line,) = [each for each in caplog.messages if "could not be acknowledged" in each]
    assert line.startswith("1 record of t-0 could not be acknowledged, and may be delivered again: ")


@needs_the_lock
@pytest.mark.skipif(not native_heartbeat.AVAILABLE, reason="Windows has no native heartbeat")
@pytest.mark.kafka
@pytest.mark.heavy
def test_q2_on_real_kafka_a_held_interpreter_loses_no_lock() -> None:
    lock_ms = 3_000
    config = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": f"{lock_ms}",
        "group.share.min.heartbeat.interval.ms": "200",
        "group.share.heartbeat.interval.ms": "200",
    }
    with Kafka(config) as kafka:
        settings: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap_servers, "group_id": "q"}
        with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", 1)])
            set_configs(admin, ConfigResource("group", "q"), {"share.auto.offset.reset": "earliest"})
        with (
            Producer(bootstrap_servers=kafka.bootstrap_servers) as producer,
            ShareConsumer(**settings) as consumer,
        ):
            # A first record: its fetch waits for the share coordinator, perhaps for longer than the lock.
            producer.send("t", b"first").result(60)
            consumer.subscribe("t")
            polled(consumer)
            consumer.commit()
            consumer.close()
            for number in range(COUNT):
                producer.send("t", b"%d" % number)
            producer.flush()
        told = held_for(4 * lock_ms / 1000, settings)
        assert told["errors"] == []
        with ShareConsumer(**settings) as other:
            other.subscribe("t")
            again = [record for _ in range(20) for record in other.poll(0.2)]
        assert [record for record in again if record.delivery_count != 1] == []
