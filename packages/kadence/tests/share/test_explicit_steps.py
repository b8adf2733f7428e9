"""Steps in explicit mode: each needs a word on the record before, and nobody waits for a poll to say it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.worlds.queue import ACCEPT, REJECT, RELEASE, RENEW, HandNetwork

from kadence import AcknowledgeType, AsyncShareConsumer, Record, ShareConsumer
from kadence.errors import IllegalStateError, RecordDeserializationError
from kadence.share import async_share_consumer

Made = tuple[ShareConsumer[Any, Any], HandNetwork]
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
KINDS = (AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@pytest.fixture
def explicit(make: Callable[..., Made]) -> Made:
    consumer, network = make(EXPLICIT)
    network.gathers = True
    return consumer, network


def work(consumer: ShareConsumer[Any, Any], records: Iterator[Record[Any, Any]], count: int) -> list[int]:
    """So many records are returned and acknowledged."""
    seen = []
    for _ in range(count):
        record = next(records)
        seen.append(record.offset)
        consumer.acknowledge(record, KINDS[record.offset % 3])
    return seen


def words(network: HandNetwork) -> list[tuple[int, int]]:
    """Of each offset what was said of it since the last look, in that order."""
    return [(at, kind) for _, first, last, kind in network.taken() for at in range(first, last + 1)]


def all_words(*offsets: int) -> list[tuple[int, int]]:
    return [(offset, KINDS[offset % 3]) for offset in offsets]


def test_an_iteration_takes_few_whole_polls(explicit: Made) -> None:
    consumer, network = explicit
    network.put(1_000)
    assert work(consumer, iter(consumer), 1_000) == list(range(1_000))
    assert consumer._core.polls.begun < 30
    assert words(network) == all_words(*range(999))
    consumer.commit()
    assert words(network) == all_words(999)


def test_what_is_said_leaves_with_the_next_step_and_waits_for_no_poll(explicit: Made) -> None:
    consumer, network = explicit
    network.put(100)
    records = iter(consumer)
    said, returned = list[tuple[int, int]](), 0
    for count in (1, 2, 1, 7, 1, 20, 3, 1):
        work(consumer, records, count)
        returned += count
        said += words(network)
        assert said == all_words(*range(returned - 1))
    assert consumer._core.polls.begun < returned - 20


@pytest.mark.parametrize("after", [1, 2, 9])
def test_a_step_is_refused_before_something_was_said_of_the_record(explicit: Made, after: int) -> None:
    consumer, network = explicit
    network.put(30)
    records = iter(consumer)
    seen = work(consumer, records, after - 1)
    record = next(records)
    for _ in range(2):
        with pytest.raises(IllegalStateError, match=f"for 1 of the records.*at offset {after - 1}"):
            next(records)
    consumer.acknowledge(record, KINDS[record.offset % 3])
    assert seen + work(consumer, records, 30 - after) == [*range(after - 1), *range(after, 30)]
    consumer.commit()
    assert words(network) == all_words(*range(30))


def test_the_last_word_counts_until_the_next_step(explicit: Made) -> None:
    consumer, network = explicit
    network.put(30)
    records = iter(consumer)
    work(consumer, records, 4)
    record = next(records)
    consumer.acknowledge(record)
    consumer.acknowledge(record, AcknowledgeType.RELEASE)
    following = next(records)
    assert words(network) == [*all_words(0, 1, 2, 3), (4, RELEASE)]
    with pytest.raises(IllegalStateError, match="offset 4 is not held"):
        consumer.acknowledge(record)
    consumer.acknowledge("jobs", 0, following.offset)
    assert next(records).offset == 6


def test_no_word_is_taken_of_what_was_not_returned(explicit: Made) -> None:
    consumer, network = explicit
    network.put(30)
    work(consumer, iter(consumer), 5)
    for offset in (5, 6, 29):
        with pytest.raises(IllegalStateError, match="is not held"):
            consumer.acknowledge(Record("jobs", 0, offset))
        with pytest.raises(IllegalStateError, match="is not held"):
            consumer.acknowledge("jobs", 0, offset)


@pytest.mark.parametrize("by", ["record", "offset", "list"])
def test_a_renewed_record_comes_back_as_it_was(make: Callable[..., Made], by: str) -> None:
    consumer, network = make(EXPLICIT, value_deserializer=lambda data: data.decode())
    network.gathers = True
    network.put(30)
    records = iter(consumer)
    work(consumer, records, 4)
    record = next(records)
    assert record.value == "v4"
    if by == "record":
        consumer.acknowledge(record, AcknowledgeType.RENEW)
    elif by == "offset":
        consumer.acknowledge("jobs", 0, 4, AcknowledgeType.RENEW)
    else:
        consumer.acknowledge([record], AcknowledgeType.RENEW)
    assert next(records) == record
    consumer.acknowledge(record)
    assert work(consumer, records, 3) == [5, 6, 7]
    assert words(network) == [*all_words(0, 1, 2, 3), (4, RENEW), (4, ACCEPT), *all_words(5, 6)]


@pytest.mark.parametrize("place", range(2, 10))
def test_a_record_that_is_renewed_behind_later_steps_comes_back_as_it_was(
    make: Callable[..., Made], place: int
) -> None:
    consumer, network = make(EXPLICIT, value_deserializer=lambda data: data.decode())
    network.gathers = True
    network.put(30)
    records = iter(consumer)
    seen = []
    for _ in range(10):
        seen.append(next(records))
        consumer.acknowledge(seen[-1])
    consumer.acknowledge(seen[place], AcknowledgeType.RENEW)
    assert next(records) == seen[place]


@pytest.mark.parametrize("settings", [{}, {"max.poll.records": 1}])
def test_a1_a_poll_of_one_returns_one_though_steps_may_follow_it(
    make: Callable[..., Made], settings: dict[str, Any]
) -> None:
    consumer, network = make({**EXPLICIT, **settings})
    network.gathers = True
    network.put(20)
    seen = []
    for _ in range(20):
        records = consumer.poll() if settings else consumer.poll(max_records=1)
        seen.append([each.offset for each in records])
        consumer.acknowledge(records)
    assert seen == [[offset] for offset in range(20)]


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_the_end_sends_what_was_said_and_nothing_of_those_that_follow(explicit: Made, end: str) -> None:
    consumer, network = explicit
    network.put(100)
    records = iter(consumer)
    work(consumer, records, 10)
    next(records)
    getattr(consumer, end)()
    said = words(network)
    assert said[:10] == all_words(*range(10))
    # Those that were not returned are released at once, or by the end of the session.
    assert said[10:] == ([(at, RELEASE) for at in range(11, 100)] if end == "unsubscribe" else [])


@pytest.mark.parametrize("call", ["commit", "commit_async"])
def test_a_commit_sends_the_last_word_and_leaves_a_record_without_one(explicit: Made, call: str) -> None:
    consumer, network = explicit
    network.put(100)
    records = iter(consumer)
    work(consumer, records, 10)
    getattr(consumer, call)()
    assert words(network) == all_words(*range(10))
    record = next(records)
    getattr(consumer, call)()
    assert words(network) == []
    consumer.acknowledge(record)
    assert work(consumer, records, 3) == [11, 12, 13]
    assert words(network) == [(10, ACCEPT), *all_words(11, 12)]


def test_a_poll_goes_on_behind_the_steps(explicit: Made) -> None:
    consumer, network = explicit
    network.put(300)
    work(consumer, iter(consumer), 10)
    records = consumer.poll(max_records=200)
    assert [each.offset for each in records] == list(range(10, 210))
    consumer.acknowledge(records)
    assert work(consumer, iter(consumer), 90) == list(range(210, 300))
    said = words(network)
    assert sorted(said) == sorted(
        [*all_words(*range(10)), *((at, ACCEPT) for at in range(10, 210)), *all_words(*range(210, 299))]
    )


def test_gaps_are_said_to_be_gaps_and_words_stay_with_their_records(explicit: Made) -> None:
    consumer, network = explicit
    network.put(10, acquired=[(0, 3, 1), (6, 9, 2)])
    assert work(consumer, iter(consumer), 8) == [0, 1, 2, 3, 6, 7, 8, 9]
    consumer.commit()
    assert words(network) == all_words(0, 1, 2, 3, 6, 7, 8, 9)


def test_metrics_and_stall_reports_know_of_steps(explicit: Made) -> None:
    consumer, network = explicit
    network.put(100)
    records = iter(consumer)
    holding = consumer._core.holding
    for count in (0, 1, 9):
        work(consumer, records, count)
        assert holding.in_hand() == (0, {})
        record = next(records)
        held, spans = holding.in_hand()
        assert (held, list(spans.values())) == (1, [range(record.offset, record.offset + 1)])
        consumer.acknowledge(record, KINDS[record.offset % 3])
    metrics = {name.name: value for name, value in consumer.metrics().items() if not name.tags.get("topic")}
    assert metrics["records-consumed-total"] == 13


def test_a_record_that_is_delivered_anew_replaces_the_one_that_a_step_returned(explicit: Made) -> None:
    consumer, network = explicit
    before = network.put(20)
    records = iter(consumer)
    work(consumer, records, 4)
    next(records)
    network.clock.advance(30_000)
    again = network.put(20, first=4, acquired=[(4, 9, 2)])
    with pytest.raises(IllegalStateError, match="at offset 4"):
        next(records)
    consumer.commit()
    network.said.clear()
    consumer.acknowledge("jobs", 0, 4)
    record = next(records)
    assert (record.offset, record.delivery_count) == (4, 2)
    consumer.acknowledge(record)
    consumer.commit()
    assert [fetch for event in network.said for fetch in event.fetches] == [before, again]


def test_a_deserialiser_that_refuses_a_record_is_handled_in_its_turn(make: Callable[..., Made]) -> None:
    def value_of(data: bytes) -> str:
        if data == b"v7":
            raise ValueError("bad")
        return data.decode()

    consumer, network = make(EXPLICIT, value_deserializer=value_of)
    network.gathers = True
    network.put(20)
    records = iter(consumer)
    assert work(consumer, records, 7) == list(range(7))
    with pytest.raises(RecordDeserializationError):
        next(records)
    consumer.acknowledge("jobs", 0, 7, AcknowledgeType.REJECT)
    assert work(consumer, records, 12) == list(range(8, 20))
    consumer.commit()
    assert words(network) == [*all_words(*range(7)), (7, REJECT), *all_words(*range(8, 20))]
    assert consumer._core.polls.begun < 20


def test_ctrl_c_at_any_line_of_a_whole_poll_loses_no_record_and_no_word_and_says_nothing_twice(
    make: Callable[..., Made],
) -> None:
    at, happened = 0, True
    while happened:
        at += 1
        consumer, network = make(EXPLICIT)
        network.gathers = True
        network.put(30)
        records = iter(consumer)
        seen = work(consumer, records, 10)
        network.state.attention.up = True
        interruption = Interruption(at)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            # Not next(): the interpreter looks for signals behind that call, too.
            for record in records:
                seen.append(record.offset)
                break
        happened = interruption.happened
        said = words(network)
        assert said == all_words(*[offset for offset, _ in said]), interruption.where
        if len(seen) == 11:
            consumer.acknowledge(record, KINDS[record.offset % 3])
        seen += work(consumer, records, 30 - len(seen))
        assert seen == list(range(30)), interruption.where
        consumer.commit()
        said += words(network)
        assert sorted(said) == all_words(*range(30)), interruption.where
    assert at > 20


def test_the_network_thread_takes_up_what_is_said_at_any_time(make: Callable[..., Made]) -> None:
    """Each word is said once, whoever says it, and none before the next step."""
    consumer, network = make(EXPLICIT)
    count = 60_000
    state, said, returned = network.state, list[tuple[int, int]](), -1
    is_over, early = threading.Event(), list[int]()

    def look() -> None:
        """As `ShareRequestManager.take_said` does."""
        while not is_over.is_set() or state.said:
            state.looks_soon = False
            found: list[tuple[int, int]] = []
            while state.said:
                for _fetch, ranges in state.said.popleft().items():  # noqa: PERF102 - not always a dict
                    found += [(at, kind) for first, last, kind in ranges for at in range(first, last + 1)]
            state.looks_soon = bool(found)
            at_most = returned
            early.extend(offset for offset, _ in found if offset > at_most)
            said.extend(found)

    thread = threading.Thread(target=look)
    # It looks by itself.
    wake, state._wake = state._wake, lambda: None
    thread.start()
    for first in range(0, count, 3_000):
        network.put(3_000, first=first)
    for record in consumer:
        returned = record.offset
        consumer.acknowledge(record, KINDS[returned % 3])
        if returned == count - 1:
            break
    consumer._core.polls.send_said()
    is_over.set()
    thread.join()
    state._wake = wake
    assert early == []
    assert sorted(said) == all_words(*range(count))


def test_steps_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    network = HandNetwork()
    network.gathers = True
    monkeypatch.setattr(async_share_consumer, "network_side", lambda config, around: (network.state, network))

    async def program() -> None:
        settings = {"bootstrap.servers": "nowhere:1", "group.id": "q", **EXPLICIT}
        consumer: AsyncShareConsumer[Any, Any] = AsyncShareConsumer(settings)
        async with consumer:
            await consumer.subscribe("jobs")
            network.put(200)
            async for record in consumer:
                consumer.acknowledge(record, KINDS[record.offset % 3])
                if record.offset == 149:
                    break
            assert consumer._core.polls.begun < 30

    asyncio.run(program())
    assert words(network) == all_words(*range(150))
