"""The lock of a client whose calls wait on an event loop: `notify_all` wakes the loop's tasks, too."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from kadence.client.gate import Gate
from kadence.client.slices import slices_of

if TYPE_CHECKING:
    import asyncio

    from kadence.client.async_shell import Change

__all__ = ["LoopGate"]


class LoopGate(Gate):  # type: ignore[misc]  # see Gate
    """A condition that tasks can wait for, beside threads.

    Args:
        loop: the loop of the waiting tasks. kind: see `Gate`.

    Attributes:
        slices: of the loop.
    """

    is_held: ClassVar[bool] = True

    def __init__(self, loop: asyncio.AbstractEventLoop, kind: str = "client") -> None:
        super().__init__(kind)
        self.loop = loop
        self.slices = slices_of(loop)
        self._waiting: dict[Change, None] = {}
        # A client without a loop does without asyncio.
        from asyncio import _get_running_loop

        self._running: Callable[[], asyncio.AbstractEventLoop | None] = _get_running_loop
        # Other loops than Python's own have none that can be read.
        self._ready: Collection[object] | None = getattr(loop, "_ready", None)
        self._is_waking = False
        self._is_stale = False

    def watch(self, changed: Change) -> None:
        """Have ``changed`` set by each change from now on. On the loop, with the lock held, so that none is missed."""
        self._waiting[changed] = None

    def forget(self, changed: Change) -> None:
        """Stop waiting for it. On the loop."""
        self._waiting.pop(changed, None)

    def notify_all(self) -> None:
        """Something has changed. Any thread that holds the lock."""
        super().notify_all()
        if self._waiting:
            # In this order: present waiters are woken by the pass that is running, or by the one after it.
            self._is_stale = True
            if not self._is_waking:
                self._is_waking = True
                self.call_soon(self._wake)

    def _wake(self) -> None:
        """Wake all present waiters, the longest waiting first. On the loop."""
        self._is_stale = False
        self.slices.add(self._wake_one, [*self._waiting, None])

    def _wake_one(self, changed: Change | None) -> None:
        if changed is not None:
            changed.set()
            return
        self._is_waking = False
        if self._is_stale:
            self._is_waking = True
            self._wake()

    def call_soon(self, act: Callable[[], object]) -> None:
        """Call something on the loop, in one of its next turns. Any thread."""
        self.call_each(_call, (act,))

    def call_each(self, act: Callable[[Any], object], things: Iterable[Any]) -> None:
        """Call ``act`` with each of these on the loop, some in each turn. Any thread."""
        try:
            self.slices.add(act, things)
        except RuntimeError:
            # The loop was closed before the client: no task waits on it any more.
            self._waiting.clear()

    def runs_here(self) -> bool:
        """True if this thread runs the loop, which nothing may block."""
        return self._running() is self.loop

    def runs_only_this(self) -> bool:
        """True if no other task or callback of the loop is ready. False where that cannot be known. On the loop."""
        ready = self._ready
        return ready is not None and not ready


def _call(act: Callable[[], object]) -> None:
    act()
