"""The states of a KIP-848 member, what it says in its heartbeats, and the way to the target that the answers give it.

The answer to a heartbeat brings the target, and a later heartbeat acknowledges it. Between the two the member goes
there by steps: what goes is revoked first, then what comes is added.

States and their table are Kafka's, with two differences. A member that failed for good (FATAL) tries again when
the application polls after it was told why, as after every refusal (B6). And UNSUBSCRIBED cannot begin to
leave: a member that is not in the group has nothing to leave.

A heartbeat tells each thing once, and everything again when an answer was lost (`HeartbeatState`). A field that it
leaves out means "as I said last time". So the member remembers what it said, and forgets that with any failure: what is
told in full repairs whatever got lost. A restarted coordinator needs nothing else. Its last heartbeat is its goodbye
(`HeartbeatDepartures`).
"""

from __future__ import annotations

import abc
import dataclasses
import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, ConnectionPurpose, Request
from kadence.consumer.events import AddBackgroundEvent, Failed, IdentityChanged
from kadence.consumer.group.assignment_reconciler import AssignmentReconciler, RebalanceHistory
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.leaving import (
    Departure,
    Departures,
    explain_heartbeat,
    explain_heartbeat_transport,
)
from kadence.consumer.group.membership import SENT_NATIVELY, ClusterView, GroupConfig, HeartbeatOutcome
from kadence.consumer.subscription import Subscription
from kadence.errors import KafkaError
from kadence.logs import logger
from kadence.protocol import consumer_group_heartbeat, error_codes
from kadence.protocol.consumer_group_heartbeat import TopicPartitions
from kadence.types import GroupMetadata, TopicPartition
from kadence.wire import Writer

__all__ = [
    "HEARTBEATING",
    "OUT",
    "SILENT_INTERVALS",
    "STUMBLES",
    "TRANSITIONS",
    "ConsumerGroupHeartbeatRequest",
    "ConsumerHeartbeats",
    "HeartbeatDepartures",
    "State",
]

log = logger("kadence.consumer")

WITH_REGEX: Final = 1
"""The version of the heartbeat that can carry one."""

_LEAVES: Final = -1
_LEAVES_FOR_A_WHILE: Final = -2


class ConsumerGroupHeartbeatRequest(consumer_group_heartbeat.ConsumerGroupHeartbeatRequest):
    """Holds an empty ``subscribed_topic_regex`` beside names (v1+): none, where null would leave an earlier one.

    One that is not empty cannot be left out: writing it in version 0 raises `VersionError`.
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
    """The memory of one membership's heartbeats.

    Attributes:
        announced: whether anything was said at all: a broker may know of this membership.
    """

    def __init__(self, config: GroupConfig, subscription: Subscription) -> None:
        self.announced = False
        self._config = config
        self._subscription = subscription
        self._topics: frozenset[str] = frozenset()
        self._said: _SentFields | None = None

    def forget(self) -> None:
        """It is not known whether the broker heard the last one: the next one says everything."""
        self._said = None

    def reset(self) -> None:
        """Another membership."""
        self.announced = False
        self._topics, self._said = frozenset(), None

    @property
    def forgotten(self) -> bool:
        return self._said is None

    def owes(self, round_: int, *, subscription: bool) -> bool:
        """Whether there is something to say before the interval is over.

        Args:
            round_: the latest acknowledgement. subscription: whether a changed one is to be told already.
        """
        said = self._said
        if said is None or said.round != round_:
            return True
        return subscription and (said.topics != self._topics_now() or said.regex != self._subscription.regex)

    def _says(self, round_: int) -> _SentFields:
        return _SentFields(self._topics_now(), self._subscription.regex, round_)

    def _topics_now(self) -> frozenset[str]:
        """A pattern that matches nothing any more changes nothing: the broker refuses an empty subscription."""
        subscription = self._subscription
        return frozenset() if subscription.regex is not None else subscription.topics or self._topics

    def message(
        self, group: GroupMetadata, round_: int, owned: Mapping[TopicPartition, bytes], *, joins: bool
    ) -> tuple[ConsumerGroupHeartbeatRequest, bool]:
        """The next heartbeat, which from now on counts as said.

        Args:
            group: who says it. owned: partitions with the ids of their topics; nothing when it ``joins``.

        Returns:
            It, and whether it changes the subscription of a member.
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
        self._said, self._topics, self.announced = says, says.topics, True
        return message, before is not None and retold

    def everything(
        self, group: GroupMetadata, round_: int, owned: Mapping[TopicPartition, bytes]
    ) -> ConsumerGroupHeartbeatRequest:
        """All that was said, once more; counts as nothing new. The native thread may send it any number of times.

        A broker that has assigned anew in an answer that nobody has read takes the member for one whose answer was
        lost, if it says with its old epoch what it owns, and tells the assignment again. To a shorter heartbeat it
        would answer FENCED_MEMBER_EPOCH.
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
        """What was said last, to be compared."""
        return self._said


class HeartbeatDepartures(Departures):
    """Says the last heartbeat. The member id is known from the start.

    A static member says that it goes for a while: its place is kept, and the next process of its name may take it
    at once.
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


