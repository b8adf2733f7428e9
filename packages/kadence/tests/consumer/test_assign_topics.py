"""All partitions of topics, without a group: those that are made later, too."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Literal

import pytest
from tests.consumer.support import Cluster, Shell, numbers, partitions, poll_until, read
from tests.patience import PATIENCE

from kadence import Admin, Broker, Consumer, KafkaTimeoutError, NotFetchedReason, Producer, TopicPartition
from kadence.errors import IllegalStateError, InvalidTopicError, UnknownTopicOrPartitionError
from kadence.protocol.list_offsets import ListOffsetsRequest


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(topics={"t": 2, "u": 1}) as broker:
        yield Cluster("embedded", broker.bootstrap_servers, broker=broker)


def consumer(cluster: Cluster, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, **{"metadata_max_age_ms": 100, **settings})


def test_the_assignment_is_there_when_the_call_returns(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("t", 6, partitions=2)
    subject = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: subject.assign_topics(["t", "u"], start="earliest"))
    assert subject.assignment() == {*partitions("t", 2), TopicPartition("u", 0)}
    found: list[Any] = []
    while len(found) < 6:
        found += shell.do(lambda: subject.poll(PATIENCE))
    assert sorted(numbers(found)) == list(range(6))
    shell.do(subject.close)


def test_a_record_written_after_the_call_is_behind_latest(cluster: Cluster, shell: Shell) -> None:
    assert cluster.broker is not None
    cluster.produce("u", 3, partitions=1)
    subject = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    with cluster.broker.faults.delay(ListOffsetsRequest, seconds=0.2):
        shell.do(lambda: subject.assign_topics("u", start="latest"))
        cluster.produce("u", 1, partitions=1, start=3)
        assert numbers(shell.do(lambda: subject.poll(PATIENCE))) == [3]
    # A pause of the machine may be longer than any delay.
    with cluster.broker.faults.drop(ListOffsetsRequest):
        with pytest.raises(KafkaTimeoutError, match="no position for u-0 yet"):
            shell.do(lambda: subject.assign_topics("u", start="latest", timeout=0.05))
        assert subject.assignment() == {TopicPartition("u", 0)}
    shell.do(subject.close)


def test_partitions_that_are_made_later_are_read_from_their_beginning(cluster: Cluster) -> None:
    """Though the others are read from the end."""
    cluster.produce("t", 6, partitions=2)
    with consumer(cluster) as subject, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        subject.assign_topics("t", start="latest")
        assert [subject.position(each) for each in partitions("t", 2)] == [3, 3]
        admin.create_partitions({"t": 4})
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in (100, 101, 102, 103):
                producer.send("t", b"%d" % number, partition=number % 4).result(PATIENCE)
        assert sorted(numbers(read(subject, 4))) == [100, 101, 102, 103]
        assert subject.assignment() == set(partitions("t", 4))


def test_a_topic_that_is_made_later_is_named_meanwhile(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with consumer(cluster, allow_auto_create_topics=False) as subject:
        subject.assign_topics(["later"])
        assert not subject.assignment()
        missing = TopicPartition("later", -1)
        poll_until(subject, lambda: missing in subject.not_fetched())
        assert subject.not_fetched()[missing].reason is NotFetchedReason.UNKNOWN_TOPIC
        told = "topic 'later' does not exist (UNKNOWN_TOPIC_OR_PARTITION); checking again until it does"
        assert caplog.messages.count(told) == 1
        assert cluster.broker is not None
        cluster.broker.create_topic("later", 1)
        cluster.produce("later", 3, partitions=1)
        assert numbers(read(subject, 3)) == [0, 1, 2]
        assert missing not in subject.not_fetched()


def test_a_time_to_start_at(cluster: Cluster) -> None:
    second = datetime(2024, 5, 1, 12, 0, 1, tzinfo=UTC)
    at = int(second.timestamp() * 1000)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(3):
            producer.send("u", b"%d" % number, timestamp=at + (number - 1) * 1000).result(PATIENCE)
    with consumer(cluster) as subject:
        for start in (second, at):
            subject.assign_topics("u", start=start)
            assert numbers(read(subject, 2)) == [1, 2]


def test_it_ends_where_the_topic_ends_at_the_call(cluster: Cluster, shell: Shell) -> None:
    cluster.produce("t", 6, partitions=2)
    subject = shell.make(bootstrap_servers=cluster.bootstrap_servers)
    shell.do(lambda: subject.assign_topics(["t", "u"], start="earliest", end="latest"))
    cluster.produce("t", 4, partitions=2, start=6)
    found: list[Any] = []
    while subject.finished() != subject.assignment():
        found += shell.do(lambda: subject.poll(PATIENCE))
    assert sorted(numbers(found)) == list(range(6))
    assert subject.assignment() == {*partitions("t", 2), TopicPartition("u", 0)}
    shell.do(subject.close)


def test_it_ends_at_a_time(cluster: Cluster) -> None:
    at = 1_714_564_800_000
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("u", b"%d" % number, timestamp=at + number * 1000).result(PATIENCE)
    second = datetime.fromtimestamp(at / 1000 + 1, UTC)
    with consumer(cluster) as subject:
        ends: list[tuple[int | Literal["earliest"], list[int]]] = [
            (at + 3000, [1, 2]),
            (at + 9000, [1, 2, 3, 4]),
            (at + 500, []),
            ("earliest", []),
        ]
        for end, expected in ends:
            subject.assign_topics("u", start=second, end=end)
            assert numbers(list(subject)) == expected
        subject.assign_topics("u", start=at + 9000, end="latest")
        assert numbers(list(subject)) == []
        # The range ends with the next assignment.
        subject.assign_topics("u", start="earliest")
        cluster.produce("u", 1, partitions=1, start=5)
        assert numbers(read(subject, 6)) == [0, 1, 2, 3, 4, 5]


def test_with_an_end_and_no_start_committed_offsets_count(cluster: Cluster) -> None:
    cluster.produce("t", 6, partitions=2)
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with consumer(cluster, **settings) as earlier:
        earlier.assign(partitions("t", 2))
        earlier.commit({TopicPartition("t", 0): 2})
    with consumer(cluster, **settings) as subject:
        subject.assign_topics("t", end="latest")
        assert sorted(numbers(list(subject))) == [1, 3, 4, 5]


def test_with_an_end_a_topic_that_does_not_exist_is_an_error(cluster: Cluster) -> None:
    with consumer(cluster, allow_auto_create_topics=False) as subject:
        subject.assign_topics("t", start="earliest")
        with pytest.raises(UnknownTopicOrPartitionError, match="topic 'later' does not exist"):
            subject.assign_topics(["t", "later"], end="latest")
        with pytest.raises(ValueError, match="end is 'earliest'"):
            subject.assign_topics("t", end="now")  # type: ignore[arg-type]
        assert subject.assignment() == set(partitions("t", 2))


def test_without_a_start_committed_offsets_count_and_kept_partitions_go_on(cluster: Cluster) -> None:
    cluster.produce("t", 6, partitions=2)
    settings = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with consumer(cluster, **settings) as subject:
        subject.assign_topics("t")
        read(subject, 6)
        subject.commit({TopicPartition("t", 0): 2, TopicPartition("t", 1): 3})
        subject.assign_topics(["t", "u"])
        assert [subject.position(each) for each in partitions("t", 2)] == [3, 3]
    with consumer(cluster, **settings) as subject:
        subject.assign_topics("t")
        assert [subject.position(each) for each in partitions("t", 2)] == [2, 3]


def test_assign_takes_its_place(cluster: Cluster) -> None:
    with consumer(cluster) as subject, Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        subject.assign_topics("t", start="earliest")
        subject.assign([TopicPartition("t", 0)])
        admin.create_partitions({"t": 3})
        # Metadata with three partitions has come when this is answered.
        while len(subject.partitions_for("t")) < 3:
            pass
        subject.poll(0)
        assert subject.assignment() == {TopicPartition("t", 0)}


def test_an_empty_list_is_refused_and_changes_nothing(cluster: Cluster) -> None:
    with consumer(cluster) as subject:
        subject.assign_topics("t")
        with pytest.raises(ValueError, match=r"needs a topic; to stop reading, call unsubscribe\(\)"):
            subject.assign_topics([])
        assert subject.assignment()


def test_what_does_not_go_together(cluster: Cluster) -> None:
    with consumer(cluster, group_id="g") as subject:
        subject.assign_topics("t")
        with pytest.raises(IllegalStateError, match="subscribe"):
            subject.subscribe("t")
        for call in (subject.incremental_assign, subject.incremental_unassign):
            with pytest.raises(IllegalStateError, match=r"assign_topics\(\)"):
                call([TopicPartition("t", 0)])
        subject.unsubscribe()
        subject.subscribe("t")
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            subject.assign_topics("t")


@pytest.mark.parametrize(
    ("start", "complaint"),
    [("beginning", "'earliest'"), (datetime(2024, 1, 1), "timezone"), (-2, ">= 0")],  # noqa: DTZ001
)
def test_a_start_that_is_none(cluster: Cluster, start: Any, complaint: str) -> None:
    with consumer(cluster) as subject:
        with pytest.raises(ValueError, match=complaint):
            subject.assign_topics("t", start=start)
        with pytest.raises(InvalidTopicError):
            subject.assign_topics("no topic")


def test_without_a_broker_the_call_ends_in_time() -> None:
    with (
        Consumer(bootstrap_servers="127.0.0.1:1") as subject,
        pytest.raises(KafkaTimeoutError, match=r"looking up topics \(topic 't'\) did not finish in time"),
    ):
        subject.assign_topics("t", timeout=0.2)
