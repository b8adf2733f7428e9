"""What a group protocol must offer to the rest of the network side (C4).

The heartbeat manager owns the timers (`Liveness`), the commit manager the offsets (`CommitIdentity`), the processor
the application's calls (`Membership`); none of them knows which protocol the group speaks. `ClassicMembership` is the
one of JoinGroup and SyncGroup, `ConsumerMembership` that of KIP-848, whose heartbeat joins, acknowledges and brings
assignments: a membership builds its own heartbeat, says when one is due and judges the answer itself.
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
        """At which part of the processing timeout a stall is told (B4); 0: never."""
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
    """What is known of the cluster, and the way to ask for more."""

    @property
    def cluster(self) -> Cluster: ...

    def want(self, topics: frozenset[str]) -> None:
        """Keep the metadata of these topics fresh, beside those of the subscription. Replaces what was wanted."""
        ...

    def identify(self, topic_ids: frozenset[bytes]) -> None:
        """Ask for topics by their ids until each has a name. Replaces what was asked for before."""
        ...

    def request_update(self, now: int) -> None:
        """Ask again: a broker contradicted what is known."""
        ...


SENT_NATIVELY: Final = "sent by the native heartbeat"
"""The tag of heartbeats that the network thread did not send itself."""


class HeartbeatOutcome(enum.Enum):
    """What an answered heartbeat says of the membership."""

    ALIVE = "the coordinator knows us"
    RETRY = "no verdict: try again after a backoff"
    LOST = "this identity is over"


class Liveness(Protocol):
    """The part of a member that keeps it in its group: heartbeats, and leaving. All of it runs on the network thread.

    The heartbeat manager, the native heartbeat and the turn need no more of a member. So a member of a share group,
    which commits nothing, has this and no `CommitIdentity`.
    """

    @property
    def group(self) -> GroupMetadata:
        """The present identity: one immutable value that is replaced as a whole, so its parts never mix."""
        ...

    @property
    def active(self) -> bool:
        """Heartbeats run (B3), through rebalances too: in the group, or joining it by a heartbeat."""
        ...

    @property
    def joining(self) -> bool:
        """On the way into the group, without an identity that could be kept alive yet."""
        ...

    @property
    def term(self) -> object:
        """What the heartbeat's timers belong to: with another one (compared by ==) they start again."""
        ...

    @property
    def urgent(self) -> bool:
        """There is something to say before the interval is over."""
        ...

    @property
    def heartbeat_interval_ms(self) -> int: ...

    @property
    def session_timeout_ms(self) -> int:
        """After so long without an answer the coordinator is looked up again."""
        ...

    @property
    def known_session_ms(self) -> int | None:
        """After so long without a heartbeat the coordinator ends the membership; None: it tells nobody (KIP-848)."""
        ...

    @property
    def left(self) -> bool:
        """Whether every earlier membership was left: no goodbye is still to be sent."""
        ...

    @property
    def has_parted(self) -> bool:
        """Out of the group as far as this side goes: at most the broker is still to be told."""
        ...

    @property
    def needs_polled(self) -> bool:
        """It waits for the application to poll before it joins."""
        ...

    def subscription_changed(self, now: int) -> None: ...

    def polled(self, now: int) -> None: ...

    def leave(
        self, now: int, *, reason: str, callbacks: bool = True, goodbye: bool | None = None
    ) -> None: ...

    def poll_timed_out(self, now: int) -> None:
        """The processing timeout passed between polls (B4)."""
        ...

    def heartbeat(self, deadline: int) -> Request:
        """The request that keeps the present identity alive. Asked for while ``active``, and then sent."""
        ...

    def on_heartbeat(self, now: int, completed: Completed) -> HeartbeatOutcome: ...

    def native_heartbeat(self) -> Any:
        """A heartbeat that keeps the present identity alive, however often it is sent; None: none is alive.

        The same object as long as it says the same. Its answers come to `on_heartbeat` with the tag `SENT_NATIVELY`.
        """
        ...

    def poll(self, now: int) -> Poll: ...

    def on_response(self, now: int, completed: Completed) -> None: ...


class CommitIdentity(Protocol):
    """The part of a member as which offsets are committed, and by which it is judged whose offsets they are."""

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
        """Whether commits of the present identity can be accepted now."""
        ...

    def tenure(self, partition: TopicPartition) -> PartitionState | None:
        """An object that stays the same while the partition is this member's without a break; None: it is not."""
        ...

    def commit_refused(self, now: int, sent: GroupMetadata, code: int) -> bool:
        """A commit was refused because of the identity it was sent with.

        Returns:
            Whether this member is still itself, so that the commit may be sent again as what it is then.
        """
        ...


class Membership(Liveness, CommitIdentity, Protocol):
    """One member of a group of consumers: partitions go and come by callbacks of the application."""

    def rebalance(self, now: int, reason: str) -> None: ...

    def callback_done(self, now: int, callback_id: int, error: str | None) -> None: ...
