"""Interceptors (KIP-42): in order, never in the way, and never what decides on offsets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import pytest
from tests.consumer.support import read
from tests.patience import PATIENCE

from kadence import (
    AsyncConsumer,
    Broker,
    Consumer,
    Interceptor,
    OffsetAndMetadata,
    Producer,
    Records,
    TopicPartition,
)

PARTITION = TopicPartition("t", 0)


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number)
    return broker


class Marks(Interceptor):
    """Appends its letter to each value, and notes what it sees."""

    def __init__(self, letter: str = "-") -> None:
        self.letter = letter.encode()
        self.committed: list[dict[TopicPartition, int]] = []
        self.closed = 0

    def on_consume(self, records: Records) -> Records:
        return Records.of(record.replace(value=record.value + self.letter) for record in records)

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self.committed.append({partition: at.offset for partition, at in offsets.items()})

    def close(self) -> None:
        self.closed += 1


class Broken(Interceptor):
    """Fails wherever it can."""

    def on_consume(self, records: Records) -> Records:
        raise RuntimeError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RuntimeError("on_commit")

    def close(self) -> None:
        raise RuntimeError("close")


class Odd(Interceptor):
    """Returns what is none."""

    def on_consume(self, records: Records) -> Any:
        return list(records)


class Only:
    """Not a subclass, and with one method only. Every other record."""

    def on_consume(self, records: Records) -> Records:
        return Records.of(record for record in records if record.offset % 2 == 0)


def consumer(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(
        bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest", **settings
    )


def test_they_run_in_order_and_their_exceptions_are_logged_and_passed_over(
    served: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "kadence.consumer")
    first, last = Marks("a"), Marks("b")
    with consumer(served, interceptors=[first, Broken(), Odd(), last]) as subject:
        subject.assign([PARTITION])
        assert [record.value for record in read(subject, 10)] == [b"%dab" % n for n in range(10)]
        subject.commit()
    assert (first.closed, last.closed) == (1, 1)
    assert first.committed == last.committed == [{PARTITION: 10}]
    told = [record.getMessage() for record in caplog.records if "interceptor" in record.getMessage()]
    assert told == [
        "interceptor Broken: on_consume raised an error, which is ignored",
        "interceptor Odd: on_consume returned list instead of Records; the records are used unchanged",
        "interceptor Broken: on_commit raised an error, which is ignored",
        "interceptor Broken: close raised an error, which is ignored",
    ]


def test_a4_offsets_follow_what_was_there_before_interception(served: Broker) -> None:
    with consumer(served, interceptors=[Only]) as subject:
        subject.assign([PARTITION])
        assert [record.offset for record in read(subject, 5)] == [0, 2, 4, 6, 8]
        assert subject.position(PARTITION) == 10
        subject.commit()
        assert subject.committed([PARTITION])[PARTITION] == OffsetAndMetadata(10, 0)


def test_they_see_commits_of_every_kind_and_none_that_fails(served: Broker) -> None:
    marks = Marks()
    with consumer(
        served, interceptors=[marks], max_poll_records=2, auto_commit_interval_ms=3_600_000
    ) as subject:
        subject.assign([PARTITION])
        read(subject, 2)
        subject.commit()
        read(subject, 2)
        subject.commit_async()
        subject.commit({})
        read(subject, 2)
        # Nothing of this group: no such member commits for it.
        with pytest.raises(Exception, match="offset"):
            subject.commit({PARTITION: OffsetAndMetadata(5, None, "x" * 5000)})
        assert marks.committed == [{PARTITION: 2}, {PARTITION: 4}]
    assert marks.committed == [{PARTITION: 2}, {PARTITION: 4}, {PARTITION: 6}]


def test_iteration_and_asyncio_are_intercepted_too(served: Broker) -> None:
    with consumer(served, interceptors=[Marks("a"), Broken(), Odd(), Only()]) as subject:
        subject.assign([PARTITION])
        assert [next(subject).value for _ in range(3)] == [b"0a", b"2a", b"4a"]

    async def work() -> None:
        marks = Marks("a")
        async with AsyncConsumer(
            bootstrap_servers=served.bootstrap_servers, auto_offset_reset="earliest", interceptors=[marks]
        ) as subject:
            await subject.assign([PARTITION])
            assert [record.value async for record in _first(subject, 3)] == [b"0a", b"1a", b"2a"]
        assert marks.closed == 1

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


async def _first(subject: AsyncConsumer, count: int) -> Any:
    async for record in subject:
        yield record
        count -= 1
        if not count:
            return


class Twice:
    """Each record, and a copy of it."""

    def on_consume(self, records: Records) -> Records:
        return Records.of(each for record in records for each in (record, record.replace(value=b"again")))


def test_iteration_gives_what_an_interceptor_adds_before_it_polls_again(served: Broker) -> None:
    with consumer(served, interceptors=[Twice]) as subject:
        subject.assign([PARTITION])
        assert [next(subject).value for _ in range(3)] == [b"0", b"again", b"1"]
        assert subject.position(PARTITION) == 2
        # What was added comes with the next call, whichever that is, and proves nothing processed before it came.
        assert [record.value for record in subject.poll(PATIENCE)] == [b"again"]
        processed = subject._shared_state.shared_partitions[PARTITION].processed_position()
        assert processed is not None
        assert processed.offset == 1
        assert subject.poll(PATIENCE, max_records=1).next_offsets()[PARTITION].offset == 3


def test_async_iteration_gives_what_an_interceptor_adds(served: Broker) -> None:
    async def work() -> None:
        async with AsyncConsumer(
            bootstrap_servers=served.bootstrap_servers, auto_offset_reset="earliest", interceptors=[Twice()]
        ) as subject:
            await subject.assign([PARTITION])
            assert [record.value async for record in _first(subject, 3)] == [b"0", b"again", b"1"]

    asyncio.run(asyncio.wait_for(work(), PATIENCE))


def test_c1_what_an_interceptor_added_is_dropped_by_a_seek(served: Broker) -> None:
    with consumer(served, interceptors=[Twice]) as subject:
        subject.assign([PARTITION])
        assert next(subject).value == b"0"
        subject.seek(PARTITION, 5)
        assert [record.value for record in read(subject, 2, max_records=1)] == [b"5", b"again"]


class Drops(Interceptor):
    """All but the last record of the topic, and says how many it saw at a time."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_consume(self, records: Records) -> Records:
        self.seen.append(len(records))
        return Records.of(record for record in records if record.value == b"9")


def test_an_interceptor_sees_each_record_of_an_iteration_by_itself_and_may_drop_it(served: Broker) -> None:
    drops = Drops()
    with consumer(served, interceptors=[drops]) as subject:
        subject.assign([PARTITION])
        assert next(iter(subject)).value == b"9"
        assert drops.seen == [1] * 10
        assert subject.position(PARTITION) == 10


def test_c7_ctrl_c_in_an_interceptor_loses_no_record_of_an_iteration(served: Broker) -> None:
    interrupted: set[int] = set()

    class Interrupts(Interceptor):
        def on_consume(self, records: Records) -> Records:
            [record] = records
            if record.offset not in interrupted:
                interrupted.add(record.offset)
                raise KeyboardInterrupt
            return records

    with consumer(served, interceptors=[Interrupts()]) as subject:
        subject.assign([PARTITION])
        records = iter(subject)
        found: list[int] = []
        while len(found) < 10:
            with contextlib.suppress(KeyboardInterrupt):
                found.append(next(records).offset)
        assert found == list(range(10))
