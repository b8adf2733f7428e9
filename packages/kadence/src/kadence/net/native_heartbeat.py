"""Heartbeats for the native thread (G3), which sends them when the network thread cannot run.

The native thread is one native thread for a process (native_heartbeat.h) that never needs the interpreter. Each
connection of a group has a *sender* here, which gives it a heartbeat as bytes and a time; a running network thread
keeps postponing that time, so the native thread sends nothing. The heartbeats that it did send are counted before the
network thread writes or reads on that connection: a broker answers in the order of the requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kadence.at_exit import after_handlers
from kadence.clock import FOREVER
from kadence.connection.request import NativeHeartbeatPlan, Request
from kadence.errors import KafkaError
from kadence.logs import logger
from kadence.net import drain
from kadence.wire import WireError

if TYPE_CHECKING:
    from kadence.connection.connection import BrokerConnection
    from kadence.net.sockets import Stream

__all__ = [
    "AVAILABLE",
    "Counts",
    "NativeHeartbeatSender",
    "OnNativeHeartbeats",
    "bind_openssl",
    "heartbeat_sender_of",
]

OnNativeHeartbeats = Callable[[list[Request], int], None]
"""Takes the heartbeats that the native thread has sent, and when (ms) the last of them."""

Counts = Callable[[int, int, int], None]
"""Takes the time (ms), the bytes of one heartbeat, and how many were sent."""

if TYPE_CHECKING or drain.COMPILED:
    from kadence._native import native_heartbeat as _native

    # Consumers may have members until then.
    after_handlers(_native.end, late=True)

_log = logger("kadence.net")

AVAILABLE: Final = drain.COMPILED
"""Whether there is a native thread: not on Windows."""


def bind_openssl(functions: tuple[int, int, int, int]) -> None:
    """Give the native thread what it writes on TLS with (`openssl.functions`)."""
    if AVAILABLE:
        _native.bind_openssl(*functions)


def heartbeat_sender_of(
    stream: Stream, connection: BrokerConnection, told: OnNativeHeartbeats, counted: Counts
) -> NativeHeartbeatSender | None:
    """Passes heartbeats of this connection to the native thread; None if only Python can write on it."""
    session = stream.session
    return (
        None
        if session is None or not AVAILABLE
        else NativeHeartbeatSender(_native.NativeHeartbeat(session), connection, told, counted)
    )


class NativeHeartbeatSender:
    """See the top of the file. Network thread.

    Args:
        heartbeat: the native thread's side of the connection. told: called with the heartbeats that the native thread
            has sent. counted: called before that, for the metrics.
    """

    __slots__ = (
        "_armed",
        "_armed_size",
        "_armed_version",
        "_connection",
        "_counted",
        "_counter_at",
        "_frame",
        "_heartbeat",
        "_held_until",
        "_message",
        "_told",
        "_version",
        "_wish",
    )

    def __init__(
        self, heartbeat: Any, connection: BrokerConnection, told: OnNativeHeartbeats, counted: Counts
    ) -> None:
        self._heartbeat = heartbeat
        self._connection = connection
        self._told = told
        self._counted = counted
        self._wish: NativeHeartbeatPlan | None = None
        # The native thread's current heartbeat.
        self._armed: NativeHeartbeatPlan | None = None
        self._held_until = 0
        # The latest message as bytes.
        self._message: Any = None
        self._frame, self._version, self._counter_at = b"", 0, 0
        self._armed_version = self._armed_size = 0

    def arm_native_heartbeat(self, wish: NativeHeartbeatPlan | None, now: int) -> None:
        """The heartbeat to send if nothing else is sent in time; None: none."""
        self._wish = wish
        self.arm(now)

    def count_sent(self, now: int) -> None:
        """Count the heartbeats sent by the native thread.

        Before anything is written on the connection, or read from it.
        """
        count = self._heartbeat.count_sent()
        if not count:
            return
        assert self._armed is not None
        sent = self._armed.request
        requests = [
            Request(sent.message, sent.node_id, FOREVER, sent.purpose, sent.tag, min_version=sent.min_version)
            for _ in range(count)
        ]
        self._counted(now, self._armed_size, count)
        self._connection.native_heartbeats_sent(requests, self._armed_version, now)
        self._told(requests, self._heartbeat.sent_at)

    def before_writing(self, now: int) -> None:
        """Nothing may come between the messages of a login."""
        if self._connection.is_steady:
            self.count_sent(now)
        else:
            self._disarm(now)

    def arm(self, now: int) -> None:
        """Give the native thread the desired heartbeat, if it does not have it."""
        wish, connection = self._wish, self._connection
        if wish is self._armed and (wish is None or connection.held_until == self._held_until):
            return
        if wish is None or not connection.is_steady:
            self._disarm(now)
            return
        self.count_sent(now)
        if wish.request.message is not self._message:
            try:
                self._frame, self._version = connection.frame(wish.request)
            except (KafkaError, WireError):
                # The ordinary heartbeat meets the same error, and reports it.
                return
            self._message = wish.request.message
            behind = wish.counter_behind
            self._counter_at = self._frame.index(behind) + len(behind) if behind else 0
        due = max(wish.due, connection.held_until)
        try:
            while not self._heartbeat.arm(self._frame, due, wish.until, wish.interval_ms, self._counter_at):
                # One more of the old ones was sent.
                self.count_sent(now)
        except OSError as error:
            # Tried again with the next heartbeat.
            _log.warning(
                "the native heartbeat cannot run, so no heartbeats are sent while the network thread is held up: %s",
                error,
            )
        self._armed, self._armed_version, self._armed_size = wish, self._version, len(self._frame)
        self._held_until = connection.held_until

    def _disarm(self, now: int) -> None:
        if self._armed is not None:
            self._heartbeat.disarm()
            self.count_sent(now)
            self._armed = None

    def close(self) -> None:
        """Before the connection's descriptor is closed."""
        self._heartbeat.close()
