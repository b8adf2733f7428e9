"""Ctrl-C at any line of a poll of a queue, and once more at any line of what then puts its records back (C7, Q4)."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from tests.consumer.application.test_interrupted import SOURCE, Interruption, Pending
from tests.worlds.queue import ACCEPT, REJECT, RELEASE, RENEW, HandNetwork

from kadence import AcknowledgeType, Record, ShareConsumer
from kadence.clock import FOREVER
from kadence.errors import RecordDeserializationError
from kadence.records import encode_batch
from kadence.share.acknowledgements import GAP

Made = tuple[ShareConsumer[Any, Any], HandNetwork]
Poll = Callable[[ShareConsumer[Any, Any]], Any]

EXPLICIT = {"share.acknowledgement.mode": "explicit"}
RECORDS = (*range(4), *range(6, 12), *range(16, 24))
GAPS = (4, 5, 14, 15)

STRIDE = 101
MOST_LINES = 700

OURS = tuple(
    f"{SOURCE}/{each}"
    for each in (
        "share/application",
        "share/share_consumer.py",
        "share/acquired_reader.py",
        "consumer/application",
    )
)
"""What runs on the application's thread alone: the network that is played by hand runs there, too."""


class Again:
    """Ctrl-C at the ``at``-th line of what puts records back, in all calls of it together.

    Attributes:
        lines: how many lines it had, up to that one. where: that one. has_taken: there was something to put back.
    """

    def __init__(self, consumer: ShareConsumer[Any, Any], at: int) -> None:
        self.lines = 0
        self.where = ""
        self.has_taken = False
        self._at = at
        self._core = consumer._core
        self._put_back = self._core.polls.put_back
        self._core.polls.put_back = self._traced  # type: ignore[method-assign]

    def _traced(self, begun: int | None) -> None:
        self.has_taken |= bool(self._core.buffer._taken or self._core.polls._renewed)
        if not self.where:
            sys.settrace(self._trace)
        try:
            self._put_back(begun)
        finally:
            sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _arg: Any) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                sys.settrace(None)
                late = Pending()  # noqa: F841 - it goes with this frame
        return self._trace


def by_records(consumer: ShareConsumer[Any, Any]) -> Any:
    return consumer.poll(max_records=10)


def by_rows(consumer: ShareConsumer[Any, Any]) -> Any:
    return consumer.poll_arrow(max_records=10)


def by_iteration(consumer: ShareConsumer[Any, Any]) -> Any:
    # Not next(): the interpreter looks for signals behind that call, too.
    for record in consumer:
        return [record]
    return None


def offsets_of(found: Any) -> list[int]:
    if found is None:
        return []
    return found.column("offset").to_pylist() if hasattr(found, "column") else [each.offset for each in found]


def fetched(network: HandNetwork) -> None:
    """A fetch with compacted offsets, of which not all were acquired."""
    rows: list[Any] = [(1_000, None, b"v", [])]
    data = b"".join(
        encode_batch(rows * count, base_offset=first) for first, count in ((0, 4), (6, 8), (16, 8))
    )
    network.put([], data=data, acquired=[(0, 7, 1), (8, 11, 2), (14, 23, 1)])


class Story:
    """A consumer with one fetch, of which one call is interrupted.

    Args:
        renews: the first records were returned, and are renewed: the next poll returns these alone.
    """

    def __init__(self, made: Made, *, renews: bool = False) -> None:
        self.consumer, self.network = made
        self.network.gathers = True
        self.explicit = self.consumer._config.is_explicit
        self.seen: list[int] = []
        fetched(self.network)
        [self.fetch] = self.network.state.acquired_fetches
        if renews:
            self.consumer.acknowledge(self.consumer.poll(max_records=3), type=AcknowledgeType.RENEW)
        self.network.state.attention.up = True

    def interrupted(self, poll: Poll, at: int, again: int) -> tuple[Interruption, Again]:
        """Interrupt a poll so, then read all there is, and look at what was returned, said and counted."""
        consumer, found = self.consumer, None
        first, second = Interruption(at, OURS), Again(consumer, again)
        with contextlib.suppress(KeyboardInterrupt), first:
            found = poll(consumer)
        where = f"{first.where} and {second.where}"
        assert bool(second.where) is bool(again), where
        empty = 0
        while empty < 3:
            for offset in offsets_of(found):
                self.seen.append(offset)
                if self.explicit:
                    consumer.acknowledge("jobs", 0, offset, AcknowledgeType.ACCEPT)
            found = by_records(consumer)
            # A poll without any time may have only sent what it would wait for.
            empty = 0 if found else empty + 1
        consumer.commit()
        assert self.seen == list(RECORDS), where
        said = [(at, kind) for _, first, last, kind in self.network.taken() for at in range(first, last + 1)]
        expected = [*((at, ACCEPT) for at in RECORDS), *((at, GAP) for at in GAPS)]
        assert sorted(each for each in said if each[1] != RENEW) == sorted(expected), where
        counted = self.network.state.measures.poll_measures.topic("jobs").records.total
        assert (self.fetch.left, consumer._core.holding.in_hand()[0], counted) == (0, 0, len(RECORDS)), where
        return first, second


