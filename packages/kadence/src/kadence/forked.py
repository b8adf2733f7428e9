"""Forks of this process: a child that user code forks on a thread of ours is no second one of what runs there (H12).

`os.fork` returns twice. Where a handler, a deserialiser or a callback calls it, the child comes back into our loop as
well, if it does not end by itself: it would take the parent's records, answer on the parent's connections, and never
end. So whatever calls user code in a loop of its own enters `ThisProcess` for that. In a child, the end of the call is
the end of the process.
"""

from __future__ import annotations

import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Final, NoReturn, ParamSpec, TextIO, TypeVar

__all__ = ["FORKS", "ThisProcess", "free_lock", "in_children"]

P = ParamSpec("P")
T = TypeVar("T")

_TELLING_S: Final = 5.0
"""A child waits no longer for what it prints. A thread of the parent that held the lock of stdout or stderr at the fork
holds it for ever there.
"""


class _Forks:
    """Those of this process, and of those it comes from.

    Attributes:
        count: how many. Another number means another process. To compare it costs less than `os.getpid`.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


FORKS: Final = _Forks()

_told: weakref.WeakKeyDictionary[object, Callable[[object], None]] = weakref.WeakKeyDictionary()


def in_children(what: T, act: Callable[[T], None]) -> None:
    """Have ``act(what)`` called first thing in each child process, as long as there is ``what``.

    For what a call looks at before it looks who it is. A lock may be held for ever there.
    """
    _told[what] = act  # type: ignore[assignment]


def free_lock() -> threading.Lock:
    """A lock that is free in each child process. The thread that held it at the fork is not there, and never lets go.

    For what may be used there. No code that could fork runs while it is held.
    """
    lock = threading.Lock()
    in_children(lock, _free)
    return lock


def _free(lock: threading.Lock) -> None:
    if lock.locked():
        lock.release()


def _forked() -> None:
    FORKS.count += 1
    for what, act in list(_told.items()):
        act(what)


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)


class ThisProcess:
    """The process that made it. Entered with ``with`` around each call of user code.

    Attributes:
        fork: its number in `FORKS`. Who calls user code for each record compares the two before it calls `check`.
    """

    __slots__ = ("fork",)

    def __init__(self) -> None:
        self.fork = FORKS.count

    @property
    def is_left(self) -> bool:
        """Whether the caller is a child that was forked since."""
        return FORKS.count != self.fork

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if FORKS.count != self.fork:
            _end(error)

    def check(self, error: BaseException | None) -> None:
        """End the process, if it is a child that was forked since.

        Args:
            error: what user code raised; None: it has returned.
        """
        if FORKS.count != self.fork:
            _end(error)

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Call user code, and return what it returns."""
        with self:
            return function(*arguments, **named)

    @types.coroutine
    def awaits(self, coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Await user code: each of its steps is a call of its own. A child has no event loop, and must not await."""
        given: Any = None
        thrown: BaseException | None = None
        try:
            while True:
                try:
                    awaited = coroutine.send(given) if thrown is None else coroutine.throw(thrown)
                except StopIteration as stop:
                    if FORKS.count != self.fork:
                        _end(None)
                    result: T = stop.value
                    return result
                except BaseException as error:
                    self.check(error)
                    raise
                if FORKS.count != self.fork:
                    _end(RuntimeError("a forked child cannot await: the event loop is its parent's"))
                given = thrown = None
                try:
                    given = yield awaited
                except BaseException as error:  # noqa: BLE001 - it is the coroutine's
                    thrown = error
        finally:
            # Its traceback leads to this frame, which must not lead back.
            thrown = None


def _end(error: BaseException | None) -> NoReturn:
    """End this child as `multiprocessing` ends one that it has forked, with the exit code that Python has for this.

    What the parent has for its own end (`atexit`, open clients) is the parent's, and is left alone.
    """
    code = 1
    try:
        code = _exit_code(error)
        for thread in threading.enumerate():
            # The child's own: no other thread comes through a fork.
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        _tell(error)
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    """As at the end of a program."""
    if error is None:
        return 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        return (error.code or 0) & 0xFF
    return 1


def _tell(error: BaseException | None) -> None:
    """Write out what was printed, and show an exception on stderr, as far as nobody holds the locks of these."""
    text = _text(error)
    shown = threading.Event()
    writing = [
        threading.Thread(target=_write, args=given, daemon=True)
        for given in ((sys.stdout, "", threading.Event()), (sys.stderr, text, shown))
    ]
    for each in writing:
        each.start()
    for each in writing:
        each.join(_TELLING_S)
    if text and not shown.is_set():
        os.write(2, text.encode(errors="backslashreplace"))


def _write(stream: TextIO | None, text: str, written: threading.Event) -> None:
    # There is none in a program without a console.
    if stream is not None:
        try:
            stream.write(text)
            stream.flush()
        except RuntimeError:
            # A thread of the parent held the stream's lock at the fork, and this new thread has got its number: CPython
            # takes the two for one, and does not let this one wait.
            return
    written.set()


def _text(error: BaseException | None) -> str:
    """What Python says of an exception that ends a program."""
    if error is None:
        return ""
    if isinstance(error, SystemExit):
        return "" if error.code is None or isinstance(error.code, int) else f"{error.code}\n"
    # Nobody else needs it.
    import traceback

    told = "".join(traceback.format_exception(error))
    return f"process {os.getpid()}, which a call of user code forked, ends:\n{told}"
