"""What is subscribed and assigned, and where each assigned partition is being read.

Owned by the network thread (C1). The application sees it through `SharedPartition` objects and the mapping published
in ``snapshot``, which is replaced as a whole whenever the set of assigned partitions changes.

A partition's status (names after Kafka's SubscriptionState):

    INITIALIZING ──committed offset──> FETCHING <──answer── AWAIT_VALIDATION
         │                               │ ▲                    ▲
         └──none committed──> AWAIT_RESET ┘ └── new leader ──────┘
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from kadence.consumer.shared_partition import NotFetchedReason, Origin, SharedPartition, Start
from kadence.errors import KafkaError
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = ["Bucket", "Flight", "PartitionState", "Status", "Subscription"]


class Status(enum.Enum):
    """Where the position of an assigned partition stands."""

    INITIALIZING = "waiting for the committed offset"
    AWAIT_RESET = "waiting for the offset to start from"
    AWAIT_VALIDATION = "waiting for the leader epoch check"
    FETCHING = "fetching"


class Flight(Protocol):
    """What asks a broker for partitions: one fetch, or a fetch session, which asks again and again.

    Attributes:
        under_way: it has asked and has no answer yet. answers: how many it had.
    """

    under_way: bool
    answers: int


class Bucket(Protocol):
    """Where the fetch manager keeps partitions that stand alike."""


class PartitionState:
    """The network thread's knowledge of one assigned partition."""

    __slots__ = (
        "_status",
        "_subscription",
        "beyond",
        "checked",
        "doubted",
        "end_before",
        "epoch",
        "epoch_starts",
        "fetched_bytes",
        "flight",
        "floor",
        "former_topic_ids",
        "in_flight",
        "is_by_policy",
        "is_told",
        "lost",
        "named_at",
        "offset",
        "partition",
        "place",
        "preferred_by",
        "preferred_until",
        "reset_timestamp",
        "retry_at",
        "shared_partition",
        "topic_id",
        "trouble",
    )

    def __init__(self, partition: TopicPartition, fetch_epoch: int, subscription: Subscription) -> None:
        self.partition = partition
        self.shared_partition = SharedPartition(partition, fetch_epoch)
        self._subscription = subscription
        self._status = Status.INITIALIZING
        self.offset = -1
        """Next offset to fetch; ahead of what the application was given."""
        self.floor = 0
        """Where the range begins that is to be read (C11), below which no reset goes; 0: it is no range."""
        self.epoch: int | None = None
        """Leader epoch of the last record before ``offset``; None = unknown."""
        self.epoch_starts: list[tuple[int, int]] = []
        """Leader epochs that were read under this fetch epoch, each with the offset of its first batch."""
        self.checked: int | None = None
        """The leader epoch that ``offset`` is known to be good under; None: of none yet (KIP-320)."""
        self.doubted = False
        """Whether a fetch was answered with a divergence that the leader has not confirmed yet."""
        self.topic_id = ZERO_UUID
        """The topic that ``offset`` is of: one of the same name made later has another id (KIP-516)."""
        self.former_topic_ids: frozenset[bytes] = frozenset()
        """Ids that the topic of this name had before: a broker that still tells one of them is behind."""
        self.reset_timestamp: int | None = None
        """What AWAIT_RESET asks for: −2 earliest, −1 latest, else ms since 1970; None: the policy, or a seek."""
        self.end_before: int | None = None
        """Where the log ended before a time is looked up: there reading begins if no record is that young."""
        self.beyond: int | None = None
        """What it asks for next if the log has lost its end, and not its beginning; see `Subscription.await_reset`."""
        self.is_by_policy = False
        """Whether ``auto.offset.reset`` asks for it."""
        self.lost: KafkaError | None = None
        """Why the position is of no use any more, until ``auto.offset.reset`` has been applied."""
        self.retry_at = 0
        self.trouble: tuple[NotFetchedReason, str] | None = None
        """How the latest fetch of it failed, until one is answered."""
        self.is_told = False
        """Whether there was a log line that it is not fetched."""
        self.flight: Flight | None = None
        """What asked a broker for it last; it may be over."""
        self.in_flight = 0
        """Fetch epoch under which ``flight`` asked for it. A fetch of an older fetch epoch stands in nobody's way."""
        self.named_at = -1
        """How many answers ``flight`` had when it began to ask for the present offset; −1: it has brought something."""
        self.place: Bucket | None = None
        """Where the fetch manager has put it: see `fetch.manager.fetchable`."""
        self.fetched_bytes = 0
        """Total of bytes ever put into the buffer; minus ``shared_partition.drained_bytes`` it is what lies there."""
        self.preferred_until = 0
        self.preferred_by: int | None = None
        """The leader that told of the preferred replica."""

    @property
    def preferred_replica(self) -> int | None:
        """The replica to fetch from (KIP-392); None: the leader. `metrics` sees it, too."""
        return self.shared_partition.preferred_replica

    @preferred_replica.setter
    def preferred_replica(self, node_id: int | None) -> None:
        self.shared_partition.preferred_replica = node_id

    @property
    def status(self) -> Status:
        return self._status

    @status.setter
    def status(self, status: Status) -> None:
        self._status = status
        self._subscription.status_set(self)

    def mark(self) -> None:
        """Something changed that decides whether, where and from which offset it is fetched."""
        self._subscription.changed[self] = None

    @property
    def buffered_bytes(self) -> int:
        # What arrived may be handed out before it is counted.
        return max(self.fetched_bytes - self.shared_partition.drained_bytes, 0)

    @property
    def is_untold(self) -> bool:
        """Whether it was lost and came back, and the application does not know yet: see `Subscription.losses`."""
        return any(self.partition in lost for lost in self._subscription.losses.values())

    @property
    def is_from_start(self) -> bool:
        """Whether reading goes on at the beginning of the log when its position is lost: see `Subscription`."""
        return self.partition.topic in self._subscription.from_start

    @property
    def awaits_fetch(self) -> bool:
        """Whether a fetch of its present position is on its way."""
        flight = self.flight
        return flight is not None and flight.under_way and self.in_flight == self.shared_partition.fetch_epoch

    @property
    def is_idle(self) -> bool:
        """Whether the broker was asked for the present offset, answered, and had nothing."""
        flight = self.flight
        return flight is not None and 0 <= self.named_at < flight.answers

    @property
    def fetchable(self) -> bool:
        shared_partition = self.shared_partition
        return self.status is Status.FETCHING and not (
            shared_partition.is_paused or shared_partition.revoking or shared_partition.held
        )

    def __repr__(self) -> str:
        return f"<{self.partition} {self.status.name} offset={self.offset} epoch={self.shared_partition.fetch_epoch}>"