class State(enum.Enum):
    """Kafka's names."""

    UNSUBSCRIBED = "not in the group"
    JOINING = "its first heartbeat, with epoch 0, is not accepted yet"
    RECONCILING = "going from what it owns to what it was assigned"
    ACKNOWLEDGING = "owns what it was assigned; the next heartbeat, sent at once, says so"
    STABLE = "owns what it was assigned, and the broker knows it"
    FENCED = "the broker has removed it: its partitions are lost, and it joins again"
    PREPARE_LEAVING = "partitions must be given up before it leaves"
    LEAVING = "its last heartbeat, with epoch -1 or -2, must be sent"
    FATAL = "refused permanently; the application gets the error"
    STALE = "left because the application did not poll"


OUT: Final = frozenset({State.UNSUBSCRIBED, State.FATAL, State.STALE})
"""Not in the group, and not on the way into or out of it."""

# A tuple, which finds a state without a call of its hash.
HEARTBEATING: Final = (State.STABLE, State.RECONCILING, State.ACKNOWLEDGING, State.PREPARE_LEAVING)
"""In the group with an epoch that heartbeats keep alive."""

_OWNING: Final = (State.STABLE, State.RECONCILING, State.ACKNOWLEDGING)
"""In the group, and not about to leave it."""

_ENDS: Final = frozenset({State.FENCED, State.PREPARE_LEAVING, State.FATAL})

TRANSITIONS: Final[Mapping[State, frozenset[State]]] = {
    State.UNSUBSCRIBED: frozenset({State.JOINING}),
    State.JOINING: _ENDS | {State.RECONCILING, State.STABLE},
    State.RECONCILING: _ENDS | {State.ACKNOWLEDGING},
    State.ACKNOWLEDGING: _ENDS | {State.RECONCILING, State.STABLE},
    State.STABLE: _ENDS | {State.RECONCILING},
    State.FENCED: frozenset({State.JOINING, State.UNSUBSCRIBED}),
    State.PREPARE_LEAVING: frozenset({State.LEAVING, State.FENCED, State.FATAL}),
    State.LEAVING: frozenset({State.UNSUBSCRIBED, State.STALE}),
    State.FATAL: frozenset({State.JOINING, State.UNSUBSCRIBED}),
    State.STALE: frozenset({State.JOINING, State.UNSUBSCRIBED}),
}


_REJOIN: Final = frozenset(
    {
        error_codes.FENCED_MEMBER_EPOCH,
        error_codes.UNKNOWN_MEMBER_ID,
        # Kafka's client gives up here, although joining makes the group anew.
        error_codes.GROUP_ID_NOT_FOUND,
    }
)
STUMBLES: Final = 8
"""How often a join is repeated that the broker failed to serve, some five seconds in all.

Kafka 4.3 fails so (UNKNOWN_SERVER_ERROR) at a classic group that it should convert while that is in its first
rebalance, which takes three seconds (group.initial.rebalance.delay.ms).
"""
SILENT_INTERVALS: Final = 3
"""Heartbeats without an answer that are too many."""
_SOON_MS: Final = 1_000
"""group.consumer.assignment.interval.ms (KIP-1263): how long the broker may think about who gets what."""
_OUR_DOING: Final = "subscription changed"
_ECHO_MS: Final = 5_000
"""For so long after a changed subscription was told, or three intervals, another assignment is put down to it.

The broker may think about it for a moment (KIP-1263), and the answer comes with a later heartbeat.
"""


