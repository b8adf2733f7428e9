"""The lock of a client that many threads share, under which they wait for changes.

No other code runs under it than the client's own: no log line, callback, partitioner or serialiser. So a thread that
holds it comes again only by a signal handler, which Python runs between any two steps of the main thread, or by a
finalizer, as ``__del__``, which the cycle collector runs on any thread. It cannot wait for the call that it
interrupted, and what that was about to change is half changed. So its call is refused.
"""

from __future__ import annotations

import threading
from _thread import RLock
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from kadence.errors import IllegalStateError

__all__ = ["Gate"]


class Gate(RLock):  # type: ignore[misc]  # typeshed calls it final, which it is in no Python
    """A lock with a condition that knows which thread holds it.

    ``with`` calls the lock itself, which is one step: an exception of a signal handler comes before it or after it, and
    never leaves it locked. The condition of the standard library would be a step in Python before that.

    Args:
        kind: of the client, for messages: producer, admin client.
    """

    if TYPE_CHECKING:

        def _is_owned(self) -> bool: ...

    def __init__(self, kind: str = "client") -> None:
        self.kind = kind
        self._changed = threading.Condition(self)
        # To look here costs a tenth of what it costs to notify nobody.
        self._sleepers: Collection[object] = self._changed._waiters  # type: ignore[attr-defined]

    @property
    def is_mine(self) -> bool:
        """True if this very thread holds it."""
        return self._is_owned()

    def check_entry(self) -> None:
        """Raise where a call of the client interrupts another one. Before the lock is taken for a call.

        Raises:
            IllegalStateError: this thread holds the lock.
        """
        if self._is_owned():
            raise IllegalStateError(
                f"a signal handler, or a finalizer such as __del__, has interrupted a call of this {self.kind} and "
                "made another call. There it may call only close(). Let the handler set a flag that your program "
                "checks, or use kadence.stop_on_signals; let the finalizer pass the call to another thread"
            )

    waiting: Final = False
    """A call in a signal handler notifies the wait that it interrupts by `notify_all`, as any other call does."""

    enter = check_entry

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a change, without the lock. False when the time is over."""
        try:
            return self._changed.wait(timeout)
        except BaseException:
            self._hold_again()
            raise

    def leave(self, *, interrupts: bool) -> None:
        """Nothing to do: waiting calls were notified of each change."""

    def wait_for(self, done: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until something is so. False when the time is over before."""
        try:
            return self._changed.wait_for(done, timeout)
        except BaseException:
            self._hold_again()
            raise

    def _hold_again(self) -> None:
        """The condition has released the lock, and an exception came before its ``try``: the ``with`` needs it held."""
        if not self._is_owned():
            self.acquire()

    def notify_all(self) -> None:
        """Something has changed. Any thread that holds the lock."""
        if self._sleepers:
            self._changed.notify_all()
