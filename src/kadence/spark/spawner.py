"""Spark's Python processes on the driver, forked from one that has everything imported.

For a stream Spark starts six Python processes one after the other, and waits for each of them to import PySpark,
PyArrow and the source: to look the source up, to make it, to ask it for offsets, to plan it, and the daemon of the
workers. With a local master `kadence.spark.session` starts one more, this one, before it starts Java: it imports all
that while Java starts. Spark is given a program in place of Python (`kadence.spark.launch`), which asks this process to
fork.

A fork is as good as a new Python only where that would import the same: from the same directory, path and settings of
Python. This process compares them and refuses otherwise; it also refuses if its imports have left a thread. The program
then starts Python itself. So nothing depends on this process but time.

It ends when the process that started it has ended and all that it forked have. Linux only, as `kadence.spark.daemon`.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import json
import os
import re
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Final

from kadence.java import cache_directory
from kadence.spark import launch
from kadence.spark.launch import DIRECTORY, NUMBER, SOCKET

__all__ = ["AHEAD", "PROGRAM", "Request", "differs", "is_launcher", "launcher"]

AHEAD: Final = (
    "pyspark.worker",
    "pyspark.sql.datasource_internal",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.streaming.datasource",
)
"""What Spark's processes import, beside what tasks do. Those that it runs as programs are not among them."""

_JAR_OF_SPARK: Final = re.compile(r"/spark-core_[^/]*\.jar$")
_HASH_SEED: Final = "PYTHONHASHSEED"
_PATH: Final = "PYTHONPATH"
_OF_A_PROCESS: Final = ("PYTHONUNBUFFERED", _PATH)
"""Settings of Python that a fork can still take over, or that are compared by what they mean."""

_THREADS: Final = "OMP_NUM_THREADS"
ONE: Final = "1"
"""Libraries that compute start their threads when they are imported, as many as this says; one is none beside ours."""

DAEMON: Final = "kadence.spark.daemon"

PROGRAM: Final = "PYSPARK_DRIVER_PYTHON"
"""The variable by whose Python Spark looks sources up, plans and reads them."""

REFUSED: Final = -1
"""Said in place of a process's id."""


def launcher(cache: Path | None = None) -> dict[str, str]:
    """The environment of a Java process that asks this process's spawner for Python; empty: there is none.

    The first call starts the spawner.

    Args:
        cache: where the program is made that stands for Python; the user's cache directory unless given.
    """
    if sys.platform != "linux":
        return {}
    program = _program(cache or cache_directory())
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        text = f'#!/bin/sh\nexec {shlex.join([sys.executable, "-S", "-E", launch.__file__])} "$@"\n'
        if not program.exists() or program.read_text() != text:
            made = program.with_name(f"{program.name}-{os.getpid()}")
            made.write_text(text)
            made.chmod(0o700)
            made.replace(program)
        # Nothing may be run from some file systems.
        return {PROGRAM: str(program), DIRECTORY: _started()[0]} if os.access(program, os.X_OK) else {}
    except OSError:
        return {}


def is_launcher(program: str) -> bool:
    """Whether this is what stands for this Python."""
    return Path(program).name == _program(Path()).name


def _program(cache: Path) -> Path:
    return cache / f"python-{hashlib.sha256(sys.executable.encode()).hexdigest()[:12]}"


@cache
def _started() -> tuple[str, subprocess.Popen[bytes]]:
    """The directory of the spawner's socket, and the spawner."""
    directory = tempfile.mkdtemp(prefix="kadence-spark-")
    spawner = subprocess.Popen(
        [sys.executable, "-m", __name__, directory],
        # Its end tells the spawner of ours, whatever it was.
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # As Spark's start script has it for Java, and so for all processes that Java starts.
        env={_HASH_SEED: "0", **os.environ, _THREADS: ONE},
        start_new_session=True,
    )
    assert spawner.stdin is not None
    atexit.register(spawner.stdin.close)
    return directory, spawner


@dataclass(frozen=True, slots=True)
class Request:
    """A process that Spark wants: what a Python of its own would have been started with."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str


def differs(request: Request, environment: Mapping[str, str], directory: str) -> bool:
    """Whether a Python started so would not be as one with this environment, in this directory."""
    if request.directory != directory or request.arguments[:1] not in (["-m"], ["-c"]):
        return True
    if request.environment.get(_THREADS, ONE) != ONE:
        return True
    return _settings(request.environment) != _settings(environment)


def _settings(environment: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """What changes Python itself. Variables with an underscore after PYTHON are Spark's."""
    own = {
        name: value
        for name, value in environment.items()
        if name.startswith("PYTHON") and not name.startswith("PYTHON_") and name not in _OF_A_PROCESS
    }
    return own, _entries(environment)


def _entries(environment: Mapping[str, str]) -> list[str]:
    """The path without what nothing is imported from: archives that are not there, and the jar of Spark itself.

    Spark names the path that it was started with twice.
    """
    entries = dict.fromkeys(environment.get(_PATH, "").split(os.pathsep))
    return [entry for entry in entries if entry and Path(entry).exists() and not _JAR_OF_SPARK.search(entry)]


