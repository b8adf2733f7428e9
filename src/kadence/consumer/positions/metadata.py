"""Cluster metadata: keeps one immutable `Cluster`, and refreshes it when it is old or was wrong.

Network thread, sans-IO. Others say which topics they need and why (`need`) and when a broker contradicted what we
know (`request_update`), or told better (`moved`); requests are never more frequent than the backoff allows, and equal
ones are one.

When no broker has answered for ``metadata.recovery.rebootstrap.trigger.ms``, or one says that it is not to be asked any
more, what is known of the brokers is forgotten and the bootstrap addresses are asked again (KIP-899, KIP-1102).

Leader epochs that went back for good: a cluster that was restored from a copy, under the same topic ids.

One answer with an older epoch is older news, from a broker that is behind (KIP-320), and is ignored. But when every
answer stays below what we know, for longer than any broker is behind, then what we know is out of date and must be
forgotten. Otherwise we would wait for that leader for ever, and each fetch would end with UNKNOWN_LEADER_EPOCH.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.config import ConsumerConfig
from kadence.connection.backoff import Backoff
from kadence.connection.cluster import Cluster, apply, follow, forget_brokers, forget_epochs
from kadence.connection.recovery import Recovery
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Answer, Failed, TopicMetadata
from kadence.errors import AuthenticationError, KafkaError, for_code
from kadence.logs import logger
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kadence.types import Node, PartitionInfo, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["LowerLeaderEpochs", "MetadataManager"]

log = logger("kadence.consumer.metadata")

_PATIENCE_MS: Final = 10_000
_ANSWERS: Final = 3
"""So many answers in a row, at least: two that are minutes apart may both come from the same stale broker."""


class LowerLeaderEpochs:
    """Counts the answers that are behind, for each partition."""

    def __init__(self) -> None:
        self._behind: dict[TopicPartition, tuple[int, int]] = {}

    def consider(self, now: int, cluster: Cluster, response: MetadataResponse) -> Cluster:
        """The cluster to apply the answer to: without the epochs that have been contradicted for long enough."""
        behind = _behind(cluster, response)
        counted: dict[TopicPartition, tuple[int, int]] = {}
        given_up = set()
        for partition in behind:
            since, answers = self._behind.get(partition, (now, 0))
            if now - since >= _PATIENCE_MS and answers + 1 >= _ANSWERS:
                given_up.add(partition)
            else:
                counted[partition] = (since, answers + 1)
        told = {topic.name for topic in response.topics}
        self._behind = {p: at for p, at in self._behind.items() if p.topic not in told} | counted
        if not given_up:
            return cluster
        log.warning(
            "the leader epochs of %s are lower than before: the cluster seems to be restored from an older state",
            ", ".join(str(partition) for partition in sorted(given_up)[:5]),
        )
        return forget_epochs(cluster, given_up)


def _behind(cluster: Cluster, response: MetadataResponse) -> list[TopicPartition]:
    found = []
    for topic in response.topics:
        known = cluster.topics.get(topic.name or "")
        if known is None or known.topic_id != topic.topic_id:
            continue
        for told in topic.partitions:
            partition = TopicPartition(known.name, told.partition_index)
            info = cluster.partition(partition)
            if (
                info is not None
                and info.leader_epoch is not None
                and 0 <= told.leader_epoch < info.leader_epoch
            ):
                found.append(partition)
    return found


log = logger("kadence.consumer.metadata")

_BY_TOPIC_ID: Final = 12
_FATAL_FOR_TOPIC: Final = frozenset({ec.INVALID_TOPIC_EXCEPTION, ec.TOPIC_AUTHORIZATION_FAILED})


class MetadataManager:
    """Requests the cluster's metadata when it is needed, old or wrong, and keeps the last answer.

    Attributes:
        cluster: what is known now. version: grows with every answer that changed something we hold.
        on_change: called after each answer, on the network thread. on_moved: called with the brokers that were told
            beside a new leader. on_rebootstrap: called when all brokers are to be forgotten.
    """

    def __init__(self, config: ConsumerConfig, add_event: AddBackgroundEvent) -> None:
        self._config = config
        self._add_event = add_event
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._wanted: frozenset[str] = frozenset()
        self._reasons: dict[str, frozenset[str]] = {}
        self._pattern: re.Pattern[str] | None = None
        self._needs_update = True
        self._refresh_at = 0
        self._in_flight: Request | None = None
        self._asks: list[TopicMetadata] = []
        self._ask_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._asked: dict[Request, list[TopicMetadata]] = {}
        self._told: set[str] = set()
        self._missing: dict[str, tuple[int, int]] = {}
        """Of what is wanted: topics that the last answer gave an error for, each with since when, and the error."""
        self._nameless: frozenset[bytes] = frozenset()
        self._naming: Request | None = None
        self._naming_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self.cluster = Cluster()
        self.version = 0
        self.on_change: Callable[[int], None] = lambda now: None
        self.on_moved: Callable[[Mapping[int, Node]], None] = lambda nodes: None
        self.on_rebootstrap: Callable[[int], None] = lambda now: None
        self._recovery = Recovery(config)
        self._lower_epochs = LowerLeaderEpochs()

    # ------------------------------------------------------------ what others ask

    def need(self, reason: str, topics: frozenset[str]) -> None:
        """Keep these topics known for ``reason``, in place of what it needed before; new ones are asked for at once."""
        self._reasons[reason] = topics
        before, self._wanted = self._wanted, frozenset().union(*self._reasons.values())
        if not self._wanted <= before:
            self._needs_update = True
            self._backoff.succeeded()

    def missing(self, reason: str) -> dict[str, tuple[int, int]]:
        """Of the topics that ``reason`` needs: those that the cluster does not show, with since when (ms), and why."""
        needed = self._reasons.get(reason, frozenset())
        return {name: told for name, told in self._missing.items() if name in needed}

    def want(self, topics: frozenset[str]) -> None:
        """What the group's leader must know to assign partitions to all members."""
        self.need("group", topics)

    def identify(self, topic_ids: frozenset[bytes]) -> None:
        """Ask for topics by their ids (KIP-516) until each has a name; replaces what was asked for before."""
        if not topic_ids <= self._nameless:
            self._naming_backoff.succeeded()
        self._nameless = topic_ids

    def want_matching(self, pattern: str | None) -> None:
        """Keep all topics known, since a pattern chooses among them; None: no longer."""
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

    def request_update(self, now: int) -> None:
        """Something contradicted what we know: ask again, as soon as the backoff allows."""
        del now
        self._needs_update = True

    def moved(
        self, now: int, partition: TopicPartition, leader: int, epoch: int, endpoints: Mapping[int, Node]
    ) -> bool:
        """A broker told who leads a partition now (KIP-951). False when it is older news than ours."""
        before = self.cluster
        self.cluster = follow(before, partition, leader, epoch, endpoints)
        if self.cluster is before:
            return False
        log.info("%s is led by broker %d now (epoch %d)", partition, leader, epoch)
        self.version += 1
        self.on_moved({leader: self.cluster.nodes[leader]})
        self.request_update(now)
        return True

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

    def has_node(self, node_id: int) -> bool:
        return node_id in self.cluster.nodes

    def error_of(self, partition: TopicPartition) -> int:
        """Error code that metadata gave for a topic; UNKNOWN_TOPIC_OR_PARTITION for a partition that it lacks."""
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
        wake_at = self._recover(now)
        if self._in_flight is None and (self._wanted or self._pattern is not None):
            due = self._backoff.until if self._needs_update else max(self._refresh_at, self._backoff.until)
            if due <= now:
                topics = None if self._pattern is not None else sorted(self._wanted)
                self._in_flight = self._request(now, topics)
                requests.append(self._in_flight)
            else:
                wake_at = min(wake_at, due)
        if self._nameless and self._naming is None:
            if self._naming_backoff.ready(now):
                requests.append(self._name(now))
            else:
                wake_at = min(wake_at, self._naming_backoff.until)
        if self._asks:
            self._asks = [ask for ask in self._asks if ask.deadline > now]
        if self._asks:
            if self._ask_backoff.ready(now):
                asks, self._asks = self._asks, []
                names: set[str] | None = set()
                for ask in asks:
                    names = None if names is None or ask.topics is None else names | set(ask.topics)
                request = self._request(now, None if names is None else sorted(names))
                self._asked[request] = asks
                requests.append(request)
            else:
                wake_at = min(wake_at, self._ask_backoff.until)
        return Poll(requests, wake_at) if requests or wake_at != FOREVER else NOTHING

    def _recover(self, now: int) -> int:
        """Begin again at the bootstrap addresses when nobody has answered for too long; when to look again."""
        due = self._recovery.due
        if due > now:
            return due
        self._rebootstrap(now, self._recovery.why(now))
        return FOREVER

    def _rebootstrap(self, now: int, why: str) -> None:
        log.warning("%s: asking bootstrap.servers for the brokers again", why)
        self.cluster = forget_brokers(self.cluster)
        self.version += 1
        self._recovery.succeeded()
        self._needs_update = True
        self.on_rebootstrap(now)

    def _name(self, now: int) -> Request:
        message = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=each, name=None) for each in sorted(self._nameless)],
            allow_auto_topic_creation=False,
        )
        deadline = add_ms(now, self._config.request_timeout_ms)
        self._naming = Request(message, ANY_NODE, deadline, tag=[], min_version=_BY_TOPIC_ID)
        return self._naming

    def _named(self, now: int, completed: Completed) -> None:
        self._naming = None
        if isinstance(completed.response, MetadataResponse) and not completed.response.error_code:
            before = self.cluster
            self.cluster = apply(before, completed.response, ())
            self.version += self.cluster != before
            self._nameless -= {topic.topic_id for topic in self.cluster.topics.values()}
            self.on_change(now)
        # Ask again after a backoff: a new topic is not known to every broker at once, and a deleted one never will be.
        self._naming_backoff.failed(now)

    def _request(self, now: int, topics: list[str] | None) -> Request:
        message = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=self._config.allow_auto_create_topics and topics is not None,
        )
        return Request(message, ANY_NODE, add_ms(now, self._config.request_timeout_ms), tag=topics)

    def on_response(self, now: int, completed: Completed) -> None:
        if completed.request is self._naming:
            self._named(now, completed)
            return
        asks = self._asked.pop(completed.request, None)
        if asks is None:
            self._in_flight = None
        response = completed.response
        if not isinstance(response, MetadataResponse):
            self._failed(now, asks, completed.request, completed.error)
            return
        if response.error_code:
            self._failed(now, asks, completed.request, for_code(response.error_code))
            if response.error_code == ec.REBOOTSTRAP_REQUIRED and self._recovery.is_on:
                self._rebootstrap(now, "a broker said so")
            return
        if not response.brokers:
            # The broker was just started, and knows nothing of its cluster yet.
            self._failed(now, asks, completed.request, None)
            return
        self._recovery.succeeded()
        before = self.cluster
        self.cluster = apply(
            self._lower_epochs.consider(now, before, response), response, completed.request.tag
        )
        if self.cluster != before:
            self.version += 1
        if asks is None:
            self._refreshed(now)
        else:
            self._ask_backoff.succeeded()
            self._answer(asks)
        self.on_change(now)

    def _failed(
        self, now: int, asks: list[TopicMetadata] | None, request: Request, error: KafkaError | None
    ) -> None:
        self._recovery.failed(request.deadline - self._config.request_timeout_ms)
        if asks is None:
            self._needs_update = True
            self._backoff.failed(now)
            if isinstance(error, AuthenticationError):
                self._add_event(Failed(error))
        elif isinstance(error, AuthenticationError):
            for ask in asks:
                self._add_event(Answer(ask.id, None, error))
        else:
            self._asks.extend(asks)
            self._ask_backoff.failed(now)

    def _refreshed(self, now: int) -> None:
        self._refresh_at = add_ms(now, self._config.metadata_max_age_ms)
        self._needs_update = False
        incomplete = False
        missing: dict[str, tuple[int, int]] = {}
        for name in self._wanted:
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
            # Even now the next request waits a little: a caller that asks again at each answer must not cause a spin.
            self._backoff.succeeded()
            self._backoff.until = add_ms(now, self._config.retry_backoff_ms)

    def _answer(self, asks: list[TopicMetadata]) -> None:
        for ask in asks:
            names = self.cluster.topics if ask.topics is None else ask.topics
            found: dict[str, list[PartitionInfo]] = {}
            error: Exception | None = None
            for name in names:
                topic = self.cluster.topics.get(name)
                if topic is None or topic.error_code in (
                    ec.UNKNOWN_TOPIC_OR_PARTITION,
                    ec.LEADER_NOT_AVAILABLE,
                ):
                    continue
                if topic.error_code:
                    error = for_code(
                        topic.error_code,
                        f"topic {name!r}: {ec.MESSAGES.get(topic.error_code, '')}",
                    )
                    if ask.topics is not None:
                        break
                    error = None
                    continue
                found[name] = list(topic.partitions)
            self._add_event(Answer(ask.id, None if error else found, error))
