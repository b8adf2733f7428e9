"""How long an application works between two polls: the size of the next poll, and reports of stalls. Application side.

`Pace` (A5, max.poll.records=auto) says how many records one poll returns, by their cost. One round is what the
application does between a poll that returned records and the next poll. No round may take longer than the *bound*, a
set share of max.poll.interval.ms. A round is sized to take the *aim*, a hundredth of the bound. So a round stays inside
the bound even when records become a hundred times as expensive after its size was chosen. It also does when only the
last records of a round are expensive, so that the mean, by which the next round is sized, hides most of the cost. A
tenth of the aim would already make the cost of polling negligible.

    the round took longer than the aim      the next returns as many as would have fitted into the aim
    it did not                              up to `_GROWTH` times what this one returned, as far as that fits

The first round is one record, since nothing is known yet; with four times as many each time the sixth has a thousand.
Growth is bounded by the number of records returned, not by the cap: a short round says little about a long one.

`Stalls` (B4) reports that the application did not poll for a set share of the processing timeout. The network thread
notices, since the application's is busy. It sends an event and calls `SharedState.on_stall`. A
helper thread of this side then takes the stack of the thread that should poll, and reports it: once when the stall is
noticed, once when the group is left because of it, once when the application polls again. Between these there is
nothing new to report, so there is one share, not a list of them. Keys and values of records are never part of a report.
"""

from __future__ import annotations

import itertools
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from kadence.clock import wall_time
from kadence.consumer.events import Stalled
from kadence.forked import ThisProcess, free_lock
from kadence.lazy_dataclasses import dataclass, replace
from kadence.logs import Lines, OwnThread, logger
from kadence.types import TopicPartition

if TYPE_CHECKING:
    # Imported late: it takes half the time of importing a consumer, and most consumers never need it.
    import asyncio

__all__ = ["HEADROOM", "MOST", "Pace", "Stall", "Stalls", "named"]

HEADROOM: Final = 100
"""The bound divided by the aim: the factor by which records may become more expensive at once."""

MOST: Final = 10_000
"""More records at once save nothing."""

_GROWTH: Final = 4


class Pace:
    """The cap of the next poll.

    Args:
        bound_ms: the longest that a round may take.

    Attributes:
        cap: how many records the next poll may return.
    """

    __slots__ = ("_aim_ms", "_count", "_returned_at", "cap")

    def __init__(self, bound_ms: int) -> None:
        self.cap = 1
        self._aim_ms = bound_ms / HEADROOM
        self._count = 0
        self._returned_at = 0

    def polls(self, now: int) -> int:
        """A poll begins, which ends the round before it; returns the cap."""
        if count := self._count:
            self._count = 0
            self._learn(count, now - self._returned_at)
        return self.cap

    def returns(self, now: int, count: int) -> None:
        """A poll returns ``count`` records, and their round begins."""
        self._count = count
        self._returned_at = now

    def _learn(self, count: int, took_ms: int) -> None:
        # The clock's resolution: a round of 0 ms may have taken almost 1.
        fits = int(count * self._aim_ms / (took_ms + 1))
        if took_ms > self._aim_ms:
            self.cap = max(1, min(fits, self.cap))
        else:
            self.cap = max(1, min(fits, max(self.cap, _GROWTH * count), MOST))

    def __repr__(self) -> str:
        return f"<pace cap={self.cap} aim={self._aim_ms:.0f} ms>"


log = logger("kadence.consumer")

_HISTORY = 100
"""Stalls remembered."""

_DEEPEST = 40
"""How many frames of a stack are reported, the innermost ones."""

_NAMED = 10
"""Partitions named in a line of the log."""

