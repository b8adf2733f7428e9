"""What a producer measures, for `Producer.metrics`. Nothing is measured for a record: all is of batches and requests.

Each value has one writer: the network thread, or whoever holds the producer's lock.
"""

from __future__ import annotations

from kadence.layered import Layered
from kadence.metrics.sensors import Joint, Meter, NetworkMeters

__all__ = ["Measures", "TopicMeasures"]


class TopicMeasures:
    """Of one topic. Network thread.

    Attributes:
        batches: bytes of each batch that was sent, as it was sent. sent, repeated, failed: records of each batch that
            was sent, is to be sent again, or was given up.
        compression: of each batch, its share of what it would be without compression.
    """

    __slots__ = ("batches", "compression", "failed", "repeated", "sent")

    def __init__(self) -> None:
        self.batches = Meter()
        self.compression = Meter()
        self.failed = Meter()
        self.repeated = Meter()
        self.sent = Meter()


class Measures:
    """Of one producer.

    Attributes:
        now: the time of what the network thread does (ms).
        network: of its client. topics: by name, replaced as a whole when one is added.
        batches, compression, sent, repeated, failed: those of all topics. Network thread, and the next five.
        queued_ms: how long each batch lay here before it was sent first. splits: batches that were too large.
        per_request: records of each request. latency_ms: to the answer of each. throttle_ms: what it asked to wait.
        room_ms: how long each call waited for memory. exhausted: calls for which it did not come in time. Under the
            lock, and the next three.
        metadata_ms, flush_ms: spent waiting for topics, and in flush(). calls_ms: in calls of transactions, by name.
    """

    def __init__(self) -> None:
        self.now = 0
        self.network = NetworkMeters()
        self.topics: Layered[str, TopicMeasures] = Layered()
        self.batches = Joint(lambda: [topic.batches for topic in self.topics.values()])
        self.compression = Joint(lambda: [topic.compression for topic in self.topics.values()])
        self.sent = Joint(lambda: [topic.sent for topic in self.topics.values()])
        self.repeated = Joint(lambda: [topic.repeated for topic in self.topics.values()])
        self.failed = Joint(lambda: [topic.failed for topic in self.topics.values()])
        self.queued_ms = Meter()
        self.splits = Meter()
        self.per_request = Meter()
        self.latency_ms = Meter()
        self.throttle_ms = Meter()
        self.room_ms = Meter()
        self.exhausted = Meter()
        self.metadata_ms = 0
        self.flush_ms = 0
        self.calls_ms: dict[str, int] = {}

    def topic(self, name: str) -> TopicMeasures:
        """Of a topic, begun where there is nothing yet. Network thread."""
        found = self.topics.get(name)
        if found is None:
            found = TopicMeasures()
            self.topics = self.topics.changed({name: found})
        return found

    def batch_sent(self, topic: str, *, count: int, nbytes: int, plain: int, queued_ms: int | None) -> None:
        """A batch goes out. ``plain``: its bytes without compression. ``queued_ms``: None for one that is repeated."""
        now, measures = self.now, self.topic(topic)
        measures.sent.record(now, count)
        measures.batches.record(now, nbytes)
        measures.compression.record(now, nbytes / plain)
        if queued_ms is not None:
            self.queued_ms.record(now, queued_ms)

    def answered(self, latency_ms: int, throttle_ms: int) -> None:
        """A request was answered."""
        self.latency_ms.record(self.now, latency_ms)
        self.throttle_ms.record(self.now, throttle_ms)
