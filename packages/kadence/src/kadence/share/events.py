"""What crosses between the threads of a share consumer beside the events of every client (KIP-932, C2).

Of `kadence.consumer.events` a share consumer uses `Subscribe` (with topics alone), `Unsubscribe`, `Polled` and `Close`
to the network thread, and `Answer`, `Failed`, `IdentityChanged` and `Stalled` from it.

A `Failed` with ``fatal`` stays: every poll raises it. The member tries to join again with each `Polled` all the same,
so polls send `Polled` (when `ClientState.wants_polled` says so) before they raise. The `IdentityChanged` of a
join that succeeded ends the error (`Exchange`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from kadence.clock import FOREVER
from kadence.consumer.events import ApplicationEvent, BackgroundEvent
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.share.acknowledgements import Acknowledged, TopicIdPartition
from kadence.share.share_state import AcquiredFetch

__all__ = ["Acknowledge", "AcknowledgementsEnded", "Ended", "Sending"]

# ---------------------------------------------------------------- application → network


class Sending(enum.IntEnum):
    """How acknowledgements are sent. At one node, lower numbers go out first."""

    ASYNC = 1
    """commit_async(): in a request of their own, as soon as none is under way."""
    SYNC = 2
    """commit(): the same, and the event is answered, when all that was said before has ended, too."""
    WITH_FETCH = 3
    """A poll's: with the next fetch, or in a request of their own where nothing is to be fetched. Polls hand them over
    in `ShareState.said`, if none of them is a renewal."""


@dataclass(frozen=True, slots=True)
class Acknowledge(ApplicationEvent):
    """Acknowledge records.

    Sent again on retriable errors until ``deadline`` or until the locks end, whichever is first.

    ``fetches``: of each fetch, what is said of its offsets: ascending, none twice, and each only once in all events,
    but for RENEW, after which something else may be said. ``sending``: see there; with SYNC the `Answer` is a
    ``dict[TopicIdPartition, KafkaError | None]`` and comes when all of it has ended, and all of earlier events, but for
    renewals; a deadline that passes first is KafkaTimeoutError in it for the partitions that have not.
    """

    fetches: Mapping[AcquiredFetch, tuple[Acknowledged, ...]]
    sending: Sending

    @property
    def is_answered(self) -> bool:
        return self.sending is Sending.SYNC and self.id != 0

    @property
    def reaped_at(self) -> int:
        # The manager answers at the deadline by itself, with what is known of each partition.
        return FOREVER

    @property
    def what(self) -> str:
        return "a commit of acknowledgements"


# ---------------------------------------------------------------- network → application


class Ended(NamedTuple):
    """The end of acknowledgements of one partition.

    ``error``: None: the broker has taken them. Else none of them counts, and `InvalidRecordStateError` says that the
    locks were gone. Gaps are among ``acknowledged``. A RENEW without error: the application still holds those.
    """

    partition: TopicIdPartition
    fetch: AcquiredFetch
    acknowledged: tuple[Acknowledged, ...]
    error: KafkaError | None


@dataclass(frozen=True, slots=True)
class AcknowledgementsEnded(BackgroundEvent):
    """Acknowledgements have ended: for the callback, for renewed records, and for the counts.

    Sent for everything while `ShareState.wants_results` is set; else only of RENEW and of errors. It comes before the
    `Answer` to a SYNC event that it ends.
    """

    ended: tuple[Ended, ...]
