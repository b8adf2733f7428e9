"""The consumer's metadata: the topics it needs and the reasons, patterns, topic ids, and calls of the application.

Network thread, sans-IO. Other managers declare the topics they need and the reason (`need`); `kadence.client.metadata`
has the part that all clients share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kadence.client.metadata import Metadata
from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.cluster import Cluster
from kadence.connection.request import Backoff, Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Answer, Failed, TopicMetadata
from kadence.errors import AuthenticationError, KafkaError, for_code
from kadence.logs import logger
from kadence.protocol import error_codes as ec
from kadence.types import Node, PartitionInfo, TopicPartition
from kadence.wire import ZERO_UUID

if TYPE_CHECKING:
    from kadence.config import ConsumerConfig, ShareConsumerConfig

__all__ = ["MetadataManager"]

log = logger("kadence.consumer.metadata")

_FATAL_FOR_TOPIC: Final = frozenset({ec.INVALID_TOPIC_EXCEPTION, ec.TOPIC_AUTHORIZATION_FAILED})


class MetadataManager(Metadata):
    """Requests the metadata that a consumer, or a share consumer, needs.

    Attributes:
        version: grows with every response that changed our metadata.
        on_change: called after each response, on the network thread. on_moved: called with the brokers that a response
            named with a new leader.
    """

    def __init__(self, config: ConsumerConfig | ShareConsumerConfig, add_event: AddBackgroundEvent) -> None:
        super().__init__(config, log)
        self._config = config
        self._add_event = add_event
        self._wanted: frozenset[str] = frozenset()
        self._reasons: dict[str, frozenset[str]] = {}
        self._pattern: re.Pattern[str] | None = None
        self._asks: list[TopicMetadata] = []
        self._ask_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._asked: dict[Request, list[TopicMetadata]] = {}
        self._told: set[str] = set()
        self._missing: dict[str, tuple[int, int]] = {}
        """Needed topics for which the last response had an error, each with the time since when, and the error."""
        self._nameless: frozenset[bytes] = frozenset()
        self._naming: Request | None = None
        self._naming_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.version = 0
        self.on_change: Callable[[int], None] = lambda now: None
        self.on_moved: Callable[[Mapping[int, Node]], None] = lambda nodes: None

    # ------------------------------------------------------------ for other managers

    def need(self, reason: str, topics: frozenset[str]) -> None:
        """Keep the metadata of these topics for ``reason``, instead of its earlier ones.

        New ones are requested at once.
        """
        self._reasons[reason] = topics
        before, self._wanted = self._wanted, frozenset().union(*self._reasons.values())
        if not self._wanted <= before:
            self._needs_update = True
            self._backoff.succeeded()

    def missing(self, reason: str) -> dict[str, tuple[int, int]]:
        """Topics needed for ``reason`` that the cluster does not show, with the time (ms) since when, and the cause."""
        needed = self._reasons.get(reason, frozenset())
        return {name: told for name, told in self._missing.items() if name in needed}

    def want(self, topics: frozenset[str]) -> None:
        """The metadata that the group's leader needs to assign partitions to all members."""
        self.need("group", topics)

    def identify(self, topic_ids: frozenset[bytes]) -> None:
        """Ask for topics by their ids (KIP-516) until each has a name; replaces the earlier request."""
        if not topic_ids <= self._nameless:
            self._naming_backoff.succeeded()
        self._nameless = topic_ids

    def want_matching(self, pattern: str | None) -> None:
        """Keep the metadata of all topics, among which a pattern chooses; None: no longer."""
        self._pattern = None if pattern is None else re.compile(pattern)
        if pattern is not None:
            self._needs_update = True

    def matching(self) -> frozenset[str]:
        """Topics that the pattern fully matches (Java's meaning of it)."""
        pattern = self._pattern
        if pattern is None:
            return frozenset()
        internal = self._config.exclude_internal_topics
        return frozenset(
            name
            for name, topic in self.cluster.topics.items()
            if not topic.error_code and not (internal and topic.is_internal) and pattern.fullmatch(name)
        )

    def moved(
        self, now: int, partition: TopicPartition, leader: int, epoch: int, endpoints: Mapping[int, Node]
    ) -> bool:
        is_news = super().moved(now, partition, leader, epoch, endpoints)
        if is_news:
            self.on_moved({leader: self.cluster.nodes[leader]})
        return is_news

    def ask(self, event: TopicMetadata) -> None:
        """A call of the application; answered with fresh metadata."""
        self._asks.append(event)

    def leader(self, partition: TopicPartition) -> int | None:
        info = self.cluster.partition(partition)
        return None if info is None else info.leader

    def leader_epoch(self, partition: TopicPartition) -> int | None:
        info = self.cluster.partition(partition)
        return None if info is None else info.leader_epoch

    def topic_id(self, topic: str) -> bytes:
        known = self.cluster.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def has_topic(self, name: str) -> bool:
        known = self.cluster.topics.get(name)
        return known is not None and known.error_code != ec.UNKNOWN_TOPIC_OR_PARTITION

    def has_node(self, node_id: int) -> bool:
        return node_id in self.cluster.nodes

    def error_of(self, partition: TopicPartition) -> int:
        """Error code of a topic in metadata; UNKNOWN_TOPIC_OR_PARTITION for a partition that it lacks."""
        topic = self.cluster.topics.get(partition.topic)
        if topic is None:
            return ec.NONE
        if topic.error_code:
            return topic.error_code
        known = self.cluster.partition(partition) is not None
        return ec.NONE if known else ec.UNKNOWN_TOPIC_OR_PARTITION

    # ------------------------------------------------------------ requests

    def poll(self, now: int) -> Poll:
        requests = []
        wake_at = self._recovery.due
        if wake_at <= now:
            wake_at = self._recover(now)
        if self._in_flight is None and (self._wanted or self._pattern is not None):
            due = self._due
            if due <= now:
                topics = None if self._pattern is not None else self._wanted
                requests.append(self._refresh(now, topics, creates=self._config.allow_auto_create_topics))
            else:
                wake_at = min(wake_at, due)
        if self._nameless and self._naming is None:
            if self._naming_backoff.ready(now):
                self._naming = self._identify(now, self._nameless)
                requests.append(self._naming)
            else:
                wake_at = min(wake_at, self._naming_backoff.until)
        if self._asks:
            self._asks = [ask for ask in self._asks if ask.deadline > now]
        if self._asks:
            if self._ask_backoff.ready(now):
                requests.append(self._ask(now))
            else:
                wake_at = min(wake_at, self._ask_backoff.until)
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def _ask(self, now: int) -> Request:
        """One request for all calls that wait."""
        asks, self._asks = self._asks, []
        topics: set[str] | None = set()
        for ask in asks:
            topics = None if topics is None or ask.topics is None else topics | set(ask.topics)
        request = self._ask_for(now, topics, creates=self._config.allow_auto_create_topics)
        self._asked[request] = asks
        return request

    # ------------------------------------------------------------ answers

    def on_response(self, now: int, completed: Completed) -> None:
        request, error = completed.request, self._take(now, completed)
        if request is self._naming:
            self._named(now)
        elif request in self._asked:
            self._answer(now, self._asked.pop(request), error)
        elif error is None:
            self._refreshed(now, request)
        else:
            self._backoff.failed(now)
            if isinstance(error, AuthenticationError):
                self._add_event(Failed(error))
        if error is None:
            self.on_change(now)

    def _replace(self, known: Cluster, topics: Iterable[str] | None) -> None:
        self.version += not known.says_as(self.cluster)
        super()._replace(known, topics)

    def _named(self, now: int) -> None:
        self._naming = None
        self._nameless -= {topic.topic_id for topic in self.cluster.topics.values()}
        # Ask again after a backoff: not every broker knows a new topic at once, and a deleted one will never be found.
        self._naming_backoff.failed(now)

    def _refreshed(self, now: int, request: Request) -> None:
        asked = self._wanted if request.tag is None else self._wanted & request.tag
        # Topics that were added after the request was sent come next.
        incomplete = asked != self._wanted
        missing: dict[str, tuple[int, int]] = {}
        for name in asked:
            topic = self.cluster.topics.get(name)
            code = ec.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
            if code:
                since, before = self._missing.get(name, (now, code))
                missing[name] = (since if before == code else now, code)
            if code in _FATAL_FOR_TOPIC and name not in self._told:
                self._told.add(name)
                self._add_event(Failed(for_code(code, f"topic {name!r}: {ec.MESSAGES[code]}")))
            elif code:
                incomplete = True
                if name not in self._told:
                    self._told.add(name)
                    log.warning(
                        "topic %r does not exist (%s); checking again until it does", name, ec.name(code)
                    )
            elif topic is not None:
                self._told.discard(name)
                incomplete = incomplete or any(p.leader is None for p in topic.partitions)
        self._missing = missing
        if incomplete:
            self._needs_update = True
            self._backoff.failed(now)
        else:
            # Even now the next request waits briefly: a caller that asks again after each response must not cause a
            # spin.
            self._backoff.succeeded()
            self._backoff.until = add_ms(now, self._config.retry_backoff_ms)

    def _answer(self, now: int, asks: list[TopicMetadata], error: KafkaError | None) -> None:
        if error is None:
            self._ask_backoff.succeeded()
            for ask in asks:
                self._add_event(self._told_to(ask))
        elif isinstance(error, AuthenticationError):
            for ask in asks:
                self._add_event(Answer(ask.id, None, error))
        else:
            self._asks.extend(asks)
            self._ask_backoff.failed(now)

    def _told_to(self, ask: TopicMetadata) -> Answer:
        names = self.cluster.topics if ask.topics is None else ask.topics
        found: dict[str, list[PartitionInfo]] = {}
        for name in names:
            topic = self.cluster.topics.get(name)
            if topic is None or topic.error_code in (ec.UNKNOWN_TOPIC_OR_PARTITION, ec.LEADER_NOT_AVAILABLE):
                continue
            if not topic.error_code:
                found[name] = list(topic.partitions)
            elif ask.topics is not None:
                message = f"topic {name!r}: {ec.MESSAGES.get(topic.error_code, '')}"
                return Answer(ask.id, None, for_code(topic.error_code, message))
        return Answer(ask.id, found, None)
