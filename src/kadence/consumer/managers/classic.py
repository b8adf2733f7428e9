"""One member of a classic group: JoinGroup, SyncGroup and what the coordinator says afterwards (C4, C5).

    UNJOINED ─polled─> PREPARING_REBALANCE ─join ok─> COMPLETING_REBALANCE ─sync ok─> STABLE
                         ▲           ▲                        │ refused                 │ asked to rejoin
                      REVOKING <─────┴────────────────────────┴─────────────────────────┘

The whole table is `states.TRANSITIONS`. Two things differ from Kafka's classic consumer, both on purpose:

* A rebalance needs the application only where it must give something up. A cooperative member joins the
  moment it is asked to, still claiming what it owns; what the new assignment takes away is revoked
  afterwards, when the application has time for it, and a second rebalance hands it on (KIP-429).
* Heartbeats go on while a JoinGroup is parked. Their answer may then overtake the join's on another
  connection and say ILLEGAL_GENERATION of a generation that is merely over, so while a join is under way
  the join's own answer decides what became of the member.

Every answer is judged against what was *sent* (T2): join and sync are dropped by identity when the member
moves on, heartbeats compare the identity they carried.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from typing import Any, Final

from kadence import errors
from kadence.clock import FOREVER
from kadence.connection.request import Completed, Request
from kadence.consumer.assignors import LastAssignment, chosen, common_protocol
from kadence.consumer.assignors.base import Assignor, RebalanceProtocol
from kadence.consumer.assignors.embedded import decode_assignment
from kadence.consumer.border.messages import Failed
from kadence.consumer.managers.base import Backoff, Jobs, Outbox, Poll
from kadence.consumer.managers.classic_requests import PROTOCOL_TYPE, ClassicRequests
from kadence.consumer.managers.coordinator import CoordinatorManager
from kadence.consumer.managers.forms import SyncGroupRequest
from kadence.consumer.managers.handover import Handover
from kadence.consumer.managers.leader import Leader
from kadence.consumer.managers.leaving import Departures
from kadence.consumer.managers.membership import ClusterView, GroupConfig, Verdict
from kadence.consumer.managers.refusals import explain, explain_transport
from kadence.consumer.managers.states import OUT, TRANSITIONS, Chronicle, State
from kadence.consumer.managers.user_data import UserData
from kadence.consumer.state.subscription import PartitionState, Subscription
from kadence.errors import FencedInstanceIdError, KafkaError
from kadence.protocol import error_codes
from kadence.protocol.join_group import JoinGroupRequest
from kadence.types import GroupMetadata, TopicPartition
from kadence.wire import WireError

__all__ = ["ClassicMembership"]

log = logging.getLogger("kadence.consumer")

_SECOND_ROUND: Final = "partitions revoked, second round (KIP-429)"


class ClassicMembership:
    """See the head of this file; the interface is `kadence.consumer.managers.membership.Membership`.

    Args:
        coordinator: finds the broker; a fatal error of its own ends the attempt to join.
        subscription: what to join with, and where assignments are installed.
        metadata: partition counts for the leader.
        config: the group's keys.
        jobs: runs the assignor.
        outbox: facts for the application.
        assignors: in order of preference; by default those that the configuration names.
    """

    def __init__(
        self,
        coordinator: CoordinatorManager,
        subscription: Subscription,
        metadata: ClusterView,
        config: GroupConfig,
        jobs: Jobs,
        outbox: Outbox,
        assignors: Sequence[Assignor] | None = None,
    ) -> None:
        self.state = State.UNJOINED
        self.needs_polled = False
        self.urgent = False
        self.heartbeat_interval_ms = config.heartbeat_interval_ms
        self.session_timeout_ms = config.session_timeout_ms
        self._config = config
        self._coordinator = coordinator
        self._subscription = subscription
        self._outbox = outbox
        self._assignors = {a.name: a for a in (assignors or chosen(config.partition_assignment_strategy))}
        self._eager = common_protocol(self._assignors.values()) is RebalanceProtocol.EAGER
        self.group = self._nobody()
        self._requests = ClassicRequests(config)
        self._user_data = UserData(self._assignors.values(), jobs)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._leader = Leader(metadata, jobs)
        self._leads = False
        self._departures = Departures(config, coordinator)
        self._join: Request | None = None
        self._sync: Request | None = None
        self._joined_topics: frozenset[str] = frozenset()
        self._protocol_name: str | None = None
        self._asked_again = False
        self._chronicle = Chronicle(outbox)
        self._partitions = Handover(subscription, outbox)
        self._gave_up: set[TopicPartition] = set()
        self._leave_reason = ""
        coordinator.on_failed.append(self._coordinator_failed)

    # ------------------------------------------------------------ what others ask

    @property
    def managed(self) -> bool:
        return self._subscription.by_group

    @property
    def active(self) -> bool:
        return self.group.generation_id >= 0 and self.state not in OUT

    @property
    def joining(self) -> bool:
        return self.group.generation_id < 0 and self.state not in OUT

    @property
    def term(self) -> object:
        """Each generation tells at once that it lives: a second round is learnt of by heartbeats only."""
        return self.group

    @property
    def settled(self) -> bool:
        """Between JoinGroup's answer and SyncGroup's the coordinator refuses every commit."""
        return self.active and self.state is not State.COMPLETING_REBALANCE

    @property
    def left(self) -> bool:
        return self.state in OUT and self._departures.done

    def __repr__(self) -> str:
        group = self.group
        return (
            f"<classic member {group.member_id or '-'} of {group.group_id} {self.state.name} "
            f"generation={group.generation_id} partitions={len(self._subscription.partitions)}>"
        )

    # ------------------------------------------------------------ what the application wants

    def subscription_changed(self, now: int) -> None:
        """subscribe() was called; the next poll joins with it."""
        if self.state is State.LEAVING:
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
        if self.state is State.UNJOINED:
            self._begin(now, "first join")
        elif self.state is State.STALE:
            self._begin(now, "poll interval exceeded")
        elif self.state is State.STABLE:
            self._look_around(now)

    def rebalance(self, now: int, reason: str) -> None:
        """Rejoin although nothing asks for it (KIP-568). Does nothing during a rebalance, or outside a group."""
        if self.state is State.STABLE:
            self._begin(now, f"enforced: {reason}" if reason else "enforced")

    def callback_done(self, now: int, callback_id: int, error: str | None) -> None:
        """The application ran a callback. What it raised changes nothing: the group cannot wait for it (T17)."""
        if error is not None:
            log.warning("group %s: a rebalance callback raised %s", self.group.group_id, error)
        given_up = self._partitions.done(callback_id)
        if self._join is not None or self.state is State.COMPLETING_REBALANCE:
            self._gave_up |= given_up
        if self.state is State.REVOKING:
            if self._partitions.may_join:
                self._go(State.PREPARING_REBALANCE)
        elif self.state is State.LEAVING:
            if not self._partitions.revoking:
                self._depart(now)
        elif self.state is State.STABLE and given_up and not self._partitions.revoking:
            self._partitions.reconcile()
            if given_up - self._partitions.target:
                self._begin(now, _SECOND_ROUND)

    def leave(self, now: int, *, reason: str, callbacks: bool = True, goodbye: bool | None = None) -> None:
        """Leave the group: give the partitions up (RevokePartitions), then LeaveGroup; see `left`.

        Args:
            reason: told to the broker (KIP-800).
            callbacks: False when no application is there to run them (or its time is over).
            goodbye: whether to tell the broker; None: a dynamic member does (KIP-1092).
        """
        self._departures.goodbye = goodbye
        self.needs_polled = False
        if self.state in OUT:
            if self.state is State.STALE:
                self._go(State.UNJOINED)
            return
        self._leave_reason = reason
        if self.state is not State.LEAVING:
            self._leader.stop()
            self._go(State.LEAVING)
            if callbacks:
                self._partitions.revoke(self._subscription.assigned)
        if not (callbacks and self._partitions.revoking):
            self._depart(now)

    def poll_timed_out(self, now: int) -> None:
        """Nothing was polled for the processing timeout: leave until something is (B4).

        A static member says nothing: its partitions wait for it until its session ends (T23).
        """
        log.warning(
            "group %s: member %s leaves: nothing was polled for %d ms (max.poll.interval.ms). Its partitions go "
            "to other members. Poll more often, process less per poll (max.poll.records), or raise "
            "max.poll.interval.ms",
            self.group.group_id,
            self.group.member_id,
            self._config.processing_timeout_ms,
        )
        leaving = self.state is State.LEAVING
        self._departures.add(now, self.group, self._join, "nothing was polled for max.poll.interval.ms")
        self._partitions.lose()
        self._reset()
        self._go(State.UNJOINED if leaving else State.STALE)
        self.needs_polled = not leaving

    # ------------------------------------------------------------ the turn

    def poll(self, now: int) -> Poll:
        if self.state is State.STABLE and not self.needs_polled:
            self._look_around(now)
        goodbyes = self._departures.poll(now)
        requests = list(goodbyes.requests)
        wake_at = goodbyes.wake_at
        self._drop_stranded(now)
        if self.state is State.PREPARING_REBALANCE and self._join is None:
            wake_at = min(wake_at, self._send_join(now, requests))
        elif self.state is State.COMPLETING_REBALANCE and self._sync is None:
            wake_at = min(wake_at, self._send_sync(now, requests))
        return Poll(requests, wake_at)

    def on_response(self, now: int, completed: Completed) -> None:
        message = completed.request.message
        if isinstance(message, JoinGroupRequest):
            if completed.request is self._join:
                self._join = None
                self._joined(now, completed)
            else:
                self._departures.joined(completed)
        elif isinstance(message, SyncGroupRequest):
            if completed.request is self._sync:
                self._sync = None
                self._synced(now, completed)
        else:
            self._departures.on_response(now, completed)

    def _look_around(self, now: int) -> None:
        """Reasons to rejoin that nobody tells: the subscription, and for a leader the topics of the group."""
        topics = self._subscription.topics
        if topics and topics != self._joined_topics:
            self._begin(now, "subscription changed")
        elif changed := self._leader.topics_changed():
            self._begin(now, f"metadata of subscribed topics changed: {', '.join(changed)}")

    def _drop_stranded(self, now: int) -> None:
        """What was sent to an earlier coordinator is answered by nobody: begin again at the present one."""
        node_id = self._coordinator.node_id
        sent = self._join or self._sync
        if node_id is None or sent is None or sent.node_id == node_id or self.state is State.LEAVING:
            return
        log.info("group %s: the coordinator moved to %d during the rebalance", self.group.group_id, node_id)
        self._begin(now, "the coordinator moved")

    # ------------------------------------------------------------ join

    def _begin(self, now: int, cause: str) -> None:
        """Start a rebalance, or start it again; the first cause stays."""
        if self._chronicle.begin(now, cause):
            log.info(
                "group %s: member %s rebalances: %s", self.group.group_id, self.group.member_id or "-", cause
            )
        self._join = self._sync = None
        self._asked_again = False
        self._leader.stop()
        self._user_data.stop()
        self._partitions.before_joining(self._subscription.topics, eager=self._eager)
        self._go(State.PREPARING_REBALANCE if self._partitions.may_join else State.REVOKING)

    def _send_join(self, now: int, requests: list[Request]) -> int:
        # A pattern that matches nothing yet has nothing to join with (T15).
        if not self._subscription.topics:
            return FOREVER
        if not self._backoff.ready(now):
            return self._backoff.until
        node_id = self._coordinator.node_id
        if node_id is None:
            return self._coordinator.require(now)
        self._user_data.gather()
        if self._user_data.error is not None:
            self._fatal(now, self._user_data.error)
            return now
        if self._user_data.result is None:
            return FOREVER
        self._joined_topics = self._subscription.topics
        self._gave_up.clear()
        self._join = self._requests.join(
            now,
            node_id,
            self.group,
            self._joined_topics,
            self._subscription.partitions,
            self._user_data.result,
            self._chronicle.cause,
        )
        requests.append(self._join)
        return FOREVER

    def _joined(self, now: int, completed: Completed) -> None:
        if completed.error is not None:
            self._not_answered(now, completed, completed.error)
            return
        answer: Any = completed.response
        code = answer.error_code
        if code == error_codes.NONE:
            self._join_accepted(now, answer)
            return
        self._coordinator.check(now, completed.request.node_id, code)
        if code == error_codes.MEMBER_ID_REQUIRED:
            self.group = dataclasses.replace(self.group, member_id=answer.member_id)
        if self.state is State.LEAVING or code == error_codes.MEMBER_ID_REQUIRED:
            return
        if code == error_codes.UNKNOWN_MEMBER_ID:
            if not completed.request.message.member_id:
                self._backoff.failed(now)
            self._lost(now, code)
        elif code in error_codes.RETRIABLE or code == error_codes.REBALANCE_IN_PROGRESS:
            self._backoff.failed(now)
        else:
            self._fatal(now, self._explained(code))

    def _join_accepted(self, now: int, answer: Any) -> None:
        if answer.protocol_type not in (None, PROTOCOL_TYPE) or answer.protocol_name not in self._assignors:
            self._fatal(now, self._explained(error_codes.INCONSISTENT_GROUP_PROTOCOL))
            return
        self.group = dataclasses.replace(
            self.group, member_id=answer.member_id, generation_id=answer.generation_id
        )
        if self.state is State.LEAVING:
            return
        self._backoff.succeeded()
        self._asked_again = False
        self._protocol_name = answer.protocol_name
        self._leads = answer.leader == answer.member_id
        if self._leads:
            self._leader.lead(
                now,
                self._assignors[answer.protocol_name],
                answer.members,
                skip_assignment=answer.skip_assignment,
            )
            self._chronicle.found(self._leader.changes)
        else:
            self._leader.follow()
            self._chronicle.found("")
        self._go(State.COMPLETING_REBALANCE)

    # ------------------------------------------------------------ sync

    def _send_sync(self, now: int, requests: list[Request]) -> int:
        assignments: dict[str, bytes] = {}
        if self._leads:
            if self._leader.error is not None:
                self._fatal(now, self._leader.error)
                return now
            if self._leader.result is None:
                return self._leader.poll(now)
            assignments = self._leader.result
        node_id = self._coordinator.node_id
        if node_id is None:
            return self._coordinator.require(now)
        self._sync = self._requests.sync(now, node_id, self.group, self._protocol_name, assignments)
        requests.append(self._sync)
        return FOREVER

    def _synced(self, now: int, completed: Completed) -> None:
        if completed.error is not None:
            self._not_answered(now, completed, completed.error)
            return
        answer: Any = completed.response
        code = answer.error_code
        self._coordinator.check(now, completed.request.node_id, code)
        if self.state is State.LEAVING:
            return
        if code == error_codes.NONE:
            self._sync_accepted(now, answer)
        elif code in (error_codes.UNKNOWN_MEMBER_ID, error_codes.ILLEGAL_GENERATION):
            self._lost(now, code)
        elif code == error_codes.REBALANCE_IN_PROGRESS:
            self._begin(now, "the coordinator asked (sync)")
        elif code in error_codes.RETRIABLE:
            # COORDINATOR_LOAD_IN_PROGRESS too, which Kafka's client takes for a failure (T14).
            self._backoff.failed(now)
            self._begin(now, error_codes.name(code))
        else:
            self._fatal(now, self._explained(code))

    def _sync_accepted(self, now: int, answer: Any) -> None:
        if answer.protocol_type not in (None, PROTOCOL_TYPE) or answer.protocol_name not in (
            None,
            self._protocol_name,
        ):
            self._fatal(now, self._explained(error_codes.INCONSISTENT_GROUP_PROTOCOL))
            return
        try:
            target = frozenset(decode_assignment(answer.assignment))
        except WireError as error:
            self._fatal(now, errors.MalformedMessageError(f"the leader's assignment cannot be read: {error}"))
            return
        topics = self._subscription.topics
        if not all(p.topic in topics for p in target):
            # The subscription changed since the join, or the leader is mistaken: then not in a tight loop.
            if topics == self._joined_topics:
                self._backoff.failed(now)
            self._begin(now, "assigned topics are not subscribed")
            return
        self._go(State.STABLE)
        self._partitions.target = target
        self._user_data.last = LastAssignment(target, self.group.generation_id)
        self._chronicle.finish(now, self.group, target)
        self._partitions.reconcile(always=True)
        if self._asked_again:
            self._begin(now, "the coordinator asked (heartbeat)")
        elif self._gave_up - target:
            self._begin(now, _SECOND_ROUND)

    # ------------------------------------------------------------ heartbeats

    def heartbeat(self, deadline: int) -> Request:
        node_id = self._coordinator.node_id
        assert node_id is not None
        return self._requests.heartbeat(node_id, self.group, deadline)

    def on_heartbeat(self, now: int, completed: Completed) -> Verdict:
        sent = completed.request.message
        current = (sent.generation_id, sent.member_id) == (self.group.generation_id, self.group.member_id)
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if completed.error.retriable or not current:
                return Verdict.RETRY
            self._fatal(now, completed.error)
            return Verdict.LOST
        answer: Any = completed.response
        code = answer.error_code
        self._coordinator.check(now, completed.request.node_id, code)
        if code in error_codes.RETRIABLE:
            return Verdict.RETRY
        if code == error_codes.NONE or not current:
            return Verdict.ALIVE
        if code == error_codes.REBALANCE_IN_PROGRESS:
            self._asked_to_rejoin(now)
            return Verdict.ALIVE
        if code in (error_codes.UNKNOWN_MEMBER_ID, error_codes.ILLEGAL_GENERATION):
            if self._join is not None:
                return Verdict.ALIVE
            self._lost(now, code)
        else:
            self._fatal(now, self._explained(code))
        return Verdict.LOST

    def _asked_to_rejoin(self, now: int) -> None:
        if self.state is State.STABLE or (self.state is State.COMPLETING_REBALANCE and self._sync is None):
            self._begin(now, "the coordinator asked (heartbeat)")
        elif self.state is State.COMPLETING_REBALANCE:
            # If the sync succeeds all the same, the rebalance that comes after it has begun already.
            self._asked_again = True

    # ------------------------------------------------------------ commits

    def tenure(self, partition: TopicPartition) -> PartitionState | None:
        return self._subscription.partitions.get(partition)

    def commit_refused(self, now: int, sent: GroupMetadata, code: int) -> bool:
        if code == error_codes.FENCED_INSTANCE_ID:
            if sent == self.group:
                self._fatal(now, self._explained(code))
            return False
        if sent != self.group or self._join is not None:
            return self.active
        if code == error_codes.REBALANCE_IN_PROGRESS:
            self._asked_to_rejoin(now)
            return True
        self._lost(now, code)
        return False

    # ------------------------------------------------------------ ends

    def _not_answered(self, now: int, completed: Completed, error: KafkaError) -> None:
        """Join or sync did not come back: the member id stays, or a duplicate of us would appear (T2)."""
        self._coordinator.check(now, completed.request.node_id, error)
        if self.state is State.LEAVING:
            return
        if error.retriable:
            self._backoff.failed(now)
            self._begin(now, str(error))
        else:
            self._fatal(now, explain_transport(error, self._config))

    def _lost(self, now: int, code: int) -> None:
        """The coordinator goes on without this identity: drop everything, join anew."""
        name = error_codes.name(code)
        log.warning(
            "group %s: member %s lost its session: %s", self.group.group_id, self.group.member_id, name
        )
        leaving = self.state is State.LEAVING
        keep = code == error_codes.ILLEGAL_GENERATION
        if leaving and keep:
            self._departures.add(now, self.group, self._join, self._leave_reason)
        self._partitions.lose()
        member_id = self.group.member_id if keep and not leaving else ""
        self._reset()
        self.group = dataclasses.replace(self.group, member_id=member_id)
        if leaving:
            self._go(State.UNJOINED)
        else:
            self._begin(now, f"session lost: {name}")

    def _fatal(self, now: int, error: KafkaError) -> None:
        """Give up until the application polls again; it is told why (B6)."""
        fenced = isinstance(error, FencedInstanceIdError)
        # An application that polls on regardless must not knock in a tight loop: a join may be a rebalance for all.
        self._backoff.failed(now)
        log.error("group %s: %s", self.group.group_id, error)
        leaving = self.state is State.LEAVING
        if not fenced:
            self._departures.add(now, self.group, self._join, "fatal error")
        self._partitions.lose()
        self._reset()
        self._chronicle.give_up(now, f"{'fenced' if fenced else 'gave up'}: {error}", self.group)
        self._go(State.UNJOINED)
        # A fenced member that came back would fence the other one, and so on for ever: a new subscribe() decides.
        self.needs_polled = not (leaving or fenced)
        self._outbox(Failed(error, fatal=fenced))

    def _coordinator_failed(self, now: int, error: KafkaError) -> bool:
        if self.state in OUT:
            return False
        self._fatal(now, error)
        return True

    def _depart(self, now: int) -> None:
        self._departures.add(now, self.group, self._join, self._leave_reason)
        self._partitions.lose()
        self._chronicle.forget()
        self._reset()
        self._user_data.last = LastAssignment()
        self._go(State.UNJOINED)

    def _reset(self) -> None:
        self.group = self._nobody()
        self._join = self._sync = None
        self._chronicle.abandon()
        self._asked_again = False
        self._gave_up.clear()
        self._leader.follow()

    def _nobody(self) -> GroupMetadata:
        return GroupMetadata(self._config.group_id or "", group_instance_id=self._config.group_instance_id)

    def _explained(self, code: int) -> KafkaError:
        return explain(code, self.group.group_id, tuple(self._assignors), self._config)

    def _go(self, state: State) -> None:
        if state is self.state:
            return
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"
        self.state = state
        log.debug("group %s: %s", self.group.group_id, repr(self))
