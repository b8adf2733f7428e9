"""One child process of `process`: its start, the pipe to it, and what runs inside it (H2).

A child first imports the program (its ``__main__``), as every process of Python's `multiprocessing` does that is
spawned, and then the module of the handler. It says so after each of them, or why it could not.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import functools
import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import multiprocessing.resource_tracker
import multiprocessing.sharedctypes
import multiprocessing.util
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any, Final

from kadence.errors import HandlerTimeoutError, WorkerDiedError, WorkerStartError
from kadence.forked import ThisProcess
from kadence.logs import logger
from kadence.printable import text_of
from kadence.work.scheduler import Task
from kadence.work.workers import outputs_of

__all__ = ["Child", "ChildContext", "imported_by", "refuse_to_begin_in_a_child", "wait_for_start"]

log = logger("kadence.work")

# Not fork: a child of a process with threads may find any lock taken.
_SPAWN: Final = multiprocessing.get_context("spawn")

_NAME: Final = "kadence-work"

_UNGUARDED: Final = 79
"""The exit code of a child in which the program called `process` again; no other code of Python's or of the shell's."""

_ORPHANED: Final = 80
"""…and that of a child whose parent has ended, which nobody sees."""

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that a process gets when its parent ends."""

_LOOK_S: Final = 1.0
"""So often a child looks for its parent, where the system does not kill it."""

_TOLD_S: Final = 30.0
"""An import that takes longer is named in the log."""

_OF_THE_PARENT: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""The parent decides what these mean, though children get them, too: Ctrl-C in a terminal sends SIGINT to all of them,
and systemd sends SIGTERM to each process of a service that it stops.
"""

_GUARD: Final = 'if __name__ == "__main__":'


class ChildContext:
    """The `Context` of a handler in a child.

    Args:
        flag: set by the parent when a partition of the records is gone.

    Attributes:
        timed_out: a child whose attempt takes too long is killed, so no handler ever sees this true.
        told_lost: as of the tasks that the handler has.
    """

    timed_out = False

    def __init__(self, attempt: int, flag: Any) -> None:
        self.attempt = attempt
        self.told_lost = False
        self._flag = flag

    @property
    def lost(self) -> bool:
        """As `Context.lost`."""
        if self._flag.value:
            self.told_lost = True
        return self.told_lost


@contextlib.contextmanager
def _holding_signals_back() -> Iterator[None]:
    """What is sent to a whole group of processes must not end a child that still imports, and cannot ignore it yet."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Its start, else within that of the first child, takes the signal out of the mask again.
    multiprocessing.resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child:
    """One process and the pipe to it.

    Args:
        handler: what `_serve` is to run, pickled.

    Raises:
        WorkerStartError: the system gives no process.
    """

    def __init__(self, handler: bytes) -> None:
        self._here = ThisProcess()
        self._tasks: Sequence[Task] = ()
        try:
            # One byte, which is written at once or not: no lock.
            self._flag = multiprocessing.sharedctypes.RawValue(ctypes.c_bool, False)
            self._pipe, theirs = _SPAWN.Pipe()
            self._process: BaseProcess = _SPAWN.Process(
                target=_serve, args=(theirs, handler, self._flag), name=_NAME, daemon=True
            )
            with _holding_signals_back():
                self._process.start()
            # At the end of the program multiprocessing sends SIGTERM to its children, and waits for them.
            self._killed_at_exit = multiprocessing.util.Finalize(None, self._process.kill, exitpriority=0)
            theirs.close()
        # An AssertionError: a process of multiprocessing that is a daemon may have no children.
        except (OSError, AssertionError) as error:
            raise WorkerStartError(f"no worker process can be started: {error}") from error

    def wait_for_start(self, imported: Sequence[str], limit_ms: int) -> None:
        """As the function of this name."""
        wait_for_start(self._pipe, imported, limit_ms, self._exit_code)

    def _exit_code(self) -> int | None:
        self._process.join(1)
        return self._process.exitcode

    def begins(self, tasks: Sequence[Task]) -> None:
        """These come next."""
        self._tasks = tasks
        for task in tasks:
            task.told_lost = False
        self._flag.value = False
        # They may be gone since they were taken.
        self.tell_lost()

    def tell_lost(self) -> None:
        """Tell it, if one of the records that it has is another member's now."""
        if any(task.is_lost for task in self._tasks):
            self._flag.value = True

    def ask(
        self,
        records: Any,
        attempt: int,
        carried: AbstractContextManager[None] | None,
        timeout_ms: int | None,
    ) -> Any:
        """Run the handler with these, within ``carried``.

        Raises:
            WorkerDiedError: the process ended. HandlerTimeoutError: it took too long. Or what the handler raised.
        """
        try:
            self._pipe.send_bytes(pickle.dumps((records, attempt, carried), protocol=5))
            if not self._pipe.poll(None if timeout_ms is None else timeout_ms / 1000):
                raise HandlerTimeoutError(
                    f"the handler took longer than timeout={(timeout_ms or 0) / 1000} s"
                )
            has_worked, told_lost, result = pickle.loads(self._pipe.recv_bytes())  # noqa: S301 - our own child
        except (EOFError, OSError) as error:
            raise WorkerDiedError(
                f"the worker process ended while it handled the record (exit code {self._exit_code()})"
            ) from error
        for task in self._tasks:
            task.told_lost = told_lost
        if has_worked:
            return result
        raise result

    def kill(self) -> None:
        """End the process. Any thread; one that asks the child is told that it died."""
        if self._here.is_left:
            # It is not this process's child.
            return
        self._killed_at_exit.cancel()
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        """End the process, and close the pipe to it: by the thread alone that asks the child."""
        self.kill()
        self._pipe.close()


