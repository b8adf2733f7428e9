"""The data of a classic group: its state, its members, and queries on them. It makes no decisions.

The allowed transitions between states are the table `NEXT`. The rules that move a group are in `joining`,
`syncing`, `leaving` and `rebalance`; its record is in `storing`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription
from kadence.protocol.group_metadata_record import GroupMetadataKey, GroupMetadataValue
from kadence.protocol.registry import decode_versioned
from kadence.wire import WireError
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.records import Record

__all__ = ["CONSUMER_PROTOCOL_TYPE", "NEXT", "ClassicGroup", "GroupState", "Member"]

CONSUMER_PROTOCOL_TYPE = "consumer"


class GroupState(Enum):
    """Kafka's five states; the value is the name on the wire."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


NEXT: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.PREPARING_REBALANCE, GroupState.STABLE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
"""The transitions that rules may make. A record may move a group that is being loaded from any state to Empty or
Stable."""


@dataclass(slots=True)
class Member:
    """One member. ``joining`` and ``syncing`` hold its parked request, if it has one."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    joining: Caller | None = None
    syncing: Caller | None = None
    is_new: bool = True
    """Its first join has not been answered yet; only then may it expire while it is parked."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_parked(self) -> bool:
        return self.joining is not None or self.syncing is not None

    def take_over(self, stored: Member) -> None:
        """Take over the stored fields; parked requests and other protocols stay."""
        self.member_id, self.client_id, self.client_host = (
            stored.member_id,
            stored.client_id,
            stored.client_host,
        )
        self.session_timeout_ms = stored.session_timeout_ms
        self.rebalance_timeout_ms = stored.rebalance_timeout_ms
        self.assignment = stored.assignment
        ((protocol, subscription),) = stored.protocols
        if self.metadata(protocol) != subscription:
            self.protocols = [(protocol, subscription)]

    def metadata(self, protocol: str) -> bytes:
        """The member's metadata under ``protocol``; empty if it does not have it."""
        return next((data for name, data in self.protocols if name == protocol), b"")


