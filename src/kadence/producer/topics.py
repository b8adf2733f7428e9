"""The producer's cluster metadata: one immutable `Cluster`, requested when needed (sans-IO).

Application threads read `cluster` and name topics under the producer's lock; the network thread polls.

Brokers may create a topic that is asked for. So only a topic that a record or a call waits for is asked for in a way
that lets them. A refresh of what is known never does, or it would bring back topics that somebody deleted. A topic
that nobody used for ``metadata.max.idle.ms`` is forgotten.

When no broker answers for long, the known brokers are forgotten and the bootstrap addresses are asked (`Recovery`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from kadence.client.gate import Gate
from kadence.client.request_manager import Poll
from kadence.clock import FOREVER, add_ms
from kadence.config import ProducerConfig
from kadence.connection.backoff import Backoff
from kadence.connection.cluster import Cluster, apply, follow, forget_brokers
from kadence.connection.recovery import Recovery
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.errors import DisconnectedError, KafkaError, MalformedMessageError, for_code
from kadence.logs import logger
from kadence.producer.append import TopicInfo
from kadence.producer.partitioner import MOST_STICKY_BYTES, StickyPartitioner
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kadence.types import Node, TopicPartition

__all__ = ["Topics"]

_log = logger("kadence.producer")


class Topics:
    """Requests the metadata of the topics that the producer uses, and keeps the last answer.

    Args:
        places: what callers derived from ``cluster``; emptied, under the lock, whenever that changes.

    Attributes:
        cluster: what is known now. forgotten: topics; whoever keeps something of them drops it, and empties this.
        last_error: why the last request failed, if it did. failure: the same if it will not pass by itself.
        stickies: what chooses partitions for records without a key, by topic; under the lock.
        on_rebootstrap: called on the network thread when all brokers are to be forgotten.
    """

    def __init__(
        self, config: ProducerConfig, gate: Gate, places: dict[str, TopicInfo] | None = None
    ) -> None:
        self._places: dict[str, TopicInfo] = {} if places is None else places
        self._config = config
        self._gate = gate
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._asked: Request | None = None
        self._used_at: dict[str, int] = {}
        self._wanted: set[str] = set()
        self._is_stale = False
        self._refresh_at = FOREVER
        self._recovery = Recovery(config)
        self.on_rebootstrap: Callable[[], None] = lambda: None
        self.cluster = Cluster()
        self.stickies: dict[str, StickyPartitioner] = {}
        self.forgotten: set[str] = set()
        self.failure: KafkaError | None = None
        self.last_error: KafkaError | None = None

    def used(self, topic: str, now: int) -> None:
        """Something is sent to ``topic``, or asked of it: remember it for another while. Under the producer's lock."""
        self._used_at[topic] = now

    def want(self, topic: str, now: int) -> None:
        """Ask for ``topic`` at once; brokers that create topics may create it. Network thread, or under the lock."""
        self._used_at[topic] = now
        self._wanted.add(topic)

    def awaits(self, topic: str) -> bool:
        """Whether the answer to a `want` is still to come. Under the lock."""
        return topic in self._wanted or (self._asked is not None and topic in self._asked.tag)

    def moved(self, tp: TopicPartition, leader: int, epoch: int, endpoints: Mapping[int, Node]) -> bool:
        """A broker told who leads a partition now (KIP-951). False when it is no news. Network thread."""
        with self._gate:
            before = self.cluster
            self.cluster = follow(before, tp, leader, epoch, endpoints)
            if self.cluster is before:
                return False
            self._places.pop(tp.topic, None)
        _log.info("%s is led by broker %d now (epoch %d)", tp, leader, epoch)
        # Others may have moved with it.
        self.refresh()
        return True

    def refresh(self) -> None:
        """Ask again for all that is known. Network thread."""
        self._is_stale = True

    def sticky(self, topic: str) -> StickyPartitioner:
        """What chooses partitions for records of ``topic`` without a key. Under the lock."""
        found = self.stickies.get(topic)
        if found is None:
            run = min(self._config.batch_size, MOST_STICKY_BYTES)
            self.stickies[topic] = found = StickyPartitioner(run)
        return found

    def poll(self, now: int) -> Poll:
        """The request to send now, if any, and when to ask again."""
        recover_at = self._recovery.due
        if recover_at <= now:
            self._rebootstrap(self._recovery.why(now))
            recover_at = FOREVER
        if self._asked is not None or not self._used_at:
            return Poll(wake_at=recover_at)
        is_due = self._wanted or self._is_stale
        due = self._backoff.until if is_due else max(self._refresh_at, self._backoff.until)
        if due > now:
            return Poll(wake_at=min(due, recover_at))
        with self._gate:
            creates = bool(self._wanted)
            if not creates:
                self._forget_idle(now)
            names = sorted(self._wanted or self._used_at)
            if len(names) == len(self._used_at):
                self._is_stale = False
                # Never without a pause: each answer sends the next record of every topic the long way.
                pause = max(self._config.metadata_max_age_ms, self._config.retry_backoff_ms)
                self._refresh_at = add_ms(now, pause)
            self._wanted.clear()
            if not names:
                return Poll(wake_at=recover_at)
            message = MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=creates
            )
            self._asked = Request(
                message, ANY_NODE, add_ms(now, self._config.request_timeout_ms), tag=frozenset(names)
            )
        return Poll([self._asked], recover_at)

    def _rebootstrap(self, why: str) -> None:
        _log.warning("%s: asking bootstrap.servers for the brokers again", why)
        with self._gate:
            self.cluster = forget_brokers(self.cluster)
            self._places.clear()
        self._recovery.succeeded()
        self._is_stale = True
        self.on_rebootstrap()

    def on_response(self, now: int, completed: Completed) -> None:
        names: frozenset[str] = completed.request.tag
        with self._gate:
            self._asked = None
            response = completed.response
            error = completed.error if response is None else self._fault(response)
            if error is not None or response is None:
                self._not_answered(now, completed.request, error)
            else:
                self.cluster = apply(self.cluster, response, names)
                self._places.clear()
                self.failure = self.last_error = None
                # Even success waits a little before the next request: a topic that is being created or
                # a leader that is being elected would else be asked for in a loop.
                self._backoff.succeeded() if self._is_settled(names) else self._backoff.failed(now)
                self._recovery.succeeded()
            self._gate.notify_all()
        if error is not None or response is None:
            _log.info("metadata request failed, repeating: %s", error)
        if response is not None and self._must_begin_again(response):
            self._rebootstrap("a broker said so")

    def _must_begin_again(self, response: MetadataResponse) -> bool:
        return response.error_code == ec.REBOOTSTRAP_REQUIRED and self._recovery.is_on

    def _fault(self, response: MetadataResponse) -> KafkaError | None:
        """What is wrong with an answer."""
        if self._must_begin_again(response):
            return DisconnectedError("a broker said that bootstrap.servers are to be asked again")
        return for_code(response.error_code) if response.error_code else _miscounted(response)

    def _not_answered(self, now: int, request: Request, error: KafkaError | None) -> None:
        self._backoff.failed(now)
        self._recovery.failed(request.deadline - self._config.request_timeout_ms)
        self.last_error = error
        if error is not None and not error.retriable:
            # Those who wait are told, and ask again if they still want to know.
            self.failure = error
            self._is_stale = True
        elif request.message.allow_auto_topic_creation:
            self._wanted |= request.tag
        else:
            self._is_stale = True

    def _forget_idle(self, now: int) -> None:
        """Forget the topics that nobody used for a while."""
        last = now - self._config.metadata_max_idle_ms
        idle = [topic for topic, used_at in self._used_at.items() if used_at <= last]
        self.forgotten.update(idle)
        for topic in idle:
            del self._used_at[topic]
            self._places.pop(topic, None)
            self.stickies.pop(topic, None)
        known = {name: topic for name, topic in self.cluster.topics.items() if name in self._used_at}
        if len(known) < len(self.cluster.topics):
            self.cluster = replace(self.cluster, topics=MappingProxyType(known))

    def _is_settled(self, names: frozenset[str]) -> bool:
        """Whether all these topics are known with leaders."""
        for name in names:
            topic = self.cluster.topics.get(name)
            if topic is None or topic.error_code or not topic.partitions:
                return False
            if any(info.leader is None for info in topic.partitions):
                return False
        return True


def _miscounted(response: MetadataResponse) -> MalformedMessageError | None:
    """What is wrong with the partitions: they count from 0, which all places of a topic's records rely on."""
    for topic in response.topics:
        numbers = sorted(each.partition_index for each in topic.partitions)
        if numbers != list(range(len(numbers))):
            return MalformedMessageError(
                f"a broker says that topic {topic.name!r} has the partitions {numbers[:10]}, and they must be counted "
                "from 0 without gaps"
            )
    return None
