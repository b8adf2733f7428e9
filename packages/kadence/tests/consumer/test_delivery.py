"""At least once by default: what is committed, when, and what comes again (D1)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.consumer.support import read

from kadence import Broker, Consumer, Producer, TopicPartition

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(100):
            producer.send("t", b"%d" % number)
    return broker


def consumer(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **settings
    )


def committed(broker: Broker) -> int | None:
    with consumer(broker) as looking:
        found = looking.committed([PARTITION])[PARTITION]
        return None if found is None else found.offset


def test_close_commits_what_was_returned(served: Broker) -> None:
    with consumer(served, max_poll_records=10) as subject:
        subject.assign([PARTITION])
        read(subject, 10)
        read(subject, 10)
    assert committed(served) == 20


def test_an_exception_commits_only_what_a_later_poll_proved(served: Broker) -> None:
    def work() -> None:
        with consumer(served, max_poll_records=10) as subject:
            subject.assign([PARTITION])
            read(subject, 10)
            read(subject, 10)
            raise RuntimeError("while processing the second ten")

    with pytest.raises(RuntimeError):
        work()
    assert committed(served) == 10


def test_the_interval_commits_what_was_proved_and_not_what_is_in_hand(served: Broker) -> None:
    with consumer(served, max_poll_records=10, auto_commit_interval_ms=0) as subject:
        subject.assign([PARTITION])
        assert subject.position(PARTITION) == 0  # known before the first poll, which then has it to commit
        for expected in (0, 10, 20):
            read(subject, 10)
            # A commit of nothing waits for those before it.
            subject.commit({})
            assert committed(served) == expected


def test_without_auto_commit_nothing_is_committed(served: Broker) -> None:
    with consumer(served, enable_auto_commit=False) as subject:
        subject.assign([PARTITION])
        read(subject, 10)
    assert committed(served) is None


def test_an_explicit_commit_is_never_taken_back_by_auto_commit(served: Broker) -> None:
    with consumer(served, max_poll_records=10) as subject:
        subject.subscribe("t")
        read(subject, 10)
        subject.commit()
        subject.unsubscribe()
        assert committed(served) == 10


def test_commit_without_offsets_means_everything_returned(served: Broker) -> None:
    with consumer(served, enable_auto_commit=False, max_poll_records=7) as subject:
        subject.assign([PARTITION])
        read(subject, 7)
        subject.commit()
        assert committed(served) == 7


def test_iteration_that_breaks_off_has_committed_every_record_before_the_one_in_hand(served: Broker) -> None:
    def work() -> None:
        with consumer(served) as subject:
            subject.assign([PARTITION])
            for record in subject:
                if record.offset == 5:
                    raise RuntimeError("while processing record 5")

    with pytest.raises(RuntimeError):
        work()
    assert committed(served) == 5
