"""The waits that a client's call yields, and the shell that waits on a thread.

A call that may wait is a generator, so that one text of it runs under threads and under asyncio. Its shell (`Shell` for
threads, that of `async_shell` for asyncio) does what it yields and resumes it. The call looks each time it is resumed,
so a wake-up that was for something else costs one more look, and nothing is missed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from typing import Any, ClassVar, Final, Protocol, TypeVar

from kadence.clock import Clock, wait_seconds
from kadence.lazy_dataclasses import dataclass

__all__ = ["BREATH", "SLICE_S", "Changes", "Run", "Shell", "Waits"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Run:
    """User code for the shell to run: ``work()``, awaited by an asyncio shell when it returns an awaitable."""

    work: Callable[[], Any]


Waits = Generator[int | Run, None, T]
"""A call: yields until when at most it waits for a change (absolute ms), or user code to run; returns its result."""

SLICE_S: Final = 0.05 if os.name == "nt" else None
"""The longest wait of a thread at once. On Windows Ctrl-C, or another signal, ends no wait for a lock."""

BREATH: Final = 0
"""Yielded by a call that has worked for a while and waits for nothing: an event loop may turn before it goes on."""


class Changes(Protocol):
    """The changes that the calls of a client wait for: a consumer's signal, or the lock of a client that threads share.

    Attributes:
        waiting: whether a call has entered and not left. A call that begins then interrupts that one, in a signal
            handler or in user code. Always False of a lock.
    """

    @property
    def waiting(self) -> bool: ...

    def enter(self) -> None:
        """A call begins: no change from now on is missed. Raises where none may."""
        ...

    def wait(self, seconds: float | None) -> object:
        """Wait for a change since `enter`, or since the wait before."""
        ...

    def leave(self, *, interrupts: bool) -> None:
        """The call is over. It may have taken what the one that it interrupted waits for: that one looks again."""
        ...


class Shell:
    """Waits on the calling thread for what calls need."""

    AWAITS: ClassVar[bool] = False
    """Whether calls are awaited, and user code may be coroutine functions."""

    __slots__ = ("_changes", "_clock")

    def __init__(self, changes: Changes, clock: Clock) -> None:
        self._changes = changes
        self._clock = clock

    def run(self, call: Waits[T]) -> T:
        """Carry a call on this thread until it returns."""
        changes = self._changes
        interrupts = changes.waiting
        try:
            changes.enter()
            while True:
                step = next(call)
                while isinstance(step, Run):
                    step = self._resume(call, step)
                if step != BREATH:
                    self._wait(step)
        except StopIteration as stop:
            value: T = stop.value
            return value
        finally:
            if changes.waiting:
                changes.leave(interrupts=interrupts)
            # Not left to the collector: after Ctrl-C the traceback keeps the call alive, and its `finally` must run.
            call.close()

    def _wait(self, deadline: int) -> None:
        seconds = wait_seconds(deadline, self._clock.now_ms())
        if SLICE_S is not None:
            seconds = SLICE_S if seconds is None else min(seconds, SLICE_S)
        self._changes.wait(seconds)

    def _resume(self, call: Waits[T], step: Run) -> int | Run:
        """Run user code and resume the call with its outcome."""
        try:
            self._do(step)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the call decides what it means
            return call.throw(error)
        return call.send(None)

    def _do(self, step: Run) -> None:
        step.work()
