"""The producer's metadata: the topics in use, those to request, and those not used for long (sans-IO).

Application threads read `cluster` and name topics under the producer's lock; the network thread polls. The metadata
rules of all clients are in `kadence.client.metadata`.

Brokers may create a topic that is requested. So only a topic that a record or a call waits for is requested in a way
that allows it. A refresh of known topics never does, or it would create deleted topics again. A topic
that was not used for ``metadata.max.idle.ms`` is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from kadence._native.append import TopicInfo
from kadence.client.gate import Gate
from kadence.client.metadata import Metadata
from kadence.client.request_manager import Poll
from kadence.config import ProducerConfig
from kadence.connection.cluster import Cluster
from kadence.connection.request import Completed, Request
from kadence.errors import KafkaError
from kadence.layered import Layered
from kadence.lazy_dataclasses import replace
from kadence.logs import logger
from kadence.producer.partitioner import MOST_STICKY_BYTES, StickyPartitioner
from kadence.types import PartitionInfo

__all__ = ["Topics"]

_log = logger("kadence.producer")


class Topics(Metadata):
    """Requests the metadata of the topics that the producer uses, and keeps the last response.

    Args:
        places: derived from ``cluster`` by callers, by topic. Under the lock; an entry is dropped when the topic's
            partitions in ``cluster`` change.

    Attributes:
        forgotten: topics; the sender drops its state of them, and empties this.
        last_error: the error of the last request, if any. failure: the same if it is not retriable.
        stickies: sticky partitioners by topic; under the lock. changed: topics with a new sticky partitioner, or
            other partitions; emptied when shares are set.
    """

    def __init__(
        self, config: ProducerConfig, gate: Gate, places: dict[str, TopicInfo] | None = None
    ) -> None:
        super().__init__(config, _log)
        self._places: dict[str, TopicInfo] = {} if places is None else places
        self._config = config
        self._gate = gate
        self._used_at: dict[str, int] = {}
        self._wanted: set[str] = set()
        self._asked = self._answered = 0
        self.stickies: dict[str, StickyPartitioner] = {}
        self.changed: set[str] = set()
        self.forgotten: set[str] = set()
        self.failure: KafkaError | None = None
        self.last_error: KafkaError | None = None

    def used(self, topic: str, now: int) -> None:
        """``topic`` is used: keep its metadata for another idle period. Under the producer's lock."""
        self._used_at[topic] = now

    def want(self, topic: str, now: int) -> int:
        """Request ``topic`` at once; brokers that create topics may create it. Network thread, or under the lock.

        Returns:
            The number of the request, for `awaits`.
        """
        self._used_at[topic] = now
        self._wanted.add(topic)
        return self._asked + 1

    def awaits(self, number: int) -> bool:
        """True if a request is still to be answered, or repeated. Under the lock.

        The same topic may be requested again and again, for batches whose partition has no leader. A call waits for
        its own request, not until there are none.
        """
        return self._answered < number

    def sticky(self, topic: str) -> StickyPartitioner:
        """The sticky partitioner for records of ``topic`` without a key. Under the lock."""
        found = self.stickies.get(topic)
        if found is None:
            run = min(self._config.batch_size, MOST_STICKY_BYTES)
            self.stickies[topic] = found = StickyPartitioner(run)
            self.changed.add(topic)
        return found

    def near(self, infos: Iterable[PartitionInfo]) -> tuple[int, ...]:
        """The partitions whose leader is in this producer's rack; empty if racks do not matter (KIP-1123)."""
        if not (self._config.partitioner_rack_aware and self._config.client_rack):
            return ()
        nodes, rack = self.cluster.nodes, self._config.client_rack
        in_rack = {node_id for node_id, node in nodes.items() if node.rack == rack}
        return tuple(info.partition for info in infos if info.leader in in_rack)

    def poll(self, now: int) -> Poll:
        """The request to send now, if any, and the time of the next poll."""
        recover_at = self._recover(now)
        if self._in_flight is not None or not self._used_at:
            return Poll(wake_at=recover_at)
        due = self._backoff.until if self._wanted else self._due
        if due > now:
            return Poll(wake_at=min(due, recover_at))
        with self._gate:
            creates = bool(self._wanted)
            if not creates:
                self._forget_idle(now)
            names = self._wanted or set(self._used_at)
            if not names:
                return Poll(wake_at=recover_at)
            self._wanted = set()
            is_full = len(names) == len(self._used_at)
            self._asked += 1
            return Poll([self._refresh(now, names, creates=creates, is_full=is_full)], recover_at)

    def on_response(self, now: int, completed: Completed) -> None:
        self._take(now, completed)

    def _ended(
        self,
        now: int,
        request: Request,
        error: KafkaError | None,
        known: Cluster,
        topics: Iterable[str] | None = None,
    ) -> None:
        with self._gate:
            super()._ended(now, request, error, known, topics)
            self.last_error = error
            # Even success waits a little before the next request: a topic that is being created or a leader that is
            # being elected would otherwise be requested in a loop.
            is_settled = error is None and self._is_settled(request.tag)
            self._backoff.succeeded() if is_settled else self._backoff.failed(now)
            if error is None or not error.retriable:
                self._answered = self._asked
            if error is None:
                self.failure = None
            elif not error.retriable:
                # The waiting calls raise it; a new call requests the topic again.
                self.failure = error
                self._needs_update = True
            elif request.message.allow_auto_topic_creation:
                self._wanted.update(request.tag)
            self._gate.notify_all()

    def _replace(self, known: Cluster, topics: Iterable[str] | None) -> None:
        with self._gate:
            before = self.cluster
            super()._replace(known, topics)
            for topic in before.topics if topics is None else topics:
                if known.partitions_for(topic) is not before.partitions_for(topic):
                    self._places.pop(topic, None)
                    if topic in self.stickies:
                        self.changed.add(topic)

    def _forget_idle(self, now: int) -> None:
        """Forget the topics that were not used for a while."""
        last = now - self._config.metadata_max_idle_ms
        idle = [topic for topic, used_at in self._used_at.items() if used_at <= last]
        self.forgotten.update(idle)
        for topic in idle:
            del self._used_at[topic]
            self.stickies.pop(topic, None)
            self.changed.discard(topic)
        known = {name: topic for name, topic in self.cluster.topics.items() if name in self._used_at}
        if len(known) < len(self.cluster.topics):
            self._replace(replace(self.cluster, topics=Layered(known)), None)

    def _is_settled(self, names: frozenset[str]) -> bool:
        """True if all these topics are known with leaders."""
        for name in names:
            topic = self.cluster.topics.get(name)
            if topic is None or topic.error_code or not topic.partitions:
                return False
            if any(info.leader is None for info in topic.partitions):
                return False
        return True