POLLS = {"records": by_records, "rows": by_rows, "iteration": by_iteration}


@pytest.mark.parametrize(
    ("by", "settings"),
    [
        pytest.param(by, settings, id=f"{by}-{mode}", marks=[pytest.mark.heavy] * (mode != in_short))
        for by, in_short in {"records": "implicit", "rows": "explicit", "iteration": "implicit"}.items()
        for mode, settings in {"implicit": {}, "explicit": EXPLICIT}.items()
    ],
)
def test_c7_ctrl_c_once_or_twice_at_any_line_of_a_poll_loses_nothing_and_says_nothing_twice(
    make: Callable[..., Made], by: str, settings: dict[str, Any]
) -> None:
    everywhere(lambda at, again: Story(make(settings)).interrupted(POLLS[by], at, again))


@pytest.mark.parametrize(
    ("by", "settings"), [("records", {}), ("iteration", EXPLICIT)], ids=["records", "iteration"]
)
def test_c7_the_same_with_deserialisers(make: Callable[..., Made], by: str, settings: dict[str, Any]) -> None:
    everywhere(
        lambda at, again: Story(make(settings, value_deserializer=bytes.decode)).interrupted(
            POLLS[by], at, again
        )
    )


def test_c7_the_same_of_records_that_were_renewed(make: Callable[..., Made]) -> None:
    everywhere(lambda at, again: Story(make(EXPLICIT), renews=True).interrupted(by_records, at, again))


@pytest.mark.parametrize(
    ("policy", "settings"),
    [("reject", {}), ("raise", {}), ("raise", EXPLICIT)],
    ids=["reject", "raise", "explicit"],
)
def test_c7_ctrl_c_at_any_line_says_nothing_twice_of_bad_records_and_raises_each_once(
    make: Callable[..., Made], policy: str, settings: dict[str, Any]
) -> None:
    def value_of(data: bytes) -> bytes:
        if data in (b"v3", b"v4"):
            raise ValueError(data)
        return data

    at, happened = 0, True
    while happened:
        at += 1
        made = make({**settings, "deserialization.errors": policy}, value_deserializer=value_of)
        consumer, network = made
        network.put(6)
        found: list[list[int]] = []
        raised: list[int] = []
        interruption = Interruption(at, OURS)
        while len(found) < 3:
            records: Any = None
            try:
                with (
                    interruption
                    if not (interruption.happened or raised or found[1:])
                    else contextlib.nullcontext()
                ):
                    records = consumer.poll()
            except KeyboardInterrupt as interrupt:
                # It may come behind the error.
                if isinstance(interrupt.__context__, RecordDeserializationError):
                    raised.append(interrupt.__context__.offset)
            except RecordDeserializationError as error:
                raised.append(error.offset)
            if records is not None:
                found.append(offsets_of(records))
                if settings:
                    consumer.acknowledge(records)
        happened = interruption.happened
        consumer.commit()
        where = interruption.where
        said = [(at, kind) for _, first, last, kind in network.taken() for at in range(first, last + 1)]
        kind = REJECT if policy == "reject" else RELEASE
        assert [offset for each in found for offset in each] == [0, 1, 2, 5], where
        assert sorted(said) == sorted([*((at, ACCEPT) for at in (0, 1, 2, 5)), (3, kind), (4, kind)]), where
        assert raised == ([] if policy == "reject" else [3, 4]), where
    assert at > 100


