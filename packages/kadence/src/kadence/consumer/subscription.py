"""The subscription, the assignment, and the position of each assigned partition.

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
    """The state of an assigned partition's position."""

    INITIALIZING = "waiting for the committed offset"
    AWAIT_RESET = "waiting for the offset to start from"
    AWAIT_VALIDATION = "waiting for the leader epoch check"
    FETCHING = "fetching"


class Flight(Protocol):
    """A request for partitions: one fetch, or a fetch session, which repeats it.

    Attributes:
        under_way: a request has no response yet. answers: how many responses it had.
    """

    under_way: bool
    answers: int


class Bucket(Protocol):
    """A set of the fetch manager for partitions in the same situation."""


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
        "holds",
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
        """Next offset to fetch; ahead of the records returned to the application."""
        self.floor = 0
        """Start of the range to read (C11), below which no reset goes; 0: no range."""
        self.epoch: int | None = None
        """Leader epoch of the last record before ``offset``; None = unknown."""
        self.epoch_starts: list[tuple[int, int]] = []
        """Leader epochs read under this fetch epoch, each with the offset of its first batch."""
        self.checked: int | None = None
        """The leader epoch for which ``offset`` has been validated; None: none yet (KIP-320)."""
        self.doubted = False
        """Whether a fetch was answered with a divergence that the leader has not confirmed yet."""
        self.topic_id = ZERO_UUID
        """The id of the topic of ``offset``: a recreated topic of the same name has another id (KIP-516)."""
        self.former_topic_ids: frozenset[bytes] = frozenset()
        """Earlier ids of the topic of this name: a broker that still reports one of them is behind."""
        self.reset_timestamp: int | None = None
        """The timestamp that AWAIT_RESET looks up: −2 earliest, −1 latest, else ms since 1970.

        None: the policy's, or wait for a seek.
        """
        self.end_before: int | None = None
        """The end of the log before a time is looked up: reading begins there if no record is that late."""
        self.beyond: int | None = None
        """The timestamp to look up next if the log has lost its end, and not its beginning.

        See `Subscription.await_reset`.
        """
        self.is_by_policy = False
        """Whether ``auto.offset.reset`` is the reason for the look-up."""
        self.lost: KafkaError | None = None
        """Why the position is no longer valid, until ``auto.offset.reset`` has been applied."""
        self.retry_at = 0
        self.trouble: tuple[NotFetchedReason, str] | None = None
        """The error of its latest fetch, until one is answered."""
        self.is_told = False
        """Whether it was logged that it is not fetched."""
        self.holds: frozenset[object] = frozenset()
        """Why it is held: its assigned callback (None), and what `Subscription.hold` was called for."""
        self.flight: Flight | None = None
        """The last fetch that included it; it may be over."""
        self.in_flight = 0
        """Fetch epoch under which ``flight`` asked for it. Fetches of older epochs block nothing."""
        self.named_at = -1
        """How many responses ``flight`` had when it began to ask for the current offset; −1: it has returned data."""
        self.place: Bucket | None = None
        """Its place in the fetch manager: see `fetch.manager.fetchable`."""
        self.fetched_bytes = 0
        """Total of bytes ever put into the buffer; minus ``shared_partition.drained_bytes``: the bytes in it now."""
        self.preferred_until = 0
        self.preferred_by: int | None = None
        """The leader that named the preferred replica."""

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
        """Mark a change that affects whether, from which broker and from which offset it is fetched."""
        self._subscription.changed[self] = None

    @property
    def buffered_bytes(self) -> int:
        # Data may be returned before it is counted.
        return max(self.fetched_bytes - self.shared_partition.drained_bytes, 0)

    @property
    def is_untold(self) -> bool:
        """Whether it was lost and assigned again, and the application does not know yet: see `Subscription.losses`."""
        return any(self.partition in lost for lost in self._subscription.losses.values())

    @property
    def is_from_start(self) -> bool:
        """Whether reading continues at the beginning of the log when its position is lost: see `Subscription`."""
        return self.partition.topic in self._subscription.from_start

    @property
    def awaits_fetch(self) -> bool:
        """Whether a fetch of its current position is under way."""
        flight = self.flight
        return flight is not None and flight.under_way and self.in_flight == self.shared_partition.fetch_epoch

    @property
    def is_idle(self) -> bool:
        """Whether the broker has answered a fetch of the current offset without data."""
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
    """The subscription and its assigned partitions, in the order of fetching."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        """The topics to join with. For a pattern: those that match now."""
        self.pattern: str | None = None
        self.regex: str | None = None
        """The regex that the broker matches (KIP-848); its topics are known only from assignments."""
        self.by_group = False
        """Whether partitions come from a group (subscribe) rather than from assign()."""
        self.has_listener = False
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.ever: set[TopicPartition] = set()
        """All partitions that a group has ever assigned to this consumer."""
        self.snapshot: Mapping[TopicPartition, SharedPartition] = MappingProxyType({})
        """The application's view: immutable, replaced as a whole."""
        self.callbacks = itertools.count(1)
        """Numbers of rebalance callbacks: one series for all memberships."""
        self.losses: dict[int, frozenset[TopicPartition]] = {}
        """Lost partitions, by the number of the callback that reports them.

        Until that has ended, the application may still commit records of these in a transaction, so reading must not
        continue from the committed offset yet.
        """
        self.from_start: frozenset[str] = frozenset()
        """Topics that are read from their beginnings wherever ``auto.offset.reset`` would apply: no other topic has
        their records.
        """
        self.moves = 0
        """How many positions were ever set: a call that waits for one checks again when it grows."""
        self.starts = 0
        """How many offsets ``auto.offset.reset`` has chosen."""
        self.has_ranges = False
        """Whether any partition ever had an end."""
        self.changed: dict[PartitionState, None] = {}
        """Partitions for the fetch manager to check again, even if no longer assigned; it clears this."""
        self.unplaced: dict[TopicPartition, PartitionState] = {}
        """Assigned partitions that are not FETCHING."""
        self.topic_id_of: Callable[[str], bytes] = lambda topic: ZERO_UUID
        """The current id of the cluster's topic of each name, as far as known."""
        self._fetch_epochs = 0

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        return frozenset(self.partitions)

    @property
    def deserted(self) -> frozenset[TopicPartition]:
        """Partitions whose topic is no longer subscribed. With a regex only the broker knows."""
        if self.regex is not None:
            return frozenset()
        return frozenset(p for p in self.partitions if p.topic not in self.topics)

    def is_foreign(self, partition: TopicPartition) -> bool:
        """Whether it is not part of this subscription, and never was. With a regex this is unknown here."""
        return self.regex is None and partition.topic not in self.topics and partition not in self.ever

    def status_set(self, state: PartitionState) -> None:
        """Update ``unplaced``, and let the fetch manager check."""
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
        """Replace the subscription. Records of topics that left it are no longer returned."""
        self.topics, self.pattern, self.regex = topics, pattern, regex
        self.by_group, self.has_listener = True, has_listener

    def unsubscribe(self) -> None:
        """Forget subscription and assignment."""
        self.topics, self.pattern, self.regex = frozenset(), None, None
        self.by_group = self.has_listener = False
        self.losses.clear()
        self.assign(())

    def assign(self, partitions: Iterable[TopicPartition], *, held: bool = False) -> None:
        """Install an assignment: partitions that stay keep their state, new ones start INITIALIZING.

        Args:
            held: added partitions are neither fetched nor returned until `release` (their assigned callback has to run
                first).
        """
        old, new = self.partitions, {}
        for partition in partitions:
            state = old.get(partition)
            if state is None:
                state = PartitionState(partition, self.next_fetch_epoch(), self)
                if held:
                    self.hold([state], None)
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
        """Their assigned callback has run: fetch and return them."""
        for partition in partitions:
            if (state := self.partitions.get(partition)) is not None:
                self._let_go(state, None)

    def hold(self, states: Iterable[PartitionState], why: object) -> None:
        """Return no records of these before `let_go` is called for the same reason, and for each other one."""
        for state in states:
            state.holds |= {why}
            state.shared_partition.held = True
            state.mark()

    def let_go(self, states: Iterable[PartitionState], why: object) -> None:
        """The end of `hold`."""
        for state in states:
            self._let_go(state, why)
            # A poll that waits has to look at what was fetched before.
            self.moves += 1

    def _let_go(self, state: PartitionState, why: object) -> None:
        state.holds -= {why}
        state.shared_partition.held = bool(state.holds)
        state.mark()

    def loss_told(self, callback: int) -> None:
        """The application knows of a loss: its records of these partitions are committed by now, or never will be."""
        for partition in self.losses.pop(callback, ()):
            if (state := self.partitions.get(partition)) is not None:
                state.mark()

    def mark_revoking(self, partitions: Iterable[TopicPartition]) -> None:
        """About to be given up: no longer fetched or returned, but still committable."""
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
        """Start a new fetch epoch at ``offset``: data fetched before is dropped before it would be returned.

        Args:
            processed: the offset to commit until more is processed; None: ``offset`` itself. committed: the group's
                committed offset, if it is this offset. goes_on: reading continues there, and neither the program nor a
                reset has chosen the offset. rereads: the consumer fetches records again that nobody was given, or
                that it has put back, so earlier records still count.
        """
        state = self.partitions[partition]
        shared_partition = state.shared_partition
        before = shared_partition.origin if goes_on else None
        start = None if before is None else before.start
        if start is not None and start.offset > offset:
            # The log was truncated before it.
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
            # A broker that is behind still reports the earlier topic.
            topic_id = ZERO_UUID
        if state.topic_id in state.former_topic_ids:
            shared_partition.topic_before = state.topic_id
            shared_partition.topic_since = shared_partition.fetch_epoch
        state.topic_id = shared_partition.topic_id = topic_id
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
        """The position belongs to this topic, whose id was unknown when it was set."""
        state.topic_id = state.shared_partition.topic_id = topic_id
        if (origin := state.shared_partition.origin) is not None:
            state.shared_partition.origin = origin._replace(topic_id=topic_id)
            self.moves += 1

    def continues(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a range that begins at ``offset`` begins where the previous one ended.

        Reading simply continues then. If only the position is the same, records beyond the new end may have been
        decoded already.
        """
        state = self.partitions[partition]
        return (
            state.status is Status.FETCHING
            and state.shared_partition.end == offset
            and state.shared_partition.is_finished
        )

    def limit(self, partition: TopicPartition, floor: int, end: int | None) -> None:
        """Set the range to read, to limit what is fetched; None: no end."""
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
        """The position must be looked up (−2 earliest, −1 latest); until then there is none.

        Args:
            beyond: look this up instead if the offset found is not after the lost position, which then was beyond the
                end of the log. is_by_policy: because of ``auto.offset.reset``, not of a call.
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
        """The application wants records from ``offset`` on, even if that is before its range."""
        state = self.partitions[partition]
        state.floor = min(state.floor, offset)

    def doubt(self, partition: TopicPartition) -> None:
        """A broker reports that the log differs from the one read: the leader must be asked."""
        state = self.partitions[partition]
        state.doubted, state.checked = True, None
        state.mark()
        self.moves += 1

    def lose(self, partition: TopicPartition, error: KafkaError) -> None:
        """The position is invalid: apply ``auto.offset.reset``, or raise ``error``."""
        state = self.partitions[partition]
        state.status, state.reset_timestamp, state.retry_at, state.lost = Status.AWAIT_RESET, None, 0, error

    def move_to_end(self, partition: TopicPartition) -> None:
        """Its bytes were fetched: other partitions come first next time (KIP-41, fairness on the wire)."""
        state = self.partitions.pop(partition, None)
        if state is not None:
            self.partitions[partition] = state

    def _publish(self) -> None:
        self.snapshot = MappingProxyType({p: s.shared_partition for p, s in self.partitions.items()})
