"""What each thread of this process has used so far, as the system and the interpreter count it. Linux only."""

from __future__ import annotations

import cProfile
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from operator import add, sub
from pathlib import Path
from types import CodeType
from typing import Any

TASKS = "/proc/self/task"
NETWORK = "network"
APPLICATION = "application"


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds of processor time, and how often the thread went to sleep.

    The scheduler counts seconds to the nanosecond; ticks are coarse and tell only how much of them was in the system.
    """

    seconds: float = 0.0
    user_ticks: int = 0
    system_ticks: int = 0
    sleeps: int = 0

    @property
    def system(self) -> float:
        ticks = self.user_ticks + self.system_ticks
        return self.seconds * self.system_ticks / ticks if ticks else 0.0

    @property
    def user(self) -> float:
        return self.seconds - self.system

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, self._fields(), other._fields()))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*map(sub, self._fields(), other._fields()))

    def _fields(self) -> tuple[Any, ...]:
        return (self.seconds, self.user_ticks, self.system_ticks, self.sleeps)


class Usages:
    """Processor time of each kind of thread: the application's, the network thread, and all others."""

    def look(self) -> list[tuple[int, str, str, str]]:
        """As the system writes it. It is read at leisure, so that looking costs little of what is looked at."""
        return [text for task in Path(TASKS).iterdir() if (text := _texts(task))]

    def told(self, looked: Any) -> dict[str, Usage]:
        found: dict[str, Usage] = {}
        for task, stat, schedule, status in looked:
            kind = _kind(task)
            found[kind] = found.get(kind, Usage()) + _usage(stat, schedule, status)
        return found

    def stop(self) -> None:
        pass


def _texts(task: Path) -> tuple[int, str, str, str] | None:
    try:
        texts = [(task / name).read_text() for name in ("stat", "schedstat", "status")]
    except FileNotFoundError:  # the thread has just ended
        return None
    return (int(task.name), *texts)  # type: ignore[return-value]


def _usage(stat: str, schedule: str, status: str) -> Usage:
    ticks = stat.rpartition(")")[2].split()
    sleeps = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return Usage(int(schedule.split(maxsplit=1)[0]) / 1e9, int(ticks[11]), int(ticks[12]), sleeps)


def _kind(native_id: int) -> str:
    for thread in threading.enumerate():
        if thread.native_id == native_id:
            return _kind_of(thread)
    return "others"


def _kind_of(thread: threading.Thread) -> str:
    if thread is threading.main_thread():
        return APPLICATION
    return NETWORK if NETWORK in thread.name else "others"


class Calls:
    """Counts Python calls and C calls of each kind of thread. It must exist before the threads do."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}
        threading.setprofile(self._on_first_event)
        sys.setprofile(self._counter(APPLICATION))

    def _on_first_event(self, frame: Any, event: str, argument: Any) -> None:
        sys.setprofile(self._counter(_kind_of(threading.current_thread())))

    def _counter(self, kind: str) -> Any:
        counts = self._counts.setdefault(kind, Counter())

        def count(_frame: Any, event: str, _argument: Any) -> None:
            counts[event] += 1

        return count

    def look(self) -> dict[str, tuple[int, int]]:
        return {kind: (counts["call"], counts["c_call"]) for kind, counts in self._counts.items()}

    def told(self, looked: Any) -> dict[str, tuple[int, int]]:
        return dict(looked)

    def stop(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)


class CallsByFunction:
    """Counts calls of Python functions of each kind of thread, by function. It must exist before the threads do."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[CodeType]] = {}
        threading.setprofile(self._on_first_event)
        sys.setprofile(self._counter(APPLICATION))

    def _on_first_event(self, frame: Any, event: str, argument: Any) -> None:
        sys.setprofile(self._counter(_kind_of(threading.current_thread())))

    def _counter(self, kind: str) -> Any:
        counts = self._counts.setdefault(kind, Counter())

        def count(frame: Any, event: str, _argument: Any) -> None:
            if event == "call":
                counts[frame.f_code] += 1

        return count

    def look(self) -> dict[str, Counter[CodeType]]:
        return {kind: counts.copy() for kind, counts in self._counts.items()}

    def told(
        self, looked: dict[str, Counter[CodeType]], before: dict[str, Counter[CodeType]]
    ) -> dict[str, Counter[str]]:
        """What was called since the look before."""
        found: dict[str, Counter[str]] = {}
        for kind, counts in looked.items():
            names = found.setdefault(kind, Counter())
            for code, times in (counts - before.get(kind, Counter())).items():
                names[_name(code)] += times
        return found

    def stop(self) -> None:
        threading.setprofile(None)
        sys.setprofile(None)


Spent = dict[str, tuple[int, float]]
"""Calls of each function, and seconds in it without what it called."""


class Functions:
    """Where the processor time of each kind of thread goes, by function. It must exist before the threads do."""

    def __init__(self) -> None:
        self._profiles: dict[str, cProfile.Profile] = {}
        threading.setprofile(self._on_first_event)
        self._begin(APPLICATION)

    def _on_first_event(self, frame: Any, event: str, argument: Any) -> None:
        self._begin(_kind_of(threading.current_thread()))

    def _begin(self, kind: str) -> None:
        if kind in self._profiles:
            sys.setprofile(None)
            return
        profile = self._profiles[kind] = cProfile.Profile(time.thread_time)
        profile.enable()

    def look(self) -> dict[str, list[Any]]:
        return {kind: profile.getstats() for kind, profile in self._profiles.items()}

    def told(self, looked: Any) -> dict[str, Spent]:
        found: dict[str, Spent] = {}
        for kind, entries in looked.items():
            spent = found.setdefault(kind, {})
            for entry in entries:
                name = _name(entry.code)
                calls, seconds = spent.get(name, (0, 0.0))
                spent[name] = (calls + entry.callcount, seconds + entry.inlinetime)
        return found

    def stop(self) -> None:
        threading.setprofile(None)
        self._profiles[APPLICATION].disable()


def _name(code: CodeType | str) -> str:
    if isinstance(code, str):
        return code.strip("<>")
    return f"{code.co_qualname} ({Path(code.co_filename).name}:{code.co_firstlineno})"
