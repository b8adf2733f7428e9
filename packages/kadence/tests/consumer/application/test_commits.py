"""Commits as an application sees them: order, waiting, epochs and notes, and what a rebalance does to them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest
from tests.consumer.support import Cluster, member_settings, partitions, poll_until, read
from tests.patience import PATIENCE, overdue
from tests.virtual import VirtualCluster

from kadence import Broker, Consumer, OffsetAndMetadata, TopicPartition
from kadence.errors import (
    BrokerError,
    CommitFailedError,
    KafkaTimeoutError,
    OffsetMetadataTooLargeError,
    RecordDeserializationError,
)
from kadence.protocol.error_codes import COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.offset_commit import OffsetCommitRequest

PARTITION = TopicPartition("t", 0)
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest, cluster: Cluster) -> str:
    """The group protocol; "consumer" implies the need of "kip-848"."""
    return str(request.param)


@pytest.fixture
def served() -> Iterator[VirtualCluster]:
    with closing(VirtualCluster()) as cluster:
        cluster.create_topic("t", 1)
        cluster.produce("t", 100, partitions=1)
        yield cluster


def consumer(cluster: VirtualCluster, **settings: Any) -> Any:
    return cluster.consumer(group_id="g", enable_auto_commit=False, **settings)


class Ends:
    """A commit callback that remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[int, Exception | None]] = []

    def __call__(self, offsets: Offsets, error: Exception | None) -> None:
        self.told.append((offsets[PARTITION].offset, error))


def test_a_commit_while_the_coordinator_is_unknown_ends_with_its_own_result(served: VirtualCluster) -> None:
    """Not with that of the look-up before it."""
    ends = Ends()
    with consumer(served) as subject:
        with served.virtual_broker.faults.error(FindCoordinatorRequest, COORDINATOR_NOT_AVAILABLE) as fault:
            # Before the assignment, whose committed offset is looked up at the coordinator, too.
            subject.assign([PARTITION])
            subject.commit_async({PARTITION: 3}, ends)
            fault.wait(2)
            subject.poll(0)
            assert ends.told == []
        subject.commit({})
        assert ends.told == [(3, None)]
        assert subject.committed([PARTITION])[PARTITION] == OffsetAndMetadata(3)


def test_a_sync_commit_ends_after_the_async_ones_before_it_and_runs_their_callbacks(
    served: VirtualCluster,
) -> None:
    ends = Ends()
    with consumer(served) as subject:
        subject.assign([PARTITION])
        with served.virtual_broker.faults.delay(OffsetCommitRequest, 5):
            for offset in range(1, 6):
                subject.commit_async({PARTITION: offset}, ends)
            assert ends.told == []
            subject.commit({PARTITION: 6})
            assert ends.told == [(offset, None) for offset in range(1, 6)]
        assert subject.committed([PARTITION])[PARTITION] == OffsetAndMetadata(6)


def test_an_async_commit_is_tried_once_and_tells_why_it_failed(served: VirtualCluster) -> None:
    ends = Ends()
    with consumer(served) as subject:
        subject.assign([PARTITION])
        subject.commit({PARTITION: 1})
        with served.virtual_broker.faults.error(OffsetCommitRequest, COORDINATOR_LOAD_IN_PROGRESS) as fault:
            subject.commit_async({PARTITION: 2}, ends)
            poll_until(subject, lambda: bool(ends.told))
            assert fault.hits == 1
        ((offset, error),) = ends.told
        assert offset == 2
        assert isinstance(error, BrokerError)
        assert error.retriable
        assert subject.committed([PARTITION])[PARTITION] == OffsetAndMetadata(1)


