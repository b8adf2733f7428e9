"""The network thread of a client (C1): what each turn of its loop does, and its one end.

A turn asks the managers what they want sent and when they must be asked again, does one round of I/O that is no longer
than the nearest of these times, and brings the answers to the managers that asked. A client's own turn says what else
happens in it. `NetworkClientDelegate` keeps the manager of each request (C3).

A bug anywhere in it ends the thread, and every call raises its cause from then on (B6); none hangs. `NetworkSide` runs
turns on whatever thread: a simulation runs them without one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from kadence.client.request_manager import RequestManager
from kadence.clock import FOREVER, Clock
from kadence.connection.request import Completed, Request
from kadence.errors import BootstrapResolutionError
from kadence.logs import OwnThread, logger
from kadence.net import NetworkClient

__all__ = ["Callers", "NetworkClientDelegate", "NetworkSide", "NetworkThread", "RequestMeasures", "Turn"]

_log = logger("kadence.client")


class RequestMeasures(Protocol):
    """Called for each request that was answered, of any manager. Network thread."""

    def answered(self, completed: Completed) -> None: ...


class NetworkClientDelegate:
    """Sends the managers' requests and brings each answer back to the manager that asked.

    Attributes:
        delivered: how many so far.
    """

    def __init__(self, client: NetworkClient, measures: RequestMeasures | None = None) -> None:
        self._client = client
        self._measures = measures
        self._owners: dict[Request, RequestManager] = {}
        self.delivered = 0

    def send(self, owner: RequestManager, requests: Iterable[Request]) -> None:
        for request in requests:
            self._owners[request] = owner
            self._client.send(request)

    def sent_by_others(self, owner: RequestManager, requests: Iterable[Request]) -> None:
        """The native thread has sent these; their answers come to ``owner``."""
        for request in requests:
            self._owners[request] = owner

    def poll(self, wait_ms: int | None) -> list[Completed]:
        """All I/O of one turn."""
        return self._client.poll(wait_ms)

    def deliver(self, now: int, completed: Iterable[Completed]) -> None:
        measures = self._measures
        for item in completed:
            if measures is not None and item.response is not None:
                measures.answered(item)
            self.delivered += 1
            self._owners.pop(item.request).on_response(now, item)


class Turn:
    """One turn of the loop over everything that lives on the network thread.

    Args:
        managers: asked in this order.
    """

    def __init__(
        self, clock: Clock, delegate: NetworkClientDelegate, managers: tuple[RequestManager, ...]
    ) -> None:
        self._clock = clock
        self._delegate = delegate
        self._managers = managers

    def run_once(self) -> bool:
        """One turn. False when the client is closed and nothing is left to do."""
        now = self._clock.now_ms()
        self._exchange(now, self._ask(now, self._managers))
        return True

    def finish(self, cause: BaseException | None) -> None:
        """There will be no other turn: fail the waiting calls. ``cause``: the bug, if one ended it."""

    def _ask(self, now: int, managers: Iterable[RequestManager]) -> int:
        """Ask managers what they want sent, and send it. Returns when the first of them must be asked again."""
        wake_at = FOREVER
        for manager in managers:
            poll = manager.poll(now)
            if poll.requests:
                self._delegate.send(manager, poll.requests)
            if poll.wake_at < wake_at:  # noqa: PLR1730 - min() would cost more than all the rest
                wake_at = poll.wake_at
        return wake_at

    def _exchange(self, now: int, wake_at: int) -> int:
        """One round of I/O, until ``wake_at`` at most. Returns the time after it."""
        completed = self._delegate.poll(None if wake_at >= FOREVER else max(wake_at - now, 0))
        now = self._clock.now_ms()
        self._delegate.deliver(now, completed)
        return now


class Callers(Protocol):
    """The threads or tasks whose calls wait for a network side, for its end."""

    def refuse(self, cause: BaseException | None) -> None:
        """The network side ends, by ``cause`` if that was a bug: every call raises from now on."""
        ...

    def dismiss(self) -> None:
        """It has ended: wake the waiting calls."""
        ...


class NetworkSide:
    """One network side from its first turn to its end, on whatever thread runs its turns.

    Args:
        kind: of the client, for the log: consumer, producer, admin client.
        build: makes the `Turn`, where it will run: nothing of the network side is ever shared.
        dispose: closes the sockets, whether a turn was ever built or not.
    """

    def __init__(
        self, kind: str, callers: Callers, build: Callable[[], Turn], dispose: Callable[[], None]
    ) -> None:
        self._kind = kind
        self._callers = callers
        self._build = build
        self._dispose = dispose
        self._turn: Turn | None = None

    def run_once(self) -> bool:
        """One turn. False when it was the last: the client is closed, or a bug ended it."""
        try:
            if self._turn is None:
                self._turn = self._build()
            if self._turn.run_once():
                return True
        except BootstrapResolutionError as error:
            _log.error("the %s ends: %s", self._kind, error)
            self._end(error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, every caller must hear of it (B6)
            try:
                _log.exception("the %s's network thread ended with a bug", self._kind)
            finally:
                self._end(error)
        else:
            self._end(None)
        return False

    def _end(self, cause: BaseException | None) -> None:
        # From here on every call raises; only then are the waiting calls notified, so none waits in vain.
        self._callers.refuse(cause)
        try:
            if self._turn is not None:
                self._turn.finish(cause)
        finally:
            self._dispose()
            self._callers.dismiss()


class NetworkThread:
    """Runs the turns of a network side on a daemon thread of its own, until the client is closed."""

    has_thread: Final = True

    def __init__(self, name: str, side: NetworkSide) -> None:
        self._side = side
        self._thread = OwnThread(target=self._run, name=name)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float | None = None) -> None:
        self._thread.join(seconds)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def runs_here(self) -> bool:
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        while self._side.run_once():
            pass

    def __repr__(self) -> str:
        return f"<{self._thread.name} {'alive' if self.is_alive() else 'ended'}>"
