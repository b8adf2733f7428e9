"""SIGINT and SIGTERM of a process that runs a pipeline, from before Spark starts until after it has ended.

The first one during a run asks it to stop, which takes the grace period at most. In all other cases the next start can
recover as after a kill, so the process ends at once, by `os._exit`. An exception would print pages of tracebacks from
within a call to Java. Java ends with this process, even while it starts (`kadence_spark.jvm`).

Python runs the handlers on the main thread, also while that waits for Java.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from kadence_spark.pipeline.run import Run

__all__ = ["Signals"]

_SAME_S: Final = 1.0
"""Later signals within so long of the first one count as the same: a parent may forward its group's signal."""

_TO_CLOSE_S: Final = 5.0
"""The time of a run's end beyond the grace period of its batch (seconds)."""

_TO_BEGIN_S: Final = 3.0
"""The time of a run's end before it has begun a query, while a broker or registry may be silent (seconds)."""

_SHOW_CURSOR: Final = "\r\x1b[K\x1b[?25h"


class Signals:
    """In force within ``with``, on the main thread.

    Args:
        name: of the pipeline, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._run: Run | None = None
        self._first: int | None = None
        self._at = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def run(self, run: Run) -> int:
        """Run it; 0, or 128 and the number of the signal that stopped it."""
        self._run = run
        try:
            run.run()
        finally:
            self._run = None
        return 0 if self._first is None else 128 + self._first

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGALRM:
            self._end("because it did not end in time")
        elif self._first is None and self._run is not None:
            self._first, self._at = number, time.monotonic()
            self._run.stop()
            limit = self._run.grace + _TO_CLOSE_S if self._run.has_begun else _TO_BEGIN_S
            signal.setitimer(signal.ITIMER_REAL, limit)
        elif self._first is None:
            self._first = number
            self._end("while Spark started or ended")
        elif time.monotonic() - self._at >= _SAME_S:
            self._end("at the second one")

    def _end(self, why: str) -> None:
        number = self._first or signal.SIGALRM
        cursor = _SHOW_CURSOR if sys.stderr.isatty() else ""
        what = "; the next run repeats the batch that was running" if self._run is not None else ""
        said = f"{cursor}{self._name}: {signal.Signals(number).name} ended it {why}{what}\n"
        os.write(2, said.encode(errors="replace"))
        os._exit(128 + number)
