"""The thread that waits for the disk. All records appended while it was busy share the next fsync.

On the loop's thread: `want` and `run`. Results come back there. Calls are run in the order in which they came.
A flush that could not begin (the process has no descriptor left for a folder, say) has lost nothing: it is tried again.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import Final, Protocol

from kadence.logs import OwnThread, logger

__all__ = ["Durable", "Flusher", "NotTriedError", "Worker", "run_guarded"]

_log = logger("kadence.broker")

_AGAIN_MS: Final = 100
"""After which a flush that could not begin is tried again."""


class NotTriedError(OSError):
    """No fsync was tried, so nothing is lost: another attempt may make it durable."""


class Durable(Protocol):
    """Something with files to be made durable."""

    def begin_flush(self) -> list[Callable[[], None]]:
        """Calls that make durable what is there now; they are run on the other thread.

        One that raises `NotTriedError` lets all be asked for again later, instead of `end_flush`.
        """
        ...

    def end_flush(self, error: OSError | None) -> None:
        """They have been run."""
        ...


class Worker(Protocol):
    """Runs calls that may wait for the disk, one after the other, beside the loop."""

    def put(self, call: Callable[[], None]) -> None:
        """Run this after those that were given before."""
        ...

    def close(self) -> None:
        """Finish what was given."""
        ...


class _Thread:
    """A thread of its own."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = OwnThread(target=self._run, name="kadence-broker-flusher")
        self._thread.start()

    def put(self, call: Callable[[], None]) -> None:
        self._work.put(call)

    def close(self) -> None:
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._work.get()) is not None:
            run_guarded(call)


def run_guarded(call: Callable[[], None]) -> None:
    """Run a call of a `Worker`: without its worker no record would ever be acknowledged."""
    try:
        call()
    except OSError as error:
        _log.warning("the disk refused what was to be done in the background: %s", error)
    except Exception:  # noqa: BLE001 - see above
        _log.exception("a bug in what is done in the background; the broker goes on serving")


class Flusher:
    """One worker for all partitions of a broker.

    Args:
        after: runs a call on the loop's thread in so many ms; 0: after what it is busy with.
        to_loop: runs a call on the loop's thread, from the worker.
        worker: a thread of its own unless given.
        first: made durable before the others each time: the journal of topics.
    """

    def __init__(
        self,
        after: Callable[[int, Callable[[], None]], object],
        to_loop: Callable[[Callable[[], None]], object],
        worker: Worker | None = None,
    ) -> None:
        self._after = after
        self._to_loop = to_loop
        self.first: Durable | None = None
        self._wanted: dict[Durable, None] = {}
        self._is_busy = False
        self._is_put_off = False
        self._worker = worker or _Thread()

    def want(self, durable: Durable) -> None:
        """Let what ``durable`` holds now, and what comes until the flush begins, be made durable."""
        if not self._wanted and not self._is_busy:
            self._is_busy = True
            self._after(0, self._begin)
        self._wanted[durable] = None

    def run(self, call: Callable[[], None]) -> None:
        """Run a call on the worker; an `OSError` of it is logged."""
        self._worker.put(call)

    def close(self) -> None:
        """Finish what was asked for; the loop has ended."""
        self._worker.close()

    def _begin(self) -> None:
        wanted, self._wanted = self._wanted, {}
        if self.first is not None:
            wanted = {self.first: None, **wanted}
        begun = [(each, each.begin_flush()) for each in wanted]
        self._worker.put(lambda: self._flush(begun))

    def _flush(self, begun: list[tuple[Durable, list[Callable[[], None]]]]) -> None:
        results: list[tuple[Durable, OSError | None]] = []
        failed: OSError | None = None
        for durable, each in begun:
            error = failed
            for call in each:
                try:
                    call()
                except OSError as caught:
                    # A permanent error counts more than one after which a retry may help.
                    if error is None or isinstance(error, NotTriedError):
                        error = caught
            if durable is self.first:
                # Records of a topic that may be lost are not safe.
                failed = error
            results.append((durable, error))
        self._to_loop(lambda: self._end(results))

    def _end(self, results: list[tuple[Durable, OSError | None]]) -> None:
        put_off: OSError | None = None
        for durable, error in results:
            if isinstance(error, NotTriedError):
                put_off = error
                self._wanted[durable] = None
                continue
            try:
                durable.end_flush(error)
            except Exception:  # noqa: BLE001 - the flushes after it must go on
                _log.exception("a bug in a callback after a flush; the broker continues to serve")
        self._log_put_off(put_off)
        self._is_busy = bool(self._wanted)
        if put_off is not None:
            self._after(_AGAIN_MS, self._begin)
        elif self._is_busy:
            self._begin()

    def _log_put_off(self, put_off: OSError | None) -> None:
        if put_off is not None and not self._is_put_off:
            _log.error("records wait for the disk, which fails at present: %s", put_off)
        elif put_off is None and self._is_put_off:
            _log.warning("records are made durable again")
        self._is_put_off = put_off is not None