_PATIENCE_S = 1.0
"""How long the end of a stall waits for its report to be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A stall: the application did not poll for a long time.

    Attributes:
        since: when the application last polled, in UTC. reported_at, ended_at: when the stall was noticed, and when
            the application polled again (None: not yet).
        since_monotonic_ms, reported_monotonic_ms, ended_monotonic_ms: the same times in ms of this machine's
            monotonic clock (`time.monotonic`).
        timeout_ms: how many ms after ``since`` the consumer leaves the group: max.poll.interval.ms, or with the
            classic protocol session.timeout.ms if that is longer.
        left_group: whether that time passed, so that the consumer left the group.
        thread: the name of the thread that should have polled. stack: its stack when the stall was reported, and
            under asyncio also that of the task.
        records: how many records the last poll returned; of a share consumer, how many it holds.
        in_hand: the offsets of those that may be unprocessed, because no later poll or commit covers them; of a share
            consumer, the offsets between which it holds some.
    """

    since: datetime
    reported_at: datetime
    since_monotonic_ms: int
    reported_monotonic_ms: int
    timeout_ms: int
    thread: str
    stack: str
    records: int
    in_hand: Mapping[TopicPartition, range]
    left_group: bool = False
    ended_at: datetime | None = None
    ended_monotonic_ms: int | None = None

    @property
    def duration(self) -> float:
        """Seconds from ``since`` until the application polled again, or until the report if it has not polled yet."""
        end = self.reported_monotonic_ms if self.ended_monotonic_ms is None else self.ended_monotonic_ms
        return (end - self.since_monotonic_ms) / 1000


Told = Callable[[int, Mapping[TopicPartition, range]], tuple[str, str]]
"""Puts in words which records are in hand, and what becomes of them when the group is left; that may be empty."""


def _of_last_poll(records: int, in_hand: Mapping[TopicPartition, range]) -> tuple[str, str]:
    unproved = f", perhaps not processed yet: {named(in_hand)}" if in_hand else ""
    return f"Records of the last poll: {records}{unproved}", ""


class Stalls:
    """The stalls of one consumer.

    Args:
        group_id: for the log. look: returns how many records the last poll returned, and the offsets that are not known
            to be processed; called on a helper thread.
        callback: the application's own, stall.report.callback. wall_offset: turns monotonic ms into ms since 1970.
        told: what is logged of what `look` returns.

    Attributes:
        thread: the thread that polled last (application). Not its ident: those are used again at once.
        task: the task that polled last, under asyncio (application).
        count: stalls noticed, ever.
    """

    def __init__(
        self,
        group_id: str | None,
        look: Callable[[], tuple[int, Mapping[TopicPartition, range]]],
        callback: Callable[[Stall], Any] | None,
        wall_offset: Callable[[], int],
        told: Told = _of_last_poll,
    ) -> None:
        self.thread: threading.Thread | None = None
        self.task: weakref.ref[asyncio.Task[object]] | None = None
        self.count = 0
        self._group_id = group_id
        self._look = look
        self._callback = callback
        self._wall_offset = wall_offset
        self._told = told
        self._lock = free_lock()
        self._history: list[Stall] = []
        # Held until the latest report is made. Not an Event: Ctrl-C within its wait() can leave its lock taken, and the
        # network thread would hang on that. For the same reason each report has its own lock.
        self._recorded = threading.Lock()

    def history(self) -> tuple[Stall, ...]:
        """The last hundred, oldest first. Any thread."""
        with self._lock:
            return tuple(self._history)

    def present(self) -> str:
        """The records in hand, and the stack of the thread that polled last. Any thread but that one."""
        if self.thread is None:
            return "It was not polled yet."
        return f"{self._told(*self._look())[0]}. {self._whereabouts()[1]}"

    def noticed(self, event: Stalled) -> None:
        """On the network thread: pass the report to a helper thread, which may take its time."""
        recorded = self._recorded = threading.Lock()
        recorded.acquire()
        _aside(partial(self._report, recorded), event)

    def over(self, now: int, event: Stalled) -> None:
        """On the application's thread, when it polls again."""
        recorded = self._recorded
        if recorded.acquire(timeout=_PATIENCE_S):
            recorded.release()
        ended_at = wall_time(now + self._wall_offset())
        stall = self._change(event, ended_at=ended_at, ended_monotonic_ms=now)
        if stall is None:
            return
        log.warning(
            "group %s: the application polls again, after %.1f s%s",
            self._group_id,
            (now - event.since) / 1000,
            ", and joins the group again" if stall.left_group else "",
        )
        if self._callback is not None:
            _aside(self._tell, stall)

    # ------------------------------------------------------------ on a helper thread

    def _report(self, recorded: threading.Lock, event: Stalled) -> None:
        if event.left and (known := self._change(event, left_group=True)) is not None:
            recorded.release()
            self._tell(known)
            return
        records, in_hand = self._look()
        name, stack = self._whereabouts()
        offset = self._wall_offset()
        stall = Stall(
            since=wall_time(event.since + offset),
            reported_at=wall_time(event.at + offset),
            since_monotonic_ms=event.since,
            reported_monotonic_ms=event.at,
            timeout_ms=event.timeout_ms,
            thread=name,
            stack=stack,
            records=records,
            in_hand=in_hand,
            left_group=event.left,
        )
        with self._lock:
            self._history.append(stall)
            self.count += 1
            del self._history[:-_HISTORY]
        recorded.release()
        if not event.left:
            log.warning(
                "group %s: the application has not polled for %.1f s; in another %.1f s (max.poll.interval.ms) the "
                "consumer leaves the group. %s. %s",
                self._group_id,
                (event.at - event.since) / 1000,
                (event.since + event.timeout_ms - event.at) / 1000,
                ". ".join(filter(None, self._told(records, in_hand))),
                Lines(stack),
            )
        self._tell(stall)

    def _tell(self, stall: Stall) -> None:
        if self._callback is not None:
            try:
                self._callback(stall)
            except Exception:
                log.exception("stall.report.callback raised")

    def _change(self, event: Stalled, **changes: Any) -> Stall | None:
        """The stall that ``event`` is about, with changes; None when it was never reported."""
        with self._lock:
            for place, stall in enumerate(self._history):
                if stall.since_monotonic_ms == event.since:
                    self._history[place] = changed = replace(stall, **changes)
                    return changed
        return None

    def _whereabouts(self) -> tuple[str, str]:
        """The name of the thread that should poll, and the stacks of it and its task."""
        thread = self.thread
        assert thread is not None, "nothing stalls before it polls"
        name = thread.name
        # Imported here because few applications stall.
        from kadence.whereabouts import frames_of

        frames = frames_of(thread.ident or 0) if thread.is_alive() else []
        if frames:
            text = f"Thread {name!r}, which polled last, is at:\n{_stack(frames)}"
        else:
            text = f"Thread {name!r}, which polled last, has ended"
        task = None if self.task is None else self.task()
        if task is None:
            return name, text
        return name, f"{text}\n{_whereabouts_of(task)}"


