"""The events between the application thread and the network thread, as plain data (C2).

Application events go from the application to the network thread, background events the other way. An application event
with an ``id`` is answered by exactly one `Answer` with that id; ``deadline`` (absolute ms) is enforced on the
network thread by the reaper, so no caller waits past it, even if no broker answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from kadence.clock import wall_time
from kadence.consumer.shared_partition import SharedPartition
from kadence.lazy_dataclasses import dataclass, field, replace
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = [
    "AddBackgroundEvent",
    "AddPartitions",
    "Answer",
    "ApplicationEvent",
    "Assign",
    "AssignPartitions",
    "AssignTopics",
    "BackgroundEvent",
    "CallbackDone",
    "CallbackNeeded",
    "Close",
    "Commit",
    "CommitCompleted",
    "EnforceRebalance",
    "Failed",
    "FetchCommitted",
    "IdentityChanged",
    "KeepCommitted",
    "ListOffsets",
    "LosePartitions",
    "Polled",
    "Rebalance",
    "RebalanceFailed",
    "RebalanceFinished",
    "RemovePartitions",
    "ResetPositions",
    "RevokePartitions",
    "Seek",
    "Stalled",
    "Subscribe",
    "TopicMetadata",
    "Unsubscribe",
    "what_of",
]

# ---------------------------------------------------------------- application → network


@dataclass(frozen=True, slots=True)
class ApplicationEvent:
    """A call of the application. ``id`` 0: it waits for no answer."""

    id: int
    deadline: int

    @property
    def is_answered(self) -> bool:
        """Whether the application waits for an `Answer` to it."""
        return self.id != 0

    @property
    def reaped_at(self) -> int:
        """When the reaper answers it. A manager that answers at the deadline by itself does not need that."""
        return self.deadline

    @property
    def what(self) -> str:
        """The call in the words of an error."""
        return what_of(type(self))


@dataclass(frozen=True, slots=True)
class Subscribe(ApplicationEvent):
    """Replace the subscription. Joining starts with the next `Polled`.

    Exactly one of ``topics``, ``pattern`` (matched here) and ``regex`` (matched by the broker, KIP-848) is given.
    ``has_listener``: rebalance callbacks must be run by the application before added partitions may be fetched.
    """

    topics: frozenset[str] | None
    pattern: str | None
    has_listener: bool
    regex: str | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribe(ApplicationEvent):
    """Leave the group (or drop the manual assignment) and forget the subscription."""


@dataclass(frozen=True, slots=True)
class Assign(ApplicationEvent):
    """Manual assignment: replace the set, keep the positions of partitions that stay.

    ``starts``: offset and leader epoch (None: unknown) from which some of the partitions are to be read, whatever
    position they had. ``ends``: where the ranges of some of them end (None: they have no end); others keep theirs.
    A range that begins at the position uses the buffered records.
    """

    partitions: tuple[TopicPartition, ...]
    starts: Mapping[TopicPartition, tuple[int, int | None]] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AddPartitions(Assign):
    """Manual assignment: read these, too. Only the network thread knows the current assignment.

    Several tasks may add partitions at once, each with a call of its own.
    """


@dataclass(frozen=True, slots=True)
class RemovePartitions(ApplicationEvent):
    """Manual assignment: stop reading these, and keep reading the others."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AssignTopics(ApplicationEvent):
    """Manual assignment of all partitions of these topics, including those created later.

    ``timestamp``: where each is read from, as `ResetPositions` has it, or ms since 1970; None: its committed offset, or
        the offset of auto.offset.reset; partitions that were assigned before keep their positions. Partitions created
        later are read from their beginning.
    """

    topics: frozenset[str]
    timestamp: int | None


@dataclass(frozen=True, slots=True)
class Polled(ApplicationEvent):
    """The application polls again: join, rejoin, or go on after a poll timeout."""


@dataclass(frozen=True, slots=True)
class Seek(ApplicationEvent):
    """Move one position. With an epoch the position is validated before it is fetched (KIP-320).

    It applies to one assignment of the partition, that of ``shared_partition``; on any other it has no effect.
    ``processed``: the offset to commit until more is processed; None: ``offset`` itself. ``committed``: the group's
        committed offset, if it is this position.
    """

    shared_partition: SharedPartition
    offset: int
    leader_epoch: int | None
    processed: tuple[int, int | None] | None = None
    committed: OffsetAndMetadata | None = None


@dataclass(frozen=True, slots=True)
class ResetPositions(ApplicationEvent):
    """Seek to the beginning (timestamp −2) or end (−1) of partitions, lazily: in these assignments, as `Seek`."""

    shared_partitions: tuple[SharedPartition, ...]
    timestamp: int


