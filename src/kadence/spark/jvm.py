"""Starts Spark's Java process out of reach of signals to this process's group, and without its start-up output.

PySpark starts Java in the group of its own process. Service managers, Kubernetes and terminals send their signals to
whole groups: SIGTERM then ends Java before Python has asked its query to stop. Here Java gets a session of its own,
in the system's sense. It ends with this process even so, after SIGKILL too: it reads its stdin, a pipe whose other end
only this process has.

Java and Spark's logging say eight lines before a program has said its first one. A `_Voice` keeps them, and shows them
where Spark does not start, for there they are the reason.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import uuid
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Final

from kadence.spark.session import started
from kadence.spark.starting import is_java_needed, start_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["close_session", "session_apart"]

_TRACE: Final = "Traceback (most recent call last):"


def session_apart(
    app_name: str, *, master: str | None, conf: Mapping[str, Any], quiet: bool = True
) -> SparkSession:
    """As `kadence.spark.session`; its Java process ends with this process and before it by `close_session` alone.

    Args:
        quiet: what Java says on stderr while it starts is shown only if it does not start.
    """
    spark = None
    _voice.keep()
    try:
        spark = started(app_name, master, conf, lambda settings: _launch(settings, quiet=quiet))
    finally:
        _voice.go_on(spark)
    return spark


def close_session(spark: SparkSession) -> None:
    """Stop Spark. Where its Java process has ended already nothing is to stop."""
    from py4j.protocol import Py4JError

    # Its helpers complain that their pipes are closed.
    _voice.hush()
    with contextlib.suppress(Py4JError, OSError):
        spark.stop()


def _launch(settings: Mapping[str, Any], *, quiet: bool) -> None:
    if not is_java_needed():
        return
    with contextlib.ExitStack() as stack:
        said: dict[str, Any] = {"stderr": stack.enter_context(_voice.pipe())} if quiet else {}
        start_java(settings, start_new_session=True, **said)


class _Voice:
    """What the Java process of this process says on stderr, line by line, on a thread of its own."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: list[str] | None = None
        self._end_of_start = ""
        self._is_hushed = False
        self._is_heard = False
        self._trace: list[str] = []

    def pipe(self) -> IO[bytes]:
        """Where the process is to write; to be closed here when it has started."""
        reading, writing = os.pipe()
        self._is_heard = True
        threading.Thread(
            target=self._listen, args=(os.fdopen(reading, "rb"),), name="Spark's stderr", daemon=True
        ).start()
        return os.fdopen(writing, "wb")

    def keep(self) -> None:
        """Show nothing from now on."""
        with self._guard:
            self._kept, self._is_hushed = [], False

    def go_on(self, spark: SparkSession | None) -> None:
        """Show what comes from now on; and what was kept, where there is no session."""
        if spark is not None and self._is_heard:
            # What it said before may still be in the pipe.
            end = f"kadence {uuid.uuid4().hex}"
            with self._guard:
                self._end_of_start = end
            jvm: Any = spark.sparkContext._jvm
            jvm.java.lang.System.err.println(end)
            return
        with self._guard:
            kept, self._kept = self._kept or [], None
        if spark is None:
            sys.stderr.write("".join(kept))

    def hush(self) -> None:
        """Show nothing any more."""
        with self._guard:
            self._is_hushed = True

    def _listen(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                self._hear(line.decode(errors="replace"))

    def _hear(self, line: str) -> None:
        with self._guard:
            if self._kept is not None:
                self._kept.append(line)
                if self._end_of_start and line.strip() == self._end_of_start:
                    self._kept, self._end_of_start = None, ""
                return
            is_shown = not self._is_hushed
        if (text := self._whole(line)) and is_shown:
            sys.stderr.write(text)
            sys.stderr.flush()

    def _whole(self, line: str) -> str:
        """A traceback at its end, without that of a helper of Spark's whose work was done; any other line as it is.

        The processes in which Spark plans reads run its own daemon, which does not expect that Java hangs up
        (`kadence.spark.daemon` does).
        """
        if line.rstrip() == _TRACE:
            before, self._trace = "".join(self._trace), [line]
            return before
        if not self._trace:
            return line
        self._trace.append(line)
        if line.startswith(" "):
            return ""
        trace, self._trace = "".join(self._trace), []
        return "" if line.startswith("BrokenPipeError") and "pyspark/daemon.py" in trace else trace


_voice: Final = _Voice()
