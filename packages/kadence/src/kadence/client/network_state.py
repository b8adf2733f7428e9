"""The state of a network side and its end, shared with the calls of a client that many threads share.

The network side writes its state, the calls request its end. The consumer has its shared state instead.
"""

from __future__ import annotations

from collections.abc import Callable

from kadence.client.gate import Gate
from kadence.clock import FOREVER

__all__ = ["NetworkState"]


class NetworkState:
    """Of one client (a `kadence.client.network_thread.Callers`).

    Args:
        gate: the client's lock; notified at the end.
        wakeup: wakes the network side. Any thread may call it.

    Attributes:
        trouble: why no broker can be reached, for the message of a call that waits in vain (network).
        fatal: the bug that ended the network side, if one did: every call raises it (network). is_shut: whether it
            takes nothing any more, so that every call raises (network). has_ended: whether it has ended (network).
        close_at: until when what is left is sent (application).
    """

    def __init__(self, gate: Gate, wakeup: Callable[[], None]) -> None:
        self.wakeup = wakeup
        self.trouble: str | None = None
        self.fatal: BaseException | None = None
        self.is_shut = False
        self.has_ended = False
        self.close_at = FOREVER
        self._gate = gate

    # -- application side

    def begin_close(self, deadline: int) -> None:
        """Send what is left until ``deadline``, drop the rest, end. Any thread, be it one that holds the gate.

        Of several calls the earliest deadline holds.
        """
        self.close_at = min(self.close_at, deadline)
        self.wakeup()

    @property
    def is_closing(self) -> bool:
        """True if `begin_close` was called."""
        return self.close_at != FOREVER

    # -- network side

    def shut(self) -> None:
        """Take no more records or calls; those that were taken came before."""
        with self._gate:
            self.is_shut = True
            self._gate.notify_all()

    def refuse(self, cause: BaseException | None) -> None:
        """The network side ends, by ``cause`` if that was a bug: every call raises from now on."""
        self.fatal = cause
        self.shut()

    def dismiss(self) -> None:
        """It has ended: wake the waiting calls."""
        with self._gate:
            self.has_ended = True
            self._gate.notify_all()
