"""The state of each assigned partition that both threads share; each field has one writer (C1).

A *fetch epoch* numbers a stretch of continuous reading. Seek, reset, revocation and unassignment start a new one; bytes
are stamped with the fetch epoch they were fetched under, and bytes of an old fetch epoch are dropped before they would
be returned. So nothing has to be cancelled, and no lock is needed.

It also contains the reason why the partition is not being fetched: one at a time, with its duration. The network thread
writes the reason into the shared partition whenever it changes, so it costs nothing per record and reading it takes no
request. With other clients the reason must be guessed from the logs of several threads.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from kadence.consumer.decoded_records import DeliveryState
from kadence.errors import KafkaError, RecordDeserializationError
from kadence.lag import end_offset, lag
from kadence.metrics.sensors import Meter
from kadence.types import OffsetAndMetadata, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = [
    "NotFetched",
    "NotFetchedReason",
    "Origin",
    "Raised",
    "SharedPartition",
    "Start",
    "Unfetched",
    "Unstable",
]


class NotFetchedReason(enum.Enum):
    """The reason why a partition is not being fetched now. The value is an explanation in words."""

    PAUSED = "paused by the application"
    POLL_RAISES = "poll() raises for its next record"
    OPEN_TRANSACTION = "an open transaction holds it up"
    BUFFERED = "enough of it is buffered: the application has to poll"
    RANGE_FETCHED = "all of its range is fetched"
    MEMORY = "buffer.memory is used up: the application has to poll"
    AWAITING_TURN = "its broker is busy with a fetch of other partitions that is about to end"
    AWAITING_ASSIGNED_CALLBACK = "the application has not seen it yet: it has to poll"
    REVOKING = "it is being revoked: the application has to poll"
    AWAITING_COMMITTED_OFFSET = "its committed offset is being looked up"
    AWAITING_RESET = "the offset to start from is being looked up"
    AWAITING_VALIDATION = "its position is being checked against the leader's epochs"
    NO_POSITION = "it has no position and auto.offset.reset is none: the application has to seek"
    NO_LEADER = "no leader is known"
    UNKNOWN_TOPIC = "the cluster does not know the topic or partition"
    TOPIC_AUTHORIZATION_FAILED = "not allowed to read the topic"
    BROKER_UNREACHABLE = "no connection to its broker"
    BACKOFF = "the last fetch failed and is tried again"

    @property
    def is_expected(self) -> bool:
        """Whether a healthy consumer has this reason at times. The others deserve a warning when they last."""
        return self in _EXPECTED

    @property
    def is_up_to_the_application(self) -> bool:
        """Whether the application's next poll ends it."""
        return self in _APPLICATION


_EXPECTED: Final = frozenset(
    {
        NotFetchedReason.PAUSED,
        NotFetchedReason.BUFFERED,
        NotFetchedReason.RANGE_FETCHED,
        NotFetchedReason.AWAITING_TURN,
    }
)
_APPLICATION: Final = frozenset(
    {
        NotFetchedReason.BUFFERED,
        NotFetchedReason.MEMORY,
        NotFetchedReason.AWAITING_ASSIGNED_CALLBACK,
        NotFetchedReason.REVOKING,
    }
)


class Unfetched(NamedTuple):
    """The reason in a shared partition. ``since``: monotonic ms, below 0 when not checked yet."""

    reason: NotFetchedReason
    since: int
    detail: str


