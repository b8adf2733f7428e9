"""A client's metadata of its cluster, its refreshes, and rebootstrapping: the rules of all clients.

Sans-IO.

All topics are requested again after `request_update`, or when the metadata are older than
``metadata.max.age.ms``. One such request is on its way at a time, it answers whatever was found wrong meanwhile, and
the next one waits for the backoff.

`Recovery` rebootstraps from ``bootstrap.servers`` when no broker has answered metadata requests for
``metadata.recovery.rebootstrap.trigger.ms``, or when one answers REBOOTSTRAP_REQUIRED, be it to ApiVersions (KIP-899,
KIP-1102, KIP-1242). The known brokers are forgotten then.

`LowerLeaderEpochs` are leader epochs that went back for good: a cluster that was restored from a copy, under the same
topic ids. One answer with an older epoch is older news, from a broker that is behind (KIP-320), and is ignored. But
when every answer stays below what we know, for longer than any broker is behind, then what we know is out of date and
must be forgotten. Otherwise a client would wait for that leader for ever: each fetch would end with
UNKNOWN_LEADER_EPOCH, and each batch would go to a broker that does not lead its partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from logging import Logger
from typing import Final

from kadence.clock import FOREVER, add_ms
from kadence.config import ClientConfig
from kadence.connection.cluster import Cluster, apply, follow, forget_brokers, forget_epochs
from kadence.connection.request import ANY_NODE, Backoff, Completed, Request
from kadence.errors import (
    DisconnectedError,
    KafkaError,
    MalformedMessageError,
    TransportError,
    UnsupportedVersionError,
    for_code,
)
from kadence.protocol import error_codes as ec
from kadence.protocol.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kadence.types import Node, TopicPartition

__all__ = ["BY_TOPIC_ID", "LowerLeaderEpochs", "Metadata", "Recovery", "by_ids", "by_names", "fault_of"]

_PATIENCE_MS: Final = 10_000
_ANSWERS: Final = 3
"""So many answers in a row, at least: two that are minutes apart may both come from the same stale broker."""


class LowerLeaderEpochs:
    """Counts the answers that are behind, for each partition."""

    def __init__(self) -> None:
        self._behind: dict[TopicPartition, tuple[int, int]] = {}

    def given_up(self, now: int, cluster: Cluster, response: MetadataResponse) -> list[TopicPartition]:
        """The partitions whose known epochs have been contradicted for long enough, with this answer the last."""
        counted: dict[TopicPartition, tuple[int, int]] = {}
        given_up = []
        for partition in _behind(cluster, response):
            since, answers = self._behind.get(partition, (now, 0))
            if now - since >= _PATIENCE_MS and answers + 1 >= _ANSWERS:
                given_up.append(partition)
            else:
                counted[partition] = (since, answers + 1)
        answered = {topic.name for topic in response.topics}
        self._behind = {p: at for p, at in self._behind.items() if p.topic not in answered} | counted
        return given_up


def _behind(cluster: Cluster, response: MetadataResponse) -> Iterator[TopicPartition]:
    for topic in response.topics:
        known = cluster.topics.get(topic.name or "")
        if known is None or known.topic_id != topic.topic_id:
            continue
        for answer in topic.partitions:
            partition = TopicPartition(known.name, answer.partition_index)
            info = cluster.partition(partition)
            if (
                info is not None
                and info.leader_epoch is not None
                and 0 <= answer.leader_epoch < info.leader_epoch
            ):
                yield partition


class Recovery:
    """Decides from the outcomes of metadata requests when to rebootstrap.

    Attributes:
        is_on: whether this ever happens: ``metadata.recovery.strategy``.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.is_on = config.metadata_recovery_strategy == "rebootstrap"
        self._trigger_ms = config.metadata_recovery_rebootstrap_trigger_ms
        # Brokers that never are who metadata says must not cost more than the other failures.
        self._pause_ms = config.retry_backoff_max_ms
        self._failing_since: int | None = None
        self._is_told = False
        self._not_before = 0

    def told(self) -> None:
        """A broker says that it is not the one that is meant."""
        self._is_told = self.is_on

    def took(self, completed: Completed, since: int) -> KafkaError | None:
        """A request that was sent at ``since`` has ended. Returns why it says nothing of the cluster, if so."""
        response: MetadataResponse | None = completed.response
        error = completed.error if response is None else fault_of(response, rebootstraps=self.is_on)
        if error is None:
            self._failing_since = None
        elif not isinstance(error, UnsupportedVersionError) and self._failing_since is None:
            # A broker that lacks the version is there; one that swallows requests was silent since they were sent.
            self._failing_since = since
        if response is not None and response.error_code == ec.REBOOTSTRAP_REQUIRED:
            self.told()
        return error

    @property
    def due(self) -> int:
        """The time (ms) to rebootstrap, unless a broker answers before."""
        if self._is_told:
            return self._not_before
        if self._failing_since is None or not self.is_on:
            return FOREVER
        return add_ms(self._failing_since, self._trigger_ms)

    def begin(self, now: int, log: Logger) -> None:
        """The client rebootstraps: restart the time."""
        silent_ms = now - (self._failing_since or now)
        why = "a broker said so" if self._is_told else f"no broker has answered for {silent_ms} ms"
        log.warning("%s: asking bootstrap.servers for the brokers again", why)
        self._failing_since, self._is_told = None, False
        self._not_before = now + self._pause_ms