def _aside(work: Callable[[Any], None], subject: Any) -> None:
    """On a thread of its own, which may take its time. No thread can start when the interpreter ends."""
    try:
        OwnThread(target=ThisProcess().call, args=(work, subject), name="kadence-stall-report").start()
    except RuntimeError as error:
        log.warning("cannot report a stall: %s", error)


def _whereabouts_of(task: asyncio.Task[object]) -> str:
    from kadence.whereabouts import without_collections

    name = task.get_name()
    if task.done():
        return f"Task {name!r}, which polled last, has ended"
    frames: list[tuple[FrameType, int]] = []
    # The chain of awaits, the outermost first. The innermost awaitable has no Python frame.
    inner: Any = task.get_coro()
    with without_collections():
        while inner is not None and len(frames) < _DEEPEST:
            frame = getattr(inner, "cr_frame", None) or getattr(inner, "gi_frame", None)
            if frame is None:
                break
            frames.append((frame, frame.f_lineno))
            inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return f"Task {name!r}, which polled last, is at:\n{_stack(reversed(frames))}"


def _stack(frames: Iterable[tuple[FrameType, int]]) -> str:
    """These frames (innermost first) as in a traceback."""
    stack = traceback.StackSummary.extract(itertools.islice(frames, _DEEPEST))
    stack.reverse()
    return "".join(stack.format()).rstrip()


def named(in_hand: Mapping[TopicPartition, range]) -> str:
    """Partitions with their offsets, for the log."""
    parts = [f"{partition} {offsets[0]} to {offsets[-1]}" for partition, offsets in in_hand.items()]
    more = f" and {len(parts) - _NAMED} partitions more" if len(parts) > _NAMED else ""
    return f"{', '.join(parts[:_NAMED])}{more}"