class Subscription:
    """The subscription and its assigned partitions, in the order in which they are to be fetched."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        """What to join with. For a pattern: what it matches now."""
        self.pattern: str | None = None
        self.regex: str | None = None
        """What the broker matches topics with (KIP-848); which those are is known by what it assigns."""
        self.by_group = False
        """Whether partitions come from a group (subscribe) rather than from assign()."""
        self.has_listener = False
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.ever: set[TopicPartition] = set()
        """What a group has ever given to this consumer."""
        self.snapshot: Mapping[TopicPartition, SharedPartition] = MappingProxyType({})
        """What the application sees: immutable, replaced as a whole."""
        self.callbacks = itertools.count(1)
        """Numbers for rebalance callbacks: one series, whichever membership asks for them."""
        self.losses: dict[int, frozenset[TopicPartition]] = {}
        """What was lost, by the callback that tells the application. Until that has ended, the application may still
        commit what it has of these in a transaction, so the committed offset is no place to go on from."""
        self.from_start: frozenset[str] = frozenset()
        """Topics that are read from their beginnings wherever ``auto.offset.reset`` would be asked: no other place has
        their records."""
        self.moves = 0
        """How many positions were ever set: whoever waits for one looks again when it grows."""
        self.starts = 0
        """How many places ``auto.offset.reset`` has chosen."""
        self.has_ranges = False
        """Whether any partition was ever to be read up to an end."""
        self.changed: dict[PartitionState, None] = {}
        """What the fetch manager has to look at again, assigned or no longer; it clears this."""
        self.unplaced: dict[TopicPartition, PartitionState] = {}
        """Of what is assigned: those that are not FETCHING."""
        self.topic_id_of: Callable[[str], bytes] = lambda topic: ZERO_UUID
        """The id that the cluster's topic of this name has now, as far as is known."""
        self._fetch_epochs = 0

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions)

    @property
    def deserted(self) -> frozenset[TopicPartition]:
        """Partitions whose topic is not subscribed any more. With a regex only the broker knows of any."""
        if self.regex is not None:
            return frozenset()
        return frozenset(p for p in self.partitions if p.topic not in self.topics)

    def is_foreign(self, partition: TopicPartition) -> bool:
        """Whether it has nothing to do with this subscription, and never had. With a regex nobody here can tell."""
        return self.regex is None and partition.topic not in self.topics and partition not in self.ever

    def status_set(self, state: PartitionState) -> None:
        """Keeps ``unplaced`` true, and has the fetch manager look."""
        self.changed[state] = None
        if self.partitions.get(state.partition) is state:
            if state.status is Status.FETCHING:
                self.unplaced.pop(state.partition, None)
            else:
                self.unplaced[state.partition] = state

    def next_fetch_epoch(self) -> int:
        self._fetch_epochs += 1
        return self._fetch_epochs

    def subscribe(
        self, topics: frozenset[str], pattern: str | None, *, has_listener: bool, regex: str | None = None
    ) -> None:
        """Replace the subscription. Partitions of topics that left it are no longer handed out."""
        self.topics, self.pattern, self.regex = topics, pattern, regex
        self.by_group, self.has_listener = True, has_listener

    def unsubscribe(self) -> None:
        """Forget subscription and assignment."""
        self.topics, self.pattern, self.regex = frozenset(), None, None
        self.by_group = self.has_listener = False
        self.losses.clear()
        self.assign(())

    def assign(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        """Install an assignment: what stays keeps its state, what is new starts INITIALIZING.

        Args:
            held: added partitions are not handed out or fetched until `release` (their assigned
                callback has to run first).
        """
        old, new = self.partitions, {}
        for partition in partitions:
            state = old.get(partition)
            if state is None:
                state = PartitionState(partition, self.next_fetch_epoch(), self)
                state.shared_partition.held = held
            state.shared_partition.revoking = False
            state.mark()
            new[partition] = state
        for partition, state in old.items():
            if partition not in new:
                state.shared_partition.fetch_epoch = self.next_fetch_epoch()
                state.shared_partition.origin = None
                state.mark()
        self.partitions = new
        if self.by_group:
            self.ever.update(new)
        self.unplaced = {p: s for p, s in new.items() if s.status is not Status.FETCHING}
        self._publish()

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Their assigned callback ran: fetch and hand out."""
        for partition in partitions:
            if (state := self.partitions.get(partition)) is not None:
                state.shared_partition.held = False
                state.mark()

    def loss_told(self, callback: int) -> None:
        """The application knows of a loss: what it had of these partitions is committed by now, or never will be."""
        for partition in self.losses.pop(callback, ()):
            if (state := self.partitions.get(partition)) is not None:
                state.mark()

    def mark_revoking(self, partitions: Iterable[TopicPartition]) -> None:
        """About to be given up: no longer fetched or handed out, still committable."""
        for partition in partitions:
            if (state := self.partitions.get(partition)) is not None:
                state.shared_partition.revoking = True
                state.mark()

    def position(
        self,
        partition: TopicPartition,
        offset: int,
        epoch: int | None,
        processed: tuple[int, int | None] | None = None,
        committed: OffsetAndMetadata | None = None,
        *,
        goes_on: bool = False,
        rereads: bool = False,
    ) -> None:
        """Start a new fetch epoch at ``offset``: data fetched before is dropped when it would be handed out.

        Args:
            processed: what may be committed until more is processed; None: ``offset`` itself.
            committed: what the group has committed, where that is this place.
            goes_on: reading goes on there, and neither the program nor a reset has chosen the place.
            rereads: the consumer itself fetches again what it has put back, so what was read before counts still.
        """
        state = self.partitions[partition]
        shared_partition = state.shared_partition
        before = shared_partition.origin if goes_on else None
        start = None if before is None else before.start
        if start is not None and start.offset > offset:
            # The log was cut off before it.
            start = start._replace(offset=offset)
        if state.is_by_policy:
            self.starts += 1
            start = Start(self.starts, offset)
        continued = -1 if processed is None else shared_partition.fetch_epoch
        shared_partition.fetch_epoch = self.next_fetch_epoch()
        if not rereads:
            shared_partition.read_since = shared_partition.fetch_epoch
        state.trouble, state.retry_at, state.named_at = None, 0, -1
        state.offset, state.epoch = offset, epoch
        state.epoch_starts, state.checked, state.doubted = [], None, False
        topic_id = self.topic_id_of(partition.topic)
        if topic_id in state.former_topic_ids:
            # A broker that is behind still tells of the topic before.
            topic_id = ZERO_UUID
        if state.topic_id in state.former_topic_ids:
            shared_partition.topic_since = shared_partition.fetch_epoch
        state.topic_id = topic_id
        state.status, state.reset_timestamp, state.lost = Status.FETCHING, None, None
        shared_partition.origin = Origin(
            shared_partition.fetch_epoch,
            offset,
            epoch,
            processed,
            continued,
            state.topic_id,
            committed,
            state.is_by_policy,
            start,
        )
        state.is_by_policy = False
        self.moves += 1

    def identify(self, state: PartitionState, topic_id: bytes) -> None:
        """The position is of this topic, whose id was not known when it was set."""
        state.topic_id = topic_id
        if (origin := state.shared_partition.origin) is not None:
            state.shared_partition.origin = origin._replace(topic_id=topic_id)
            self.moves += 1

    def continues(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a range that begins at ``offset`` begins where the one before it ended, so that reading just goes on.

        Where the position alone is the same, records beyond the new end may have been decoded already.
        """
        state = self.partitions[partition]
        return (
            state.status is Status.FETCHING
            and state.shared_partition.end == offset
            and state.shared_partition.is_finished
        )

    def limit(self, partition: TopicPartition, floor: int, end: int | None) -> None:
        """Read what lies between: fetch nothing that the end does not need; None: there is none."""
        state = self.partitions[partition]
        state.floor = floor
        if state.shared_partition.end != end:
            state.shared_partition.end = end
            state.mark()
        self.has_ranges = self.has_ranges or end is not None

    def await_reset(
        self,
        partition: TopicPartition,
        timestamp: int,
        *,
        beyond: int | None = None,
        is_by_policy: bool = False,
    ) -> None:
        """The position is to be looked up (−2 earliest, −1 latest); until then there is none.

        Args:
            beyond: look this up instead if the offset found is not behind the lost position, which then lay beyond the
                end of the log. is_by_policy: ``auto.offset.reset`` wants it, and not the program.
        """
        state = self.partitions[partition]
        state.beyond, state.is_by_policy, state.end_before = beyond, is_by_policy, None
        shared_partition = state.shared_partition
        shared_partition.fetch_epoch = shared_partition.read_since = self.next_fetch_epoch()
        shared_partition.origin = None
        state.status, state.reset_timestamp, state.retry_at, state.lost = (
            Status.AWAIT_RESET,
            timestamp,
            0,
            None,
        )

    def widen(self, partition: TopicPartition, offset: int) -> None:
        """The application asks for what comes from ``offset`` on, be it before its range begins."""
        state = self.partitions[partition]
        state.floor = min(state.floor, offset)

    def doubt(self, partition: TopicPartition) -> None:
        """A broker says that the log is not the one that was read: the leader is to be asked."""
        state = self.partitions[partition]
        state.doubted, state.checked = True, None
        state.mark()
        self.moves += 1

    def lose(self, partition: TopicPartition, error: KafkaError) -> None:
        """The position leads nowhere: ``auto.offset.reset`` says where to go on, or ``error`` is raised."""
        state = self.partitions[partition]
        state.status, state.reset_timestamp, state.retry_at, state.lost = Status.AWAIT_RESET, None, 0, error

    def move_to_end(self, partition: TopicPartition) -> None:
        """Its bytes were fetched: the others come first next time (KIP-41, fairness on the wire)."""
        state = self.partitions.pop(partition, None)
        if state is not None:
            self.partitions[partition] = state

    def _publish(self) -> None:
        self.snapshot = MappingProxyType({p: s.shared_partition for p, s in self.partitions.items()})
