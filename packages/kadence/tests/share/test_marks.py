"""Words on single records, which are noted without entering the consumer: where they are, and where refused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.consumer.test_forked import in_child
from tests.worlds.queue import ACCEPT, REJECT, RELEASE, RENEW, HandNetwork

from kadence import AcknowledgeType, AsyncShareConsumer, ConcurrentAccessError, Record, ShareConsumer
from kadence.errors import ClosedError, ForkedError, IllegalStateError
from kadence.share import async_share_consumer

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


@pytest.fixture
def explicit(make: Callable[..., Made]) -> Made:
    return make({"share.acknowledgement.mode": "explicit"})


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, explicit: Made) -> list[object]:
    """Of what the consumer was asked, since it could not be noted."""
    consumer, _ = explicit
    found: list[object] = []
    acknowledge = consumer._calls.acknowledge

    def asks(what: Any, place: tuple[Any, ...], kind: AcknowledgeType | None) -> None:
        found.append(what)
        acknowledge(what, place, kind)

    monkeypatch.setattr(consumer._calls, "acknowledge", asks)
    return found


def test_a_word_on_each_record_enters_the_consumer_never(explicit: Made, asked: list[object]) -> None:
    consumer, network = explicit
    network.put(5)
    network.put(5, partition=1)
    network.put(5, acquired=[(0, 1, 1), (4, 4, 1)], partition=2)
    for record in consumer.poll():
        if record.offset == 1:
            consumer.acknowledge(record, AcknowledgeType.REJECT)
        elif record.offset == 2:
            consumer.acknowledge(record, type=AcknowledgeType.RELEASE)
        else:
            consumer.acknowledge(record)
    assert asked == []
    consumer.commit()
    assert network.taken() == [
        *(("jobs", 0, 0, ACCEPT), ("jobs", 1, 1, REJECT), ("jobs", 2, 2, RELEASE), ("jobs", 3, 4, ACCEPT)),
        *(("jobs", 0, 0, ACCEPT), ("jobs", 1, 1, REJECT), ("jobs", 2, 2, RELEASE), ("jobs", 3, 4, ACCEPT)),
        *(("jobs", 0, 0, ACCEPT), ("jobs", 1, 1, REJECT)),
        ("jobs", 4, 4, ACCEPT),
    ]


def test_in_any_order(explicit: Made, asked: list[object]) -> None:
    consumer, network = explicit
    network.put(9)
    records = list(consumer.poll())
    for record in (records[8], *records[3:6], *reversed(records[:3]), *records[6:8]):
        consumer.acknowledge(record)
    assert asked == []
    assert not consumer.poll()
    assert network.taken() == [("jobs", 0, 8, ACCEPT)]


def test_the_consumer_is_asked_of_what_was_said_before_of_renewals_and_of_equal_records(
    explicit: Made, asked: list[object]
) -> None:
    consumer, network = explicit
    network.put(4)
    records = list(consumer.poll())
    consumer.acknowledge(records[0])
    consumer.acknowledge(records[0], AcknowledgeType.REJECT)
    consumer.acknowledge(records[1], AcknowledgeType.RENEW)
    consumer.acknowledge(Record("jobs", 0, 2))
    assert asked == [records[0], records[1], Record("jobs", 0, 2)]
    consumer.acknowledge(records[3])
    assert len(asked) == 3
    consumer.commit()
    assert network.taken() == [
        *(("jobs", 0, 0, REJECT), ("jobs", 1, 1, RENEW)),
        ("jobs", 2, 3, ACCEPT),
    ]


def test_a_commit_sends_what_was_noted_and_later_words_are_refused(explicit: Made) -> None:
    consumer, network = explicit
    network.put(4)
    records = list(consumer.poll())
    consumer.acknowledge(records[0])
    consumer.commit()
    with pytest.raises(IllegalStateError, match="offset 0 is not held"):
        consumer.acknowledge(records[0])
    for record in records[1:]:
        consumer.acknowledge(record)
    consumer.commit()
    assert network.taken() == [("jobs", 0, 0, ACCEPT), ("jobs", 1, 3, ACCEPT)]


def test_c7_another_thread_may_say_something_but_not_while_a_call_is_under_way(explicit: Made) -> None:
    consumer, network = explicit
    network.put(3)
    records = list(consumer.poll())
    refused: list[type[BaseException]] = []

    def says(record: Record[Any, Any]) -> None:
        try:
            consumer.acknowledge(record)
        except ConcurrentAccessError as error:
            refused.append(type(error))

    def elsewhere(record: Record[Any, Any]) -> None:
        thread = threading.Thread(target=says, args=(record,))
        thread.start()
        thread.join()

    elsewhere(records[0])
    assert refused == []
    consumer.acknowledge(records[1])
    network.answers_at_once = False
    network.meanwhile += [lambda: elsewhere(records[2]), network.answer]
    consumer.commit()
    assert refused == [ConcurrentAccessError]
    assert network.taken() == [("jobs", 0, 1, ACCEPT)]
    consumer.acknowledge(records[2])
    network.meanwhile.append(lambda: elsewhere(records[2]))
    consumer.poll(1)
    assert refused == [ConcurrentAccessError] * 2


@pytest.mark.parametrize("call", ["commit", "commit_async"])
def test_nothing_is_said_inside_the_callback(explicit: Made, call: str) -> None:
    consumer, network = explicit
    errors: list[Exception] = []
    network.put(3)
    records = list(consumer.poll())

    def told(*_what: Any) -> None:
        try:
            consumer.acknowledge(records[2])
        except IllegalStateError as error:
            errors.append(error)

    consumer.set_acknowledgement_commit_callback(told)
    consumer.acknowledge(records[0])
    consumer.commit_async()
    consumer.acknowledge(records[1])
    getattr(consumer, call)()
    assert "inside the acknowledgement callback" in str(errors[0])
    assert network.taken() == [("jobs", 0, 0, ACCEPT), ("jobs", 1, 1, ACCEPT)]


def test_a_closed_consumer_refuses(explicit: Made) -> None:
    consumer, network = explicit
    network.put(1)
    [record] = consumer.poll()
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.acknowledge(record)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it forks")
def test_c8_a_child_of_a_fork_says_nothing_and_takes_no_steps(make: Callable[..., Made]) -> None:
    consumer, network = make({"share.acknowledgement.mode": "explicit"})
    network.put(2)
    record = consumer.poll()[0]
    implicit, other = make()
    other.gathers = True
    other.put(50)
    steps = iter(implicit)
    next(steps)
    next(steps)

    def refused() -> bool:
        try:
            consumer.acknowledge(record)
        except ForkedError:
            try:
                next(steps)
            except ForkedError:
                return True
        return False

    assert in_child(refused) == 0


def test_several_are_said_at_once_by_their_neighbours(explicit: Made) -> None:
    consumer, network = explicit
    network.put(10, acquired=[(0, 3, 1), (6, 9, 1)])
    network.put(4, partition=1)
    records = list(consumer.poll())
    consumer.acknowledge([*records[9:], records[0], *records[2:7]])
    consumer.acknowledge([records[1], records[1], *records[7:9]], AcknowledgeType.REJECT)
    with pytest.raises(IllegalStateError, match="is not held"):
        consumer.acknowledge([*records, Record("jobs", 0, 5)], AcknowledgeType.REJECT)
    assert not consumer.poll()
    assert network.taken() == [
        *(("jobs", 0, 0, ACCEPT), ("jobs", 1, 1, REJECT), ("jobs", 2, 3, ACCEPT)),
        *(("jobs", 6, 8, ACCEPT), ("jobs", 9, 9, REJECT), ("jobs", 0, 0, REJECT), ("jobs", 1, 3, ACCEPT)),
    ]


def test_ctrl_c_at_any_line_of_a_poll_lets_nothing_be_said_of_what_it_did_not_return(
    make: Callable[..., Made],
) -> None:
    at, happened = 0, True
    while happened:
        at += 1
        consumer, network = make({"share.acknowledgement.mode": "explicit"})
        network.put(4)
        seen = list(consumer.poll(max_records=2))
        for record in seen:
            consumer.acknowledge(record)
        interruption = Interruption(at)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            seen += consumer.poll(max_records=1)
        happened = interruption.happened
        for record in seen[2:]:
            consumer.acknowledge(record)
        while records := consumer.poll(max_records=1):
            for record in records:
                consumer.acknowledge(record)
            seen += records
        assert [each.offset for each in seen] == [0, 1, 2, 3], interruption.where
        said = [offset for _, first, last, _ in network.taken() for offset in range(first, last + 1)]
        assert sorted(said) == [0, 1, 2, 3], interruption.where
    assert at > 20


def test_ctrl_c_at_any_line_of_another_word_leaves_the_counts_right(make: Callable[..., Made]) -> None:
    at, happened = 0, True
    while happened:
        at += 1
        consumer, network = make({"share.acknowledgement.mode": "explicit"})
        network.put(6)
        records = list(consumer.poll())
        consumer.acknowledge(records)
        interruption = Interruption(at)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            consumer.acknowledge(records[3:], AcknowledgeType.REJECT)
        happened = interruption.happened
        holding = consumer._core.holding
        assert (holding.marks.unsaid, holding.said_count()) == (0, 6), interruption.where
        consumer.commit()
        assert not holding.has_said, interruption.where
        said = [offset for _, first, last, _ in network.taken() for offset in range(first, last + 1)]
        assert said == list(range(6)), interruption.where
    assert at > 20


def test_another_thread_is_refused_by_a_consumer_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    network = HandNetwork()
    monkeypatch.setattr(async_share_consumer, "network_side", lambda config, around: (network.state, network))
    settings = {"bootstrap.servers": "nowhere:1", "group.id": "q", "share.acknowledgement.mode": "explicit"}

    async def program() -> None:
        consumer: AsyncShareConsumer[Any, Any] = AsyncShareConsumer(settings)
        async with consumer:
            await consumer.subscribe("jobs")
            network.put(2)
            first, second = await consumer.poll()
            with pytest.raises(RuntimeError, match="no running event loop"):
                await asyncio.to_thread(consumer.acknowledge, first)
            consumer.acknowledge(first)
            consumer.acknowledge(second)

    asyncio.run(program())
    assert network.taken() == [("jobs", 0, 1, ACCEPT)]
