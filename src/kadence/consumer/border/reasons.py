"""Why an assigned partition is not being fetched: one reason at a time, and since when.

The network thread writes it into the partition's cell whenever it changes, so it costs nothing per record and
reading it takes no request. Today's clients leave people to guess among these from logs of several threads.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

__all__ = ["NotFetched", "NotFetchedReason", "Unfetched"]


class NotFetchedReason(enum.Enum):
    """The one thing that stands against fetching a partition now. The value says it in words."""

    PAUSED = "paused by the application"
    BUFFERED = "enough of it is buffered: the application has to poll"
    RANGE_FETCHED = "all of its range is fetched"
    MEMORY = "buffer.memory is used up: the application has to poll"
    AWAITING_TURN = "its broker is busy with a fetch of other partitions that is about to end"
    AWAITING_ASSIGNED_CALLBACK = "the listener was not told of it yet: the application has to poll"
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
        """Whether it is how a healthy consumer looks; the others are worth a warning when they last."""
        return self in _EXPECTED

    @property
    def is_up_to_the_application(self) -> bool:
        """Whether it ends with the application's next poll."""
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
    """What a cell says of it. ``since``: monotonic ms, below 0 when nobody has looked yet."""

    reason: NotFetchedReason
    since: int
    detail: str


class NotFetched(NamedTuple):
    """Why a partition is not being fetched.

    Attributes:
        reason: the one reason. since: for how long it has been so (seconds).
        detail: what is known beyond it, such as the error that is waited out; may be empty.
    """

    reason: NotFetchedReason
    since: float
    detail: str

    def __str__(self) -> str:
        more = f" ({self.detail})" if self.detail else ""
        return f"{self.reason.value}{more}, for {self.since:.1f} s"
