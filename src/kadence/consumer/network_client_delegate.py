"""Between the managers and the network client: remembers whose request it was (C3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kadence.client.request_manager import IndependentManager, RequestManager
from kadence.connection.request import Completed, Request
from kadence.consumer.measures import Measures
from kadence.net import NetworkClient

__all__ = ["NetworkClientDelegate"]

_FETCH, _COMMIT, _JOIN, _HEARTBEAT, _SYNC, _GROUP_HEARTBEAT = 1, 8, 11, 12, 14, 68


class NetworkClientDelegate:
    """Sends the managers' requests and brings each answer back to the manager that asked, measured.

    Attributes:
        independent: the manager whose answers may matter to nobody else.
    """

    def __init__(self, client: NetworkClient, measures: Measures) -> None:
        self.independent: IndependentManager | None = None
        self._client = client
        self._group = measures.group
        self._throttle_ms = measures.fetches.throttle_ms
        self._latencies = {
            _FETCH: measures.fetch_ms,
            _COMMIT: measures.group.commits,
            _JOIN: measures.group.joins,
            _SYNC: measures.group.syncs,
            _HEARTBEAT: measures.group.heartbeats,
            _GROUP_HEARTBEAT: measures.group.heartbeats,
        }
        self._owners: dict[Request, RequestManager] = {}

    def send(self, owner: RequestManager, requests: Iterable[Request]) -> None:
        for request in requests:
            self._owners[request] = owner
            self._client.send(request)
            if request.message.API_KEY in (_HEARTBEAT, _GROUP_HEARTBEAT):
                self._group.heartbeat_sent_at = request.queued_at

    def native_heartbeats_sent(
        self, owner: RequestManager, requests: Iterable[Request], sent_at: int
    ) -> None:
        """The native thread has sent these; their answers come to ``owner``."""
        for request in requests:
            self._owners[request] = owner
        self._group.heartbeat_sent_at = max(self._group.heartbeat_sent_at, sent_at)

    def poll(self, wait_ms: int | None) -> list[Completed]:
        """All I/O of one turn."""
        return self._client.poll(wait_ms)

    def deliver(self, now: int, completed: Collection[Completed]) -> bool:
        """Whether something has happened to the independent manager only."""
        independent = self.independent
        is_private = bool(completed) and not self._client.woken
        for item in completed:
            if item.response is not None:
                self._measure(item)
            owner = self._owners.pop(item.request)
            is_private = (
                is_private
                and independent is not None
                and owner is independent
                and independent.is_private(item)
            )
            owner.on_response(now, item)
        return is_private

    def _measure(self, item: Completed) -> None:
        api_key = item.request.message.API_KEY
        latency = self._latencies.get(api_key)
        if latency is not None:
            latency.record(item.received_at, item.received_at - item.sent_at)
        if api_key == _FETCH:
            self._throttle_ms.record(item.received_at, item.response.throttle_time_ms)

    @property
    def idle(self) -> bool:
        """Nothing queued, nothing in flight."""
        return not self._owners