class ConsumerHeartbeats(abc.ABC):
    """Sends a KIP-848 member's heartbeats and takes the member to the assignment in their answers.

    `ConsumerMembership` adds the application's subscription, being fenced, and leaving.

    Args:
        coordinator: finds the broker; a fatal error of its own ends the attempt to join.
        subscription: what to join with, and where assignments are installed.
        metadata: the names of topic ids.
        config: the group's keys.
        add_event: background events for the application.
        min_version: of the heartbeat.
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        subscription: Subscription,
        metadata: ClusterView,
        config: GroupConfig,
        add_event: AddBackgroundEvent,
        *,
        min_version: int,
    ) -> None:
        self.state = State.UNSUBSCRIBED
        self.heartbeat_interval_ms = config.heartbeat_interval_ms
        self._config = config
        self._coordinator = coordinator
        self._subscription = subscription
        self._metadata = metadata
        self._add_event = add_event
        self._min_version = min_version
        self.group = self._nobody()
        self._history = RebalanceHistory(add_event)
        self._partitions = AssignmentReconciler(subscription, add_event)
        self._target: Mapping[bytes, frozenset[int]] | None = None
        self._names: dict[bytes, str] = {}
        self._owned_ids: dict[TopicPartition, bytes] = {}
        self._unresolved = False
        self._cluster: object = None
        self._round = 0
        self._round_owed = False
        self._acknowledged: frozenset[TopicPartition] | None = None
        """What it told last that it owns; None before the first time."""
        self._heartbeat_state = HeartbeatState(config, subscription)
        self._unanswered: Request | None = None
        # An answer to a native heartbeat, with whatever epoch it brought, was not taken since the last heartbeat from
        # here.
        self._passed_over = False
        # What the native thread may say, with what it was made of.
        self._native_heartbeat: tuple[tuple[object, ...], Any] | None = None
        self._echo_until = -1
        self._listens = False
        self._listen_at, self._listens_until = FOREVER, 0
        self._refusals = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._stumbles = 0
        self.on_stumble: Callable[[int], HeartbeatOutcome] = lambda now: HeartbeatOutcome.RETRY
        """What becomes of a join that the broker failed to serve; see `STUMBLES`."""

    @abc.abstractmethod
    def _fenced(self, now: int, code: int) -> None:
        """The coordinator goes on without this epoch."""

    @abc.abstractmethod
    def _fatal(self, now: int, error: KafkaError) -> None:
        """Give up until the application polls again."""

    # ------------------------------------------------------------ heartbeats

    def heartbeat(self, deadline: int) -> Request:
        if self._unanswered is not None:
            self._heartbeat_state.forget()
        self._listens, self._listen_at = False, FOREVER
        self._passed_over = False
        owned = {partition: self._owned_ids[partition] for partition in self._subscription.partitions}
        joins = self.state is State.JOINING
        message, changed = self._heartbeat_state.message(self.group, self._round, owned, joins=joins)
        if self.state is State.ACKNOWLEDGING:
            self._go(State.RECONCILING if self._unresolved else State.STABLE)
        node_id = self._coordinator.node_id
        assert node_id is not None
        self._unanswered = Request(
            message,
            node_id,
            deadline,
            ConnectionPurpose.GROUP,
            tag=_OUR_DOING if changed else None,
            min_version=max(self._min_version, WITH_REGEX if self._subscription.regex is not None else 0),
        )
        return self._unanswered

    def native_heartbeat(self) -> Any:
        if self.state not in HEARTBEATING or self.group.generation_id <= 0:
            return None
        made_of = (self.group, self._subscription.snapshot, self._heartbeat_state.said)
        if self._native_heartbeat is None or self._native_heartbeat[0] != made_of:
            owned = {partition: self._owned_ids[partition] for partition in self._subscription.partitions}
            self._native_heartbeat = made_of, self._heartbeat_state.everything(self.group, self._round, owned)
        return self._native_heartbeat[1]

    def on_heartbeat(self, now: int, completed: Completed) -> HeartbeatOutcome:
        latest = completed.request is self._unanswered
        if completed.request.tag is SENT_NATIVELY:
            if (
                completed.error is not None
                or self._unanswered is not None
                or not self._sent_as_now(completed)
            ):
                # What it may have brought is told again to who says everything.
                self._heartbeat_state.forget()
                self._passed_over = True
            else:
                latest = True
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if latest:
                self._unanswered = None
                self._heartbeat_state.forget()
            if completed.error.retriable or not latest:
                return HeartbeatOutcome.RETRY
            self._fatal(now, explain_heartbeat_transport(completed.error, self._subscription.regex))
            return HeartbeatOutcome.LOST
        answer: Any = completed.response
        code = answer.error_code
        self._coordinator.check(now, completed.request.node_id, code)
        if not latest:
            return HeartbeatOutcome.ALIVE
        self._unanswered = None
        if code == error_codes.NONE:
            self._accepted(now, completed.request, answer)
            return HeartbeatOutcome.ALIVE
        self._heartbeat_state.forget()
        if code in error_codes.RETRIABLE:
            return HeartbeatOutcome.RETRY
        if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
            # The broker keeps the member as it was; an ACL that comes back mends it without a rebalance.
            self._add_event(Failed(self._explained(code, answer.error_message)))
            return HeartbeatOutcome.RETRY
        epoch = completed.request.message.member_epoch
        if code == error_codes.FENCED_MEMBER_EPOCH and (
            self._passed_over
            or (completed.request.tag is SENT_NATIVELY and epoch != self.group.generation_id)
        ):
            # The native thread repeats an epoch, and so may one heartbeat from here beside it. When answers in between
            # have brought another, the old one is refused, which ends no membership: who says everything hears the new
            # one.
            return HeartbeatOutcome.RETRY
        joined = epoch > 0
        if code == error_codes.UNKNOWN_SERVER_ERROR and not joined and self._stumbles < STUMBLES:
            self._stumbles += 1
            return self.on_stumble(now)
        if code in _REJOIN and (joined or code != error_codes.GROUP_ID_NOT_FOUND):
            self._fenced(now, code)
            return HeartbeatOutcome.RETRY
        self._fatal(now, self._explained(code, answer.error_message))
        return HeartbeatOutcome.LOST

    def _sent_as_now(self, completed: Completed) -> bool:
        """Whether the answer to a native heartbeat is one to the present identity, which may be another by now."""
        member_id: str = completed.request.message.member_id
        return self.state in HEARTBEATING and member_id == self.group.member_id

    def _accepted(self, now: int, request: Request, answer: Any) -> None:
        if answer.heartbeat_interval_ms > 0:
            self.heartbeat_interval_ms = answer.heartbeat_interval_ms
        if answer.member_epoch <= 0:
            # Heard, but no part of the group yet (librdkafka's mock answers so): join again an interval later.
            return
        self._refusals.succeeded()
        self._stumbles = 0
        group = dataclasses.replace(
            self.group,
            member_id=answer.member_id or self.group.member_id,
            generation_id=answer.member_epoch,
        )
        if group != self.group:
            self.group = group
            self._add_event(IdentityChanged(group))
        if self.state is State.PREPARE_LEAVING:
            return
        if request.tag is not SENT_NATIVELY:
            self._listen(now, request)
        if request.tag is _OUR_DOING:
            self._echo_until = add_ms(now, max(_ECHO_MS, SILENT_INTERVALS * self.heartbeat_interval_ms))
        if answer.assignment is not None:
            target = {
                topic.topic_id: frozenset(topic.partitions) for topic in answer.assignment.topic_partitions
            }
            if target != self._target:
                ours = now <= self._echo_until
                self._echo_until = -1
                self._assigned(now, target, _OUR_DOING if ours else "the coordinator assigned anew")
        if self.state is State.JOINING:
            self._go(State.STABLE)

    def _listen(self, now: int, request: Request) -> None:
        """Who has just said something that partitions may come of asks again soon, for as long as that may take.

        An interval is five seconds, and the broker answers a join before it has assigned: a lone member that is
        restarted would wait for all of it.
        """
        message = request.message
        if message.topic_partitions is not None or message.subscribed_topic_names is not None:
            self._listens_until = add_ms(now, self.heartbeat_interval_ms + 2 * _SOON_MS)
        soon = add_ms(now, _SOON_MS)
        regular = add_ms(now, self.heartbeat_interval_ms)
        self._listen_at = soon if soon < min(self._listens_until, regular) else FOREVER

    # ------------------------------------------------------------ reconciliation

    def _assigned(self, now: int, target: Mapping[bytes, frozenset[int]], cause: str) -> None:
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
        # A topic that was made anew has another id: its partitions of the same name go before they come.
        going = frozenset(p for p in owned if resolved.get(p) != self._owned_ids[p])
        if going:
            self._partitions.target = owned - going
            self._partitions.reconcile()
            return
        target = frozenset(resolved)
        if not (self._round_owed or target - owned):
            return
        if self._unresolved and target == owned == self._acknowledged:
            return  # all that is new has no name yet: there is nothing to tell anybody of
        self._partitions.target = target
        self._partitions.reconcile(always=True)
        self._owned_ids = resolved
        self._round_owed = False
        self._round += 1
        self._acknowledged = target
        self._history.finish(now, self.group, target)
        self._go(State.ACKNOWLEDGING)

    def _give_up_deleted(self, now: int) -> None:
        """Partitions of a topic that was made anew are not ours: nobody has assigned those of the new one yet.

        Another member may get them, beside whom we would read them under their old name.
        """
        cluster = self._metadata.cluster
        if not self._unresolved:
            self._cluster = cluster
        if self._target is None or self.state not in _OWNING:
            return
        if any(cluster.is_made_anew(p.topic, topic_id) for p, topic_id in self._owned_ids.items()):
            self._assigned(now, self._target, "a topic was deleted and created again")

    def _resolve(self, now: int) -> dict[TopicPartition, bytes]:
        """The target in names, with their ids. What metadata cannot name yet is asked for; the rest goes on."""
        cluster, target = self._metadata.cluster, self._target or {}
        known = self._names | cluster.names_of(target.keys() - self._names.keys())
        self._names = {topic_id: known[topic_id] for topic_id in target if topic_id in known}
        names = {
            topic_id: name
            for topic_id, name in self._names.items()
            if not cluster.is_made_anew(name, topic_id)
        }
        self._unresolved, self._cluster = len(names) < len(target), cluster
        by_broker = self._subscription.regex is not None
        # Which topics a regex means is known by their ids in assignments only, and by nothing before that.
        self._metadata.want(frozenset(self._names.values()) if by_broker else frozenset())
        self._metadata.identify(frozenset(target.keys() - self._names.keys()) if by_broker else frozenset())
        if len(self._names) < len(target) and not by_broker:
            self._metadata.request_update(now)
        return {
            TopicPartition(name, number): topic_id
            for topic_id, name in names.items()
            for number in target[topic_id]
        }

    def _nobody(self) -> GroupMetadata:
        return GroupMetadata(self._config.group_id or "", group_instance_id=self._config.group_instance_id)

    def _explained(self, code: int, message: str | None) -> KafkaError:
        regex = self._subscription.regex
        return explain_heartbeat(code, message, self.group.group_id, self._config, regex)

    def _go(self, state: State) -> None:
        if state is self.state:
            return
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"
        self.state = state
        log.debug("group %s: %s", self.group.group_id, repr(self))
