"""The network side of an admin client, as its calls see it: they hand over what they ask, and wait.

The network thread starts with the first call and ends with the client. It holds nothing of the client, so that one that
nobody closed is collected, and ends its thread. No lock is held here by anybody: a signal handler may make a call while
the thread that it interrupts makes one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence

from kadence.admin.manager import AdminManager, Asked
from kadence.client import network_thread
from kadence.client.engine import ended
from kadence.client.network_client_delegate import NetworkClientDelegate
from kadence.client.network_thread import NetworkSide
from kadence.clock import Clock
from kadence.config import AdminConfig
from kadence.connection.request import Request
from kadence.errors import ClosedError, ForkedError
from kadence.net import ConnectionConfig, NetworkClient

__all__ = ["Network"]

_KIND = "admin client"


class Network:
    """One for each admin client. Any thread calls it.

    Attributes:
        trouble: why no broker can be reached, if none can. is_cut_off: whether none is there at all.
        has_ended: whether the connections are closed. waiting: what wakes each call that waits.
        begins_again: whether bootstrap.servers are asked again when a broker says so.
    """

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._client = NetworkClient(ConnectionConfig.of(config), clock)
        self._manager = AdminManager(config, self._client)
        self._side = NetworkSide(
            _KIND, self, lambda: _Turn(clock, self._client, self._manager, self), self._client.close
        )
        self._name = f"{config.client_id}-network"
        self._pid = os.getpid()
        # Taken, for good, by whoever ends the connections: the network thread, or else close().
        self._runs = threading.Lock()
        self._thread_id: int | None = None
        self._is_closing = False
        self._fatal: BaseException | None = None
        self.trouble: str | None = None
        self.is_cut_off = False
        self.has_ended = False
        self.waiting: set[Callable[[], None]] = set()
        self.begins_again = config.metadata_recovery_strategy == "rebootstrap"

    def ask(self, requests: Sequence[Request], on_end: Callable[[], None]) -> Asked:
        """Send these requests; ``on_end`` is called on the network thread once all of them have ended.

        Whoever carries the call sees to it that they go out, by `send_off`.
        """
        asked = Asked(requests, on_end)
        self._manager.hand_over(asked)
        return asked

    def send_off(self) -> None:
        """Have the network thread send what calls have handed over. The last thing before a call waits.

        The thread needs the interpreter as soon as it is awake, and would wait for it a second time.
        """
        if not self._manager.has_news:
            return
        if self._runs.locked():
            self._client.wakeup()
        else:
            threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def _run(self) -> None:
        # Threads and signal handlers may start several: the one that is there first runs, the others end.
        if self._runs.acquire(blocking=False):
            self._thread_id = threading.get_ident()
            while self._side.run_once():
                pass

    def check_usable(self) -> None:
        """Raise if a call cannot begin (any more).

        Raises:
            ClosedError, ForkedError. FatalNetworkError: the network thread has ended with a bug.
        """
        if self._is_forked:
            raise ForkedError("this admin client was made before fork(); make one in the child")
        if self._is_closing or self.has_ended:
            raise ended(_KIND, self._fatal)

    def check_going(self) -> None:
        """Raise if a call that waits cannot go on.

        Raises:
            ClosedError. FatalNetworkError: the network thread has ended with a bug.
        """
        if self._fatal is not None:
            raise ended(_KIND, self._fatal)
        if self._is_closing:
            raise ClosedError("this admin client was closed during the call")

    # -- the end

    @property
    def is_closing(self) -> bool:
        """Whether it was told to end."""
        return self._is_closing

    @property
    def is_ending(self) -> bool:
        """Whether the end is to be waited for: not on the network thread, nor once the interpreter has stopped it."""
        return not (self.has_ended or self._thread_id == threading.get_ident() or sys.is_finalizing())

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._pid

    def begin_close(self) -> None:
        """Close the connections, and end the calls that are being made. It waits for nothing; any thread."""
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

    def refuse(self, cause: BaseException | None) -> None:
        """The network thread ends, by ``cause`` if that was a bug: every call raises from now on."""
        self._fatal = cause

    def dismiss(self) -> None:
        """It has ended: whoever still waits is to look again."""
        self.has_ended = True
        self._wake_all()

    def _wake_all(self) -> None:
        for wake in list(self.waiting):
            wake()


class _Turn(network_thread.Turn):
    """One turn of the loop on the network thread."""

    def __init__(self, clock: Clock, client: NetworkClient, manager: AdminManager, network: Network) -> None:
        super().__init__(clock, NetworkClientDelegate(client), (manager,))
        self._client = client
        self._network = network

    def run_once(self) -> bool:
        """One turn. False when the client is closed."""
        network = self._network
        if network.is_closing:
            return False
        network.trouble, network.is_cut_off = self._client.trouble(), self._client.is_cut_off()
        return super().run_once()