@dataclass(frozen=True, slots=True)
class Commit(ApplicationEvent):
    """Commit offsets.

    ``retry``: the call waits for the `Answer`; otherwise `CommitCompleted` reports the end. ``parting``: the commit
        comes before leaving or closing, and is not worth waiting for when no broker can be reached. Both kinds are
        repeated on retriable errors until the deadline; any other commit is tried once. ``lost``: lost partitions that
        no poll has reported yet: they are refused, even if they have been assigned again (C12). ``known``: the
        assignment that the program knows, if it asked for the commit: offsets of any other assignment are refused, too.
        ``read_under``: for offsets that follow from returned records, the fetch epoch of these. Such offsets count only
        while reading has gone on since (C19): after a seek, a reset, a truncation or a recreated topic the offset is
        left out without an error, and the end of the commit does not name it.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    retry: bool
    parting: bool = False
    lost: frozenset[TopicPartition] = frozenset()
    known: Mapping[TopicPartition, SharedPartition] | None = field(default=None, compare=False)
    read_under: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def is_answered(self) -> bool:
        # The end of an asynchronous one is `CommitCompleted`, and the commit manager keeps its deadline.
        return self.retry and self.id != 0

    @property
    def what(self) -> str:
        return _about(type(self), (p.topic for p in self.offsets))


@dataclass(frozen=True, slots=True)
class KeepCommitted(ApplicationEvent):
    """Commit the committed offsets of the assigned partitions again, unchanged, before leaving the group."""


@dataclass(frozen=True, slots=True)
class FetchCommitted(ApplicationEvent):
    """Committed offsets of partitions. Answer: dict[TopicPartition, OffsetAndMetadata | None]."""

    partitions: frozenset[TopicPartition]

    @property
    def what(self) -> str:
        return _about(type(self), (p.topic for p in self.partitions))


@dataclass(frozen=True, slots=True)
class ListOffsets(ApplicationEvent):
    """Offsets by timestamp (−1 latest, −2 earliest, ≥ 0 ms).

    Answer: dict[TopicPartition, OffsetAndTimestamp | None].
    """

    timestamps: Mapping[TopicPartition, int]

    @property
    def what(self) -> str:
        return _about(type(self), (p.topic for p in self.timestamps))


@dataclass(frozen=True, slots=True)
class TopicMetadata(ApplicationEvent):
    """Partitions of topics (None = all). Answer: dict[str, list[PartitionInfo]]; unknown topics are absent."""

    topics: tuple[str, ...] | None

    @property
    def what(self) -> str:
        return _about(type(self), self.topics or ())


@dataclass(frozen=True, slots=True)
class ReadFromStart(ApplicationEvent):
    """From now on read these topics from their beginnings wherever ``auto.offset.reset`` would apply."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class RefreshMetadata(ApplicationEvent):
    """Request metadata: the known metadata of a topic may be old."""


@dataclass(frozen=True, slots=True)
class EnforceRebalance(ApplicationEvent):
    """Rejoin the group (KIP-568)."""

    reason: str


@dataclass(frozen=True, slots=True)
class CallbackDone(ApplicationEvent):
    """The application ran the callback of the background event with this ``id``. ``error``: its text when it raised.

    Sent even if the callback raised, else the reconciliation would never end. ``gave_up``: the partitions that it gave
    up, if the background event was `RevokePartitions`.
    """

    error: str | None
    gave_up: tuple[TopicPartition, ...] = field(default=(), compare=False)

    @property
    def is_answered(self) -> bool:
        # Its id is that of the step that it ends.
        return False


@dataclass(frozen=True, slots=True)
class Close(ApplicationEvent):
    """Leave the group, finish what is in flight, stop the thread, all before the deadline.

    ``leave``: whether to leave the group for good (KIP-1092); None: dynamic members leave, and static members keep
        their place.
    """

    leave: bool | None


_CALLS: Final[dict[type[ApplicationEvent], str]] = {
    Subscribe: "subscribe()",
    Unsubscribe: "unsubscribe()",
    Assign: "assign()",
    AddPartitions: "incremental_assign()",
    RemovePartitions: "incremental_unassign()",
    AssignTopics: "assign_topics()",
    Seek: "seek()",
    ResetPositions: "seek_to_beginning() or seek_to_end()",
    Close: "close()",
    Commit: "a commit",
    FetchCommitted: "looking up committed offsets",
    ListOffsets: "looking up offsets",
    TopicMetadata: "looking up topics",
}

_NAMED: Final = 5


def what_of(kind: type[ApplicationEvent]) -> str:
    """Calls of this kind in the words of an error."""
    return _CALLS.get(kind, kind.__name__)


def _about(kind: type[ApplicationEvent], topics: Iterable[str]) -> str:
    """As `what_of`, for a call about these topics."""
    names = sorted(set(topics))
    if not names:
        return what_of(kind)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    one_or_many = "topic" if len(names) == 1 else "topics"
    return f"{what_of(kind)} ({one_or_many} {', '.join(map(repr, names[:_NAMED]))}{more})"


# ---------------------------------------------------------------- network → application