class _Spawner:
    """Forks on request, and tells who asked how the process ended."""

    def __init__(self, listener: socket.socket, environment: Mapping[str, str], directory: str) -> None:
        self._listener = listener
        self._environment = environment
        self._directory = directory
        self._selector = selectors.DefaultSelector()
        self._processes: dict[int, socket.socket] = {}
        self._woken, wakes = os.pipe()
        for end in (self._woken, wakes):
            os.set_blocking(end, False)
        self._wakes = wakes

    def serve(self) -> tuple[Request, list[int]] | None:
        """Returns in each forked process with what it is to be, and in this one when it is not needed any more."""
        signal.signal(signal.SIGCHLD, _nothing)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        for each in (self._listener.fileno(), 0, self._woken):
            self._selector.register(each, selectors.EVENT_READ)
        is_needed = True
        while is_needed or self._processes:
            for key, _ in self._selector.select():
                if key.fd == self._listener.fileno():
                    if (forked := self._accept()) is not None:
                        return forked
                elif key.fd == self._woken:
                    os.read(self._woken, 512)
                    self._reap()
                elif key.fd == 0:  # the program that started this process has ended
                    self._selector.unregister(0)
                    is_needed = False
                else:
                    self._abandoned(key.fd)
        return None

    def _accept(self) -> tuple[Request, list[int]] | None:
        connection, _ = self._listener.accept()
        try:
            request, streams = _received(connection)
        except (OSError, ValueError, KeyError):
            connection.close()
            return None
        refused = differs(request, self._environment, self._directory)
        process = REFUSED if refused else os.fork()
        if process == 0:
            self._leave(connection)
            return request, streams
        for stream in streams:
            os.close(stream)
        with suppress(OSError):
            connection.sendall(NUMBER.pack(process))
        if refused:
            connection.close()
        else:
            self._processes[process] = connection
            self._selector.register(connection, selectors.EVENT_READ)
        return None

    def _leave(self, connection: socket.socket) -> None:
        """In a new process: hold on to nothing of the spawner's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Spark's daemons signal the group they lead; a process of its own is no part of another's.
        os.setpgid(0, 0)
        self._selector.close()
        for each in (self._listener, connection, *self._processes.values()):
            each.close()
        os.close(self._woken)
        os.close(self._wakes)

    def _reap(self) -> None:
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if process == 0:
                return
            with self._processes.pop(process) as connection, suppress(OSError, KeyError):
                self._selector.unregister(connection)
                connection.sendall(NUMBER.pack(status))

    def _abandoned(self, descriptor: int) -> None:
        """The program that stands for a process was killed, so the process is, too."""
        self._selector.unregister(descriptor)
        for process, connection in self._processes.items():
            if connection.fileno() == descriptor:
                os.kill(process, signal.SIGKILL)


def _nothing(number: int, frame: FrameType | None) -> None:
    """For a signal that only has to wake the loop."""


def _received(connection: socket.socket) -> tuple[Request, list[int]]:
    head, streams, _, _ = socket.recv_fds(connection, NUMBER.size, 3)
    (left,) = NUMBER.unpack(head)
    data = b""
    while len(data) < left:
        more = connection.recv(left - len(data))
        if not more:
            raise EOFError
        data += more
    return Request(**json.loads(data)), streams


def _become(request: Request, streams: list[int]) -> None:
    """Run as the Python that was asked for."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    if request.environment.get("PYTHONUNBUFFERED"):
        for output in (sys.stdout, sys.stderr):
            output.reconfigure(write_through=True)  # type: ignore[union-attr]
    mode, program, *rest = request.arguments
    if mode == "-c":
        sys.argv = ["-c", *rest]
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 - as python -c does
        return
    # Spark applies the setting of the daemon's module to the workers of tasks alone. Its planner gets the daemon of
    # PySpark, which prints a traceback for a worker whose query was stopped meanwhile.
    if program == "pyspark.daemon":
        program = DAEMON
    sys.argv = [program, *rest]
    sys.modules.pop(program, None)
    runpy.run_module(program, run_name="__main__", alter_sys=True)


def _main(directory: Path) -> None:
    environment = dict(os.environ)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        # Whoever comes before the imports are done waits for them; that is still the shorter way.
        listener.bind(str(directory / SOCKET))
        listener.listen()
        # Nearly all that imports make stays, also in what is forked.
        gc.disable()
        for name in AHEAD:
            with suppress(ImportError):
                import_module(name)
        # Not above: Spark runs it as a program, and Python warns of one that its package has imported already.
        import_module(DAEMON).import_ahead()
        gc.freeze()
        gc.enable()
        is_alone = len(list(Path("/proc/self/task").iterdir())) == 1
        forked = _Spawner(listener, environment, str(Path.cwd())).serve() if is_alone else None
    if forked is None:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        _become(*forked)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
