"""Ctrl-C at any point of a poll loses no record and returns none twice (C7)."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import dis
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

import pytest
from tests.consumer.support import read

import kadence
from kadence import AsyncConsumer, Broker, Consumer, Interceptor, Producer, Record, TopicPartition
from kadence.consumer.fetch import _iteration
from kadence.consumer.fetch.fetch_collector import Iteration

PARTITION = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
COUNT = 3_000
STRIDE = 7
"""1 tries every step; it takes a minute."""

T = TypeVar("T")

BY_OPCODE = (
    "consumer/application/core.py",
    "consumer/application/calls.py",
    "consumer/application/arrow_polls.py",
    "consumer/fetch/columns.py",
    "consumer/fetch/decoding.py",
    "consumer/fetch/_fetch_collector.py",
    "consumer/fetch/_partition_reader.py",
    "consumer/fetch/_steps.py",
    "consumer/fetch/_iteration.py",
    "consumer/_decoded_records.py",
    "kadence/records/_fetched.py",
)
"""Where the signal is tried at each instruction. In the shells it is at each line: their last instruction hands over
the result, and the interpreter looks for signals at calls only."""
BY_LINE = (
    "consumer/consumer.py",
    "consumer/async_consumer.py",
    "client/waits.py",
    "consumer/application/shell.py",
    "consumer/fetch/_steps.py",
    "consumer/fetch/_iteration.py",
)

NOWHERE = frozenset(("NOP", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "CALL_INTRINSIC_1"))
"""No signal is looked for here. An error that tracing raises at a NOP may pass by all handlers around it. At
PUSH_EXC_INFO and POP_EXCEPT it stays the thread's current one for ever, and every later error of the process tells of
it. The last two end a generator that is let go, which loses any other error."""

STEPS = ("poll", "poll_arrow", "_run", "run", "_next", "Iteration.__next__")


def are_there(parts: tuple[str, ...]) -> bool:
    """Whether each names a file of ours: an interruption is tried nowhere in a file that has moved."""
    files = [path.as_posix() for path in Path(kadence.__file__).parent.rglob("*.py")]
    return all(any(path.endswith(part) for path in files) for part in parts)


def test_all_parts_in_which_it_is_tried_are_there() -> None:
    assert are_there((*BY_OPCODE, *BY_LINE))
    assert not are_there(("consumer/application/moved.py",))


class Interruption:
    """Delivers one SIGINT, at the ``at``-th traced step of the block. ``happened`` says that there was such a step."""

    def __init__(self, at: int, by_opcode: tuple[str, ...] = BY_OPCODE) -> None:
        self._left = at
        self._by_opcode = by_opcode
        self.happened = False
        self.where = ""

    def __enter__(self) -> Self:
        # Python 3.12 traces instructions only if a frame asked for it before the trace began.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Callable[..., Any] | None:
        path = frame.f_code.co_filename
        if path.endswith(self._by_opcode) and not frame.f_code.co_qualname.startswith("Iteration."):
            frame.f_trace_opcodes = True
            if event == "opcode":
                self._step(frame)
            return self._trace
        if path.endswith(BY_LINE) and {frame.f_code.co_name, frame.f_code.co_qualname} & set(STEPS):
            if event == "line":
                self._step(frame)
            return self._trace
        return None

    def _step(self, frame: FrameType) -> None:
        self._left -= 1
        if self._left == 0:
            code = frame.f_code
            # What has no line the compiler added, to end handlers and generators. No signal is looked for there either.
            if frame.f_lineno is None or dis.opname[code.co_code[frame.f_lasti]] in NOWHERE:
                self._left = 1
                return
            self.where = f"{code.co_qualname}, line {frame.f_lineno}, instruction {frame.f_lasti}"
            self.happened = True
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)


@pytest.fixture
def served(broker: Broker) -> Broker:
    broker.create_topic("t", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send("t", b"%d" % number, partition=number % 2)
    return broker


def consumer(broker: Broker, **settings: Any) -> Consumer:
    return Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", **settings)


def complete(found: dict[int, list[int]]) -> bool:
    """Each partition's offsets from 0 on, in order, none missing and none twice."""
    return all(offsets == list(range(len(offsets))) for offsets in found.values())


def interrupt_everywhere(
    poll: Callable[[], T],
    places: Callable[[T], list[tuple[int, int]]],
    read_on: Callable[[], T],
    look: Callable[[], None] | None = None,
    *,
    in_python: bool = True,
) -> None:
    """Interrupt one poll at a step, the next some steps later, and so on to the last; then read all there is.

    Args:
        look: makes the next poll look at everything. None: a poll of what is at hand may do without (`fetch._steps`).
        in_python: each poll runs a line of Python. A poll in C alone cannot be interrupted, so polls are tried until
            one has something to look at, which may not happen.
    """
    found: dict[int, list[int]] = {0: [], 1: []}

    def note(got: list[tuple[int, int]]) -> None:
        for partition, offset in got:
            expected = len(found[partition])
            assert offset == expected, f"{offset} instead of {expected} after an interruption in {where}"
            found[partition].append(offset)

    at, where, was_interrupted, happened = 0, "", True, 0
    tries = 0
    while was_interrupted or (not in_python and not happened and tries < 20):
        tries += 1
        if was_interrupted:
            at += 1 if look is None else STRIDE
        note(places(poll()))  # fills the buffer, so that the next poll is served from there
        if look is not None:
            look()
        interruption = Interruption(at)
        got: T | None = None
        with contextlib.suppress(KeyboardInterrupt, TimeoutError), interruption:
            got = poll()
        was_interrupted, where = interruption.happened or got is None, interruption.where
        happened += interruption.happened
        if got is not None:
            note(places(got))
    if in_python:
        assert happened > 0 if look is None else at > 100
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


