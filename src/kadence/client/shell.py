"""How a thread carries the calls of a client. The asyncio twin is async_shell.py; what calls yield is in waits.py."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar

from kadence.client.waits import BREATH, Run, Waits
from kadence.clock import Clock, wait_seconds

__all__ = ["Changes", "Shell"]

T = TypeVar("T")


class Changes(Protocol):
    """What the calls of a client wait for: a consumer's signal, or the lock of a client that threads share.

    Attributes:
        waiting: whether a call has entered and not left. Where another one begins it interrupts that one, in a signal
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
        self._changes.wait(wait_seconds(deadline, self._clock.now_ms()))

    def _resume(self, call: Waits[T], step: Run) -> int | Run:
        """Run user code and tell the call how it ended."""
        try:
            self._do(step)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the call decides what it means
            return call.throw(error)
        return call.send(None)

    def _do(self, step: Run) -> None:
        step.work()
