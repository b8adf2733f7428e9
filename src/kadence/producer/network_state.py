"""How a producer's network side goes, and when it is to end: what its calls and its network thread both look at."""

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
"""How long what was sent may take to be acknowledged when nobody closes the producer."""


def not_in_time() -> ClosedError:
    """What a record fails with when its producer ends before it was acknowledged."""
    return ClosedError(
        "the producer was closed, or the process ended, before this record was acknowledged; close() later, or "
        "with more time"
    )


class NetworkState(network_state.NetworkState):
    """Of one producer. The arguments are those of the base, and the name of the thread, for the log."""

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
        """It has ended. What it has left, as where it could not even begin, fails: nobody else would decide it."""
        error = ended("producer", self.fatal) if self.fatal is not None else not_in_time()
        for batch in self._accumulator.lose_all(error):
            batch.delivery.fail(error, first=batch.first)
        for delivery in tuple(self._accumulator.untold):
            if not delivery.done:
                delivery.forsake(error)
        super().dismiss()

    def hurry(self) -> None:
        """The process is to end: from now on no record lingers. Any thread."""
        with self._accumulator.gate:
            self._accumulator.flushing += 1
        self.wakeup()

    def delivers_within(self, seconds: float) -> bool:
        """Wait until what was sent so far is acknowledged or has failed; False: the time was over before."""
        with self._accumulator.gate:
            given = {batch.delivery for batch in self._accumulator.incomplete} | self._accumulator.untold
            decided: bool = self._accumulator.gate.wait_for(
                lambda: all(delivery.done for delivery in given), seconds
            )
        return decided

    def stir(self) -> None:
        """Have every call that waits look again. In a signal handler, which cannot take the gate."""
        self._is_stirred = True
        self.wakeup()

    def tell_stirred(self) -> None:
        """Do what `stir` asked for. Network thread."""
        if self._is_stirred:
            self._is_stirred = False
            with self._accumulator.gate:
                self._accumulator.gate.notify_all()

    @property
    def is_telling(self) -> bool:
        """Whether callbacks of futures are still to run, though all records are decided. Under the gate."""
        return self.fatal is None and bool(self._accumulator.untold)

    def left_behind(self) -> None:
        """Whoever waited for the end waits no longer. Any thread."""
        with self._accumulator.gate:
            count = self._accumulator.undecided
        _log.warning(
            "%s: close() does not wait any longer for the network thread, which is busy, as with a callback of a "
            "future that takes long; %d records are neither acknowledged nor failed yet",
            self._name,
            count,
        )
