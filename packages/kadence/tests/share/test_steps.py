"""Steps of an iteration over a queue: what they return, what they accept, and who says it to the broker."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import Interruption
from tests.worlds.queue import ACCEPT, RELEASE, HandNetwork

from kadence import AsyncShareConsumer, Record, ShareConsumer
from kadence.errors import IllegalStateError, RecordDeserializationError
from kadence.share import async_share_consumer

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


@pytest.fixture
def gathering(made: Made) -> Made:
    """Its network thread looks for what polls say by itself."""
    made[1].gathers = True
    return made


def offsets(records: Iterator[Record[Any, Any]], count: int) -> list[int]:
    return [next(records).offset for _ in range(count)]


def accepted(network: HandNetwork) -> list[int]:
    """Offsets that were accepted since the last look, in the order in which that was said. Nothing else is said."""
    said = network.taken()
    assert {kind for _, _, _, kind in said} <= {ACCEPT}
    return [offset for _, first, last, _ in said for offset in range(first, last + 1)]


def test_an_iteration_takes_few_whole_polls(gathering: Made) -> None:
    consumer, network = gathering
    network.put(1_000)
    assert offsets(iter(consumer), 1_000) == list(range(1_000))
    assert consumer._core.polls.begun < 30
    assert accepted(network) == list(range(999))


def test_a_step_accepts_the_records_before_it_and_waits_for_no_poll_to_say_so(gathering: Made) -> None:
    consumer, network = gathering
    network.put(100)
    records = iter(consumer)
    said, returned = list[int](), 0
    for count in (1, 2, 1, 7, 1, 20, 3, 1):
        offsets(records, count)
        returned += count
        said += accepted(network)
        assert said == list(range(returned - 1))
    assert consumer._core.polls.begun < returned - 20


def test_time_ends_the_steps_so_that_the_poll_timer_knows_of_each_poll(gathering: Made) -> None:
    consumer, network = gathering
    network.put(100)
    records = iter(consumer)
    offsets(records, 10)
    begun = consumer._core.polls.begun
    network.clock.advance(1)
    offsets(records, 1)
    assert consumer._core.polls.begun == begun + 1
    assert network.state.progress.processing_since(network.clock.now_ms()) == network.clock.now_ms()


@pytest.mark.parametrize("end", ["close", "unsubscribe"])
def test_the_end_accepts_neither_the_last_record_nor_those_that_follow_it(gathering: Made, end: str) -> None:
    consumer, network = gathering
    network.put(100)
    offsets(iter(consumer), 10)
    getattr(consumer, end)()
    said = network.taken()
    assert [each for each in said if each[3] == ACCEPT][-1][2] == 8
    assert not [each for each in said if each[1] <= 9 <= each[2]]
    # Those that were not returned are released at once, or by the end of the session.
    assert [each[1:3] for each in said if each[3] == RELEASE] == ([(10, 99)] if end == "unsubscribe" else [])


def test_another_subscription_releases_what_no_step_returned_and_the_next_poll_accepts_the_rest(
    gathering: Made,
) -> None:
    consumer, network = gathering
    network.put(100)
    offsets(iter(consumer), 10)
    consumer.subscribe("others")
    assert ("jobs", 10, 99, RELEASE) in network.taken()
    network.put(1, topic="others")
    [record] = consumer.poll()
    assert record.topic == "others"
    assert accepted(network) == [9]


@pytest.mark.parametrize("call", ["commit", "commit_async"])
def test_a_commit_accepts_the_last_record_too(gathering: Made, call: str) -> None:
    consumer, network = gathering
    network.put(100)
    records = iter(consumer)
    offsets(records, 10)
    getattr(consumer, call)()
    assert accepted(network) == list(range(10))
    assert offsets(records, 10) == list(range(10, 20))
    assert accepted(network) == list(range(10, 19))


def test_q3_the_pace_is_counted_from_when_the_last_record_was_returned(gathering: Made) -> None:
    consumer, network = gathering
    fetch = network.put(100)
    offsets(iter(consumer), 10)
    returned_at = network.clock.now_ms()
    network.clock.advance(10_000)
    consumer.commit()
    assert (fetch.taken_at, fetch.left) == (returned_at, 90)


def test_a_poll_goes_on_behind_the_steps(gathering: Made) -> None:
    consumer, network = gathering
    network.put(300)
    offsets(iter(consumer), 10)
    assert [each.offset for each in consumer.poll(max_records=200)] == list(range(10, 210))
    assert accepted(network) == list(range(10))
    assert [each.offset for each in consumer.poll()] == list(range(210, 300))


def test_stop_ends_the_steps(gathering: Made) -> None:
    consumer, network = gathering
    network.put(100)
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if record.offset == 9:
            consumer.stop()
    assert seen == list(range(10))
    assert accepted(network) == list(range(10))


def test_another_thread_takes_no_steps(gathering: Made) -> None:
    consumer, network = gathering
    network.put(100)
    records = iter(consumer)
    offsets(records, 10)
    begun = consumer._core.polls.begun
    thread = threading.Thread(target=offsets, args=(records, 1))
    thread.start()
    thread.join()
    assert consumer._core.polls.begun == begun + 1
    assert offsets(records, 1) == [11]
    assert accepted(network) == list(range(11))


def test_a_step_returns_no_record_whose_locks_are_void(gathering: Made) -> None:
    consumer, network = gathering
    fetch = network.put(100)
    records = iter(consumer)
    offsets(records, 10)
    fetch.void = RecordDeserializationError("of the connection")
    network.state.alert()
    network.put(1, first=500)
    assert offsets(records, 1) == [500]


def test_without_renewal_each_step_sends_what_it_accepts(make: Callable[..., Made]) -> None:
    consumer, network = make({"share.lock.renewal": False})
    network.gathers = True
    network.put(10)
    offsets(iter(consumer), 5)
    assert [list(each.fetches.values()) for each in network.said] == [[((n, n, ACCEPT),)] for n in range(4)]


def test_gaps_are_not_accepted(gathering: Made) -> None:
    consumer, network = gathering
    network.put(10, acquired=[(0, 3, 1), (6, 9, 2)])
    records = iter(consumer)
    assert [(each.offset, each.delivery_count) for each in (next(records) for _ in range(7))] == [
        *((offset, 1) for offset in (0, 1, 2, 3)),
        *((offset, 2) for offset in (6, 7, 8)),
    ]
    assert accepted(network) == [0, 1, 2, 3, 6, 7]


def test_metrics_and_stall_reports_know_of_steps(gathering: Made) -> None:
    consumer, network = gathering
    network.put(100)
    offsets(iter(consumer), 10)
    metrics = {name.name: value for name, value in consumer.metrics().items() if not name.tags.get("topic")}
    assert metrics["records-consumed-total"] == 10
    count, spans = consumer._core.holding.in_hand()
    assert (count, list(spans.values())) == (1, [range(9, 10)])


# ------------------------------------------------------------ deserialisers


def test_a_step_runs_the_deserialisers_and_what_they_refuse_is_handled_in_its_turn(
    make: Callable[..., Made],
) -> None:
    seen: list[bytes] = []

    def value_of(data: bytes) -> str:
        seen.append(data)
        if data == b"v7":
            raise ValueError("bad")
        return data.decode()

    consumer, network = make(value_deserializer=value_of)
    network.gathers = True
    network.put(20)
    records = iter(consumer)
    for number in range(7):
        assert next(records).value == f"v{number}"
        assert len(seen) == number + 1, "none is decoded ahead"
    with pytest.raises(RecordDeserializationError):
        next(records)
    assert seen.count(b"v7") == 1
    assert [next(records).offset for _ in range(12)] == list(range(8, 20))
    said = network.taken()
    assert ("jobs", 7, 7, RELEASE) in said
    assert [o for _, a, b, kind in said if kind == ACCEPT for o in range(a, b + 1)] == [
        *range(7),
        *range(8, 19),
    ]
    assert consumer._core.polls.begun < 20


def test_a_deserialiser_that_polls_inside_a_step_is_refused(make: Callable[..., Made]) -> None:
    errors: list[BaseException] = []

    def value_of(data: bytes) -> bytes:
        if data == b"v9":
            try:
                consumer.poll()
            except IllegalStateError as error:
                errors.append(error)
        return data

    consumer, network = make(value_deserializer=value_of)
    network.gathers = True
    network.put(20)
    assert offsets(iter(consumer), 20) == list(range(20))
    assert len(errors) == 1
    assert accepted(network) == list(range(19))


# ------------------------------------------------------------ interruptions, threads and tasks


def test_ctrl_c_at_any_line_of_a_step_loses_no_record_and_accepts_each_once_and_none_too_early(
    make: Callable[..., Made],
) -> None:
    at, happened = 0, True
    while happened:
        at += 1
        consumer, network = make()
        network.gathers = True
        network.put(30)
        records = iter(consumer)
        seen = offsets(records, 10)
        # The next one is a whole poll, which takes up what steps have returned.
        network.state.attention.up = True
        interruption = Interruption(at)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            # Not next(): the interpreter looks for signals behind that call, too.
            for record in records:
                seen.append(record.offset)
                break
        happened = interruption.happened
        said = accepted(network)
        # The step that was interrupted had begun.
        assert max(said, default=0) <= 9, interruption.where
        seen += offsets(records, 30 - len(seen))
        assert seen == list(range(30)), interruption.where
        said += accepted(network)
        assert sorted(said) == list(range(29)), interruption.where
    assert at > 20


def test_the_network_thread_takes_up_what_steps_accept_at_any_time(made: Made) -> None:
    """Each record is accepted once, whoever says it, and none before the next step."""
    consumer, network = made
    count = 60_000
    state, said, returned = network.state, list[int](), -1
    is_over, early = threading.Event(), list[tuple[int, int]]()

    def look() -> None:
        """As `ShareRequestManager.take_said` does."""
        while not is_over.is_set() or state.said:
            state.looks_soon = False
            found: list[tuple[int, int]] = []
            while state.said:
                for _fetch, ranges in state.said.popleft().items():  # noqa: PERF102 - not always a dict
                    found += [(each.first, each.last) for each in ranges]
            state.looks_soon = bool(found)
            at_most = returned
            early.extend(each for each in found if each[1] > at_most)
            said.extend(offset for first, last in found for offset in range(first, last + 1))

    thread = threading.Thread(target=look)
    # It looks by itself.
    wake, state._wake = state._wake, lambda: None
    thread.start()
    for first in range(0, count, 3_000):
        network.put(3_000, first=first)
    for record in consumer:
        returned = record.offset
        if returned == count - 1:
            break
    consumer._core.polls.send_said()
    is_over.set()
    thread.join()
    state._wake = wake
    assert early == []
    assert sorted(said) == list(range(count - 1))


def test_steps_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    network = HandNetwork()
    network.gathers = True
    monkeypatch.setattr(async_share_consumer, "network_side", lambda config, around: (network.state, network))

    async def program() -> list[int]:
        seen: list[int] = []
        settings = {"bootstrap.servers": "nowhere:1", "group.id": "q"}
        consumer: AsyncShareConsumer[Any, Any] = AsyncShareConsumer(settings)
        async with consumer:
            await consumer.subscribe("jobs")
            network.put(200)
            async for record in consumer:
                seen.append(record.offset)
                if len(seen) == 150:
                    break
            assert consumer._core.polls.begun < 30
        return seen

    assert asyncio.run(program()) == list(range(150))
    assert accepted(network) == list(range(149))
