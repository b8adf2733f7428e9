"""The interface of a group protocol for the rest of the network side (C4).

The heartbeat manager owns the timers (`Liveness`), the commit manager the offsets (`CommitIdentity`), the processor
the application's calls (`Membership`); none of them depends on the protocol. `ClassicMembership` is the
one of JoinGroup and SyncGroup, `ConsumerMembership` that of KIP-848, whose heartbeat joins, acknowledges and brings
assignments: a membership builds its own heartbeat, decides when one is due and evaluates the response.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final, Protocol

from kadence.client.request_manager import Poll
from kadence.connection.request import Completed, Request
from kadence.consumer.subscription import PartitionState
from kadence.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kadence.connection.cluster import Cluster
    from kadence.consumer.assignors import Assignor

__all__ = [
    "SENT_NATIVELY",
    "ClusterView",
    "CommitIdentity",
    "GroupConfig",
    "HeartbeatOutcome",
    "Liveness",
    "Membership",
]


class GroupConfig(Protocol):
    """The configuration keys that a member needs, under their Kafka names in snake_case."""

    @property
    def group_id(self) -> str | None: ...

    @property
    def group_instance_id(self) -> str | None: ...

    @property
    def client_rack(self) -> str: ...

    @property
    def session_timeout_ms(self) -> int: ...

    @property
    def heartbeat_interval_ms(self) -> int: ...

    @property
    def processing_timeout_ms(self) -> int:
        """max(session.timeout.ms, max.poll.interval.ms): rule B2."""
        ...

    @property
    def stall_report_ratio(self) -> float:
        """The share of the processing timeout after which a stall is reported (B4); 0: not before leaving."""
        ...

    @property
    def request_timeout_ms(self) -> int: ...

    @property
    def retry_backoff_ms(self) -> int: ...

    @property
    def retry_backoff_max_ms(self) -> int: ...

    @property
    def partition_assignment_strategy(self) -> tuple[str | Assignor, ...]: ...

    @property
    def group_remote_assignor(self) -> str | None: ...


class ClusterView(Protocol):
    """The cluster's metadata, and requests for more."""

    @property
    def cluster(self) -> Cluster: ...

    def want(self, topics: frozenset[str]) -> None:
        """Keep the metadata of these topics fresh, in addition to the subscription's. Replaces the earlier list."""
        ...

    def identify(self, topic_ids: frozenset[bytes]) -> None:
        """Ask for topics by their ids until each has a name. Replaces the earlier request."""
        ...

    def request_update(self, now: int) -> None:
        """Ask again: a broker contradicted our metadata."""
        ...


SENT_NATIVELY: Final = "sent by the native heartbeat"
"""The tag of heartbeats that the network thread did not send itself."""


class HeartbeatOutcome(enum.Enum):
    """The result of an answered heartbeat for the membership."""

    ALIVE = "the coordinator knows this member"
    RETRY = "undecided: try again after a backoff"
    LOST = "this identity is over"


class Liveness(Protocol):
    """The part of a member that keeps it in its group: heartbeats, and leaving. All of it runs on the network thread.

    The heartbeat manager, the native heartbeat and the turn need no more of a member. So a member of a share group,
    which commits nothing, implements this and not `CommitIdentity`.
    """

    @property
    def group(self) -> GroupMetadata:
        """The current identity: one immutable value that is replaced as a whole, so its parts are always consistent."""
        ...

    @property
    def active(self) -> bool:
        """Whether heartbeats run (B3), also during rebalances: in the group, or joining it by a heartbeat."""
        ...

    @property
    def joining(self) -> bool:
        """Whether it is joining, without an identity to keep alive yet."""
        ...

    @property
    def term(self) -> object:
        """The term of the heartbeat's timers: they restart when it changes (compared by ==)."""
        ...

    @property
    def urgent(self) -> bool:
        """Whether a heartbeat is due before the interval is over."""
        ...

    @property
    def heartbeat_interval_ms(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int:
        """After this long without a response the coordinator is looked up again."""
        ...

    @property
    def known_session_ms(self) -> int | None:
        """After this long without a heartbeat the coordinator ends the membership; None: not known (KIP-848)."""
        ...

    @property
    def left(self) -> bool:
        """Whether every earlier membership was left: no departure is still to be sent."""
        ...

    @property
    def has_parted(self) -> bool:
        """Whether it has left on this side: at most the request to the broker is still to be sent."""
        ...

    @property
    def needs_polled(self) -> bool:
        """Whether it waits for a poll of the application before it joins."""
        ...

    def subscription_changed(self, now: int) -> None: ...

    def polled(self, now: int) -> None: ...

    def leave(
        self, now: int, *, reason: str, callbacks: bool = True, goodbye: bool | None = None
    ) -> None: ...

    def poll_timed_out(self, now: int) -> None:
        """The processing timeout has passed without a poll (B4)."""
        ...

    def heartbeat(self, deadline: int) -> Request:
        """The request that keeps the current identity alive. Called while ``active``, and the result is sent."""
        ...

    def on_heartbeat(self, now: int, completed: Completed) -> HeartbeatOutcome: ...

    def native_heartbeat(self) -> Any:
        """A heartbeat that keeps the current identity alive, however often it is sent; None: there is none.

        The same object as long as its content is the same. Its responses come to `on_heartbeat` with the tag
        `SENT_NATIVELY`.
        """
        ...

    def poll(self, now: int) -> Poll: ...

    def on_response(self, now: int, completed: Completed) -> None: ...


class CommitIdentity(Protocol):
    """The part of a member that commits offsets: the identity to send, and the ownership of partitions."""

    @property
    def managed(self) -> bool:
        """Whether partitions come from the group: subscribe() was called, not assign()."""
        ...

    @property
    def group(self) -> GroupMetadata:
        """As `Liveness.group`."""
        ...

    @property
    def settled(self) -> bool:
        """Whether commits with the current identity can be accepted now."""
        ...

    def tenure(self, partition: TopicPartition) -> PartitionState | None:
        """An object that stays the same while this member owns the partition without a break.

        None: it does not own it.
        """
        ...

    def commit_refused(self, now: int, sent: GroupMetadata, code: int) -> bool:
        """A commit was refused because of the identity it was sent with.

        Returns:
            Whether the membership continues, so that the commit may be sent again with its new identity.
        """
        ...


class Membership(Liveness, CommitIdentity, Protocol):
    """One member of a group of consumers: partitions are revoked and added with callbacks of the application."""

    def rebalance(self, now: int, reason: str) -> None: ...

    def callback_done(self, now: int, callback_id: int, error: str | None) -> None: ...
