"""Records lost, seen twice or skipped by other clients."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.consumer.support import Cluster, poll_until, read
from tests.patience import PATIENCE
from tests.weaknesses.conftest import Served

from kadence import OffsetAndMetadata, Producer, TopicPartition
from kadence.errors import RecordDeserializationError
from kadence.protocol.fetch import FetchRequest
from kadence.protocol.find_coordinator import FindCoordinatorRequest

PARTITION = TopicPartition("t", 0)

WORKER = """
    import os, sys, time
    from kadence import Consumer
    servers, topic, group, stop_at, path = sys.argv[1:]
    done = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    consumer = Consumer(
        bootstrap_servers=servers, group_id=group, group_protocol="classic", auto_offset_reset="earliest",
        session_timeout_ms=2_500, heartbeat_interval_ms=200, auto_commit_interval_ms=0, max_poll_records=10,
    )
    consumer.subscribe(topic)
    while True:
        records = consumer.poll(1.0)
        consumer.commit({})  # of nothing: it waits for the automatic commits under way
        for record in records:
            if record.value == stop_at.encode():
                print("in hand", flush=True)
                time.sleep(60)  # processing; this process will not see the end of it
            os.write(done, record.value + b"\\n")
"""


@pytest.mark.brokers("embedded", "kafka")
@pytest.mark.needs("groups")
def test_a_crash_while_processing_loses_no_record(cluster: Cluster, tmp_path: Path) -> None:
    """Confluent and aiokafka commit on a timer what is still being processed (RDK #1122, #2609, #2179, KP #722).

    A real process, killed by SIGKILL with a record in hand, long after its commit interval; then another one.
    """
    topic, group, done = cluster.topic(1), cluster.name("g"), tmp_path / "done"
    partition = TopicPartition(topic, 0)
    cluster.produce(topic, 60, partitions=1)

    @contextmanager
    def worker(stop_at: str) -> Iterator[subprocess.Popen[str]]:
        """A process that has got as far as the record in hand; killed at the end."""
        arguments = [cluster.bootstrap_servers, topic, group, stop_at, str(done)]
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKER), *arguments], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "in hand\n"
                yield process
            finally:
                process.kill()

    with worker("35") as processing:
        with pytest.raises(subprocess.TimeoutExpired):
            processing.wait(0.4)  # a timer would commit now
        if (
            cluster.kind != "mock"
        ):  # which refuses commits of a generation now and then, to be repeated by a poll
            committed = cluster.consumer(group_id=group).committed([partition])[partition]
            assert committed is not None
            assert 10 <= committed.offset <= 30
    first = [int(line) for line in done.read_text().split()]
    assert first == list(range(35))

    cluster.produce(topic, 1, start=60, partitions=1)
    with worker("60"):
        pass
    everything = [int(line) for line in done.read_text().split()]
    assert sorted(set(everything)) == list(range(60))
    again = everything[len(first) :]
    assert again[0] <= 35, "the record in hand was lost"


def test_callbacks_of_commits_run_oldest_first(served: Served) -> None:
    """kafka-python runs them newest first: 4, 3, 2, 1, 0."""
    served.produce(10)
    consumer = served.consumer(group_id="g", enable_auto_commit=False)
    consumer.assign([PARTITION])
    read(consumer, 10)
    ended: list[int] = []
    for offset in range(1, 6):
        consumer.commit_async(
            {PARTITION: offset}, lambda offsets, error: ended.append(offsets[PARTITION].offset)
        )
    consumer.commit({PARTITION: 6})
    assert ended == [1, 2, 3, 4, 5]


def test_an_async_commit_without_a_known_coordinator_is_the_commits_own_result(served: Served) -> None:
    """kafka-python hands out the future of looking the coordinator up: done, though nothing is committed."""
    served.produce(10)
    consumer = served.consumer(group_id="g", enable_auto_commit=False)
    told: list[tuple[int, object, OffsetAndMetadata | None]] = []
    with served.consumer(group_id="g") as looking:
        consumer.assign([PARTITION])
        with served.faults.delay(FindCoordinatorRequest, 0.3):
            consumer.commit_async(
                {PARTITION: 7},
                lambda offsets, error: told.append(
                    (offsets[PARTITION].offset, error, looking.committed([PARTITION])[PARTITION])
                ),
            )
            poll_until(consumer, lambda: bool(told))
    ((offset, error, committed),) = told
    assert (offset, error) == (7, None)
    assert committed is not None
    assert committed.offset == 7


def test_the_leader_epoch_of_a_committed_offset_survives_a_restart(served: Served) -> None:
    """kafka-python drops it on resume, so truncation after a leader change goes unseen."""
    served.produce(10)
    served.broker.move_leader("t", 0, served.broker.node_ids[0])  # a new epoch: 1
    served.produce(10, start=10)
    settings = {"group_id": "g", "enable_auto_commit": False}
    with served.consumer(**settings) as first:
        first.assign([PARTITION])
        read(first, 20)
        first.commit()
    with served.consumer(**settings) as second:
        second.assign([PARTITION])
        assert second.position(PARTITION) == 20
        assert second.committed([PARTITION])[PARTITION] == OffsetAndMetadata(20, leader_epoch=1)
        with served.faults.observe(FetchRequest) as fetches:
            second.poll(0.2)
        second.commit()
        assert second.committed([PARTITION])[PARTITION] == OffsetAndMetadata(20, leader_epoch=1)
    asked = [each for call in fetches.messages for topic in call.topics for each in topic.partitions]
    assert {each.last_fetched_epoch for each in asked} <= {1}


def test_a_record_above_the_limit_is_read_and_not_skipped(served: Served) -> None:
    """Aiokafka raises and then goes on one offset later; KIP-74 lets the first batch of a response be larger."""
    served.produce(1)
    served.produce(1, start=1, size=200_000)
    served.produce(1, start=2)
    consumer = served.consumer(max_partition_fetch_bytes=1_000, fetch_max_bytes=1_000)
    consumer.assign([PARTITION])
    assert [record.offset for record in read(consumer, 3)] == [0, 1, 2]


def test_pausing_keeps_what_is_buffered_and_fetches_it_once(served: Served) -> None:
    """Confluent purges a paused partition's queue and aiokafka drops its buffer: every byte is fetched again."""
    served.produce(100)
    consumer = served.consumer(max_poll_records=10)
    consumer.assign([PARTITION])
    with served.faults.observe(
        FetchRequest, where=lambda call: any(each.partitions for each in call.message.topics)
    ) as fetches:
        first = read(consumer, 10)
        asked = [each for call in fetches.messages for topic in call.topics for each in topic.partitions]
        consumer.pause([PARTITION])
        assert not consumer.poll(0.2)
        consumer.resume([PARTITION])
        rest = read(consumer, 90)
    assert [record.offset for record in [*first, *rest]] == list(range(100))
    # Nobody asked again for offsets that the first answer had brought.
    later = [
        each.fetch_offset for call in fetches.messages for topic in call.topics for each in topic.partitions
    ][len(asked) :]
    assert set(later) <= {100}


@pytest.mark.parametrize("policy", ["raise", "skip", "dead-letter"])
def test_a_poison_pill_never_blocks_the_records_behind_it(served: Served, policy: str) -> None:
    """With kafka-python and aiokafka a bad record is raised at each poll, for ever (CK #1572 asks for more)."""
    bad = b"\xff not json"
    with Producer(bootstrap_servers=served.broker.bootstrap_servers) as producer:
        for value in (b'{"n": 1}', bad, b'{"n": 2}'):
            producer.send("t", value).result(PATIENCE)
    settings = {"dead_letter_topic": "dead"} if policy == "dead-letter" else {}
    consumer = served.consumer(
        value_deserializer="json", group_id="g", deserialization_errors=policy, **settings
    )
    consumer.assign([PARTITION])
    seen = [record.value for record in read(consumer, 1)]
    if policy == "raise":
        with pytest.raises(RecordDeserializationError) as error:
            consumer.poll(PATIENCE)
        assert (error.value.partition, error.value.offset) == (PARTITION, 1)
        consumer.seek(PARTITION, error.value.offset + 1)
    seen += [record.value for record in (read(consumer, 1) if len(seen) < 2 else [])]
    assert seen == [{"n": 1}, {"n": 2}]
    consumer.commit()
    assert consumer.position(PARTITION) == 3
    if policy == "dead-letter":
        aside = served.consumer()
        aside.assign([TopicPartition("dead", 0)])
        assert [record.value for record in read(aside, 1)] == [bad]
