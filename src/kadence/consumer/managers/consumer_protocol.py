"""One member of a KIP-848 group: everything is said by ConsumerGroupHeartbeat (C4, C5).

    UNSUBSCRIBED ─polled─> JOINING ─accepted─> RECONCILING ─owns its target─> ACKNOWLEDGING ─said so─> STABLE
                              ▲                     ▲                              └──── new target ────┘
                            FENCED                  └──────────────── new target ───────────────────────┘

The whole table is `consumer_states.TRANSITIONS`. The broker assigns; a member goes from what it owns to what
it was assigned in the background, one target at a time: what goes is revoked when the application has time for
it, then what comes is added, then the next heartbeat, sent at once, acknowledges. What stays keeps flowing.

Rules that are easy to lose:

* States that end with a heartbeat end when it is made, not when it is answered: a failure makes the next one say
  everything (`telling`), so a lost acknowledgement is repaired (T3).
* Only the answer to the latest heartbeat counts (T2): an earlier one, overtaken after the coordinator moved,
  tells nothing that the full heartbeat after it will not.
* Each membership has a member id of its own making (KIP-1082), kept when it is fenced. A goodbye that is late
  can then not hit the next membership.
"""

from __future__ import annotations

import base64
import dataclasses
import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Completed, Request
from kadence.consumer.border.messages import Failed, IdentityChanged
from kadence.consumer.managers.base import Backoff, Outbox, Poll
from kadence.consumer.managers.consumer_states import BEATING, OUT, TRANSITIONS, State
from kadence.consumer.managers.coordinator import CoordinatorManager
from kadence.consumer.managers.handover import Handover
from kadence.consumer.managers.leaving import HeartbeatDepartures
from kadence.consumer.managers.membership import ClusterView, GroupConfig, Verdict
from kadence.consumer.managers.refusals import (
    explain_classic_members,
    explain_heartbeat,
    explain_heartbeat_transport,
)
from kadence.consumer.managers.states import Chronicle
from kadence.consumer.managers.telling import WITH_REGEX, Telling
from kadence.consumer.state.subscription import PartitionState, Subscription
from kadence.errors import FencedInstanceIdError, KafkaError
from kadence.protocol import error_codes
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["STUMBLES", "ConsumerMembership", "new_member_id"]

log = logging.getLogger("kadence.consumer")

_REJOIN: Final = frozenset(
    {
        error_codes.FENCED_MEMBER_EPOCH,
        error_codes.UNKNOWN_MEMBER_ID,
        # Kafka's client gives up here although joining makes the group anew (T14).
        error_codes.GROUP_ID_NOT_FOUND,
    }
)
STUMBLES: Final = 8
"""How often a join is repeated that the broker failed to serve, some five seconds in all.

Kafka 4.3 fails so (UNKNOWN_SERVER_ERROR) at a classic group that it should convert while that is in its first
rebalance, which takes three seconds (group.initial.rebalance.delay.ms).
"""
_SILENT_INTERVALS: Final = 3
_SOON_MS: Final = 1_000
"""group.consumer.assignment.interval.ms (KIP-1263): how long the broker may think about who gets what."""
_OUR_DOING: Final = "subscription changed"
_ECHO_MS: Final = 5_000
"""For so long after a changed subscription was told, or three intervals, another assignment is put down to it.

The broker may think about it for a moment (KIP-1263), and the answer comes with a later heartbeat.
"""