@dataclass(slots=True)
class ClassicGroup:
    """One group. Member order is the order of joining."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id."""
    pending_joins: set[str] = field(default_factory=set)
    """Member ids that were given out with MEMBER_ID_REQUIRED and not yet used."""
    pending_syncs: set[str] = field(default_factory=set)
    new_member_added: bool = False
    """A member joined since the initial delay was last extended."""
    initial_delay_left_ms: int | None = None
    """While the initial delay runs: the time by which it may still be extended. None in any other join phase."""
    initial_delay_ms: int = 0
    empty_since: int | None = None
    """Time of day (ms) of becoming empty, as it is stored."""
    stored: GroupMetadataValue | None = None
    """The last record of this group; None if it only has committed offsets. Only replaying sets it."""
    subscribed: set[str] | None = None
    """Topics of the members of the generation; None when that cannot be known."""
    _common: set[str] | None = field(default=None, repr=False, compare=False)
    """The result of `common_protocols`; None after a change that it does not follow."""
    _awaited: list[Member] = field(default_factory=list, repr=False, compare=False)
    """Members that had not joined when `has_all_members_joined` last looked at all of them."""

    def __repr__(self) -> str:
        return (
            f"<group {self.group_id!r} {self.state.value} generation {self.generation_id}, "
            f"{len(self.members)} members, {len(self.pending_joins)} pending>"
        )

    def transition(self, state: GroupState) -> None:
        """Move to ``state``; a transition that is not in the table is a bug of the rules, not of a client."""
        if state not in NEXT[self.state]:
            raise RuntimeError(f"group {self.group_id!r} cannot go from {self.state.value} to {state.value}")
        self.state = state

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of any member (B8)."""
        return max([0, *(member.rebalance_timeout_ms for member in self.members.values())])

    @property
    def is_consumer_group(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        if self._common is not None and self.members:
            self._common.intersection_update(name for name, _ in member.protocols)
        else:
            self._common = None
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.pending_joins.discard(member.member_id)

    def remove(self, member_id: str) -> Member | None:
        """Remove a member; if it led, another one leads."""
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self.protocols_changed()
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_syncs.discard(member_id)
        return member

    def replace_static(self, member: Member, new_member_id: str) -> None:
        """A restarted static member takes its old place under a new id."""
        old_id = member.member_id
        self.members = {
            (new_member_id if member_id == old_id else member_id): each
            for member_id, each in self.members.items()
        }
        member.member_id = new_member_id
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = new_member_id
        if self.leader_id == old_id:
            self.leader_id = new_member_id
        if old_id in self.pending_syncs:
            self.pending_syncs.discard(old_id)
            self.pending_syncs.add(new_member_id)

    def parked_joins(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.joining is not None)

    def parked_syncs(self) -> Iterator[Member]:
        return (member for member in self.members.values() if member.syncing is not None)

    @property
    def has_all_members_joined(self) -> bool:
        """True if every member has (re)joined and no pending member id is still expected.

        Called for every join, so it visits all members only when those that were missing are here, or gone.
        """
        if self.pending_joins:
            return False
        while self._awaited:
            member = self._awaited[-1]
            if member.joining is None and self.members.get(member.member_id) is member:
                return False
            self._awaited.pop()
        self._awaited = [member for member in self.members.values() if member.joining is None]
        return not self._awaited

    def common_protocols(self) -> set[str]:
        """The protocols that every member supports. A member that lists one twice still has one vote.

        Called for every join, so the result is kept: otherwise a join would cost more the more members there are.
        """
        if self._common is None:
            counts = Counter(name for member in self.members.values() for name in dict(member.protocols))
            self._common = {name for name, count in counts.items() if count == len(self.members)}
        return self._common

    def protocols_changed(self) -> None:
        """Members left, were replaced, or list other protocols: drop the cached common protocols."""
        self._common = None

    def accepts_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """True if a member with these protocols can join."""
        offered = set(names)
        if not protocol_type or not offered:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and not offered.isdisjoint(self.common_protocols())

    def select_protocol(self) -> str:
        """Each member votes for its first choice among the common ones; most votes win, then the leader's order."""
        common = self.common_protocols()
        if not common:
            raise RuntimeError(f"the members of group {self.group_id!r} share no protocol")
        votes = Counter(
            next(name for name, _ in member.protocols if name in common) for member in self.members.values()
        )
        leader = self.members.get(self.leader_id or "") or next(iter(self.members.values()))
        order = {name: rank for rank, (name, _) in reversed(list(enumerate(leader.protocols)))}
        return max(votes, key=lambda name: (votes[name], -order.get(name, len(order))))

    def validate_member(self, member_id: str, group_instance_id: str | None) -> int:
        """Check an identity: returns an error code, NONE if the group knows it.

        If another member id holds the instance id, the caller is fenced: a second process has taken its place.
        """
        if group_instance_id is not None:
            owner = self.static_members.get(group_instance_id)
            if owner is None:
                return codes.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return codes.FENCED_INSTANCE_ID
        if member_id not in self.members:
            return codes.UNKNOWN_MEMBER_ID
        return codes.NONE

    # The interface `kadence_broker.coordinator.groups.Group`.

    @property
    def kind(self) -> str:
        return "classic"

    @property
    def protocol_type_name(self) -> str:
        return self.protocol_type or ""

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_removable(self) -> bool:
        return self.is_empty and not self.pending_joins

    def commit_code(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool
    ) -> int:
        """Members of the present generation may commit; while there are no members, any client may."""
        if generation < 0 and self.state is GroupState.EMPTY:
            # Offsets of a client that does not use the group's membership.
            return codes.NONE
        if generation >= 0 or member_id or instance_id is not None:
            code = self.validate_member(member_id, instance_id)
            if code != codes.NONE:
                return code
            if generation != self.generation_id:
                return codes.ILLEGAL_GENERATION
        elif not transactional:
            return codes.UNKNOWN_MEMBER_ID
        if self.state is GroupState.COMPLETING_REBALANCE and not transactional:
            # The new generation's owners are not known yet, so the partitions have no owner that could commit.
            return codes.REBALANCE_IN_PROGRESS
        return codes.NONE

    def partition_code(self, member_id: str, generation: int, topic_id: bytes, partition: int) -> int:
        """A generation's members may commit any partition."""
        return codes.NONE

    def fetch_code(self, member_id: str | None, member_epoch: int) -> int:
        return codes.NONE

    def offset_delete_code(self) -> int:
        return codes.NONE if self.is_empty or self.is_consumer_group else codes.NON_EMPTY_GROUP

    def is_subscribed(self, topic: str) -> bool:
        """As of the present generation. If its subscriptions cannot be read, every topic counts as subscribed."""
        if self.is_empty:
            return False
        return self.is_consumer_group if self.subscribed is None else topic in self.subscribed

    def offset_age_from(self, committed_at: int) -> int | None:
        """KIP-211: from the commit, but not before the group became empty; a group that rebalances loses nothing."""
        if self.state is GroupState.EMPTY:
            if self.protocol_type is None or self.empty_since is None:
                return committed_at
            return max(committed_at, self.empty_since)
        return committed_at if self.state is GroupState.STABLE and self.is_consumer_group else None

    def records(self) -> Iterator[Record]:
        if self.stored is not None:
            yield Record(GroupMetadataKey(self.group_id), self.stored)

    def tombstones(self) -> Iterator[Any]:
        yield GroupMetadataKey(self.group_id)

    def subscribed_topics(self) -> set[str] | None:
        """Topics of a "consumer" group's members; None when that cannot be known (other type, unreadable)."""
        if not self.is_consumer_group or self.protocol_name is None:
            return set() if self.is_consumer_group and not self.members else None
        topics: set[str] = set()
        for member in self.members.values():
            names = _topics_of(member.metadata(self.protocol_name))
            if names is None:
                return None
            topics.update(names)
        return topics


def _topics_of(metadata: bytes) -> list[str] | None:
    """The topics of a Subscription of the consumer protocol; None if these bytes are not one.

    The bytes belong to the clients: the coordinator may read them, but must not depend on them.
    """
    try:
        return decode_versioned(ConsumerProtocolSubscription, metadata)[1].topics
    except WireError:
        return None
