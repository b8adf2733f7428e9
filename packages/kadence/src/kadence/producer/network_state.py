"""The state of a producer's network side and its end, shared by its calls and its network thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.client import network_state
from kadence.client.engine import ended
from kadence.errors import ClosedError
from kadence.logs import logger
from kadence.producer.accumulator import Accumulator

__all__ = ["FAREWELL_MS", "NetworkState", "not_in_time"]

_log = logger("kadence.producer")

FAREWELL_MS: Final = 5_000
"""The time in which sent records may still be acknowledged if the program never closes the producer."""


def not_in_time() -> ClosedError:
    """The error of a record whose producer ends before it was acknowledged."""
    return ClosedError(
        "the producer was closed, or the process ended, before this record was acknowledged; call close() later, or "
        "with a longer timeout"
    )


class NetworkState(network_state.NetworkState):
    """The state of one producer's network side. The arguments are the base's, and the thread's name, for the log."""

    def __init__(self, accumulator: Accumulator, wakeup: Callable[[], None], name: str) -> None:
        super().__init__(accumulator.gate, wakeup)
        self._accumulator = accumulator
        self._name = name
        self._is_stirred = False

    def shut(self) -> None:
        with self._accumulator.gate:
            self._accumulator.is_usable = False
            super().shut()

    def dismiss(self) -> None:
        """The network thread has ended, or could not begin: fail the records that are left; no other thread would."""
        error = ended("producer", self.fatal) if self.fatal is not None else not_in_time()
        for batch in self._accumulator.lose_all(error):
            batch.delivery.fail(error, first=batch.first)
        for delivery in tuple(self._accumulator.unnotified):
            if not delivery.done:
                delivery.forsake(error)
        super().dismiss()

    def hurry(self) -> None:
        """The process is to end: from now on records do not linger. Any thread."""
        with self._accumulator.gate:
            self._accumulator.flushing += 1
        self.wakeup()

    def delivers_within(self, seconds: float) -> bool:
        """Wait until everything sent so far is acknowledged or has failed; False if the time is over before."""
        with self._accumulator.gate:
            given = {batch.delivery for batch in self._accumulator.incomplete} | self._accumulator.unnotified
            decided: bool = self._accumulator.gate.wait_for(
                lambda: all(delivery.done for delivery in given), seconds
            )
        return decided

    def stir(self) -> None:
        """Ask for every waiting call to look again. In a signal handler, which cannot take the gate."""
        self._is_stirred = True
        self.wakeup()

    def wake_stirred(self) -> None:
        """Wake the waiting calls if `stir` asked for it. Network thread."""
        if self._is_stirred:
            self._is_stirred = False
            with self._accumulator.gate:
                self._accumulator.gate.notify_all()

    @property
    def is_notifying(self) -> bool:
        """True if callbacks of futures are still to run, though all records are decided. Under the gate."""
        return self.fatal is None and bool(self._accumulator.unnotified)

    def left_behind(self) -> None:
        """The caller of close() stops waiting for the end: log a warning. Any thread."""
        with self._accumulator.gate:
            count = self._accumulator.undecided
        _log.warning(
            "%s: close() returns while the network thread is still busy, as in a slow callback of a future; "
            "%d records are neither acknowledged nor failed yet",
            self._name,
            count,
        )