def test_a_sync_commit_repeats_until_its_deadline_and_says_what_failed_last(served: VirtualCluster) -> None:
    with consumer(served) as subject:
        subject.assign([PARTITION])
        tries: list[int] = []

        def commit(seconds: float) -> None:
            with served.virtual_broker.faults.error(
                OffsetCommitRequest, COORDINATOR_LOAD_IN_PROGRESS
            ) as fault:
                try:
                    subject.commit({PARTITION: 2}, timeout=seconds)
                finally:
                    tries.append(fault.hits)

        overdue(commit, KafkaTimeoutError, match="COORDINATOR_LOAD_IN_PROGRESS", enough=lambda: tries[-1] > 1)
        subject.commit({PARTITION: 2})


def test_callbacks_of_commits_run_on_the_thread_that_calls(broker: Broker) -> None:
    broker.create_topic("t", 1)
    threads: list[threading.Thread] = []
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="g") as subject:
        subject.assign([PARTITION])
        subject.commit_async(
            {PARTITION: 1}, lambda offsets, error: threads.append(threading.current_thread())
        )
        subject.commit({})
    assert threads == [threading.current_thread()]


def test_an_exception_in_a_commit_callback_surfaces_from_the_call_that_runs_it(
    served: VirtualCluster,
) -> None:
    def fails(offsets: Offsets, error: Exception | None) -> None:
        raise ZeroDivisionError("my bug")

    ends = Ends()
    with consumer(served) as subject:
        subject.assign([PARTITION])
        subject.commit_async({PARTITION: 1}, fails)
        subject.commit_async({PARTITION: 2}, ends)
        with pytest.raises(ZeroDivisionError):
            subject.commit({})
        subject.commit({})
        assert ends.told == [(2, None)]


@pytest.mark.needs("groups", "classic rebalances")
def test_c5_a_commit_after_a_rebalance_names_what_moved_and_commits_the_rest(
    cluster: Cluster, protocol: str
) -> None:
    topic, group = cluster.topic(), cluster.name("g")
    cluster.produce(topic, 40)
    given = member_settings(protocol, group_id=group, heartbeat_interval_ms=200)
    one = cluster.consumer(enable_auto_commit=False, **given)
    one.subscribe(topic)
    records = read(one, 40)
    two = cluster.consumer(enable_auto_commit=False, **given)
    two.subscribe(topic)

    def shared() -> bool:
        two.poll(0)
        return len(one.assignment()) == len(two.assignment()) == 2

    poll_until(one, shared)
    moved = two.assignment()
    with pytest.raises(CommitFailedError) as error:
        one.commit(records)
    assert error.value.partitions == moved
    found = one.committed(partitions(topic))
    assert {partition for partition, at in found.items() if at is not None} == one.assignment()
    assert {at.offset for at in found.values() if at is not None} == {10}


@pytest.mark.needs("groups", "stored epochs")
def test_epochs_and_notes_come_back_and_a_seek_may_carry_them(cluster: Cluster) -> None:
    topic, group = cluster.topic(2), cluster.name("g")
    cluster.produce(topic, 20, partitions=2)
    subject = cluster.consumer(group_id=group, enable_auto_commit=False)
    first, second = partitions(topic, 2)
    subject.assign([first, second])
    records = read(subject, 20)
    epochs = {record.leader_epoch for record in records}
    assert epochs == {0}
    subject.commit()
    assert subject.committed([first, second]) == {
        first: OffsetAndMetadata(10, 0),
        second: OffsetAndMetadata(10, 0),
    }
    note = OffsetAndMetadata(4, 0, "half way")
    subject.commit({first: note})
    assert subject.committed([first])[first] == note
    subject.seek(first, note)
    assert [record.offset for record in read(subject, 6)] == [4, 5, 6, 7, 8, 9]
    assert subject.committed([TopicPartition(topic, 1), ("none-such", 0)]) == {
        second: OffsetAndMetadata(10, 0),
        TopicPartition("none-such", 0): None,
    }


def test_a_note_that_is_too_long_has_an_error_of_its_own(served: VirtualCluster) -> None:
    with consumer(served) as subject:
        subject.assign([PARTITION])
        with pytest.raises(OffsetMetadataTooLargeError):
            subject.commit({PARTITION: OffsetAndMetadata(1, None, "x" * 5_000)})


