"""One child process of `process`: its start, the pipe to it, and what runs inside it (H2).

A child first imports the program (its ``__main__``), like every spawned process of Python's `multiprocessing`, and then
the module of the handler. After each import it sends an empty message to the parent, or the reason for its failure.
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
from kadence.loaded import attribute_if_loaded
from kadence.logs import logger
from kadence.printable import text_of
from kadence.work.context import deliveries_of
from kadence.work.scheduler import Task
from kadence.work.workers import outputs_of

__all__ = ["Child", "ChildContext", "imported_by", "refuse_to_begin_in_a_child", "wait_for_start"]

log = logger("kadence.work")

# Not fork: in a forked child of a process with threads any lock may be held for ever.
_SPAWN: Final = multiprocessing.get_context("spawn")

_NAME: Final = "kadence-work"

_UNGUARDED: Final = 79
"""The exit code of a child in which the program called `process` again. Neither Python nor shells use this code."""

_ORPHANED: Final = 80
"""The exit code of a child whose parent has ended."""

_PR_SET_PDEATHSIG: Final = 1
"""prctl(2): the signal that a process gets when its parent ends."""

_LOOK_S: Final = 1.0
"""How often a child checks that its parent still runs, where the system does not kill it (seconds)."""

_TOLD_S: Final = 30.0
"""An import that takes longer is logged (seconds)."""

_OF_THE_PARENT: Final = frozenset({signal.SIGINT, signal.SIGTERM})
"""Signals that only the parent acts on, though children receive them, too: Ctrl-C in a terminal sends SIGINT to the
whole process group, and systemd sends SIGTERM to each process of a service that it stops.
"""

_GUARD: Final = 'if __name__ == "__main__":'


class ChildContext:
    """The `Context` of a handler in a child.

    Args:
        flag: set by the parent when a partition of the records is revoked or lost.

    Attributes:
        timed_out: always False: a child whose attempt takes too long is killed.
        delivery_count: as `Context.delivery_count`; None for tables.
        told_lost: whether the handler has seen `lost` as True; the parent copies it to `Task.told_lost`.
    """

    timed_out = False

    def __init__(self, attempt: int, flag: Any) -> None:
        self.attempt = attempt
        self.delivery_count: int | None = None
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
    """Block these signals while a child starts: one that is still importing cannot ignore them yet, and would end."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Started now: otherwise the start of the first child starts it, which unblocks the signals.
    multiprocessing.resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OF_THE_PARENT)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Child:
    """One process and the pipe to it.

    Args:
        handler: the pickled handler and its options, for `_serve`.

    Raises:
        WorkerStartError: the system cannot start a process.
    """

    def __init__(self, handler: bytes) -> None:
        self._here = ThisProcess()
        self._tasks: Sequence[Task] = ()
        try:
            # One byte is written atomically: it needs no lock.
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
        # An AssertionError: a daemonic process of multiprocessing may not have children.
        except (OSError, AssertionError) as error:
            raise WorkerStartError(f"no worker process can be started: {error}") from error

    def wait_for_start(self, imported: Sequence[str], limit_ms: int) -> None:
        """As the function of this name."""
        wait_for_start(self._pipe, imported, limit_ms, self._exit_code)

    def _exit_code(self) -> int | None:
        self._process.join(1)
        return self._process.exitcode

    def begins(self, tasks: Sequence[Task]) -> None:
        """The child handles these tasks next."""
        self._tasks = tasks
        for task in tasks:
            task.told_lost = False
        self._flag.value = False
        # Their partitions may have gone since the worker took them.
        self.tell_lost()

    def tell_lost(self) -> None:
        """Set the child's flag if the partition of one of its records is revoked or lost."""
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
            WorkerDiedError: the process ended. HandlerTimeoutError: the handler took too long. Otherwise the handler's
                exception.
        """
        try:
            self._pipe.send_bytes(pickle.dumps((records, attempt, carried), protocol=5))
            answer: bytes | None = None
            if self._pipe.poll(None if timeout_ms is None else timeout_ms / 1000):
                answer = self._pipe.recv_bytes()
        except (EOFError, OSError) as error:
            raise WorkerDiedError(
                f"the worker process ended while it handled the record (exit code {self._exit_code()})"
            ) from error
        if answer is None:
            # It is an OSError, too.
            raise HandlerTimeoutError(f"the handler took longer than timeout={(timeout_ms or 0) / 1000} s")
        has_worked, told_lost, result = pickle.loads(answer)  # noqa: S301 - our own child
        for task in self._tasks:
            task.told_lost = told_lost
        if has_worked:
            return result
        raise result

    def kill(self) -> None:
        """End the process. Any thread; a thread that waits in `ask` gets a WorkerDiedError."""
        if self._here.is_left:
            # It is not this process's child.
            return
        self._killed_at_exit.cancel()
        self._process.kill()
        self._process.join()

    def end(self) -> None:
        """End the process, and close the pipe to it. Only for the thread that calls `ask`."""
        self.kill()
        self._pipe.close()


def imported_by(handler: Callable[..., Any]) -> tuple[str, str]:
    """The two imports of a child's start, in words for errors: the program, and the module of the handler."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    path = attribute_if_loaded("__main__", "__file__")
    program = "the program" if path is None else f"the program {path}"
    module = getattr(handler, "__module__", None) or type(handler).__module__
    return program, program if module in ("__main__", "__mp_main__") else f"module {module!r} of the handler"