def everywhere(one: Callable[[int, int], tuple[Interruption, Again]]) -> None:
    at, most, happened = 0, 0, True
    while happened:
        at += 1
        first, second = one(at, 0)
        happened, lines = first.happened, second.lines
        if second.has_taken:
            most = max(most, lines)
            # The lines take turns: each comes with every few of the first ones.
            for again in range(1 + at % STRIDE, lines + 1, STRIDE):
                one(at, again)
    assert at > 20
    assert most > 20, "nothing was put back"


def test_c7_a_subscription_that_changes_in_the_midst_of_a_poll_releases_what_the_poll_took(
    make: Callable[..., Made],
) -> None:
    def value_of(data: bytes) -> bytes:
        if data == b"v9":
            consumer.subscribe("others")
            raise KeyboardInterrupt
        return data

    consumer, network = make(value_deserializer=value_of)
    network.put(4)
    network.put(8, first=4)
    with pytest.raises(KeyboardInterrupt):
        consumer.poll()
    network.state.assignment = frozenset()
    assert not consumer.poll()
    said = [(at, kind) for _, first, last, kind in network.taken() for at in range(first, last + 1)]
    assert sorted(said) == [(at, RELEASE) for at in range(12)]


class InProcess(Interruption):
    """Ctrl-C at a line of the loop of `process`, of those behind `stop` only if ``at_the_end``."""

    def __init__(self, consumer: ShareConsumer[Any, Any], at: int, *, at_the_end: bool) -> None:
        super().__init__(at, (*OURS, f"{SOURCE}/work/queue.py", f"{SOURCE}/work/driver.py"))
        self._consumer = consumer
        self._at_the_end = at_the_end

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if self._at_the_end and not self._consumer.stopping:
            return self._trace
        return super()._trace(frame, event, arg)


@pytest.mark.parametrize("at_the_end", [False, True], ids=["running", "ending"])
def test_ctrl_c_at_any_line_of_process_leaves_no_record_without_an_outcome(
    make: Callable[..., Made], at_the_end: bool
) -> None:
    at, happened = 0, True
    while happened and at < MOST_LINES:
        # Of its lines each fifth, as a round takes a thread.
        at += 5
        consumer, network = make()
        network.gathers = True
        # Time flies.
        network.put(6).lock_ends = FOREVER
        handled: list[int] = []

        def handler(record: Record[Any, Any], into: list[int] = handled) -> None:
            into.append(record.offset)
            if len(into) == 6:
                consumer.stop()  # noqa: B023 - `process` ends in this round

        interruption = InProcess(consumer, at, at_the_end=at_the_end)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            consumer.process(handler, workers=1)
        happened, where = interruption.happened, interruption.where
        consumer._core.exchange.stopping = False
        assert not consumer._core.polls.is_working, where
        while records := consumer.poll():
            handled += offsets_of(records)
        consumer.commit()
        said = [(at, kind) for _, first, last, kind in network.taken() for at in range(first, last + 1)]
        assert sorted(offset for offset, _ in said) == list(range(6)), where
        assert {offset for offset, kind in said if kind == ACCEPT} <= set(handled), where
    assert at > 50


@pytest.mark.parametrize("poll", [by_records, by_rows], ids=["records", "rows"])
def test_ctrl_c_at_any_line_of_subscribe_releases_each_record_once_that_no_poll_returned(
    make: Callable[..., Made], poll: Poll
) -> None:
    at, happened = 0, True
    while happened:
        at += 1
        consumer, network = make()
        network.gathers = True
        fetch = network.put(20, acquired=[(0, 14, 1), (15, 19, 1)])
        assert offsets_of(poll(consumer)) == list(range(10))
        interruption = Interruption(at, OURS)
        with contextlib.suppress(KeyboardInterrupt), interruption:
            consumer.subscribe("others")
        happened, where = interruption.happened, interruption.where
        consumer.subscribe("others")
        consumer.commit()
        said = [(at, kind) for _, first, last, kind in network.taken() for at in range(first, last + 1)]
        expected = [*((at, ACCEPT) for at in range(10)), *((at, RELEASE) for at in range(10, 20))]
        assert sorted(said) == expected, where
        assert (fetch.left, fetch.arena) == (0, None), where
    assert at > 100