def new_member_id() -> str:
    """A random UUID in Kafka's URL-safe base64; never one that a command line would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


class ConsumerMembership:
    """See the head of this file; the interface is `kadence.consumer.managers.membership.Membership`.

    Args:
        coordinator: finds the broker; a fatal error of its own ends the attempt to join.
        subscription: what to join with, and where assignments are installed.
        metadata: the names of topic ids.
        config: the group's keys.
        outbox: facts for the application.
        new_id: makes member ids.
        min_version: of the heartbeat.
    """

    def __init__(
        self,
        coordinator: CoordinatorManager,
        subscription: Subscription,
        metadata: ClusterView,
        config: GroupConfig,
        outbox: Outbox,
        new_id: Callable[[], str] = new_member_id,
        *,
        min_version: int = 0,
    ) -> None:
        self.state = State.UNSUBSCRIBED
        self.needs_polled = False
        self.heartbeat_interval_ms = config.heartbeat_interval_ms
        self._config = config
        self._coordinator = coordinator
        self._subscription = subscription
        self._metadata = metadata
        self._outbox = outbox
        self._new_id = new_id
        self._min_version = min_version
        self.group = self._nobody()
        self._departures = HeartbeatDepartures(config, coordinator)
        self._chronicle = Chronicle(outbox)
        self._partitions = Handover(subscription, outbox)
        self._target: Mapping[bytes, frozenset[int]] | None = None
        self._names: dict[bytes, str] = {}
        self._owned_ids: dict[TopicPartition, bytes] = {}
        self._unresolved = False
        self._cluster: object = None
        self._round = 0
        self._round_owed = False
        self._acknowledged: frozenset[TopicPartition] | None = None
        """What it told last that it owns; None before the first time."""
        self._telling = Telling(config, subscription)
        self._unanswered: Request | None = None
        self._echo_until = -1
        self._listens = False
        self._listen_at, self._listens_until = FOREVER, 0
        self._leave_reason = ""
        self._becomes_stale = False
        self._comes_back = False
        self._refusals = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._held_back = False
        self._stumbles = 0
        coordinator.on_failed.append(self._coordinator_failed)

    # ------------------------------------------------------------ what others ask

    @property
    def managed(self) -> bool:
        return self._subscription.by_group

    @property
    def active(self) -> bool:
        return self.state in BEATING or (self.state is State.JOINING and self._may_join)

    @property
    def joining(self) -> bool:
        return self.state is State.JOINING and not self._may_join

    @property
    def settled(self) -> bool:
        return self.state in BEATING

    @property
    def left(self) -> bool:
        return self.state in OUT and self._departures.done

    @property
    def term(self) -> object:
        return self.group.member_id

    @property
    def urgent(self) -> bool:
        if self.state is State.PREPARE_LEAVING:
            return self._telling.forgotten
        return self._listens or self._telling.owes(self._round, subscription=not self.needs_polled)

    @property
    def session_timeout_ms(self) -> int:
        """The session is the broker's affair and not told: so much silence is too much whatever it is."""
        return max(self._config.session_timeout_ms, _SILENT_INTERVALS * self.heartbeat_interval_ms)

    @property
    def _may_join(self) -> bool:
        """Not before there is something to join with (T15), nor in a spin after refusals.

        And a static member not before its own goodbye was heard.
        """
        static = self._config.group_instance_id is not None
        names_something = bool(self._subscription.topics) or self._subscription.regex is not None
        return names_something and not self._held_back and (self._departures.done or not static)

    def __repr__(self) -> str:
        group = self.group
        return (
            f"<consumer member {group.member_id or '-'} of {group.group_id} {self.state.name} "
            f"epoch={group.generation_id} partitions={len(self._subscription.partitions)}>"
        )

    # ------------------------------------------------------------ what the application wants

    def subscription_changed(self, now: int) -> None:
        """subscribe() was called; the next poll joins with it, or tells the broker of it."""
        if self.state is State.PREPARE_LEAVING:
            self._depart(now)
        self._partitions.subscription_changed()
        self.needs_polled = self.managed

    def polled(self, now: int) -> None:
        """The application polls: what waited for that may begin."""
        if not self.needs_polled:
            return
        self.needs_polled = False
        if not self.managed:
            return
        if self.state is State.UNSUBSCRIBED:
            self._join(now, "first join")
        elif self.state is State.STALE:
            self._join(now, "poll interval exceeded")
        elif self.state is State.FATAL:
            self._held_back = not self._refusals.ready(now)
            self._join(now, "joining was refused before")
        elif self.state is State.LEAVING:
            self._comes_back = True

    def rebalance(self, now: int, reason: str) -> None:
        """The broker assigns whenever there is a reason to; a member cannot ask for it (KIP-848)."""
        del now
        log.warning(
            "group %s: enforce_rebalance(%r) does nothing: with KIP-848 the broker decides when to rebalance",
            self.group.group_id,
            reason,
        )

    def callback_done(self, now: int, callback_id: int, error: str | None) -> None:
        """The application ran a callback. What it raised changes nothing: the group cannot wait for it (T17)."""
        if error is not None:
            log.warning("group %s: a rebalance callback raised %s", self.group.group_id, error)
        for partition in self._partitions.done(callback_id):
            self._owned_ids.pop(partition, None)
        if self.state is State.PREPARE_LEAVING:
            if not self._partitions.revoking:
                self._depart(now)
        else:
            self._reconcile(now)

    def leave(self, now: int, *, reason: str, callbacks: bool = True, goodbye: bool | None = None) -> None:
        """Leave the group: give the partitions up (RevokePartitions), then say so; see `left`.

        Args:
            reason: for the log; this protocol has no place for it.
            callbacks: False when no application is there to run them (or its time is over).
            goodbye: whether to leave for good, or not to tell; None: as the kind of member does (KIP-1092).
        """
        self._departures.goodbye = goodbye
        self.needs_polled = self._comes_back = self._becomes_stale = False
        if self.state in OUT:
            self._go(State.UNSUBSCRIBED)
        if self.state in (State.UNSUBSCRIBED, State.LEAVING):
            return
        self._leave_reason = reason
        if self.state is not State.PREPARE_LEAVING:
            self._go(State.PREPARE_LEAVING)
            if callbacks:
                self._partitions.revoke(self._subscription.assigned)
        if not (callbacks and self._partitions.revoking):
            self._depart(now)

    @property
    def needs_kip_848(self) -> bool:
        """Whether the subscription is one that only this protocol can carry."""
        return self._subscription.regex is not None

    def refuse_classic_group(self, now: int) -> None:
        """It may not even try to join: the application is told why, and its next poll tries again (B6)."""
        del now
        error = explain_classic_members(self.group.group_id, self._subscription.regex or "")
        log.error("group %s: %s", self.group.group_id, error)
        self.needs_polled = True
        self._outbox(Failed(error))

    def give_way(self, now: int) -> None:
        """The join was refused and will be tried in another protocol: out, without a word."""
        self._telling.reset()
        self.leave(now, reason="another protocol", callbacks=False)

    def poll_timed_out(self, now: int) -> None:
        """Nothing was polled for the processing timeout: leave until something is (B4)."""
        log.warning(
            "group %s: member %s leaves: nothing was polled for %d ms (max.poll.interval.ms). Its partitions go "
            "to other members. Poll more often, process less per poll (max.poll.records), or raise "
            "max.poll.interval.ms",
            self.group.group_id,
            self.group.member_id,
            self._config.processing_timeout_ms,
        )
        self._leave_reason = "nothing was polled for max.poll.interval.ms"
        if self.state is not State.PREPARE_LEAVING:
            self._becomes_stale = self.needs_polled = True
            self._go(State.PREPARE_LEAVING)
        self._depart(now)

    # ------------------------------------------------------------ the turn

    def poll(self, now: int) -> Poll:
        goodbyes = self._departures.poll(now)
        if now >= self._listen_at:
            self._listens, self._listen_at = True, FOREVER
            return Poll(goodbyes.requests, now)
        if self._held_back:
            self._held_back = not self._refusals.ready(now)
            return Poll(goodbyes.requests, max(now, min(goodbyes.wake_at, self._refusals.until)))
        if self.state is State.LEAVING and self._departures.said:
            self._go(State.STALE if self._becomes_stale else State.UNSUBSCRIBED)
            if self._comes_back:
                self._join(now, "poll interval exceeded" if self._becomes_stale else "first join")
                return Poll(goodbyes.requests, now)
        if self._unresolved and self._cluster is not self._metadata.cluster:
            self._reconcile(now)
            if self._cluster is self._metadata.cluster:
                # It was looked at: heartbeats, and metadata if it is asked for again, had their turn already.
                return Poll(goodbyes.requests, now)
        if self._listen_at == FOREVER:
            return goodbyes
        return Poll(goodbyes.requests, min(goodbyes.wake_at, self._listen_at))

    def on_response(self, now: int, completed: Completed) -> None:
        self._departures.on_response(now, completed)

    # ------------------------------------------------------------ heartbeats

    def _join(self, now: int, cause: str) -> None:
        self._becomes_stale = self._comes_back = False
        self._chronicle.begin(now, cause)
        if not self.group.member_id:
            self.group = dataclasses.replace(self.group, member_id=self._new_id())
        self._go(State.JOINING)

    def heartbeat(self, deadline: int) -> Request:
        if self._unanswered is not None:
            self._telling.forget()
        self._listens, self._listen_at = False, FOREVER
        owned = {partition: self._owned_ids[partition] for partition in self._subscription.partitions}
        joins = self.state is State.JOINING
        message, changed = self._telling.message(self.group, self._round, owned, joins=joins)
        if self.state is State.ACKNOWLEDGING:
            self._go(State.RECONCILING if self._unresolved else State.STABLE)
        node_id = self._coordinator.node_id
        assert node_id is not None
        self._unanswered = Request(
            message,
            node_id,
            deadline,
            tag=_OUR_DOING if changed else None,
            min_version=max(self._min_version, WITH_REGEX if self._subscription.regex is not None else 0),
        )
        return self._unanswered

    def on_heartbeat(self, now: int, completed: Completed) -> Verdict:
        latest = completed.request is self._unanswered
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if latest:
                self._unanswered = None
                self._telling.forget()
            if completed.error.retriable or not latest:
                return Verdict.RETRY
            self._fatal(now, explain_heartbeat_transport(completed.error, self._subscription.regex))
            return Verdict.LOST
        answer: Any = completed.response
        code = answer.error_code
        self._coordinator.check(now, completed.request.node_id, code)
        if not latest:
            return Verdict.ALIVE
        self._unanswered = None
        if code == error_codes.NONE:
            self._accepted(now, completed.request, answer)
            return Verdict.ALIVE
        self._telling.forget()
        if code in error_codes.RETRIABLE:
            return Verdict.RETRY
        if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
            # The broker keeps the member as it was; an ACL that comes back mends it without a rebalance.
            self._outbox(Failed(self._explained(code, answer.error_message)))
            return Verdict.RETRY
        joined = completed.request.message.member_epoch > 0
        if code == error_codes.UNKNOWN_SERVER_ERROR and not joined and self._stumbles < STUMBLES:
            self._stumbles += 1
            return Verdict.RETRY
        if code in _REJOIN and (joined or code != error_codes.GROUP_ID_NOT_FOUND):
            self._fenced(now, code)
            return Verdict.RETRY
        self._fatal(now, self._explained(code, answer.error_message))
        return Verdict.LOST

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
            self._outbox(IdentityChanged(group))
        if self.state is State.PREPARE_LEAVING:
            return
        self._listen(now, request)
        if request.tag is not None:
            self._echo_until = add_ms(now, max(_ECHO_MS, _SILENT_INTERVALS * self.heartbeat_interval_ms))
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
        self._chronicle.begin(now, cause)
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
        self._chronicle.finish(now, self.group, target)
        self._go(State.ACKNOWLEDGING)

    def _resolve(self, now: int) -> dict[TopicPartition, bytes]:
        """The target in names, with their ids. What metadata cannot name yet is asked for; the rest goes on."""
        cluster, target = self._metadata.cluster, self._target or {}
        named = {topic_id: self._names.get(topic_id) or cluster.name_of(topic_id) for topic_id in target}
        self._names = {topic_id: name for topic_id, name in named.items() if name is not None}
        self._unresolved, self._cluster = len(self._names) < len(target), cluster
        by_broker = self._subscription.regex is not None
        # Which topics a regex means is known by their ids in assignments only, and by nothing before that.
        self._metadata.want(frozenset(self._names.values()) if by_broker else frozenset())
        self._metadata.identify(frozenset(target.keys() - self._names.keys()) if by_broker else frozenset())
        if self._unresolved and not by_broker:
            self._metadata.request_update(now)
        return {
            TopicPartition(name, number): topic_id
            for topic_id, name in self._names.items()
            for number in target[topic_id]
        }

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
            # The broker is an epoch ahead, and says so in its next answer.
            self._telling.forget()
            return True
        self._fenced(now, code)
        return False

    # ------------------------------------------------------------ ends

    def _fenced(self, now: int, code: int) -> None:
        """The coordinator goes on without this epoch: drop everything, join anew under the same member id."""
        name = error_codes.name(code)
        log.warning("group %s: member %s is fenced: %s", self.group.group_id, self.group.member_id, name)
        leaving, member_id = self.state is State.PREPARE_LEAVING, self.group.member_id
        self._go(State.FENCED)
        self._partitions.lose()
        self._reset()
        if leaving:
            self._go(State.UNSUBSCRIBED)
        else:
            self.group = dataclasses.replace(self.group, member_id=member_id)
            self._join(now, f"session lost: {name}")

    def _fatal(self, now: int, error: KafkaError) -> None:
        """Give up until the application polls again; it is told why (B6)."""
        fenced = isinstance(error, FencedInstanceIdError)
        self._refusals.failed(now)
        self._stumbles = 0
        log.error("group %s: %s", self.group.group_id, error)
        leaving = self.state is State.PREPARE_LEAVING
        if not fenced and self.group.generation_id >= 0:
            self._departures.add(now, self.group, None, "fatal error")
        self._go(State.FATAL)
        self._partitions.lose()
        self._reset()
        self._chronicle.give_up(now, f"{'fenced' if fenced else 'gave up'}: {error}", self.group)
        # A fenced member that came back would fence the other one, and so on for ever: a new subscribe() decides.
        self.needs_polled = not (leaving or fenced)
        self._outbox(Failed(error, fatal=fenced))

    def _coordinator_failed(self, now: int, error: KafkaError) -> bool:
        if self.state in OUT or self.state is State.LEAVING:
            return False
        self._fatal(now, error)
        return True

    def _depart(self, now: int) -> None:
        self._go(State.LEAVING)
        self._held_back = False
        if self._telling.announced:
            self._departures.add(now, self.group, None, self._leave_reason)
        self._partitions.lose()
        if not self._becomes_stale:
            self._chronicle.forget()
        self._reset()

    def _reset(self) -> None:
        self.group = self._nobody()
        self._target = self._acknowledged = None
        self._owned_ids = {}
        self._unresolved = self._round_owed = False
        self._unanswered = None
        self._listens, self._listen_at, self._listens_until = False, FOREVER, 0
        self._telling.reset()
        self._echo_until = -1
        self._metadata.want(frozenset())
        self._metadata.identify(frozenset())
        self._chronicle.abandon()

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
