"""The time until which the calls of a client may wait for brokers after ``stop(grace=)``.

Every wait ends with the grace period, even if there was never a broker (H10). Its last part is for ``close``.
"""

from __future__ import annotations

from typing import Final

from kadence.clock import FOREVER, Seconds, add_ms, to_ms
from kadence.errors import ClosedError

__all__ = ["RESERVE_MS", "Grace"]

RESERVE_MS: Final = 2_000
"""So long before the end of the grace period no call waits any longer, so that there is time for ``close``."""


class Grace:
    """The grace period of one client. A signal handler may begin it.

    Attributes:
        close_by: when (ms) everything must be closed; FOREVER: there is no grace period.
    """

    __slots__ = ("_began", "close_by")

    def __init__(self) -> None:
        self.close_by = FOREVER
        self._began = FOREVER

    def begin(self, now: int, grace: Seconds | None) -> None:
        """``stop`` was called; None: without a grace period."""
        if (ms := to_ms(grace)) is not None:
            self._began, self.close_by = now, add_ms(now, ms)

    def end(self) -> None:
        """The client closes: that has a time of its own."""
        self.close_by = FOREVER

    def wait_until(self, now: int, began: int | None = None) -> int:
        """The time (ms) until which a call may wait; FOREVER: there is no grace period.

        Args:
            began: when (ms) it began: one that begins late has as much time as ``close`` has then. None: long ago.

        Raises:
            ClosedError: that is over.
        """
        if self.close_by == FOREVER:
            return FOREVER
        began = self._began if began is None else began
        over_at = max(self.close_by - RESERVE_MS, add_ms(began, RESERVE_MS))
        if now >= over_at:
            raise ClosedError(
                "the grace period of stop() is over, and this call would have to wait for brokers"
            )
        return over_at
