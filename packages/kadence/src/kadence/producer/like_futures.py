"""The private parts of a future that `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` use.

They take the lock of each future while they begin to wait, so that they see one state of all of them.
Ours share a lock with the network thread, so they have no such lock: a thread remembers the state that it saw.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kadence.errors import KafkaError

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["LikeFuture"]

T = TypeVar("T")

_PENDING: Final = "PENDING"
_FINISHED: Final = "FINISHED"


class _Seen(threading.local):
    """The states that this thread sees at present, by the ids of futures."""

    def __init__(self) -> None:
        self.states: dict[int, str] = {}


_seen: Final = _Seen()


class _Condition:
    """While it is held, the thread sees the future as it was then."""

    __slots__ = ("_future",)

    def __init__(self, future: LikeFuture[Any]) -> None:
        self._future = future

    def acquire(self) -> None:
        _seen.states[id(self._future)] = _FINISHED if self._future.done() else _PENDING

    def release(self) -> None:
        _seen.states.pop(id(self._future), None)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class _Waiters:
    """The waiters of a future: `concurrent.futures` adds itself here."""

    __slots__ = ("_future",)

    def __init__(self, future: LikeFuture[Any]) -> None:
        self._future = future

    def append(self, waiter: Any) -> None:
        """Notify ``waiter`` when the future is done, unless it was done when this thread looked."""
        if self._future._state == _FINISHED:
            return

        self._future._when_done(_Notify(waiter))
        self._future._is_awaited()

    def remove(self, waiter: Any) -> None:
        """Remove a waiter. A program may begin to wait for the same futures again and again."""
        self._future._no_longer(_Notify(waiter))


class _Notify:
    """Notifies a waiter of `concurrent.futures` of a future that is done. Equal to another one for the same waiter.

    Args:
        waiter: compared by identity.
    """

    __slots__ = ("_waiter",)

    def __init__(self, waiter: Any) -> None:
        self._waiter = waiter

    def __call__(self, future: Any) -> None:
        if future.exception() is None:
            self._waiter.add_result(future)
        else:
            self._waiter.add_exception(future)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Notify) and self._waiter is other._waiter

    def __hash__(self) -> int:
        return id(self._waiter)


if TYPE_CHECKING:

    class LikeFuture(Future[T]):
        """Passes for that class."""

        def _when_done(self, notify: Callable[[Any], object]) -> None: ...

        def _no_longer(self, notify: Callable[[Any], object]) -> None: ...

        def _is_awaited(self) -> None: ...

else:

    class LikeFuture:
        """Makes a class with the methods of `concurrent.futures.Future` pass for that class.

        It does not inherit from it: each future of that class has a dictionary and a lock, and there may be millions.
        """

        __slots__ = ()

        def __class_getitem__(cls, result: Any) -> type[LikeFuture]:
            return cls

        @property
        def __class__(self) -> type[Any]:
            """The class for ``isinstance``."""
            from concurrent.futures import Future

            return Future

        def _when_done(self, notify: Callable[[Any], object]) -> None:
            """Call ``notify(self)`` when it is done, on any thread."""
            raise NotImplementedError

        def _no_longer(self, notify: Callable[[Any], object]) -> None:
            """Forget a callback given to `_when_done`, or its equal, unless it was called already."""
            raise NotImplementedError

        def _is_awaited(self) -> None:
            """Somebody waits for it."""
            raise NotImplementedError

        @property
        def _condition(self) -> _Condition:
            return _Condition(self)

        @property
        def _state(self) -> str:
            return _seen.states.get(id(self)) or (_FINISHED if self.done() else _PENDING)

        @property
        def _waiters(self) -> _Waiters:
            return _Waiters(self)

        def _get_snapshot(self) -> tuple[bool, bool, Any, KafkaError | None]:
            """Return (is done, is cancelled, result, error); for Python 3.14."""
            if not self.done():
                return False, False, None, None
            error = self.exception()
            return True, False, None if error else self.result(), error