class NotFetched(NamedTuple):
    """Why a partition is not being fetched.

    Attributes:
        reason: why. since: for how many seconds.
        detail: further words, such as the error after which the client waits before it tries again; may be empty.
    """

    reason: NotFetchedReason
    since: float
    detail: str

    def __str__(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        return f"{self.reason.value}{more}, for {self.since:.1f} s"


_BY_WORK: Final = "process() has read enough of it ahead"

_NEW: Final = Unfetched(NotFetchedReason.AWAITING_COMMITTED_OFFSET, -1, "")

_OPEN_MS: Final = 5_000
"""A transaction that is open for this long (ms) counts as a reason. Shorter ones are normal, and hold up no reader."""


class Start(NamedTuple):
    """An offset chosen by ``auto.offset.reset``. ``number``: counts all such choices of the consumer, from 1."""

    number: int
    offset: int


class Origin(NamedTuple):
    """The start of a fetch epoch. Replaced as one value, so its parts are always consistent."""

    fetch_epoch: int
    offset: int
    leader_epoch: int | None
    processed: tuple[int, int | None] | None = None
    """Offset and epoch up to which all was processed when a fetch epoch began during reading, if lower."""
    continued: int = -1
    """The previous fetch epoch, if this one began during reading."""
    topic_id: bytes = ZERO_UUID
    """The id of the offset's topic; zero while unknown. A recreated topic of the same name has another id."""
    committed: OffsetAndMetadata | None = None
    """The group's committed offset, if reading starts there; None: a policy or the program chose the start."""
    is_by_policy: bool = False
    """Whether ``auto.offset.reset`` chose it."""
    start: Start | None = None
    """The start chosen by ``auto.offset.reset``, if the program has not moved the position since."""


class Unstable(NamedTuple):
    """A partition of which read_committed returns nothing after the last stable offset, although there is more.

    ``since``: the time (ms) since when that offset has not moved.
    """

    offset: int
    since: int


class Raised(NamedTuple):
    """Polls that raised because of a partition's next record.

    ``position``: the partition's. ``offset``: the record's. ``since``: when (ms) the first of them raised.
    """

    position: int
    offset: int
    error: str
    times: int
    since: int


class SharedPartition(DeliveryState):
    """The shared state's part of one assigned partition.

    Written by the network thread: ``fetch_epoch`` (current stretch), ``origin`` (its start; None while the position is
    unknown), ``topic_id`` (its topic's, which stays while the position is unknown; zero while it is not known),
    ``topic_since`` (the fetch epoch since which it is of the same topic), ``topic_before`` (the id of the topic before
    that), ``read_since`` (the fetch epoch since which reading was continuous: offsets of records read since then
    count), ``end`` (the offset at which the range to read ends, C11; None: it has no end), ``revoking`` (about to be
    given up: no longer returned), ``held`` (not returned yet: its assigned callback has not run, or its committed
    offset is being committed again),
    ``unfetched`` (why it is not being fetched; None: it is), ``unstable`` (with read_committed, while a transaction is
    open before the end of the log), ``lags`` and ``leads`` (from the log's ends in answers), ``preferred_replica``
    (None: the leader), ``is_gone`` (whether metadata has no such topic). Written by the thread that reads a response;
    responses are read one after the other: ``high_watermark``, ``last_stable_offset``, ``log_start``. Written by
    callers of `pause` and `resume`: ``paused``, ``paused_at`` (since when, monotonic ms). Written by the application
    thread: ``work_paused`` and ``work_paused_at`` (the same, of `process`), ``decoded`` (records decoded ahead; under
    the present fetch epoch the position is its index), ``processed`` = (fetch epoch, offset, epoch) up to which records
    are known to be processed, apart from ``decoded``, ``raised`` (the latest polls that raised because of it),
    ``drained_bytes`` (total of bytes returned or dropped, ever).
    ``told_bytes``: the mark for which the network thread was last woken.
    Written by the network thread, for the application: ``wake_bytes``, the value of ``drained_bytes`` at which it wants
    to be woken.
    """

    __slots__ = (
        "_position",
        "drained_bytes",
        "high_watermark",
        "is_gone",
        "lags",
        "last_stable_offset",
        "leads",
        "log_start",
        "origin",
        "partition",
        "paused_at",
        "preferred_replica",
        "processed",
        "raised",
        "read_since",
        "told_bytes",
        "topic_before",
        "topic_id",
        "topic_since",
        "unfetched",
        "unstable",
        "wake_bytes",
        "work_paused_at",
    )

    def __init__(self, partition: TopicPartition, fetch_epoch: int) -> None:
        super().__init__(fetch_epoch)
        self.partition = partition
        self.origin: Origin | None = None
        self.topic_since = self.read_since = fetch_epoch
        self.topic_id = self.topic_before = ZERO_UUID
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start: int | None = None
        self.lags = Meter()
        self.leads = Meter()
        self.preferred_replica: int | None = None
        self.is_gone = False
        self.unfetched: Unfetched | None = _NEW
        self.unstable: Unstable | None = None
        self.raised: Raised | None = None
        self.paused_at = self.work_paused_at = 0
        self._position: Origin | None = None
        self.processed: Origin | None = None
        self.drained_bytes = 0
        self.wake_bytes = 1 << 62
        self.told_bytes = -1

    def lag(self, *, read_committed: bool) -> int | None:
        """How many offsets lie from the position to the end, as brokers last reported it; None: not known yet."""
        end = end_offset(self.high_watermark, self.last_stable_offset, read_committed=read_committed)
        at = self.current()
        return lag(end, None if at is None else at.offset)

    def why_unplaced(self) -> str:
        """A text why there is no position yet."""
        unfetched = self.unfetched or _NEW
        return unfetched.reason.value + (f" ({unfetched.detail})" if unfetched.detail else "")

    def why(self, now: int) -> Unfetched | None:
        """Why nothing of it is being read, from both sides' state."""
        if self.is_paused and not (self.held or self.revoking):
            # The network side notices a pause only in its next turn.
            if self.paused:
                return Unfetched(NotFetchedReason.PAUSED, self.paused_at, "")
            return Unfetched(NotFetchedReason.PAUSED, self.work_paused_at, _BY_WORK)
        if (raised := self.raises()) is not None:
            times = f"{raised.times} times" if raised.times > 1 else "once"
            detail = f"offset {raised.offset}: {raised.error}, raised {times}"
            return Unfetched(NotFetchedReason.POLL_RAISES, raised.since, detail)
        unfetched = self.unfetched
        if unfetched is not None and unfetched.reason not in (
            NotFetchedReason.PAUSED,
            NotFetchedReason.AWAITING_TURN,
        ):
            return unfetched
        if (held_up := self._held_up(now)) is not None:
            return held_up
        return None if unfetched is None or unfetched.reason is NotFetchedReason.PAUSED else unfetched

    @property
    def gives_nothing(self) -> bool:
        """Buffered records of it are not returned now: not before a resume, a callback, or another range."""
        return self.is_paused or self.revoking or self.held or self.is_finished

    @property
    def is_paused(self) -> bool:
        """Whether the application or `process` has paused it."""
        return self.paused or self.work_paused

    def note_raised(self, error: KafkaError, now: int) -> None:
        """This poll raises for the next record; counts how often in a row."""
        at, before = self.current(), self.raises()
        if at is None:
            return
        times, since = (1, now) if before is None else (before.times + 1, before.since)
        offset = error.offset if isinstance(error, RecordDeserializationError) else at.offset
        self.raised = Raised(at.offset, offset, type(error).__name__, times, since)

    def raises(self) -> Raised | None:
        """The polls that raised for the next record; None where the position has moved since, or none did."""
        raised, at = self.raised, self.current()
        if (
            raised is None
            or at is None
            # Not the fetch epoch: columns that are put back are fetched again.
            or raised.position != at.offset
        ):
            return None
        return raised

    def _held_up(self, now: int) -> Unfetched | None:
        """Whether an open transaction holds it up. It is being fetched then, but responses have no records."""
        unstable, at = self.unstable, self.current()
        if unstable is None or at is None or at.offset < unstable.offset or now - unstable.since < _OPEN_MS:
            return None
        detail = f"last stable offset {unstable.offset}, high watermark {self.high_watermark}"
        return Unfetched(NotFetchedReason.OPEN_TRANSACTION, unstable.since, detail)

    @property
    def position(self) -> Origin | None:
        """(fetch epoch, next offset to return, leader epoch of the last record returned); None before the first."""
        decoded = self.decoded
        return self._position if decoded is None else Origin(decoded.fetch_epoch, *decoded.position())

    @position.setter
    def position(self, position: Origin) -> None:
        self._position = position
        self.decoded = None

    @property
    def is_finished(self) -> bool:
        """Whether all of its range was returned."""
        end = self.end
        return end is not None and (at := self.current()) is not None and at.offset >= end

    def current(self) -> Origin | None:
        """The next position to return: the application's own if it is of this epoch, else the epoch's start."""
        origin, position = self.origin, self.position
        if origin is None:
            return None
        return position if position is not None and position.fetch_epoch == origin.fetch_epoch else origin

    def read_under(self) -> int | None:
        """The fetch epoch under which its returned records count: the current one, in the same topic.

        None: polls have returned nothing.
        """
        decoded = self.decoded
        at = self._position if decoded is None else decoded
        if at is None:
            return None
        return at.fetch_epoch if at.fetch_epoch < self.topic_since else self.fetch_epoch

    def counts(self, offset: int, fetch_epoch: int) -> bool:
        """Whether ``offset`` may be committed, which follows from records read under ``fetch_epoch`` (C19).

        Not after a jump, and not before the place that ``auto.offset.reset`` has chosen since: from an offset that the
        log no longer has, a restart would apply the policy again. The network thread writes ``read_since`` before
        ``origin``, so they are read the other way round.
        """
        origin = self.origin
        start = None if origin is None else origin.start
        return fetch_epoch >= self.read_since and (start is None or offset >= start.offset)

    def topic_read(self) -> bytes:
        """The id of the topic that the records returned by polls are of, even if the topic is gone (C19).

        Zero if it is not known. The network thread writes ``topic_id`` last, so it is read first.
        """
        topic_id = self.topic_id
        at = self._position if self.decoded is None else self.decoded
        if at is not None and at.fetch_epoch < self.topic_since:
            return self.topic_before
        return topic_id

    def mark_processed(self, offset: int, leader_epoch: int | None) -> None:
        """The application says that everything below ``offset`` is processed; never moves back."""
        origin, processed, decoded = self.origin, self.processed, self.decoded
        if (
            # Programs commit each record that they get: what follows finds the same then, with more calls.
            decoded is not None
            and origin is not None
            and decoded.fetch_epoch == origin.fetch_epoch
            and (processed is None or processed.fetch_epoch == origin.fetch_epoch)
            and decoded.has_news(offset)
        ):
            if processed is None or processed.offset < offset:
                self.processed = Origin(origin.fetch_epoch, offset, leader_epoch)
            return
        processed = self.processed_position()
        # Usually a later poll has marked it before its commit ends.
        if processed is None or processed.offset >= offset:
            return
        current = self.current()
        if current is not None and offset <= current.offset:
            self.processed = Origin(current.fetch_epoch, offset, leader_epoch)

    def processed_position(self) -> Origin | None:
        """The offset that may be committed without the risk of a loss: at least once (D1)."""
        origin, processed, decoded = self.origin, self.processed, self.decoded
        if origin is None:
            return None
        if processed is not None and processed.fetch_epoch != origin.fetch_epoch:
            # A poll that began while the fetch epoch changed has marked this under the previous one.
            is_later = (
                processed.fetch_epoch == origin.continued
                and origin.processed is not None
                and origin.processed[0] < processed.offset <= origin.offset
            )
            processed = processed._replace(fetch_epoch=origin.fetch_epoch) if is_later else None
        by_decoded = (
            None if decoded is None or decoded.fetch_epoch != origin.fetch_epoch else decoded.processed()
        )
        if by_decoded is not None and (processed is None or processed.offset < by_decoded[0]):
            return Origin(origin.fetch_epoch, *by_decoded)
        if processed is not None:
            return processed
        return origin if origin.processed is None else Origin(origin.fetch_epoch, *origin.processed)
