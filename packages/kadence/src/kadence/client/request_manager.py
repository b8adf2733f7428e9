"""The interface of request managers (C3).

A manager is asked ``poll(now)`` once in each turn of the network thread, so one that has nothing to do answers at once.
It answers with the requests it wants sent and the absolute time by which there must be another turn. Answers come back
to the manager that asked, by ``on_response(now, completed)``. It never blocks, reads no clock, touches no socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kadence.clock import FOREVER
from kadence.connection.request import Completed, Request
from kadence.lazy_dataclasses import dataclass, field

__all__ = ["NOTHING", "Jobs", "Poll", "RequestManager"]


# Not frozen, which would cost each turn of the network thread more than what it asks for.
@dataclass(slots=True)
class Poll:
    """The result of a manager's poll: requests to send now, and ``wake_at``, the latest time (ms) of the next poll.

    It is never changed.
    """

    requests: list[Request] = field(default_factory=list)
    wake_at: int = FOREVER


NOTHING = Poll()
"""No request, and no time for the next poll."""


class RequestManager(Protocol):
    """The methods that the network thread calls on each request manager."""

    def poll(self, now: int) -> Poll: ...

    def on_response(self, now: int, completed: Completed) -> None: ...


class Jobs(Protocol):
    """The one helper thread, as managers see it: work that may block or take long (assignors, callbacks).

    ``done(now, result, error)`` is called later, on the network thread.
    """

    def submit(
        self,
        work: Callable[[], object],
        done: Callable[[int, object, Exception | None], None],
    ) -> None: ...
