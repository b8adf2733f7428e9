"""The measurements of a producer, for `Producer.metrics`. They are of batches and requests, never of one record.

Each value has one writer: the network thread, or the thread that holds the producer's lock.
"""

from __future__ import annotations

from kadence.layered import Layered
from kadence.metrics.sensors import Joint, Meter, NetworkMeters

__all__ = ["Measures", "TopicMeasures"]


class TopicMeasures:
    """The measurements of one topic. Network thread.

    Attributes:
        batches: bytes of each batch that was sent, as it was sent. sent, repeated, failed: records of each batch that
            was sent, is to be sent again, or has failed.
        compression: of each batch, its size divided by its size without compression.
    """

    __slots__ = ("batches", "compression", "failed", "repeated", "sent")

    def __init__(self) -> None:
        self.batches = Meter()
        self.compression = Meter()
        self.failed = Meter()
        self.repeated = Meter()
        self.sent = Meter()


class Measures:
    """The measurements of one producer.

    Attributes:
        now: the time of the network thread's present turn (ms).
        network: of its client. topics: by name, replaced as a whole when one is added.
        batches, compression, sent, repeated, failed: those of all topics. Network thread, and the next five.
        queued_ms: time of each batch here before it was first sent. splits: batches that were too large.
        per_request: records of each request. latency_ms: to each response. throttle_ms: the wait that it asked for.
        room_ms: time that each call waited for memory. exhausted: calls for which it did not come in time. Under the
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
        """The measurements of a topic, created at first use. Network thread."""
        found = self.topics.get(name)
        if found is None:
            found = TopicMeasures()
            self.topics = self.topics.changed({name: found})
        return found

    def batch_sent(self, topic: str, *, count: int, nbytes: int, plain: int, queued_ms: int | None) -> None:
        """A batch is sent. ``plain``: its bytes without compression. ``queued_ms``: None if it was sent before."""
        now, measures = self.now, self.topic(topic)
        measures.sent.record(now, count)
        measures.batches.record(now, nbytes)
        measures.compression.record(now, nbytes / plain)
        if queued_ms is not None:
            self.queued_ms.record(now, queued_ms)

    def batches_sent_directly(self, topic: str, count: int, records: int, nbytes: int) -> None:
        """So many batches, which are not compressed, were sent at once, each in a request of its own."""
        now, measures = self.now, self.topic(topic)
        measures.sent.record_alike(now, records, count)
        measures.batches.record_alike(now, nbytes, count)
        measures.compression.record_alike(now, count, count)
        self.queued_ms.record_alike(now, 0, count)
        self.per_request.record_alike(now, records, count)

    def answered(self, latency_ms: int, throttle_ms: int) -> None:
        """A request got its response."""
        self.latency_ms.record(self.now, latency_ms)
        self.throttle_ms.record(self.now, throttle_ms)