def fault_of(response: MetadataResponse, *, rebootstraps: bool) -> KafkaError | None:
    """The error of a response without metadata of the cluster; None if it has them.

    Args:
        rebootstraps: whether the client begins again when a broker says so.
    """
    if rebootstraps and response.error_code == ec.REBOOTSTRAP_REQUIRED:
        return DisconnectedError("a broker said that bootstrap.servers are to be asked again")
    if response.error_code:
        return for_code(response.error_code)
    if not response.brokers:
        # Believed, it would cost every connection.
        return TransportError("the broker names no broker of its cluster: it was just started")
    return _miscounted(response)


def _miscounted(response: MetadataResponse) -> MalformedMessageError | None:
    """An error if partitions are not numbered from 0, which partitioners and assignors rely on."""
    for topic in response.topics:
        numbers = sorted(each.partition_index for each in topic.partitions)
        if numbers != list(range(len(numbers))):
            return MalformedMessageError(
                f"a broker says that topic {topic.name!r} has the partitions {numbers[:10]}, and they must be counted "
                "from 0 without gaps"
            )
    return None


BY_TOPIC_ID: Final = 12
"""The first version that takes topic ids (KIP-516)."""


_ALL: Final = MetadataRequest(topics=None, allow_auto_topic_creation=False)


def by_names(topics: Iterable[str] | None, *, creates: bool = False) -> MetadataRequest:
    """Ask for topics by their names, None for all. ``creates``: brokers that create topics may create these."""
    if topics is None:
        return _ALL
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=creates,
    )


def by_ids(topic_ids: Iterable[bytes]) -> MetadataRequest:
    """Ask for topics by their ids, in `BY_TOPIC_ID` or later."""
    return MetadataRequest(
        topics=[MetadataRequestTopic(topic_id=each, name=None) for each in sorted(topic_ids)],
        allow_auto_topic_creation=False,
    )


