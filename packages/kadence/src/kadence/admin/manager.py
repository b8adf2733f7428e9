"""The admin client's request manager: sends the requests of its calls, and returns the responses. Network thread.

Calls of any number of threads and tasks run side by side. Each queues its requests, waits, and continues once all of
them have ended. A call that ends early (it timed out, its task was cancelled, the client is closed) takes back requests
that were not sent yet; responses that still come are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kadence.client.metadata import Recovery
from kadence.client.request_manager import Poll
from kadence.clock import FOREVER
from kadence.config import AdminConfig
from kadence.connection.request import Completed, ConnectionPurpose, Request
from kadence.logs import logger
from kadence.protocol.metadata import MetadataRequest, MetadataResponse
from kadence.types import Node

__all__ = ["AdminManager", "Brokers", "Connections", "OpenRequests", "brokers_of"]

_log = logger("kadence.admin")


class Connections(Protocol):
    """The network client, as far as the manager needs it."""

    def set_nodes(self, nodes: Iterable[Node], cluster_id: str | None = None) -> None:
        """The brokers of the cluster."""
        ...

    def rebootstrap(self) -> None:
        """Begin again at the bootstrap addresses."""
        ...

    def disconnect(self, node_id: int, purpose: ConnectionPurpose, *, why: str) -> None:
        """Close a connection."""
        ...


Brokers = tuple[dict[int, Node], str | None]
"""The brokers of a cluster by their ids, and its own id. It is not changed."""


def brokers_of(response: MetadataResponse) -> Brokers:
    """The brokers that metadata name."""
    nodes = {
        broker.node_id: Node(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in response.brokers
    }
    return nodes, response.cluster_id


class OpenRequests:
    """Requests of one call, which waits until all of them have ended.

    Attributes:
        ended: how they ended, so far. is_given_up: the call waits no longer.
    """

    __slots__ = ("_on_end", "ended", "is_given_up", "requests")

    def __init__(self, requests: Sequence[Request], on_end: Callable[[], None]) -> None:
        self.requests = requests
        self.ended: dict[Request, Completed] = {}
        self.is_given_up = False
        self._on_end = on_end
        for request in requests:
            request.tag = self

    @property
    def is_done(self) -> bool:
        """True if all have ended."""
        return len(self.ended) == len(self.requests)

    def notify(self) -> None:
        """Let the call go on."""
        self._on_end()


class AdminManager:
    """See the top of the file. `hand_over` and `hand_in` are for any thread.

    Attributes:
        known: the brokers of the latest metadata; None: there were none since the last rebootstrap. It is the same
            object as long as they are the same.
    """

    def __init__(self, config: AdminConfig, connections: Connections) -> None:
        self._connections = connections
        self._recovery = Recovery(config)
        self._handed_over: deque[OpenRequests] = deque()
        self._handed_in: deque[tuple[int, Completed]] = deque()
        self._ended: list[OpenRequests] = []
        self.known: Brokers | None = None

    def hand_over(self, asked: OpenRequests) -> None:
        """Send these requests in the next turn. Any thread."""
        self._handed_over.append(asked)

    @property
    def has_handed_over(self) -> bool:
        """True if calls have handed over requests, or handed in answers, that no turn has taken yet. Any thread."""
        return bool(self._handed_over or self._handed_in)

    def hand_in(self, node_id: int, completed: Completed) -> None:
        """A call has read an answer from this broker. The next turn takes it as any other. Any thread."""
        self._handed_in.append((node_id, completed))

    @property
    def is_settled(self) -> bool:
        """True if no rebootstrap is due, now or later."""
        return self._recovery.due >= FOREVER

    def brokers_are_wrong(self) -> None:
        """A broker is not the one that metadata says: begin again at the bootstrap addresses."""
        self._recovery.told()

    def poll(self, now: int) -> Poll:
        """The requests that calls have queued.

        Calls whose requests have ended are notified only here: the network thread is about to wait, so they find the
        GIL free.
        """
        while self._handed_in:
            node_id, completed = self._handed_in.popleft()
            if completed.error is not None:
                # As of any answer that cannot be read: the stream can no longer be trusted.
                self._connections.disconnect(node_id, ConnectionPurpose.MAIN, why=str(completed.error))
            self.on_response(now, completed)
        if self._ended:
            for asked in self._ended:
                asked.notify()
            self._ended.clear()
        if self._recovery.due <= now:
            self._recovery.begin(now, _log)
            self._connections.rebootstrap()
            self.known = None
        requests: list[Request] = []
        while self._handed_over:
            asked = self._handed_over.popleft()
            if not asked.is_given_up:
                requests += asked.requests
        return Poll(requests, self._recovery.due)

    def on_response(self, now: int, completed: Completed) -> None:
        """A request has ended. Metadata in its response is applied before the call continues."""
        del now
        if isinstance(completed.request.message, MetadataRequest):
            self._learn(completed)
        asked: OpenRequests = completed.request.tag
        asked.ended[completed.request] = completed
        if asked.is_done:
            self._ended.append(asked)

    def _learn(self, completed: Completed) -> None:
        if self._recovery.took(completed, completed.request.queued_at) is None:
            nodes, cluster_id = brokers = brokers_of(completed.response)
            self._connections.set_nodes(nodes.values(), cluster_id)
            if brokers != self.known:
                self.known = brokers
