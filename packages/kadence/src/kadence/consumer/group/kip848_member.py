"""One member of a KIP-848 group, which uses ConsumerGroupHeartbeat for everything (C4, C5).

The broker assigns; a member moves in the background from the partitions that it owns to its assignment, one target at a
time: partitions that leave are revoked when the application polls, then new ones are added, then the next heartbeat,
sent at once, acknowledges. Reading of the others continues. The response to a heartbeat brings the target, and a later
heartbeat acknowledges it; between the two the member moves in steps.

`EpochMember` joins, heartbeats and leaves.

A heartbeat contains only changed fields, and all fields again after a lost response (`HeartbeatState`). A missing field
means "unchanged". So the member remembers what it has sent, and forgets that after any failure: a full heartbeat
repairs any loss. A restarted coordinator needs nothing else. The last heartbeat leaves the group
(`HeartbeatDepartures`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kadence.clock import add_ms
from kadence.connection.request import ConnectionPurpose, Request
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.group.assignment_reconciler import AssignmentReconciler, RebalanceHistory
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.epoch_member import SILENT_INTERVALS, EpochMember, Target, new_member_id
from kadence.consumer.group.leaving import (
    Departure,
    Departures,
    explain_classic_members,
    explain_heartbeat,
    explain_heartbeat_transport,
)
from kadence.consumer.group.member_states import HEARTBEATING, State
from kadence.consumer.group.membership import ClusterView, GroupConfig
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.errors import KafkaError
from kadence.logs import logger
from kadence.protocol import consumer_group_heartbeat, error_codes
from kadence.protocol.consumer_group_heartbeat import TopicPartitions
from kadence.types import GroupMetadata, TopicPartition
from kadence.wire import Writer

__all__ = ["ConsumerGroupHeartbeatRequest", "ConsumerMembership"]

log = logger("kadence.consumer")

WITH_REGEX: Final = 1
"""The first version of the heartbeat with a regex."""

_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2


class ConsumerGroupHeartbeatRequest(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest):
    """Holds an empty ``subscribed_topic_regex`` beside names (v1+), which clears the regex.

    Null would keep an earlier one. One that is not empty cannot be left out: writing it in version 0 raises
    `VersionError`.
    """

    def write(self, w: Writer, version: int) -> None:
        regex = self.subscribed_topic_regex
        if version < WITH_REGEX and not regex:
            self.subscribed_topic_regex = None
        super().write(w, version)
        self.subscribed_topic_regex = regex


class _SentFields(NamedTuple):
    topics: frozenset[str]
    regex: str | None
    round: int


class HeartbeatState:
    """The values last sent in one membership's heartbeats."""

    def __init__(self, config: GroupConfig, subscription: Subscription) -> None:
        self._config = config
        self._subscription = subscription
        self._topics: frozenset[str] = frozenset()
        self._said: _SentFields | None = None

    def forget(self) -> None:
        """It is unknown whether the broker received the last one: the next one contains all fields."""
        self._said = None

    def reset(self) -> None:
        """Another membership."""
        self._topics, self._said = frozenset(), None

    @property
    def forgotten(self) -> bool:
        return self._said is None

    def owes(self, round_: int, *, subscription: bool) -> bool:
        """Whether a heartbeat is due before the interval is over.

        Args:
            round_: the latest acknowledgement. subscription: whether a change of it must be sent now.
        """
        said = self._said
        if said is None or said.round != round_:
            return True
        return subscription and (said.topics != self._topics_now() or said.regex != self._subscription.regex)

    def _says(self, round_: int) -> _SentFields:
        return _SentFields(self._topics_now(), self._subscription.regex, round_)

    def _topics_now(self) -> frozenset[str]:
        """A pattern that no longer matches anything is not sent: the broker refuses an empty subscription."""
        subscription = self._subscription
        return frozenset() if subscription.regex is not None else subscription.topics or self._topics

    def message(
        self, group: GroupMetadata, round_: int, owned: Mapping[TopicPartition, bytes], *, joins: bool
    ) -> tuple[ConsumerGroupHeartbeatRequest, bool]:
        """The next heartbeat, which from now on counts as sent.

        Args:
            group: the sender's identity. owned: partitions with the ids of their topics; empty when it ``joins``.

        Returns:
            The heartbeat, and whether it changes the subscription of a member.
        """
        if joins:
            self._said = None
        before, says = self._said, self._says(round_)
        retold = before is None or (before.topics, before.regex) != (says.topics, says.regex)
        message = ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=0 if joins else group.generation_id,
            instance_id=group.group_instance_id,
        )
        if before is None:
            message.rack_id = self._config.client_rack or None
            message.rebalance_timeout_ms = self._config.processing_timeout_ms
            message.server_assignor = self._config.group_remote_assignor
        if retold:
            message.subscribed_topic_names = sorted(says.topics)
            message.subscribed_topic_regex = says.regex or ""
        if before is None or before.round != says.round:
            message.topic_partitions = [] if joins else _by_id(owned)
        self._said, self._topics = says, says.topics
        return message, before is not None and retold

    def everything(
        self, group: GroupMetadata, round_: int, owned: Mapping[TopicPartition, bytes]
    ) -> ConsumerGroupHeartbeatRequest:
        """All values sent so far, once more; does not count as sent. The native thread may send it any number of times.

        If a response with a new assignment was not read, the broker accepts the old epoch with the owned partitions as
        a sign of a lost response, and sends the assignment again. It would answer FENCED_MEMBER_EPOCH to a shorter
        heartbeat.
        """
        said = self._said or self._says(round_)
        return ConsumerGroupHeartbeatRequest(
            group_id=group.group_id,
            member_id=group.member_id,
            member_epoch=group.generation_id,
            instance_id=group.group_instance_id,
            rack_id=self._config.client_rack or None,
            rebalance_timeout_ms=self._config.processing_timeout_ms,
            server_assignor=self._config.group_remote_assignor,
            subscribed_topic_names=sorted(said.topics),
            subscribed_topic_regex=said.regex or "",
            topic_partitions=_by_id(owned),
        )

    @property
    def said(self) -> object:
        """The values last sent, for comparison."""
        return self._said


