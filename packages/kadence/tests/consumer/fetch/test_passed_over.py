"""What no poll returns is committed all the same: bad records that are passed over, markers, aborted records."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from tests.consumer.support import Shell
from tests.patience import PATIENCE

from kadence import Broker, Consumer, OffsetAndMetadata, Producer, Records, TopicPartition
from kadence.errors import DeadLetterError
from kadence.protocol.error_codes import NOT_ENOUGH_REPLICAS, TOPIC_AUTHORIZATION_FAILED
from kadence.protocol.produce import ProduceRequest

BEGINNING = OffsetAndMetadata(0)
PARTITION = TopicPartition("t", 0)
POLICIES: dict[str, dict[str, Any]] = {
    "skip": {"deserialization_errors": "skip"},
    "dead-letter": {"deserialization_errors": "dead-letter", "dead_letter_topic": "bad"},
}


def polls() -> range:
    """So many that a busy machine has time, and a test that fails ends."""
    return range(40)


def fill(broker: Broker, *values: bytes, partition: int = 0) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for value in values:
            producer.send("t", value, partition=partition)


def settings(broker: Broker, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        **more,
    }


def whole_numbers(broker: Broker, policy: str, **more: Any) -> dict[str, Any]:
    return settings(broker, value_deserializer=int, **POLICIES[policy], **more)


def committed_by(subject: Consumer[Any, Any]) -> int:
    found = subject.committed([PARTITION])[PARTITION]
    return 0 if found is None else found.offset


def letters(broker: Broker) -> int:
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as reader:
        return reader.end_offsets([("bad", 0)])[TopicPartition("bad", 0)]


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 1)
    broker.create_topic("bad", 1)
    return broker


@pytest.mark.parametrize("policy", POLICIES)
def test_the_loop_of_the_examples_commits_what_was_passed_over(
    served: Broker, shell: Shell, policy: str
) -> None:
    """With ``commit(records)``, as in examples/worker.py: no lag is left, and no start writes the letter again."""
    fill(served, b"1", b"2", b"bad")
    for _ in range(2):
        subject = shell.make(**whole_numbers(served, policy))
        shell.do(partial(subject.assign, [PARTITION]))
        found: list[int] = []
        for _ in polls():
            if shell.do(partial(subject.position, PARTITION)) == 3:
                break
            records = shell.do(partial(subject.poll, 0.5))
            found += [record.value for record in records]
            shell.do(partial(subject.commit, records))
        committed = shell.do(partial(subject.committed, [PARTITION]))
        assert committed[PARTITION].offset == 3
        shell.do(subject.close)
    assert found == []
    assert letters(served) == (1 if policy == "dead-letter" else 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_poll_of_bad_records_only_is_empty_and_names_their_partition(served: Broker, policy: str) -> None:
    with Consumer(**whole_numbers(served, policy)) as subject:
        subject.assign([PARTITION])
        fill(served, b"1")
        assert subject.poll(PATIENCE).next_offsets()[PARTITION].offset == 1
        fill(served, b"bad", b"worse")
        for _ in polls():
            records = subject.poll(0.5)
            assert not records
            subject.commit(records)
            if records.next_offsets().get(PARTITION, BEGINNING).offset == 3:
                break
        assert subject.committed([PARTITION])[PARTITION] == records.next_offsets()[PARTITION]
        # What one poll named the next one does not name again.
        assert subject.poll(0).next_offsets() == {}


def test_a_dead_letter_counts_once_it_is_acknowledged(served: Broker) -> None:
    with Consumer(**whole_numbers(served, "dead-letter")) as subject:
        subject.assign([PARTITION])
        fill(served, b"bad")
        with served.faults.error(ProduceRequest, TOPIC_AUTHORIZATION_FAILED), pytest.raises(DeadLetterError):
            subject.poll(PATIENCE)
        with served.faults.error(ProduceRequest, NOT_ENOUGH_REPLICAS):
            told = subject.poll(0.05).next_offsets()
            assert told.get(PARTITION, BEGINNING) == BEGINNING
        moved = next(filter(None, (subject.poll(0.5).next_offsets() for _ in polls())))
        assert moved[PARTITION].offset == 1


def test_what_was_passed_over_in_a_poll_that_raised_is_named_by_the_next(served: Broker) -> None:
    """A step of the second partition raises after the bad record of the first was passed over."""
    served.create_topic("two", 2)
    with Producer(bootstrap_servers=served.bootstrap_servers) as producer:
        for partition, value in ((0, b"bad"), (1, b"stop"), (1, b"1")):
            producer.send("two", value, partition=partition)
    failures = [MemoryError()]

    def number(value: bytes) -> int:
        if value == b"stop" and failures:
            raise failures.pop()
        return int(value)

    with Consumer(
        **settings(served, value_deserializer=number, deserialization_errors="skip", fetch_min_bytes=1)
    ) as subject:
        subject.assign([("two", 0), ("two", 1)])
        raised = 0
        moved: dict[TopicPartition, Any] = {}
        for _ in polls():
            try:
                moved.update(subject.poll(0.5).next_offsets())
            except MemoryError:
                raised += 1
            if len(moved) == 2:
                break
        assert raised == 1
        assert [moved[TopicPartition("two", partition)].offset for partition in (0, 1)] == [1, 2]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_markers_and_aborted_records_at_the_end_are_committed(served: Broker, isolation: str) -> None:
    with Producer(bootstrap_servers=served.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"2")
        producer.flush()
        producer.abort_transaction()
    with Consumer(**settings(served, isolation_level=isolation)) as subject:
        subject.assign([PARTITION])
        committed = 0
        for _ in polls():
            subject.commit(subject.poll(0.5))
            committed = committed_by(subject)
            assert committed == subject.position(PARTITION)
            if committed == 4:
                break
        assert committed == 4


@pytest.mark.parametrize("way", ["poll_arrow", "for"])
def test_commit_without_offsets_commits_what_was_passed_over(served: Broker, way: str) -> None:
    pytest.importorskip("pyarrow")
    with Producer(bootstrap_servers=served.bootstrap_servers, transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"1")
        producer.flush()
        producer.abort_transaction()
    fill(served, b"2", b"bad")
    with Consumer(**whole_numbers(served, "skip", isolation_level="read_committed")) as subject:
        subject.assign({PARTITION: (0, 4)})
        if way == "for":
            assert [record.value for record in subject] == [2]
        else:
            for _ in polls():
                if subject.finished():
                    break
                subject.poll_arrow(0.5)
        subject.commit()
        assert committed_by(subject) == 4


@pytest.mark.parametrize("policy", POLICIES)
def test_iterating_with_auto_commit_commits_a_bad_record_at_the_end(served: Broker, policy: str) -> None:
    """Though the loop waits for the next record, and nobody closes the consumer."""
    fill(served, b"1", b"bad")
    with Consumer(
        **whole_numbers(served, policy) | {"enable_auto_commit": True, "auto_commit_interval_ms": 0}
    ) as subject:
        subject.assign([PARTITION])
        found: list[Any] = []
        # A busy machine may need longer for the first fetch.
        while not found:
            found = [record.value for record in subject.records(idle_timeout=0.3)]
        assert found == [1]
        with Consumer(**settings(served)) as other:
            assert committed_by(other) == 2


def test_what_an_interceptor_filters_is_committed_with_the_rest(served: Broker) -> None:
    class Odd:
        def on_consume(self, records: Records[Any, Any]) -> Records[Any, Any]:
            return Records.of(record for record in records if int(record.value) % 2)

    fill(served, b"1", b"2")
    with Consumer(**settings(served, interceptors=[Odd()])) as subject:
        subject.assign([PARTITION])
        for _ in polls():
            records = subject.poll(0.5)
            end = records.next_offsets().get(PARTITION, BEGINNING).offset
            assert end == subject.position(PARTITION)
            if end == 2:
                break
        assert end == 2
