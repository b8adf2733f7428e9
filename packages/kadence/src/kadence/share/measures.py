"""What a share consumer measures (KIP-932, under Kafka's names of share consumers). Every part has one writer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kadence.connection.request import Completed
from kadence.consumer.measures import ClientMeasures, Fetches, Group, PollMeasures
from kadence.metrics.sensors import Meter

__all__ = ["ShareMeasures", "ShareRequestMeasures"]

_GROUP_HEARTBEAT: Final = 76
_FETCH: Final = 78
_ACKNOWLEDGE: Final = 79


class ShareRequestMeasures:
    """Of requests: ms from request to answer, by what it is. Network thread."""

    def __init__(self, fetch_ms: Meter, acknowledge_ms: Meter, throttle_ms: Meter, group: Group) -> None:
        self._throttle_ms = throttle_ms
        self._latencies = {
            _FETCH: fetch_ms,
            _ACKNOWLEDGE: acknowledge_ms,
            _GROUP_HEARTBEAT: group.heartbeats,
        }

    def answered(self, completed: Completed) -> None:
        api_key = completed.request.message.API_KEY
        latency = self._latencies.get(api_key)
        if latency is not None:
            latency.record(completed.received_at, completed.received_at - completed.sent_at)
        if api_key == _FETCH:
            self._throttle_ms.record(completed.received_at, completed.response.throttle_time_ms)


class ShareMeasures(ClientMeasures):
    """All of one share consumer.

    Attributes:
        poll_measures: application thread. All others: network thread.
        fetches, fetch_ms: of answers to ShareFetch. acknowledge_ms: of ShareAcknowledge.
        acknowledged: offsets that were acknowledged, each sample an answer's. failed: those whose acknowledgement
            failed. void: those among them whose lock was gone, or void by a connection or a leader.
        renewed: offsets whose lock was renewed. dropped: offsets whose lock ended in the buffer (application).
        held_bytes: reads what fetched bytes take, on any thread.
        held: tells how many acquired offsets are not acknowledged.
    """

    def __init__(self) -> None:
        super().__init__()
        self.poll_measures = PollMeasures()
        self.fetches = Fetches()
        self.fetch_ms = Meter()
        self.acknowledge_ms = Meter()
        self.group = Group()
        self.requests = ShareRequestMeasures(
            self.fetch_ms, self.acknowledge_ms, self.fetches.throttle_ms, self.group
        )
        self.acknowledged = Meter()
        self.failed = Meter()
        self.void = Meter()
        self.renewed = Meter()
        self.dropped = 0
        self.held_bytes: Callable[[], int] = lambda: 0
        self.held: Callable[[], int] = lambda: 0