@EITHER_WAY
@pytest.mark.parametrize("iterates", [False, True], ids=["poll", "iteration"])
def test_c7_a_handler_that_raises_any_error_loses_no_record(
    served: Broker, iterates: bool, by_steps: bool
) -> None:
    """As those do that bound a block of code by an alarm."""

    def too_late(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGINT, too_late)
    try:
        with consumer(served) as subject:
            subject.assign([PARTITION, OTHER])

            def poll() -> Iterable[Record]:
                return [next(subject)] if iterates else subject.poll(5, max_records=3)

            interrupt_everywhere(
                poll, places, lambda: subject.poll(5), None if by_steps else looks_at_everything(subject)
            )
    finally:
        signal.signal(signal.SIGINT, before)


@EITHER_WAY
@pytest.mark.parametrize("how", ["next", "for"])
@pytest.mark.parametrize("settings", [{}, {"interceptors": [Interceptor]}], ids=["bytes", "intercepted"])
def test_c7_ctrl_c_anywhere_in_an_iteration_loses_no_record(
    served: Broker, settings: dict[str, Any], how: str, by_steps: bool
) -> None:
    with consumer(served, **settings) as subject:
        subject.assign([PARTITION, OTHER])
        records: Iterator[Record] = subject if how == "next" else iter(subject)
        interrupt_everywhere(
            lambda: [next(records)],
            places,
            lambda: list(subject.poll(5)),
            None if by_steps else looks_at_everything(subject),
            in_python=how == "next" or not by_steps or Iteration is _iteration.Iteration,
        )


class Pending:
    """When one goes, a signal has come that nobody has looked for yet."""

    __del__ = staticmethod(_thread.interrupt_main)


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
        )
        loop.run_until_complete(subject.close())
    finally:
        loop.close()


def test_c7_what_was_put_back_is_not_committed(served: Broker) -> None:
    """An interruption between taking and returning: close() commits what was returned before, and nothing else."""
    with consumer(served, group_id="g") as subject:
        subject.assign([PARTITION])
        read(subject, 3, max_records=3)
        at = 0
        while True:
            at += 1
            interruption = Interruption(at)
            before = subject.position(PARTITION)
            try:
                with interruption:
                    subject.poll(5, max_records=3)
            except KeyboardInterrupt:
                assert subject.position(PARTITION) == before
            else:
                break
        returned = subject.position(PARTITION)
    with consumer(served, group_id="g") as after:
        found = after.committed([PARTITION])[PARTITION]
        assert found is not None
        assert found.offset == returned


class SecondCtrlC:
    """Interrupts the ``at``-th instruction of what puts back, which runs because a first Ctrl-C came."""

    def __init__(self, subject: Consumer, at: int) -> None:
        self._left = at
        self._poll_buffered = subject._calls.poll_buffered
        self._putting_back = False
        subject._calls.poll_buffered = self._interrupted  # type: ignore[method-assign]
        self._subject = subject
        self.happened = False

    def _interrupted(self, max_records: int | None) -> Any:
        self._poll_buffered(max_records)
        self._subject._calls.poll_buffered = self._poll_buffered  # type: ignore[method-assign]
        self._putting_back = True
        raise KeyboardInterrupt("the first")

    def __enter__(self) -> Self:
        # Python 3.12 traces instructions only if a frame asked for it before the trace began.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_exc: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Callable[..., Any] | None:
        if not self._putting_back or not frame.f_code.co_filename.endswith(BY_OPCODE):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            self._left -= 1
            if self._left == 0 and dis.opname[frame.f_code.co_code[frame.f_lasti]] in NOWHERE:
                self._left = 1
            elif self._left == 0:
                self.happened = True
                sys.settrace(None)
                raise KeyboardInterrupt("the second")
        return self._trace


@pytest.mark.parametrize("kind", ["records", "columns"])
def test_c7_a_second_ctrl_c_while_a_poll_is_put_back_loses_no_record(served: Broker, kind: str) -> None:
    def some(subject: Consumer) -> list[int]:
        if kind == "records":
            return [record.offset for record in subject.poll(5, max_records=3)]
        offsets: list[int] = subject.poll_arrow(5, max_records=3)["offset"].to_pylist()
        return offsets

    at, found, happened = 0, 0, True
    with consumer(served) as subject:
        subject.assign([PARTITION])
        while happened:
            at += 1
            offsets = some(subject)
            assert offsets == list(range(found, found + len(offsets)))
            found += len(offsets)
            looks_at_everything(subject)()
            second = SecondCtrlC(subject, at)
            with contextlib.suppress(KeyboardInterrupt), second:
                subject.poll(5, max_records=3)
            happened = second.happened
            assert subject.position(PARTITION) == found
    assert at > 20