class HeartbeatDepartures(Departures):
    """Sends the last heartbeat. The member id is known from the start.

    A static member reports a temporary absence: its place is kept, and the next process with its name may take it at
    once.
    """

    def add(
        self, now: int, group: GroupMetadata, joining: Request | None, reason: str, *, awaited: bool = False
    ) -> None:
        if self.goodbye is not False:
            super().add(now, group, joining, reason, awaited=awaited)

    def _goodbye(self, departure: Departure) -> Any:
        for_good = departure.instance_id is None or self.goodbye is True
        return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._config.group_id or "",
            member_id=departure.member_id,
            member_epoch=_LEAVES if for_good else _LEAVES_FOR_A_WHILE,
            instance_id=departure.instance_id,
        )


def _by_id(owned: Mapping[TopicPartition, bytes]) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for partition in sorted(owned):
        topics.setdefault(owned[partition], []).append(partition.partition)
    return [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in topics.items()]


_OWNING: Final = (State.STABLE, State.RECONCILING, State.ACKNOWLEDGING)
"""In the group, and not about to leave it."""

_OUR_DOING: Final = "subscription changed"
_ECHO_MS: Final = 5_000
"""For this long (ms) after sending a changed subscription, or three intervals, a new assignment is attributed to it.

The broker may delay the assignment (KIP-1263), which then comes with a later response.
"""