@dataclass(frozen=True, slots=True)
class BackgroundEvent:
    """Something that happened on the network thread."""


AddBackgroundEvent = Callable[[BackgroundEvent], None]
"""Takes background events from managers, for the application."""


@dataclass(frozen=True, slots=True)
class Answer(BackgroundEvent):
    """The end of the application event ``id``: a value or an error."""

    id: int
    value: object = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class CallbackNeeded(BackgroundEvent):
    """A step of a rebalance that the application must take inside poll, unsubscribe or close (C5).

    It answers with `CallbackDone` of the same id. Sent even when no listener is set if the application
    may still work on records of the partitions (revocation), or must commit before it gives them up.
    """

    id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RevokePartitions(CallbackNeeded):
    """Give these up gracefully; the member still owns them, so a commit works."""


@dataclass(frozen=True, slots=True)
class AssignPartitions(CallbackNeeded):
    """These are new (may be empty). With a listener they are fetched once the answer has come.

    ``shared_partitions``: this assignment of each, which the application knows from now on. ``finished``: the rebalance
    that ends with it. One event has both, so the assignment, the identity and the history that the application is shown
    change together (C16).
    """

    shared_partitions: Mapping[TopicPartition, SharedPartition] = field(default_factory=dict, compare=False)
    finished: RebalanceFinished | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class LosePartitions(CallbackNeeded):
    """The member no longer owns these: session, generation or poll interval lost.

    ``instead_of``: callbacks requested earlier whose end was not reported, each with the partitions that it revokes.
        One that has not begun never begins; partitions that a running one revokes are not reported again (B11).
    """

    instead_of: Mapping[int, tuple[TopicPartition, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CommitCompleted(BackgroundEvent):
    """End of an asynchronous commit, in the order in which the commits were given."""

    id: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Rebalance:
    """One rebalance of this member, or the loss of all its partitions without a rebalance after it.

    Attributes:
        cause: why, in words. Only the group's leader also names the members that joined and left.
        started_monotonic_ms, ended_monotonic_ms: in ms of this machine's monotonic clock (`time.monotonic`).
        generation: the generation (KIP-848: member epoch) after it; −1: this member is not in the group.
        assigned: all partitions that are assigned after it. added, removed: the partitions that it added and
            removed; a partition that was lost and assigned again is in both.
    """

    cause: str
    started_monotonic_ms: int
    ended_monotonic_ms: int
    generation: int
    assigned: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    removed: tuple[TopicPartition, ...]

    _wall_offset_ms: int = field(default=0, repr=False, compare=False)
    """Converts the monotonic times to ms since 1970; from both clocks at the time of the report."""

    @property
    def started_at(self) -> datetime:
        """When it began, in UTC: for comparing it with a log."""
        return wall_time(self.started_monotonic_ms + self._wall_offset_ms)

    @property
    def ended_at(self) -> datetime:
        """When it ended, in UTC."""
        return wall_time(self.ended_monotonic_ms + self._wall_offset_ms)

    @property
    def duration(self) -> float:
        """Seconds from its cause to its end."""
        return (self.ended_monotonic_ms - self.started_monotonic_ms) / 1_000

    def by_wall_clock(self, offset_ms: int) -> Rebalance:
        """The same, with the offset that converts its times to ms since 1970."""
        return replace(self, _wall_offset_ms=offset_ms)


@dataclass(frozen=True, slots=True)
class RebalanceFinished(BackgroundEvent):
    """A rebalance ended: an entry of the history, with the identity after it.

    It comes within the `AssignPartitions` that it ends with; alone where a member gives up, which assigns nothing.
    """

    rebalance: Rebalance
    group: GroupMetadata


@dataclass(frozen=True, slots=True)
class RebalanceFailed(BackgroundEvent):
    """A rebalance ended with the loss of the identity. Only measured: another one follows."""


@dataclass(frozen=True, slots=True)
class IdentityChanged(BackgroundEvent):
    """The identity changed without a rebalance: another member moved the KIP-848 group to another epoch."""

    group: GroupMetadata


@dataclass(frozen=True, slots=True)
class Stalled(BackgroundEvent):
    """Nothing was polled for a set share of the processing timeout, or for all of it (B4). Each is reported once.

    Times are monotonic ms. ``since``: the last sign of progress. ``left``: the member leaves the group because of it.
    """

    since: int
    at: int
    timeout_ms: int
    left: bool


@dataclass(frozen=True, slots=True)
class Failed(BackgroundEvent):
    """An error that no call caused: the next poll raises it (B6). ``fatal``: every later call does.

    With ``partition`` it is about the position that this partition has under ``fetch_epoch``: every poll raises it,
    once the records that were fetched before are returned, until a seek or another assignment makes it void.

    ``gave_up``: the member tries to join again when the application polls again after the poll that raises this.
    """

    error: Exception
    fatal: bool = False
    gave_up: bool = False
    partition: TopicPartition | None = None
    fetch_epoch: int = 0