class Metadata:
    """Knows one immutable `Cluster`, and when it is asked for again. Network thread.

    Attributes:
        cluster: the present metadata. on_rebootstrap: called when all brokers are to be forgotten.
    """

    def __init__(self, config: ClientConfig, log: Logger) -> None:
        self.cluster = Cluster()
        self.on_rebootstrap: Callable[[int], None] = lambda now: None
        self._request_timeout_ms = config.request_timeout_ms
        # Never without a pause, however young metadata must be.
        self._max_age_ms = max(config.metadata_max_age_ms, config.retry_backoff_ms)
        self._log = log
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._needs_update = False
        self._refresh_at = FOREVER
        self._in_flight: Request | None = None
        self._is_full = True
        self._recovery = Recovery(config)
        self._lower_epochs = LowerLeaderEpochs()

    def request_update(self, now: int) -> None:
        """Something contradicted what we know: ask again, as soon as the backoff allows."""
        del now
        self._needs_update = True

    def brokers_are_wrong(self) -> None:
        """A broker is not the one that our metadata says: begin again at the bootstrap addresses."""
        self._recovery.told()

    def moved(
        self, now: int, partition: TopicPartition, leader: int, epoch: int, endpoints: Mapping[int, Node]
    ) -> bool:
        """A broker reported the present leader of a partition (KIP-951). False if that is older than the known one."""
        known = follow(self.cluster, partition, leader, epoch, endpoints)
        if known is self.cluster:
            return False
        self._replace(known, (partition.topic,))
        self._log.info("%s is led by broker %d now (epoch %d)", partition, leader, epoch)
        # Others may have moved with it.
        self.request_update(now)
        return True

    # ------------------------------------------------------------ requests

    @property
    def _due(self) -> int:
        """The time to request all topics again, if no such request is in flight."""
        return self._backoff.until if self._needs_update else max(self._refresh_at, self._backoff.until)

    def _refresh(
        self, now: int, topics: Iterable[str] | None, *, creates: bool, is_full: bool = True
    ) -> Request:
        """The request that is due now. ``is_full``: it is for all that the client uses."""
        self._is_full = is_full
        self._in_flight = request = self._ask_for(now, topics, creates=creates)
        return request

    def _ask_for(self, now: int, topics: Iterable[str] | None, *, creates: bool) -> Request:
        """A request for these topics, None for all, beside the one that `_refresh` makes."""
        requested = None if topics is None else frozenset(topics)
        message = by_names(None if requested is None else sorted(requested), creates=creates)
        return Request(message, ANY_NODE, add_ms(now, self._request_timeout_ms), tag=requested)

    def _identify(self, now: int, topic_ids: frozenset[bytes]) -> Request:
        """A request for the names of these ids."""
        deadline = add_ms(now, self._request_timeout_ms)
        message = by_ids(topic_ids)
        return Request(message, ANY_NODE, deadline, tag=frozenset(), min_version=BY_TOPIC_ID)

    def _recover(self, now: int) -> int:
        """Forget the brokers, and begin again at the bootstrap addresses, when that is due; when to look again."""
        due = self._recovery.due
        if due > now:
            return due
        self._recovery.begin(now, self._log)
        self._replace(forget_brokers(self.cluster), None)
        self._needs_update = True
        self.on_rebootstrap(now)
        return FOREVER

    # ------------------------------------------------------------ answers

    def _take(self, now: int, completed: Completed) -> KafkaError | None:
        """Take the answer to a request. Returns why it says nothing, if it does not."""
        request, response = completed.request, completed.response
        error = self._recovery.took(completed, request.deadline - self._request_timeout_ms)
        if error is not None or response is None:
            self._ended(now, request, error, self.cluster)
            if response is not None:
                self._log.info("metadata request failed, repeating: %s", error)
            self._recover(now)
            return error
        known = self.cluster
        restored = self._lower_epochs.given_up(now, known, response)
        if restored:
            self._log.warning(
                "the leader epochs of %s are lower than before: the cluster seems to be restored from an older state",
                ", ".join(str(partition) for partition in sorted(restored)[:5]),
            )
            known = forget_epochs(known, restored)
        answered = None if request.tag is None else {topic.name for topic in response.topics if topic.name}
        self._ended(now, request, None, apply(known, response, request.tag), answered)
        return None

    def _ended(
        self,
        now: int,
        request: Request,
        error: KafkaError | None,
        known: Cluster,
        topics: Iterable[str] | None = None,
    ) -> None:
        """A request has ended: with ``error``, or with a cluster that is ``known`` now.

        Args:
            topics: the topics of the response; None: all.
        """
        if error is None:
            self._replace(known, topics)
        if request is self._in_flight:
            self._in_flight = None
            if error is None and self._is_full:
                self._needs_update = False
                self._refresh_at = add_ms(now, self._max_age_ms)

    def _replace(self, known: Cluster, topics: Iterable[str] | None) -> None:
        """The one place where the metadata change. ``topics``: those that may differ now; None: all of them."""
        self.cluster = known
