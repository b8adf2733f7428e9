"""One cell per assigned partition: what both threads must know of it, each field with one writer (C1).

A *lease* numbers a stretch of reading without a jump. Seek, reset, revocation and unassignment start a new
one; bytes are stamped with the lease they were fetched under, and bytes of an old lease are dropped when
they would be handed out. So nothing has to be cancelled, and no lock is needed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kadence.consumer.border.hand import Standing
from kadence.consumer.border.reasons import NotFetchedReason, Unfetched
from kadence.lag import end_offset, lag
from kadence.metrics.sensors import Meter
from kadence.types import TopicPartition

__all__ = ["Cell", "Origin", "Raised", "Unstable"]

_NEW: Final = Unfetched(NotFetchedReason.AWAITING_COMMITTED_OFFSET, -1, "")

_OPEN_MS: Final = 5_000
"""A transaction that is open for so long counts as a reason. Others come and go all the time, and hold nobody up."""


class Origin(NamedTuple):
    """Where a lease starts to read. Replaced as one value, so its parts never mix."""

    lease: int
    offset: int
    leader_epoch: int | None
    proved: tuple[int, int | None] | None = None
    """Offset and epoch that were proved processed when a lease began in the midst of reading, if that is less."""


class Unstable(NamedTuple):
    """A partition of which read_committed gives nothing from the last stable offset on, though there is more.

    ``since``: the time (ms) from which on that offset has stood still.
    """

    offset: int
    since: int


class Raised(NamedTuple):
    """Polls that raised because of what comes next of a partition.

    ``lease``, ``position``: where it stood. ``offset``: the record's. ``since``: when (ms) the first of them raised.
    """

    lease: int
    position: int
    offset: int
    error: str
    times: int
    since: int


class Cell(Standing):
    """The border's part of one assigned partition.

    Written by the network thread: ``lease`` (current stretch), ``origin`` (its start; None while the
    position is unknown), ``end`` (the offset at which the range to read ends, C11; None: it has no end), ``revoking``
    (about to be given up: no longer handed out), ``held`` (its assigned callback has not run: not handed out yet),
    ``high_watermark``, ``last_stable_offset``, ``log_start``, ``unfetched`` (why it is not being fetched; None: it is),
    ``unstable`` (with read_committed, while a transaction is open before the end of the log).
    ``lags`` and ``leads`` (as answers told of the log's ends), ``preferred_replica`` (None: the leader).
    Written by the application thread: ``paused``, ``paused_at`` (since when, monotonic ms), ``hand`` (records decoded
    ahead; under the present lease the position is its index), ``proved`` = (lease, offset, epoch) as far as is known to
    be processed apart from what the hand says, ``raised`` (the latest polls that raised because of it),
    ``drained_bytes`` (total of bytes handed out or dropped, ever).
    ``drained_records``: the same in records, kept only where prefetch.heuristic looks at it. ``told_bytes`` and
    ``told_records``: the marks of which the network thread was told that they were reached.
    Written by the network thread, about what the application drains: ``wake_bytes`` and ``wake_records``, the marks at
    which it wants to know that ``drained_bytes`` or ``drained_records`` has come so far.
    """

    __slots__ = (
        "_position",
        "drained_bytes",
        "drained_records",
        "high_watermark",
        "lags",
        "last_stable_offset",
        "leads",
        "log_start",
        "origin",
        "partition",
        "paused_at",
        "preferred_replica",
        "proved",
        "raised",
        "told_bytes",
        "told_records",
        "unfetched",
        "unstable",
        "wake_bytes",
        "wake_records",
    )

    def __init__(self, partition: TopicPartition, lease: int) -> None:
        super().__init__(lease)
        self.partition = partition
        self.origin: Origin | None = None
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start: int | None = None
        self.lags = Meter()
        self.leads = Meter()
        self.preferred_replica: int | None = None
        self.unfetched: Unfetched | None = _NEW
        self.unstable: Unstable | None = None
        self.raised: Raised | None = None
        self.paused_at = 0
        self._position: Origin | None = None
        self.proved: Origin | None = None
        self.drained_bytes = 0
        self.drained_records = 0
        self.wake_bytes = self.wake_records = 1 << 62
        self.told_bytes = self.told_records = -1

    def lag(self, *, read_committed: bool) -> int | None:
        """How many offsets lie from the position to the end, as brokers told it last; None: one is not known yet."""
        end = end_offset(self.high_watermark, self.last_stable_offset, read_committed=read_committed)
        at = self.current()
        return lag(end, None if at is None else at.offset)

    def why_unplaced(self) -> str:
        """Why there is no position yet, in words."""
        unfetched = self.unfetched or _NEW
        return unfetched.reason.value + (f" ({unfetched.detail})" if unfetched.detail else "")

    def why(self, now: int) -> Unfetched | None:
        """Why nothing of it is read now, from what both sides know."""
        if self.paused and not (self.held or self.revoking):
            # The network side hears of a pause with its next turn only.
            return Unfetched(NotFetchedReason.PAUSED, self.paused_at, "")
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

    def raises(self) -> Raised | None:
        """The polls that raised for the next record; None where the position has moved since, or none did."""
        raised, at = self.raised, self.current()
        if raised is None or at is None or (raised.lease, raised.position) != (at.lease, at.offset):
            return None
        return raised

    def _held_up(self, now: int) -> Unfetched | None:
        """By an open transaction. It is asked for then, and the answers bring nothing."""
        unstable, at = self.unstable, self.current()
        if unstable is None or at is None or at.offset < unstable.offset or now - unstable.since < _OPEN_MS:
            return None
        detail = f"last stable offset {unstable.offset}, high watermark {self.high_watermark}"
        return Unfetched(NotFetchedReason.OPEN_TRANSACTION, unstable.since, detail)

    @property
    def position(self) -> Origin | None:
        """(lease, next offset to return, epoch of the last record returned), of any lease; None before the first."""
        hand = self.hand
        return self._position if hand is None else Origin(hand.lease, *hand.position())

    @position.setter
    def position(self, position: Origin) -> None:
        self._position = position
        self.hand = None

    @property
    def is_finished(self) -> bool:
        """Whether all of its range was returned."""
        end = self.end
        return end is not None and (at := self.current()) is not None and at.offset >= end

    def current(self) -> Origin | None:
        """The next position to return: the application's own if it is of the present lease, else the lease's start."""
        origin, position = self.origin, self.position
        if origin is None:
            return None
        return position if position is not None and position.lease == origin.lease else origin

    def prove(self, offset: int, leader_epoch: int | None) -> None:
        """The application says that everything below ``offset`` is processed; never takes a proof back."""
        current, proved = self.current(), self.proved_position()
        if current is not None and proved is not None and proved.offset < offset <= current.offset:
            self.proved = Origin(current.lease, offset, leader_epoch)

    def proved_position(self) -> Origin | None:
        """What may be committed without the risk of a loss: at least once (D1)."""
        origin, proved, hand = self.origin, self.proved, self.hand
        if origin is None:
            return None
        if proved is not None and proved.lease != origin.lease:
            proved = None
        by_hand = None if hand is None or hand.lease != origin.lease else hand.proved()
        if by_hand is not None and (proved is None or proved.offset < by_hand[0]):
            return Origin(origin.lease, *by_hand)
        if proved is not None:
            return proved
        return origin if origin.proved is None else Origin(origin.lease, *origin.proved)
