"""Between the managers and the network client: remembers whose request it was (C3)."""

from __future__ import annotations

from collections.abc import Iterable

from kadence.connection.request import Completed, Request
from kadence.consumer.managers.base import RequestManager
from kadence.net import NetworkClient

__all__ = ["Delegate"]


class Delegate:
    """Sends the managers' requests and brings each answer back to the manager that asked."""

    def __init__(self, client: NetworkClient) -> None:
        self._client = client
        self._owners: dict[Request, RequestManager] = {}

    def send(self, owner: RequestManager, requests: Iterable[Request]) -> None:
        for request in requests:
            self._owners[request] = owner
            self._client.send(request)

    def poll(self, wait_ms: int | None) -> list[Completed]:
        """All I/O of one turn."""
        return self._client.poll(wait_ms)

    def deliver(self, now: int, completed: Iterable[Completed]) -> None:
        for item in completed:
            self._owners.pop(item.request).on_response(now, item)

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not self._owners
