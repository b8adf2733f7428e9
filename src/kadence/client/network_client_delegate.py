"""Between the managers of a client and its network client: remembers whose request it was (C3). Network thread."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from kadence.client.request_manager import IndependentManager, RequestManager
from kadence.connection.request import Completed, Request
from kadence.net import NetworkClient

__all__ = ["NetworkClientDelegate", "RequestMeasures"]


class RequestMeasures(Protocol):
    """Told of each request, whatever manager asked. Network thread."""

    def sent(self, request: Request) -> None:
        """It was handed to the network."""
        ...

    def answered(self, completed: Completed) -> None:
        """Its answer is there."""
        ...


class NetworkClientDelegate:
    """Sends the managers' requests and brings each answer back to the manager that asked.

    Attributes:
        independent: the manager whose answers may matter to nobody else.
    """

    def __init__(self, client: NetworkClient, measures: RequestMeasures | None = None) -> None:
        self.independent: IndependentManager | None = None
        self._client = client
        self._measures = measures
        self._owners: dict[Request, RequestManager] = {}

    def send(self, owner: RequestManager, requests: Iterable[Request]) -> None:
        for request in requests:
            self._owners[request] = owner
            self._client.send(request)
            if self._measures is not None:
                self._measures.sent(request)

    def sent_by_others(self, owner: RequestManager, requests: Iterable[Request]) -> None:
        """The native thread has sent these; their answers come to ``owner``."""
        for request in requests:
            self._owners[request] = owner

    def poll(self, wait_ms: int | None) -> list[Completed]:
        """All I/O of one turn."""
        return self._client.poll(wait_ms)

    def deliver(self, now: int, completed: Collection[Completed]) -> bool:
        """Whether something has happened to the independent manager only. Fetches that were repeated are its own."""
        independent, measures = self.independent, self._measures
        is_private = (bool(completed) or self._client.is_quiet) and not self._client.woken
        for item in completed:
            if measures is not None and item.response is not None:
                measures.answered(item)
            owner = self._owners.pop(item.request)
            is_private = (
                is_private
                and independent is not None
                and owner is independent
                and independent.is_private(item)
            )
            owner.on_response(now, item)
        return is_private
