"""Ctrl-C at any line of a poll loses no record and returns none twice (C7). What is compiled cannot be interrupted."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

import pytest
from tests.consumer.support import read

import kadence
from kadence import AsyncConsumer, Broker, Consumer, Interceptor, Producer, Record, TopicPartition

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
COUNT = 3_000

T = TypeVar("T")

SOURCE = str(Path(kadence.__file__).parent)


class Pending:
    """When one goes, a signal has come that nobody has looked for yet."""

    __del__ = staticmethod(_thread.interrupt_main)


class Interruption:
    """Ctrl-C comes at the ``at``-th line of ours that the block runs. ``happened`` says that there was such a line.

    The interpreter looks for it at the next call, jump back or beginning of a function, as it always does.

    Args:
        within: where ours are. at_once: the line itself raises, since others would be the next to look.
    """

    def __init__(self, at: int, within: str | tuple[str, ...] = SOURCE, *, at_once: bool = False) -> None:
        self._left = at
        self._within = within
        self._at_once = at_once
        self.happened = False
        self.where = ""

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(self._within):
            return None
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.happened = True
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                sys.settrace(None)
                if self._at_once:
                    raise KeyboardInterrupt
                late = Pending()  # noqa: F841 - it goes with this frame
        return self._trace


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send("t", b"%d" % number, partition=number % 2)
    return broker


def consumer(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings)


def interrupt_everywhere(
    poll: Callable[[], T],
    places: Callable[[T], list[tuple[int, int]]],
    read_on: Callable[[], T],
    look: Callable[[], None] | None = None,
    interruption_at: Callable[[int], Interruption] = Interruption,
) -> None:
    """Interrupt one poll at its first line, the next at its second, and so on to the last; then read all there is.

    Args:
        look: makes the next poll look at everything. None: a poll of what is at hand may do without (`fetch._steps`).
    """
    found: dict[int, list[int]] = {0: [], 1: []}

    def note(got: list[tuple[int, int]]) -> None:
        for partition, offset in got:
            expected = len(found[partition])
            assert offset == expected, f"{offset} instead of {expected} after an interruption in {where}"
            found[partition].append(offset)

    at, where, happened = 0, "", True
    while happened:
        at += 1
        note(places(poll()))  # fills the buffer, so that the next poll is served from there
        if look is not None:
            look()
        interruption = interruption_at(at)
        got: T | None = None
        with contextlib.suppress(KeyboardInterrupt), interruption:
            got = poll()
        happened, where = interruption.happened, interruption.where
        if got is not None:
            note(places(got))
    assert at > (1 if look is None else 20)
    while sum(map(len, found.values())) < COUNT:
        note(places(read_on()))


def looks_at_everything(subject: Consumer | AsyncConsumer) -> Callable[[], None]:
    """The next poll finds that something may have changed."""

    def raise_attention() -> None:
        subject._core._shared_state.attention.up = True

    return raise_attention


EITHER_WAY = pytest.mark.parametrize("by_steps", [False, True], ids=["looking", "step"])


def places(records: Iterable[Record]) -> list[tuple[int, int]]:
    return [(record.partition, record.offset) for record in records]


@EITHER_WAY
@pytest.mark.parametrize(
    "settings",
    [{}, {"value_deserializer": bytes.decode}, {"interceptors": [Interceptor]}],
    ids=["bytes", "decoded", "intercepted"],
)
def test_c7_ctrl_c_anywhere_in_a_poll_loses_no_record(
    served: Broker, settings: dict[str, Any], by_steps: bool
) -> None:
    with consumer(served, **settings) as subject:
        subject.assign([PARTITION, OTHER])
        interrupt_everywhere(
            lambda: subject.poll(5, max_records=3),
            places,
            lambda: subject.poll(5),
            None if by_steps else looks_at_everything(subject),
        )


def test_c7_ctrl_c_anywhere_in_an_iteration_loses_no_record(served: Broker) -> None:
    def one() -> Iterable[Record]:
        # Not next(): the interpreter looks for signals after it, and nobody has the record yet.
        for record in subject:
            return [record]
        return []

    with consumer(served) as subject:
        subject.assign([PARTITION, OTHER])
        interrupt_everywhere(one, places, lambda: subject.poll(5), looks_at_everything(subject))


def test_c7_ctrl_c_between_the_call_that_took_a_record_and_the_yield_loses_none(served: Broker) -> None:
    with consumer(served) as subject:
        subject.assign([PARTITION])
        take, calls = subject._next, 0

        def interrupted(deadline: int) -> Record | None:
            nonlocal calls
            calls += 1
            late = Pending() if calls == 3 else None  # noqa: F841 - it goes with this frame
            return take(deadline)

        subject._next = interrupted  # type: ignore[method-assign]
        found: list[Record] = []
        with contextlib.suppress(KeyboardInterrupt):
            found.extend(subject.records())
        assert calls == 3
        assert subject.position(PARTITION) == len(found) == 3


def test_c7_ctrl_c_anywhere_in_poll_arrow_loses_no_row(served: Broker) -> None:
    pytest.importorskip("pyarrow")

    def rows(table: Any) -> list[tuple[int, int]]:
        return list(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))

    with consumer(served) as subject:
        subject.assign([PARTITION, OTHER])
        interrupt_everywhere(
            lambda: subject.poll_arrow(5, max_records=3),
            rows,
            lambda: subject.poll_arrow(5),
            looks_at_everything(subject),
        )


def test_c7_ctrl_c_anywhere_in_an_awaited_poll_loses_no_record(served: Broker) -> None:
    async def start() -> AsyncConsumer:
        subject = AsyncConsumer(bootstrap_servers=served.bootstrap_servers, auto_offset_reset="earliest")
        await subject.assign([PARTITION, OTHER])
        return subject

    # A bare loop: under asyncio.run() Ctrl-C cancels the task instead, which an await alone can notice.
    loop = asyncio.new_event_loop()
    try:
        subject = loop.run_until_complete(start())
        interrupt_everywhere(
            lambda: loop.run_until_complete(subject.poll(5, max_records=3)),
            places,
            lambda: loop.run_until_complete(subject.poll(5)),
            looks_at_everything(subject),
            lambda at: Interruption(at, SOURCE + "/consumer/application/polls.py", at_once=True),
        )
        loop.run_until_complete(subject.close())
    finally:
        loop.close()


def test_c7_what_was_put_back_is_not_committed(served: Broker) -> None:
    """An interruption between taking and returning: close() commits what was returned before, and nothing else."""
    with consumer(served, group_id="g") as subject:
        subject.assign([PARTITION])
        read(subject, 3, max_records=3)
        poll_buffered = subject._calls.poll_buffered

        def interrupted(timeout: Any, max_records: int | None) -> Any:
            assert poll_buffered(timeout, max_records)
            raise KeyboardInterrupt

        subject._calls.poll_buffered = interrupted  # type: ignore[method-assign]
        looks_at_everything(subject)()
        with pytest.raises(KeyboardInterrupt):
            subject.poll(5, max_records=3)
        returned = subject.position(PARTITION)
    with consumer(served, group_id="g") as after:
        found = after.committed([PARTITION])[PARTITION]
        assert found is not None
        assert found.offset == returned == 3
