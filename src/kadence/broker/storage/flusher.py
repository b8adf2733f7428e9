"""The thread that waits for the disk. All records appended while it was busy share the next fsync.

On the loop's thread: `want` and `run`. Results come back there. Calls are run in the order in which they came.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Protocol

__all__ = ["Durable", "Flusher", "Worker", "fsync_and_close", "run_guarded"]

_log = logging.getLogger("kadence.broker")


class Durable(Protocol):
    """Something with files to be made durable."""

    def begin_flush(self) -> list[Callable[[], None]]:
        """Calls that make durable what is there now; they are run on the other thread."""
        ...

    def end_flush(self, error: OSError | None) -> None:
        """They have been run."""
        ...


class Worker(Protocol):
    """What may wait for the disk: it runs calls, one after the other, beside the loop."""

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
        self._thread = threading.Thread(target=self._run, name="kadence-broker-flusher", daemon=True)
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
        soon: runs a call on the loop's thread, after what it is busy with.
        to_loop: runs a call on the loop's thread, from the worker.
        worker: a thread of its own unless given.
        first: made durable before the others each time: what says which topics there are.
    """

    def __init__(
        self,
        soon: Callable[[Callable[[], None]], object],
        to_loop: Callable[[Callable[[], None]], object],
        worker: Worker | None = None,
    ) -> None:
        self._soon = soon
        self._to_loop = to_loop
        self.first: Durable | None = None
        self._wanted: dict[Durable, None] = {}
        self._is_busy = False
        self._worker = worker or _Thread()

    def want(self, durable: Durable) -> None:
        """Let what ``durable`` holds now, and what comes until the flush begins, be made durable."""
        if not self._wanted and not self._is_busy:
            self._is_busy = True
            self._soon(self._begin)
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
        begun = [(each, *_begun(each)) for each in wanted]
        self._worker.put(lambda: self._flush(begun))

    def _flush(self, begun: list[tuple[Durable, list[Callable[[], None]], OSError | None]]) -> None:
        results: list[tuple[Durable, OSError | None]] = []
        failed: OSError | None = None
        for durable, each, unbegun in begun:
            error = unbegun or failed
            for call in each:
                try:
                    call()
                except OSError as caught:
                    error = error or caught
            if durable is self.first:
                # Records of a topic that may not be known tomorrow are not safe.
                failed = error
            results.append((durable, error))
        self._to_loop(lambda: self._end(results))

    def _end(self, results: list[tuple[Durable, OSError | None]]) -> None:
        for durable, error in results:
            try:
                durable.end_flush(error)
            except Exception:  # noqa: BLE001 - else nothing would be made durable any more
                _log.exception("a bug in what follows a flush; the broker goes on serving")
        self._is_busy = bool(self._wanted)
        if self._is_busy:
            self._begin()


def _begun(durable: Durable) -> tuple[list[Callable[[], None]], OSError | None]:
    try:
        return durable.begin_flush(), None
    except OSError as error:
        # Out of descriptors, mostly.
        return [], error


def fsync_and_close(descriptor: int) -> None:
    """Make a file durable through a descriptor of one's own."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