def test_records_in_any_order_commit_what_comes_after_the_last_of_each_partition(
    served: VirtualCluster,
) -> None:
    with consumer(served) as subject:
        subject.assign([PARTITION])
        records = read(subject, 100)
        subject.commit(reversed(records[10:20]))
        assert subject.committed([PARTITION])[PARTITION] == OffsetAndMetadata(20, 0)


def test_auto_commit_takes_nothing_of_a_poll_that_raised(served: VirtualCluster) -> None:
    """What came before a bad record was returned, and the next poll proves that; the bad one is not processed."""

    def refuses(data: bytes) -> bytes:
        if data == b"50":
            raise ValueError(data)
        return data

    with served.consumer(group_id="g", auto_commit_interval_ms=0, value_deserializer=refuses) as subject:
        subject.assign([PARTITION])
        assert len(read(subject, 50)) == 50
        for _ in range(3):
            with pytest.raises(RecordDeserializationError):
                subject.poll(PATIENCE)
    with consumer(served) as after:
        assert after.committed([PARTITION])[PARTITION] == OffsetAndMetadata(50, 0)


def committed(subject: Consumer) -> int | None:
    at = subject.committed([PARTITION])[PARTITION]
    return None if at is None else at.offset


def poll_until_committed(subject: Consumer, offset: int) -> None:
    poll_until(subject, lambda: committed(subject) == offset)


def automatic(cluster: VirtualCluster, **settings: Any) -> Any:
    return cluster.consumer(**{"group_id": "g", "auto_commit_interval_ms": 100, **settings})


@pytest.mark.parametrize("by", ["the interval", "close"])
def test_auto_commit_knows_nothing_of_what_it_committed_under_an_earlier_assignment(
    served: VirtualCluster, by: str
) -> None:
    """Somebody may have reset the group's offsets meanwhile: the same place is committed again."""
    with automatic(served) as subject:
        subject.assign([PARTITION])
        read(subject, 100)
        poll_until_committed(subject, 100)
        subject.assign([])
        with automatic(served) as other:
            other.commit({PARTITION: 10})
        assert committed(subject) == 10
        subject.assign([PARTITION])
        assert len(read(subject, 90)) == 90
        if by == "the interval":
            poll_until_committed(subject, 100)
    with automatic(served) as other:
        assert committed(other) == 100


def test_a_manual_assignment_that_ends_commits_what_was_proved(served: VirtualCluster) -> None:
    with automatic(served, auto_commit_interval_ms=60_000, max_poll_records=10) as subject:
        subject.assign([PARTITION])
        read(subject, 10)
        read(subject, 10)
        subject.unsubscribe()
        assert committed(subject) == 10


def test_succeeded_asynchronous_commits_are_not_counted_as_calls_that_came_too_late(
    served: VirtualCluster,
) -> None:
    with consumer(served, default_api_timeout_ms=2_000) as subject:
        subject.assign([PARTITION])
        for offset in range(1, 6):
            subject.commit_async({PARTITION: offset})
        subject.commit({}, timeout=PATIENCE)
        subject.poll(3)
        found = {name.name: value for name, value in subject.metrics().items()}
        assert found["application-events-expired-count"] == 0


@pytest.mark.needs("groups")
@pytest.mark.brokers("virtual")
def test_a_poll_that_waits_with_an_interval_of_0_looks_ten_times_a_second(cluster: VirtualCluster) -> None:
    """A simulation ends when a program goes round without time passing, as such a poll did."""
    topic, group = cluster.topic(1), cluster.name("g")
    cluster.produce(topic, 5, partitions=1)
    (at,) = partitions(topic, 1)
    with cluster.consumer(group_id=group, auto_commit_interval_ms=0) as subject:
        subject.assign([at])
        read(subject, 5)
        before = cluster.now()
        assert not subject.poll(10)
        assert (cluster.now() - before).total_seconds() == 10
        found = subject.committed([at])[at]
        assert found is not None
        assert found.offset == 5