class ConsumerMembership(EpochMember):
    """One member of a KIP-848 group.

    It has the interface of `kadence.consumer.group.membership.Membership`.

    Args:
        coordinator, metadata, config, add_event, new_id: as for `EpochMember`. subscription: the topics to join with;
            assignments are installed in it.
        min_version: of the heartbeat.
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        subscription: Subscription,
        metadata: ClusterView,
        config: GroupConfig,
        add_event: AddBackgroundEvent,
        new_id: Callable[[], str] = new_member_id,
        *,
        min_version: int = 0,
    ) -> None:
        departures = HeartbeatDepartures(config, coordinator)
        super().__init__(coordinator, metadata, config, add_event, departures, new_id)
        self._subscription = subscription
        self._min_version = min_version
        self._history = RebalanceHistory(add_event)
        self._partitions = AssignmentReconciler(subscription, add_event)
        self._owned_ids: dict[TopicPartition, bytes] = {}
        self._round = 0
        self._round_owed = False
        self._acknowledged: frozenset[TopicPartition] | None = None
        """The owned partitions it last reported; None before the first time."""
        self._heartbeat_state = HeartbeatState(config, subscription)
        # The native thread's heartbeat, with its inputs.
        self._native_heartbeat: tuple[tuple[object, ...], Any] | None = None
        self._echo_until = -1

    # ------------------------------------------------------------ the state

    @property
    def managed(self) -> bool:
        return self._subscription.by_group

    @property
    def settled(self) -> bool:
        return self.state in HEARTBEATING

    @property
    def urgent(self) -> bool:
        if self.state is State.PREPARE_LEAVING:
            return self._heartbeat_state.forgotten
        return self._listens or self._heartbeat_state.owes(self._round, subscription=not self.needs_polled)

    @property
    def _names_something(self) -> bool:
        return bool(self._subscription.topics) or self._subscription.regex is not None

    @property
    def _is_matched_by_broker(self) -> bool:
        return self._subscription.regex is not None

    def __repr__(self) -> str:
        group = self.group
        return (
            f"<consumer member {group.member_id or '-'} of {group.group_id} {self.state.name} "
            f"epoch={group.generation_id} partitions={len(self._subscription.partitions)}>"
        )

    # ------------------------------------------------------------ the application's calls

    def subscription_changed(self, now: int) -> None:
        super().subscription_changed(now)
        self._partitions.subscription_changed()

    def rebalance(self, now: int, reason: str) -> None:
        """The broker assigns whenever there is a reason; a member cannot request it (KIP-848)."""
        del now
        log.warning(
            "group %s: enforce_rebalance(%r) does nothing: with KIP-848 the broker decides when to rebalance",
            self.group.group_id,
            reason,
        )

    def callback_done(self, now: int, callback_id: int, error: str | None) -> None:
        """The application ran a callback. An exception of it changes nothing: the group cannot wait."""
        if error is not None:
            log.warning("group %s: a rebalance callback raised %s", self.group.group_id, error)
        for partition in self._partitions.done(callback_id):
            self._owned_ids.pop(partition, None)
        if self.state is State.PREPARE_LEAVING:
            if not self._partitions.revoking:
                self._depart(now)
        else:
            self._reconcile(now)

    @property
    def needs_kip_848(self) -> bool:
        """Whether only this protocol supports the subscription."""
        return self._subscription.regex is not None

    def refuse_classic_group(self, now: int) -> None:
        """It may not even try to join: the poll raises the reason, and the next one tries again (B6)."""
        del now
        error = explain_classic_members(self.group.group_id, self._subscription.regex or "")
        log.error("group %s: %s", self.group.group_id, error)
        self.needs_polled = True
        self._add_event(Failed(error, gave_up=True))

    def give_way(self, now: int) -> None:
        """The join was refused and will be tried in another protocol: leave without a request."""
        self._announced = False
        self.leave(now, reason="another protocol", callbacks=False)

    # ------------------------------------------------------------ heartbeats

    def _new_heartbeat(self, node_id: int, deadline: int) -> Request:
        owned = {partition: self._owned_ids[partition] for partition in self._subscription.partitions}
        joins = self.state is State.JOINING
        message, changed = self._heartbeat_state.message(self.group, self._round, owned, joins=joins)
        if self.state is State.ACKNOWLEDGING:
            self._go(State.RECONCILING if self._unresolved else State.STABLE)
        return Request(
            message,
            node_id,
            deadline,
            ConnectionPurpose.GROUP,
            tag=_OUR_DOING if changed else None,
            min_version=max(self._min_version, WITH_REGEX if self._subscription.regex is not None else 0),
        )

    def native_heartbeat(self) -> Any:
        if self.state not in HEARTBEATING or self.group.generation_id <= 0:
            return None
        made_of = (self.group, self._subscription.snapshot, self._heartbeat_state.said)
        if self._native_heartbeat is None or self._native_heartbeat[0] != made_of:
            owned = {partition: self._owned_ids[partition] for partition in self._subscription.partitions}
            self._native_heartbeat = made_of, self._heartbeat_state.everything(self.group, self._round, owned)
        return self._native_heartbeat[1]

    def _may_bring_partitions(self, message: Any) -> bool:
        return message.topic_partitions is not None or message.subscribed_topic_names is not None

    def _forget_said(self) -> None:
        self._heartbeat_state.forget()

    def _explained(self, code: int, message: str | None) -> KafkaError:
        regex = self._subscription.regex
        return explain_heartbeat(code, message, self.group.group_id, self._config, regex)

    def _explained_transport(self, error: KafkaError) -> KafkaError:
        return explain_heartbeat_transport(error, self._subscription.regex)

    # ------------------------------------------------------------ reconciliation

    def _assign(self, now: int, request: Request, target: Target | None) -> None:
        if request.tag is _OUR_DOING:
            self._echo_until = add_ms(now, max(_ECHO_MS, SILENT_INTERVALS * self.heartbeat_interval_ms))
        if target is not None and target != self._target:
            ours = now <= self._echo_until
            self._echo_until = -1
            self._assigned(now, target, _OUR_DOING if ours else "the coordinator made a new assignment")

    def _assigned(self, now: int, target: Target, cause: str) -> None:
        self._target, self._round_owed = target, True
        self._history.begin(now, cause)
        if self.state is not State.RECONCILING:
            self._go(State.RECONCILING)
        self._reconcile(now)

    def _reconcile(self, now: int) -> None:
        """Take the next step towards the target, unless the application still has to take one."""
        if self.state is not State.RECONCILING or self._partitions.revoking:
            return
        resolved = self._resolve(now)
        owned = self._subscription.assigned
        # A recreated topic has another id: the old partitions of the name are revoked before the new ones are added.
        going = frozenset(p for p in owned if resolved.get(p) != self._owned_ids[p])
        if going:
            self._partitions.target = owned - going
            self._partitions.reconcile()
            return
        target = frozenset(resolved)
        if not (self._round_owed or target - owned):
            return
        if self._unresolved and target == owned == self._acknowledged:
            return  # no new topic has a name yet: nothing to report
        self._partitions.target = target
        self._partitions.reconcile(self._history.finish(now, self.group, target))
        self._owned_ids = resolved
        self._round_owed = False
        self._round += 1
        self._acknowledged = target
        self._go(State.ACKNOWLEDGING)

    def _look_at_cluster(self, now: int) -> None:
        """Partitions of a recreated topic are not ours: those of the new topic are not assigned yet.

        Another member may get them, and we would read them, too, under the old name.
        """
        cluster = self._metadata.cluster
        if not self._unresolved:
            self._cluster = cluster
        if self._target is None or self.state not in _OWNING:
            return
        if any(cluster.is_made_anew(p.topic, topic_id) for p, topic_id in self._owned_ids.items()):
            self._assigned(now, self._target, "a topic was deleted and created again")

    def _give_up_partitions(self) -> bool:
        self._partitions.revoke(self._subscription.assigned)
        return bool(self._partitions.revoking)

    def _lose(self, *, leaves: bool) -> None:
        self._partitions.lose()
        if leaves:
            self._history.forget()

    def _joins(self, now: int, cause: str) -> None:
        self._history.begin(now, cause)

    def _gave_up(self, now: int, why: str) -> None:
        self._history.give_up(now, why, self.group)

    def _reset(self) -> None:
        super()._reset()
        self._acknowledged = None
        self._owned_ids = {}
        self._round_owed = False
        self._heartbeat_state.reset()
        self._echo_until = -1
        self._history.abandon()

    # ------------------------------------------------------------ commits

    def tenure(self, partition: TopicPartition) -> PartitionState | None:
        return self._subscription.partitions.get(partition)

    def commit_refused(self, now: int, sent: GroupMetadata, code: int) -> bool:
        current = self.settled and sent == self.group
        if code == error_codes.FENCED_INSTANCE_ID:
            if current:
                self._fatal(now, self._explained(code, None))
            return False
        if not current:
            return self.settled
        if code in (error_codes.STALE_MEMBER_EPOCH, error_codes.REBALANCE_IN_PROGRESS):
            # The broker is an epoch ahead, and reports it in its next response.
            self._heartbeat_state.forget()
            return True
        self._fenced(now, code)
        return False