def wait_for_start(
    pipe: Connection, imported: Sequence[str], limit_ms: int, exit_code: Callable[[], int | None]
) -> None:
    """Wait until a child has imported the program and the handler; each import has ``limit_ms``.

    Raises:
        WorkerStartError: an import failed or took too long; the message names the import and the reason.
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
                    "each worker process imports the program again, and that import called process(): start the "
                    f"program under {_GUARD!r}"
                )
            else:
                problem = f"it ended with exit code {code}; see its output on stderr"
        if problem:
            raise WorkerStartError(f"a worker process could not import {what}: {problem}")


def refuse_to_begin_in_a_child() -> None:
    """End this process if it is a child that is still importing the program: it would start children without end.

    Raises:
        WorkerStartError: another program's `multiprocessing` started this process.
        SystemExit: `process` started it. The parent raises the error, once for all children.
    """
    this = multiprocessing.process.current_process()
    # multiprocessing sets this attribute while a spawned child imports the program.
    if not getattr(this, "_inheriting", False):
        return
    if this.name == _NAME:
        raise SystemExit(_UNGUARDED)
    raise WorkerStartError(
        f"process() was called while a child process imports the program: start the program under {_GUARD!r}"
    )


# ---------------------------------------------------------------- in the child


def _serve(pipe: Connection, handler: bytes, flag: Any) -> None:
    """Run the handler with the records from the pipe, until the parent closes it."""
    here = ThisProcess()
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not SIG_IGN: programs that handlers start would inherit it.
    signal.signal(signal.SIGTERM, functools.partial(_leave_to_parent, here))
    if hasattr(signal, "pthread_sigmask"):
        # Programs that handlers start must not inherit the mask.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _OF_THE_PARENT)
    if hasattr(os, "register_at_fork"):
        # A fork of the handler's must not hold the pipe open: the parent would not notice the end of this process.
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
                # Unpickling values and running generators is user code, too.
                with here:
                    records, context.attempt, carried = pickle.loads(given)  # noqa: S301 - as above
                    if isinstance(records, list):
                        context.delivery_count = deliveries_of(records)
                    arguments = (
                        records if in_batches else records[0],
                        *((context,) if takes_context else ()),
                    )
                    with carried or contextlib.nullcontext():
                        outputs = outputs_of(call(*arguments))
                        given_back = None if outputs is None else list(outputs)
                    answer = pickle.dumps((True, context.told_lost, given_back), protocol=5)
            # sys.exit() does not end the child: it fails the attempt, as on threads.
            except BaseException as error:  # noqa: BLE001 - the parent raises it
                answer = here.call(_as_bytes, error, told_lost=context.told_lost)
            pipe.send_bytes(answer)


def _leave_to_parent(here: ThisProcess, number: int, frame: FrameType | None) -> None:
    """Ignore SIGTERM: the parent may have received it as well, and ends this process.

    Args:
        here: the process that handles records. A process that a handler forked ends as usual.
    """
    if here.is_left:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


def _end_with_parent() -> None:
    """From now on this process ends when the parent process ends for any reason (H12)."""
    parent = multiprocessing.process.parent_process()
    if parent is None:
        return
    first = os.getppid()
    if not _is_killed_with_parent():
        # Not `threading`: the exit of this process would wait for such a thread.
        _thread.start_new_thread(_kill_after, (parent.sentinel, first))
    elif multiprocessing.connection.wait([parent.sentinel], 0) or os.getppid() != first:
        # The parent ended before prctl took effect.
        os._exit(_ORPHANED)


def _is_killed_with_parent() -> bool:
    """Have Linux kill this process when its parent is gone; a handler cannot delay that. False on other systems.

    To the kernel the parent is the *thread* that started this process: the worker of `ThreadWorkers` that uses it.
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
        parent: becomes readable when the parent ends, unless other children hold the same descriptor.
        first: the parent's process id. It changes when the parent ends, except on Windows, where `parent` suffices.
    """
    while os.getppid() == first and not multiprocessing.connection.wait([parent], _LOOK_S):
        pass
    os._exit(_ORPHANED)


def _as_bytes(error: BaseException, *, told_lost: bool) -> bytes:
    """The exception, pickled for the parent; one that cannot be pickled becomes a RuntimeError with the same text."""
    try:
        data = pickle.dumps((False, told_lost, error), protocol=5)
        is_whole = isinstance(pickle.loads(data)[2], BaseException)  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - user code makes exceptions of any kind
        is_whole = False
    if is_whole:
        return data
    plain = RuntimeError(f"{type(error).__name__}: {text_of(error)}")
    return pickle.dumps((False, told_lost, plain), protocol=5)