def imported_by(handler: Callable[..., Any]) -> tuple[str, str]:
    """What a child imports at its start, in words: the program, and then what has the handler."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    program = "the program" if path is None else f"the program {path}"
    module = getattr(handler, "__module__", None) or type(handler).__module__
    return program, program if module in ("__main__", "__mp_main__") else f"module {module!r} of the handler"


def wait_for_start(
    pipe: Connection, imported: Sequence[str], limit_ms: int, exit_code: Callable[[], int | None]
) -> None:
    """Wait until a child has imported what it needs; each import has ``limit_ms``.

    Raises:
        WorkerStartError: it did not; why, and in which import.
    """
    limit = limit_ms / 1000
    for what in imported:
        try:
            is_there = pipe.poll(min(_TOLD_S, limit))
            if not is_there and limit > _TOLD_S:
                log.warning("a worker process has been importing %s for %g s", what, _TOLD_S)
                is_there = pipe.poll(limit - _TOLD_S)
            if not is_there:
                raise WorkerStartError(
                    f"a worker process has not imported {what} within {limit:g} s (max.poll.interval.ms, or timeout if "
                    "that is longer)"
                )
            problem = pipe.recv_bytes().decode()
        except (EOFError, OSError):
            code = exit_code()
            if code == _UNGUARDED:
                problem = (
                    f"each worker process imports it anew, and came to process() again: call what runs the program "
                    f"under {_GUARD!r}"
                )
            else:
                problem = f"it ended with exit code {code}; what it wrote to stderr says more"
        if problem:
            raise WorkerStartError(f"a worker process could not import {what}: {problem}")


def refuse_to_begin_in_a_child() -> None:
    """End this process if it is a child that only imports the program. It would have children, too, and these as well.

    Raises:
        WorkerStartError: it is somebody else's child.
        SystemExit: it is one of ours. The parent says why: once, and not once for each child.
    """
    this = multiprocessing.process.current_process()
    # So multiprocessing itself knows in which of its children the program is being imported.
    if not getattr(this, "_inheriting", False):
        return
    if this.name == _NAME:
        raise SystemExit(_UNGUARDED)
    raise WorkerStartError(
        f"process() in a process that only imports the program: call what runs it under {_GUARD!r}"
    )


# ---------------------------------------------------------------- in the child


def _serve(pipe: Connection, handler: bytes, flag: Any) -> None:
    """Run the handler with what comes, until the pipe ends."""
    here = ThisProcess()
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not ignored: programs that handlers start would ignore it, too.
    signal.signal(signal.SIGTERM, functools.partial(_leave_to_parent, here))
    if hasattr(signal, "pthread_sigmask"):
        # What handlers start must not inherit it.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_PARENT)
    if hasattr(os, "register_at_fork"):
        # Nor what they fork: the parent would not be told of the end of this process.
        os.register_at_fork(after_in_child=pipe.close)
    with contextlib.suppress(EOFError, OSError):
        pipe.send_bytes(b"")
        try:
            with here:
                call, takes_context, in_batches = pickle.loads(handler)  # noqa: S301 - from our own parent
        except Exception as error:
            pipe.send_bytes(f"{type(error).__name__}: {error}".encode(errors="replace"))
            # multiprocessing writes it to stderr, with its traceback.
            raise
        pipe.send_bytes(b"")
        while True:
            given = pipe.recv_bytes()
            context = ChildContext(0, flag)
            try:
                # Values, generators and what they return are user code, too.
                with here:
                    records, context.attempt, carried = pickle.loads(given)  # noqa: S301 - as above
                    arguments = (
                        records if in_batches else records[0],
                        *((context,) if takes_context else ()),
                    )
                    with carried or contextlib.nullcontext():
                        outputs = outputs_of(call(*arguments))
                        given_back = None if outputs is None else list(outputs)
                    answer = pickle.dumps((True, context.told_lost, given_back), protocol=5)
            # sys.exit() ends no child: it is what the handler raised, as on threads.
            except BaseException as error:  # noqa: BLE001 - the parent raises it
                answer = here.call(_as_bytes, error, told_lost=context.told_lost)
            pipe.send_bytes(answer)


def _leave_to_parent(here: ThisProcess, number: int, frame: FrameType | None) -> None:
    """SIGTERM came: go on until the parent ends this process, or has ended itself, which may have got SIGTERM as well.

    Args:
        here: the process that handles records; what a handler forked has no part in this.
    """
    if here.is_left:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _end_with_parent() -> None:
    """From now on this process ends when the program does, however that ends (H12)."""
    parent = multiprocessing.process.parent_process()
    if parent is None:
        return
    first = os.getppid()
    if not _is_killed_with_parent():
        # `threading` would make it one that the end of this process waits for.
        _thread.start_new_thread(_kill_after, (parent.sentinel, first))
    elif multiprocessing.connection.wait([parent.sentinel], 0) or os.getppid() != first:
        # It ended before that.
        os._exit(_ORPHANED)


def _is_killed_with_parent() -> bool:
    """Have the system kill this process when its parent is gone, which no handler can delay; Linux does so.

    The parent is the *thread* that started this process: a worker of `ThreadWorkers`, which alone speaks to it. When
    that has ended, nobody does.
    """
    if sys.platform != "linux":
        return False
    try:
        call = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return bool(call(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0) == 0)


def _kill_after(parent: int, first: int) -> None:
    """End this process when its parent is gone.

    Args:
        parent: becomes readable then, but not while other children of the parent have what it belongs to.
        first: the parent's number, which changes then; not on Windows, where nothing else has what `parent` is.
    """
    while os.getppid() == first and not multiprocessing.connection.wait([parent], _LOOK_S):
        pass
    os._exit(_ORPHANED)


def _as_bytes(error: BaseException, *, told_lost: bool) -> bytes:
    """The exception for the parent; one that cannot be pickled becomes a RuntimeError of the same words."""
    try:
        data = pickle.dumps((False, told_lost, error), protocol=5)
        is_whole = isinstance(pickle.loads(data)[2], BaseException)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - user code makes exceptions of any kind
        is_whole = False
    if is_whole:
        return data
    plain = RuntimeError(f"{type(error).__name__}: {text_of(error)}")
    return pickle.dumps((False, told_lost, plain), protocol=5)
