"""Why an assigned partition is not being fetched: one reason at a time, and for how long.

The network thread writes the reason into the shared partition whenever it changes, so it costs nothing per record
and reading it takes no request. With other clients one has to guess the reason from the logs of several threads.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

__all__ = ["NotFetched", "NotFetchedReason", "Unfetched"]


class NotFetchedReason(enum.Enum):
    """The reason why a partition is not being fetched now. The value is an explanation in words."""

    PAUSED = "paused by the application"
    POLL_RAISES = "poll() raises for its next record"
    OPEN_TRANSACTION = "an open transaction holds it up"
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
    """What a shared partition says of it. ``since``: monotonic ms, below 0 when nobody has looked yet."""

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
