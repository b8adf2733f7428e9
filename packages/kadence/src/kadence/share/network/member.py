"""One member of a share group: everything is said by ShareGroupHeartbeat (KIP-932, "Membership").

`EpochMember` joins, heartbeats and leaves. This adds the message, and that there is nothing to reconcile: the member
owns what it is assigned at once, and gives up what it is not assigned any more without a word. What it holds locked of
a partition that went is still its own. The first assignment of a new group is empty, and says nothing.

A heartbeat tells the subscription once, and again after any failure: a null field means "as I said last time".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Final

from kadence import errors
from kadence.connection.request import ConnectionPurpose, Request
from kadence.consumer.events import AddBackgroundEvent
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.epoch_member import EpochMember, Target, new_member_id
from kadence.consumer.group.leaving import Departure, Departures
from kadence.consumer.group.member_states import HEARTBEATING, State
from kadence.consumer.group.membership import ClusterView
from kadence.errors import KafkaError
from kadence.logs import in_short, logger
from kadence.protocol import error_codes
from kadence.protocol.share_group_heartbeat import ShareGroupHeartbeatRequest
from kadence.share.keys import ShareKeys
from kadence.types import TopicPartition

__all__ = ["Assignment", "ShareMembership"]

log = logger("kadence.share")

Assignment = Mapping[TopicPartition, bytes]
"""What a member is assigned, with the ids of the topics."""

_NOTHING: Final[Assignment] = MappingProxyType({})
_LEAVES: Final = -1

_NO_QUEUES: Final = (
    "the broker has no share groups: they need Kafka 4.2 or newer, with the feature share.version at 1 or higher "
    "(kafka-features.sh upgrade --feature share.version=1)"
)


class ShareDepartures(Departures):
    """Says the last heartbeat. The member id is known from the start."""

    def _goodbye(self, departure: Departure) -> Any:
        return ShareGroupHeartbeatRequest(
            group_id=self._config.group_id or "",
            member_id=departure.member_id,
            member_epoch=_LEAVES,
            rack_id=None,
            subscribed_topic_names=None,
        )


class ShareMembership(EpochMember):
    """One member of a share group. It has the interface of `kadence.consumer.group.membership.Liveness`.

    Args:
        coordinator, metadata, config, add_event, new_id: as of `EpochMember`.

    Attributes:
        topics: what is subscribed to. assignment: what it may fetch. on_assignment: called with each new one.
        on_rebalance: called when the group has assigned something else.
        on_leaving: told when it leaves by whatever way, or is refused for good: it holds nothing from then on.
    """

    LOSS: ClassVar[str] = "The records that it holds are released, and go to other members"

    KEEPS_ERRORS: ClassVar[bool] = True

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        metadata: ClusterView,
        config: ShareKeys,
        add_event: AddBackgroundEvent,
        new_id: Callable[[], str] = new_member_id,
    ) -> None:
        departures = ShareDepartures(config, coordinator)
        super().__init__(coordinator, metadata, config, add_event, departures, new_id)
        self.topics: frozenset[str] = frozenset()
        self.assignment: Assignment = _NOTHING
        self.on_assignment: Callable[[int, Assignment], None] = lambda now, assignment: None
        self.on_rebalance: Callable[[int], None] = lambda now: None
        self.on_leaving: Callable[[], None] = lambda: None
        # The subscription that the broker has heard; None: perhaps none.
        self._said: frozenset[str] | None = None
        self._native_heartbeat: tuple[object, Any] | None = None

    # ------------------------------------------------------------ what others ask

    @property
    def managed(self) -> bool:
        return bool(self.topics)

    @property
    def urgent(self) -> bool:
        if self.state is State.PREPARE_LEAVING:
            return False
        return self._listens or self._said is None or (self._said != self.topics and not self.needs_polled)

    @property
    def _names_something(self) -> bool:
        return bool(self.topics)

    def __repr__(self) -> str:
        group = self.group
        return (
            f"<share member {group.member_id or '-'} of {group.group_id} {self.state.name} "
            f"epoch={group.generation_id} partitions={len(self.assignment)}>"
        )

    # ------------------------------------------------------------ heartbeats

    def _new_heartbeat(self, node_id: int, deadline: int) -> Request:
        joins = self.state is State.JOINING
        says_all = joins or self._said is None
        message = ShareGroupHeartbeatRequest(
            group_id=self.group.group_id,
            member_id=self.group.member_id,
            member_epoch=0 if joins else self.group.generation_id,
            rack_id=(self._config.client_rack or None) if says_all else None,
            subscribed_topic_names=sorted(self.topics) if says_all or self._said != self.topics else None,
        )
        self._said = self.topics
        return Request(message, node_id, deadline, ConnectionPurpose.GROUP)

    def native_heartbeat(self) -> Any:
        """All that was said once more: its answer then has the assignment, whatever the network thread has missed."""
        if self.state not in HEARTBEATING or self.group.generation_id <= 0:
            return None
        made_of = (self.group, self._said)
        if self._native_heartbeat is None or self._native_heartbeat[0] != made_of:
            self._native_heartbeat = (
                made_of,
                ShareGroupHeartbeatRequest(
                    group_id=self.group.group_id,
                    member_id=self.group.member_id,
                    member_epoch=self.group.generation_id,
                    rack_id=self._config.client_rack or None,
                    subscribed_topic_names=sorted(self._said or self.topics),
                ),
            )
        return self._native_heartbeat[1]

    def _may_bring_partitions(self, message: Any) -> bool:
        return message.subscribed_topic_names is not None

    def _forget_said(self) -> None:
        self._said = None

    # ------------------------------------------------------------ the assignment

    def _assign(self, now: int, request: Request, target: Target | None) -> None:
        del request
        if target is not None and target != self._target:
            # The first of a new group is empty, and changes nothing.
            is_change = bool(target or self._target)
            self._target = target
            self._reconcile(now)
            if is_change:
                self.on_rebalance(now)

    def subscription_changed(self, now: int) -> None:
        """As of `EpochMember`: what is not subscribed to any more is not owned from now on."""
        super().subscription_changed(now)
        self._reconcile(now)

    def _reconcile(self, now: int) -> None:
        # Until the group has heard of a new subscription it assigns topics of the old one.
        topics = self.topics
        owned = {each: topic_id for each, topic_id in self._resolve(now).items() if each.topic in topics}
        self._own(now, MappingProxyType(owned))

    def _look_at_cluster(self, now: int) -> None:
        """Partitions of a topic that was made anew are not ours: nobody has assigned those of the new one yet."""
        cluster = self._metadata.cluster
        if not self._unresolved:
            self._cluster = cluster
        if any(cluster.is_made_anew(p.topic, topic_id) for p, topic_id in self.assignment.items()):
            self._reconcile(now)

    def _own(self, now: int, assignment: Assignment) -> None:
        if assignment == self.assignment:
            return
        log.info("group %s: assigned %s", self.group.group_id, in_short(tuple(sorted(assignment))))
        self.assignment = assignment
        self.on_assignment(now, assignment)

    def _lose(self, *, leaves: bool) -> None:
        del leaves
        self._own(0, _NOTHING)
        if self.state is not State.FENCED:
            # Who is fenced joins again under its member id, and the brokers keep its locks.
            self.on_leaving()

    def _joins(self, now: int, cause: str) -> None:
        del now
        log.info("group %s: joins (%s)", self.group.group_id, cause)

    def _gave_up(self, now: int, why: str) -> None:
        """The error says it all."""

    # ------------------------------------------------------------ errors

    def _explained(self, code: int, message: str | None) -> KafkaError:
        group_id, told = self.group.group_id, f": {message.rstrip('.')}" if message else ""
        texts = {
            error_codes.UNSUPPORTED_VERSION: _NO_QUEUES,
            error_codes.GROUP_MAX_SIZE_REACHED: (
                f"share group {group_id!r} has as many members as the broker allows (group.share.max.size)"
            ),
            error_codes.GROUP_ID_NOT_FOUND: (
                f"group {group_id!r} is not a share group{told}. One group id has one type, also when the group is "
                "empty: choose another group.id, or delete the group first"
            ),
            error_codes.GROUP_AUTHORIZATION_FAILED: f"not allowed to read as share group {group_id!r}",
            error_codes.TOPIC_AUTHORIZATION_FAILED: f"not allowed to see all of {sorted(self.topics)}{told}",
            error_codes.INVALID_GROUP_ID: f"group.id = {group_id!r} is not one that the broker takes",
            error_codes.INVALID_REQUEST: f"the broker refused the heartbeat of share group {group_id!r}{told}",
        }
        return errors.for_code(code, texts.get(code))

    def _explained_transport(self, error: KafkaError) -> KafkaError:
        if isinstance(error, errors.UnsupportedVersionError):
            return errors.UnsupportedVersionError(f"{error}; {_NO_QUEUES}")
        return error
