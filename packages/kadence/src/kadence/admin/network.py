"""The network side of an admin client, as its calls use it: they queue requests, and wait.

The network thread starts with the first call and ends with the client. It refers to no client, so an
unclosed one is collected, and its thread ends. No lock is held here: a signal handler may make a call while the
thread that it interrupts makes one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Final

from kadence.admin.direct_calls import AskedDirectly, DirectCalls
from kadence.admin.manager import AdminManager, OpenRequests
from kadence.client import network_thread
from kadence.client.engine import ended, forked_error
from kadence.client.grace import Grace
from kadence.client.network_thread import NetworkClientDelegate, NetworkSide
from kadence.client.waits import Waits
from kadence.clock import FOREVER, Clock, Seconds
from kadence.config import AdminConfig
from kadence.connection.request import Completed, ConnectionPurpose
from kadence.errors import ClosedError
from kadence.forked import FORKS
from kadence.logs import OwnThread, logger
from kadence.net import ConnectionConfig, NetworkClient
from kadence.printable import plural

__all__ = ["KIND", "Network"]

_log = logger("kadence.admin")

KIND: Final = "admin client"
"""The name of this client in messages."""


class Network:
    """The network side of one admin client: its turns, and their end. Any thread calls it.

    Attributes:
        trouble: the reason why no broker can be reached, if any. is_cut_off: no broker is connected at all.
        has_ended: the connections are closed. waiting: wakes each call that waits.
        grace: until when calls may wait once `stop` was called. has_thread: see `kadence.client.engine.Engine`.
        direct: sends requests of calls on their own threads; None until the network client is made.
        begins_again: whether bootstrap.servers are asked again when a broker says so.
    """

    has_thread: Final = True

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._client = NetworkClient(ConnectionConfig.of(config), clock)
        self._manager = AdminManager(config, self._client)
        self._client.on_wrong_node = self._manager.brokers_are_wrong
        self._side = NetworkSide(
            KIND, self, lambda: _Turn(clock, self._client, self._manager, self), self._client.close
        )
        self._name = f"{config.client_id}-network"
        self._fork = FORKS.count
        # Held for ever by the thread that ends the connections: the network thread, or else the caller of close().
        self._runs = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closing = False
        self._fatal: BaseException | None = None
        self.begins_again = config.metadata_recovery_strategy == "rebootstrap"
        self.trouble: str | None = None
        self.is_cut_off = False
        self.has_ended = False
        self.waiting: set[Callable[[], None]] = set()
        self.grace = Grace()
        self.direct: DirectCalls | None = None

    # -- what calls ask

    def broker(self, node_id: int) -> str | None:
        """A broker of the cluster and its address, for a message; None if it is not known, or any broker is meant."""
        return self._client.broker(node_id)

    def ask(self, asked: OpenRequests, *, directly: bool) -> AskedDirectly | None:
        """Send these requests. The shell of the call sends them with `send_off`.

        Args:
            directly: this thread may send the only one itself, and then waits for its answer (`DirectCalls`).

        Returns:
            The request that this thread has sent; None: the network thread sends them.
        """
        if directly and self.direct is not None and (sent := self.direct.ask(asked)) is not None:
            return sent
        self._manager.hand_over(asked)
        return None

    def taken(self, sent: AskedDirectly) -> Completed | None:
        """The plain answer to this, which has come. None: the network thread has to see it first."""
        assert self.direct is not None
        return self.direct.take(sent)

    def take_over(self) -> None:
        """Have the network thread take over what was sent directly, and has no answer."""
        self._client.wakeup()

    def send_off(self) -> None:
        """Have the network thread send what calls have handed over. The last thing before a call waits.

        The thread needs the interpreter as soon as it is awake, and would wait for it a second time.
        """
        if not self._manager.has_handed_over:
            return
        if self._runs.locked():
            self._client.wakeup()
        else:
            self.start()

    def check_usable(self) -> None:
        """Raise if a call cannot begin (any more).

        Raises:
            ClosedError, ForkedError. FatalNetworkError: the network thread has ended with a bug.
        """
        if self._is_forked:
            raise forked_error(KIND)
        if self._is_closing or self._fatal is not None:
            raise ended(KIND, self._fatal)

    def check_going(self) -> None:
        """Raise if a call that waits cannot go on.

        Raises:
            ClosedError. FatalNetworkError: the network thread has ended with a bug.
        """
        if self._fatal is not None:
            raise ended(KIND, self._fatal)
        if self._is_closing:
            raise ClosedError("this admin client was closed during the call")

    @property
    def _is_forked(self) -> bool:
        return self._fork != FORKS.count

    # -- what runs the turns

    def start(self) -> None:
        """Let the first turn come.

        Threads and signal handlers may do so together: the thread that is there first runs the turns, others end.
        """
        OwnThread(target=self._run, name=self._name).start()

    def _run(self) -> None:
        if self._runs.acquire(blocking=False):
            self._thread = threading.current_thread()
            while self._side.run_once():
                pass

    def join(self, seconds: float | None = None) -> None:
        """Wait for the end of the network thread."""
        if self._thread is not None:
            self._thread.join(seconds)

    def is_alive(self) -> bool:
        """True if there are connections to close, even if no turn has run yet."""
        return not self.has_ended and not self._is_forked

    def runs_here(self) -> bool:
        """True on the network thread."""
        return threading.current_thread() is self._thread

    # -- the end

    def stop(self, now: int, grace: Seconds | None) -> None:
        """The program is to end. Any thread, and a signal handler."""
        self.grace.begin(now, grace)
        self._wake_all()

    def unfinished(self) -> str | None:
        """The calls that wait for brokers, as a sentence; None if there are none, or it is closed. Any thread."""
        if self._is_closing or self._is_forked or not self.waiting:
            return None
        return f"{plural(len(self.waiting), 'call')} that waits for brokers."

    @property
    def is_closing(self) -> bool:
        """True if it was asked to end."""
        return self._is_closing

    def begin_close(self, deadline: int = 0) -> None:
        """Close the connections, and end the calls that are being made. It waits for nothing, whatever the deadline."""
        del deadline
        self._is_closing = True
        if self.has_ended:
            return
        if self._is_forked:
            # The parent's sockets; nothing here is ours to end.
            self.has_ended = True
        elif self._runs.acquire(blocking=False):
            self._client.close()
            self.dismiss()
        else:
            self._client.wakeup()
            self._wake_all()

    def end(self) -> Waits[None]:
        """Wait for the end, except on the network thread, or when the interpreter has stopped that."""
        while not (self.has_ended or self.runs_here() or sys.is_finalizing()):
            yield FOREVER

    def left_behind(self) -> None:
        """The end is no longer waited for: log it."""
        _log.warning("%s: the process ends without waiting for the network thread any longer", self._name)

    def refuse(self, cause: BaseException | None) -> None:
        """The network thread ends, by ``cause`` if that was a bug: every call raises from now on."""
        self._fatal = cause

    def dismiss(self) -> None:
        """It has ended: wake the waiting calls."""
        self.has_ended = True
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in list(self.waiting):
            wake()


class _Turn(network_thread.Turn):
    """One turn of the loop on the network thread."""

    def __init__(self, clock: Clock, client: NetworkClient, manager: AdminManager, network: Network) -> None:
        delegate = NetworkClientDelegate(client)
        super().__init__(clock, delegate, (manager,))
        # Before the first connection is opened.
        network.direct = client.direct_users[ConnectionPurpose.MAIN] = DirectCalls(manager, delegate, clock)
        self._client = client
        self._network = network

    def run_once(self) -> bool:
        """One turn. False when the client is closed."""
        network = self._network
        if network.is_closing:
            return False
        network.trouble = self._client.trouble()
        network.is_cut_off = network.trouble is not None and self._client.is_cut_off()
        return super().run_once()
