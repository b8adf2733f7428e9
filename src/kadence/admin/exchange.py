"""The connections of an admin client, shared by the calls that are being made.

There is no thread here. Calls run side by side, each on the thread that makes it. One of these threads at a time, the
driver, drives the network client: it sends what all have to send, and takes every answer. When it has its own, another
one takes over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from kadence.clock import Clock
from kadence.config import AdminConfig
from kadence.connection.recovery import Recovery
from kadence.connection.request import Completed, Request
from kadence.errors import ClosedError, ConcurrentAccessError, ForkedError
from kadence.logs import logger
from kadence.net import ConnectionConfig, NetworkClient
from kadence.protocol.metadata import MetadataRequest
from kadence.types import Node

__all__ = ["Exchange"]

_log = logger("kadence.admin")


class Exchange:
    """Sends the requests of calls and hands each call its answers. Any thread.

    Attributes:
        trouble: why no broker can be reached, if none can. is_cut_off: whether none is there at all.
    """

    def __init__(self, config: AdminConfig, clock: Clock) -> None:
        self._clock = clock
        self._client = NetworkClient(ConnectionConfig.of(config), clock)
        self._recovery = Recovery(config)
        self._pid = os.getpid()
        # Guards everything below. The network client is the driver's alone, between two drivers the lock's holder's.
        self._changed = threading.Condition()
        self._driver: int | None = None
        self._nodes: tuple[Node, ...] | None = None
        self._must_begin_again = False
        self._unsent: list[Request] = []
        self._awaited: set[Request] = set()
        self._ended: dict[Request, Completed] = {}
        self._is_ending = False
        self._is_closed = False
        self.trouble: str | None = None
        self.is_cut_off = False

    def ask(
        self, requests: Sequence[Request], deadline: int, given_up: threading.Event
    ) -> Mapping[Request, Completed]:
        """How these requests ended; those that had not ended at the deadline are left out.

        Raises:
            ClosedError: the client was closed meanwhile, or ``given_up`` was set and `wakeup` called.
        """
        self.check_usable()
        with self._changed:
            self._awaited.update(requests)
            self._unsent += requests
            if self._driver is not None:
                self._client.wakeup()
            try:
                self._wait(deadline, given_up, lambda: all(each in self._ended for each in requests))
                return {each: self._ended[each] for each in requests if each in self._ended}
            finally:
                # Answers that still come belong to nobody.
                self._awaited.difference_update(requests)
                self._unsent = [each for each in self._unsent if each in self._awaited]
                for each in requests:
                    self._ended.pop(each, None)

    def pause(self, until: int, given_up: threading.Event) -> None:
        """Let time pass."""
        self.check_usable()
        with self._changed:
            self._wait(until, given_up, lambda: False)

    def set_nodes(self, nodes: Iterable[Node]) -> None:
        """The brokers of the cluster, as metadata tells them; requests that are sent later may go to them."""
        with self._changed:
            self._nodes = tuple(nodes)

    def begin_again(self) -> bool:
        """A broker says that the bootstrap addresses are to be asked again; whether they will be."""
        with self._changed:
            self._must_begin_again = self._recovery.is_on
            return self._must_begin_again

    def wakeup(self) -> None:
        """Let every call look whether it was given up."""
        self._client.wakeup()
        with self._changed:
            self._changed.notify_all()

    # ------------------------------------------------------------ waiting

    def _wait(self, until: int, given_up: threading.Event, is_done: Callable[[], bool]) -> None:
        """Drive the network client, or wait for the thread that does. The lock is held."""
        try:
            while not is_done() and (now := self._clock.now_ms()) < until:
                if self._is_ending or given_up.is_set():
                    raise ClosedError("this admin client was closed during the call")
                if self._driver is None:
                    self._drive(until - now)
                elif self._driver == threading.get_ident():
                    raise ConcurrentAccessError(
                        "a signal handler cannot make a call of the admin client whose call it interrupts; "
                        "it may close() the client"
                    )
                else:
                    self._changed.wait((until - now) / 1000)
        finally:
            # Another thread has to drive now.
            self._changed.notify_all()

    def _drive(self, wait_ms: int) -> None:
        """Do all I/O once, for all calls. The lock is held, but not meanwhile."""
        try:
            self._driver = threading.get_ident()
            nodes, self._nodes = self._nodes, None
            unsent, self._unsent = self._unsent, []
            must_begin_again, self._must_begin_again = self._must_begin_again, False
            self._changed.release()
            try:
                ended = self._turn(nodes, unsent, wait_ms, must_begin_again=must_begin_again)
            finally:
                self._changed.acquire()
            for completed in ended:
                if completed.loan is not None:
                    completed.loan.release()
                if completed.request in self._awaited:
                    self._ended[completed.request] = completed
            if ended:
                self._changed.notify_all()
        finally:
            self._driver = None
            if self._is_ending:
                self._shut()

    def _turn(
        self, nodes: tuple[Node, ...] | None, unsent: list[Request], wait_ms: int, *, must_begin_again: bool
    ) -> list[Completed]:
        """What the driver does without the lock, since it may log."""
        client, recovery, now = self._client, self._recovery, self._clock.now_ms()
        if nodes is not None:
            client.set_nodes(nodes)
        if must_begin_again or recovery.due <= now:
            why = "a broker said so" if must_begin_again else recovery.why(now)
            _log.warning("%s: asking bootstrap.servers for the brokers again", why)
            recovery.succeeded()
            client.rebootstrap()
        for request in unsent:
            client.send(request)
        ended = client.poll(min(wait_ms, recovery.due - now))
        for completed in ended:
            if isinstance(completed.request.message, MetadataRequest):
                if completed.response is None:
                    recovery.failed(completed.request.queued_at)
                else:
                    recovery.succeeded()
        self.trouble, self.is_cut_off = client.trouble(), client.is_cut_off()
        return ended

    # ------------------------------------------------------------ the end

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def check_usable(self) -> None:
        """Raise if this client cannot be used (any more)."""
        if os.getpid() != self._pid:
            raise ForkedError("this admin client was made before fork(); make one in the child")
        if self._is_ending:
            raise ClosedError("this admin client is closed")

    def close(self) -> None:
        """Close the connections. Calls that are being made end with `ClosedError`."""
        self._is_ending = True
        if os.getpid() != self._pid:
            # The parent's sockets; nothing here is ours to end.
            self._is_closed = True
            return
        self.wakeup()
        with self._changed:
            if self._driver is None:
                self._shut()
            while not self._is_closed and self._driver != threading.get_ident():
                self._changed.wait()
            # A signal handler of the driver's own thread waits for nothing: the call that it interrupts closes.

    def _shut(self) -> None:
        """Close them now. The lock is held, and nobody drives."""
        if not self._is_closed:
            self._client.close()
            self._is_closed = True
        self._changed.notify_all()
