"""One member of a classic group: JoinGroup, SyncGroup, and heartbeats afterwards (C4, C5).

    UNJOINED ─polled─> PREPARING_REBALANCE ─join ok─> COMPLETING_REBALANCE ─sync ok─> STABLE
                         ▲           ▲                        │ refused                 │ asked to rejoin
                      REVOKING <─────┴────────────────────────┴─────────────────────────┘

The whole table is `classic_joining.TRANSITIONS`. Two things differ from Kafka's classic consumer, both on purpose:

* A rebalance needs the application only when it must give partitions up. A cooperative member joins as soon as it is
  asked to, still claiming its partitions; those that the new assignment takes away are revoked afterwards, when the
  application polls, and a second rebalance assigns them to their new owners (KIP-429).
* Heartbeats go on while a JoinGroup is parked. Their response may then overtake the join's on another connection and
  report ILLEGAL_GENERATION for a generation that has merely ended, so during a join its own response decides whether
  the membership is valid. If that response is lost, the response to the next join decides: the coordinator counts the
  member in a generation that the member does not know.

A member that is to leave after its JoinGroup was sent still sends SyncGroup, as the leader with the assignment,
while the application gives its partitions up: until then the coordinator refuses every commit, including the one that
the application makes in its callback. The assignment in SyncGroup's response is ignored.

A response may be late, so each is compared with its request: join and sync are ignored once the member has moved on,
heartbeats compare the identity in the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kadence.client.request_manager import Jobs, Poll
from kadence.connection.request import Completed, Request
from kadence.consumer.assignors import LastAssignment
from kadence.consumer.assignors.base import Assignor
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.group.classic_joining import OUT, SECOND_ROUND, Joining, JoiningState
from kadence.consumer.group.classic_requests import LeaveGroupDepartures, SyncGroupRequest
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.leaving import warn_of_silence
from kadence.consumer.group.membership import ClusterView, GroupConfig, HeartbeatOutcome
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.errors import FencedInstanceIdError, KafkaError
from kadence.lazy_dataclasses import replace
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.join_group import JoinGroupRequest
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["ClassicMembership"]

log = logger("kadence.consumer")

_NAMED = 5
"""How many partitions are named as the cause of a rebalance."""


class ClassicMembership(Joining):
    """One member of a classic group.

    It has the interface of `kadence.consumer.group.membership.Membership`.

    The arguments are those of `Joining`.
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        subscription: Subscription,
        metadata: ClusterView,
        config: GroupConfig,
        jobs: Jobs,
        add_event: AddBackgroundEvent,
        assignors: Sequence[Assignor] | None = None,
    ) -> None:
        super().__init__(coordinator, subscription, metadata, config, jobs, add_event, assignors)
        self.needs_polled = False
        self.urgent = False
        self.heartbeat_interval_ms = config.heartbeat_interval_ms
        self.session_timeout_ms = self.known_session_ms = config.session_timeout_ms
        self._departures = LeaveGroupDepartures(config, coordinator)
        self._leave_reason = ""
        coordinator.on_failed.append(self._coordinator_failed)

    # ------------------------------------------------------------ the state

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
        """Heartbeat at once in each generation: only a heartbeat reveals a second round."""
        return self.group

    @property
    def settled(self) -> bool:
        """Between JoinGroup's answer and SyncGroup's the coordinator refuses every commit."""
        return self.active and not self._owes_sync

    @property
    def has_parted(self) -> bool:
        return self.state in OUT

    @property
    def left(self) -> bool:
        return self.state in OUT and self._departures.done

    def __repr__(self) -> str:
        group = self.group
        return (
            f"<classic member {group.member_id or '-'} of {group.group_id} {self.state.name} "
            f"generation={group.generation_id} partitions={len(self._subscription.partitions)}>"
        )

    # ------------------------------------------------------------ the application's calls

    def subscription_changed(self, now: int) -> None:
        """subscribe() was called; the next poll joins with it."""
        if self.state is JoiningState.LEAVING:
            self._depart(now)
        self._partitions.subscription_changed()
        self.needs_polled = self.managed

    def polled(self, now: int) -> None:
        """The application polls: actions that waited for that may begin."""
        if not self.needs_polled:
            return
        self.needs_polled = False
        if not self.managed:
            return
        if self.state is JoiningState.UNJOINED:
            self._begin(now, "first join")
        elif self.state is JoiningState.STALE:
            self._begin(now, "poll interval exceeded")
        elif self.state is JoiningState.STABLE:
            self._look_around(now)

    def rebalance(self, now: int, reason: str) -> None:
        """Rejoin on request of the application (KIP-568). Does nothing during a rebalance, or outside a group."""
        if self.state is JoiningState.STABLE:
            self._begin(now, f"enforced: {reason}" if reason else "enforced")

    def callback_done(self, now: int, callback_id: int, error: str | None) -> None:
        """The application ran a callback. An exception of it changes nothing: the group cannot wait."""
        if error is not None:
            log.warning("group %s: a rebalance callback raised %s", self.group.group_id, error)
        given_up = self._partitions.done(callback_id)
        if self._join is not None or self.state is JoiningState.COMPLETING_REBALANCE:
            self._gave_up |= given_up
        if self.state is JoiningState.REVOKING:
            if self._partitions.may_join:
                self._go(JoiningState.PREPARING_REBALANCE)
        elif self.state is JoiningState.LEAVING:
            if not self._partitions.revoking:
                self._depart(now)
        elif self.state is JoiningState.STABLE and given_up and not self._partitions.revoking:
            self._partitions.reconcile()
            if given_up - self._partitions.target:
                self._begin(now, SECOND_ROUND)

    def leave(self, now: int, *, reason: str, callbacks: bool = True, goodbye: bool | None = None) -> None:
        """Leave the group: give the partitions up (RevokePartitions), then LeaveGroup; see `left`.

        Args:
            reason: sent to the broker (KIP-800).
            callbacks: False when the application cannot run them (or has no time left). goodbye: whether to send
                LeaveGroup; None: a dynamic member does (KIP-1092).
        """
        self._departures.goodbye = goodbye
        self.needs_polled = False
        if self.state in OUT:
            if self.state is JoiningState.STALE:
                self._go(JoiningState.UNJOINED)
            return
        self._leave_reason = reason
        if self.state is not JoiningState.LEAVING:
            self._go(JoiningState.LEAVING)
            if callbacks:
                self._partitions.revoke(self._subscription.assigned)
        if not (callbacks and self._partitions.revoking):
            self._depart(now)

    def poll_timed_out(self, now: int) -> None:
        """Nothing was polled for the processing timeout: leave until something is (B4).

        A static member sends nothing: its partitions stay assigned to it until its session ends.
        """
        warn_of_silence(self.group, self._config.processing_timeout_ms)
        leaving = self.state is JoiningState.LEAVING
        self._departures.add(now, self.group, self._join, "nothing was polled for max.poll.interval.ms")
        self._partitions.lose()
        self._reset()
        self._go(JoiningState.UNJOINED if leaving else JoiningState.STALE)
        self.needs_polled = not leaving

    # ------------------------------------------------------------ the turn

    def poll(self, now: int) -> Poll:
        if self.state is JoiningState.STABLE and not self.needs_polled:
            self._look_around(now)
        goodbyes = self._departures.poll(now)
        requests = list(goodbyes.requests)
        wake_at = goodbyes.wake_at
        self._drop_stranded(now)
        if self.state is JoiningState.PREPARING_REBALANCE and self._join is None:
            wake_at = min(wake_at, self._send_join(now, requests))
        elif self._owes_sync and self._sync is None:
            wake_at = min(wake_at, self._send_sync(now, requests))
        elif self.state is JoiningState.STABLE:
            wake_at = min(wake_at, self._orphans.poll(now, requests))
        return Poll(requests, wake_at)

    def on_response(self, now: int, completed: Completed) -> None:
        message = completed.request.message
        if isinstance(message, JoinGroupRequest):
            if completed.request is self._join:
                self._join = None
                self._joined(now, completed)
            else:
                self._departures.joined(completed)
        elif isinstance(message, DescribeGroupsRequest):
            self._looked_for_orphans(now, completed)
        elif isinstance(message, SyncGroupRequest):
            if completed.request is self._sync:
                self._sync = None
                self._synced(now, completed)
        else:
            self._departures.on_response(now, completed)

    def _look_around(self, now: int) -> None:
        """Reasons to rejoin that come without an event: the subscription, and for a leader the topics of the group."""
        topics = self._subscription.topics
        if topics and topics != self._joined_topics:
            self._begin(now, "subscription changed")
        elif changed := self._leader.topics_changed():
            self._begin(now, f"metadata of subscribed topics changed: {', '.join(changed)}")

    def _looked_for_orphans(self, now: int, completed: Completed) -> None:
        if (orphans := self._orphans.found(now, completed)) and self.state is JoiningState.STABLE:
            named = ", ".join(f"{each.topic}-{each.partition}" for each in orphans[:_NAMED])
            more = f" and {len(orphans) - _NAMED} more" if len(orphans) > _NAMED else ""
            self._begin(now, f"no member has {named}{more}")

    # ------------------------------------------------------------ heartbeats

    def heartbeat(self, deadline: int) -> Request:
        node_id = self._coordinator.node_id
        assert node_id is not None
        return self._requests.heartbeat(node_id, self.group, deadline)

    def native_heartbeat(self) -> Any:
        return self._requests.native_heartbeat(self.group) if self.active else None

    def on_heartbeat(self, now: int, completed: Completed) -> HeartbeatOutcome:
        sent = completed.request.message
        current = (sent.generation_id, sent.member_id) == (self.group.generation_id, self.group.member_id)
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if completed.error.retriable or not current:
                return HeartbeatOutcome.RETRY
            self._fatal(now, completed.error)
            return HeartbeatOutcome.LOST
        answer: Any = completed.response
        code = answer.error_code
        self._coordinator.check(now, completed.request.node_id, code)
        if code in error_codes.RETRIABLE:
            return HeartbeatOutcome.RETRY
        if code == error_codes.NONE or not current:
            return HeartbeatOutcome.ALIVE
        if code == error_codes.REBALANCE_IN_PROGRESS:
            self._asked_to_rejoin(now)
            return HeartbeatOutcome.ALIVE
        if code in (error_codes.UNKNOWN_MEMBER_ID, error_codes.ILLEGAL_GENERATION):
            if self._awaits_the_join(code):
                return HeartbeatOutcome.ALIVE
            self._lost(now, code)
        else:
            self._fatal(now, self._explained(code))
        return HeartbeatOutcome.LOST

    def _awaits_the_join(self, code: int) -> bool:
        """Whether the response to a JoinGroup, the current one or the next, decides the meaning of ``code``."""
        return self._join is not None or (
            code == error_codes.ILLEGAL_GENERATION and self.state is JoiningState.PREPARING_REBALANCE
        )

    def _asked_to_rejoin(self, now: int) -> None:
        if self.state is JoiningState.STABLE or (
            self.state is JoiningState.COMPLETING_REBALANCE and self._sync is None
        ):
            self._begin(now, "the coordinator asked (heartbeat)")
        elif self.state is JoiningState.COMPLETING_REBALANCE:
            # If the sync nevertheless succeeds, the next rebalance has already begun.
            self._asked_again = True

    # ------------------------------------------------------------ commits

    def tenure(self, partition: TopicPartition) -> PartitionState | None:
        return self._subscription.partitions.get(partition)

    def commit_refused(self, now: int, sent: GroupMetadata, code: int) -> bool:
        if code == error_codes.FENCED_INSTANCE_ID:
            if sent == self.group:
                self._fatal(now, self._explained(code))
            return False
        if sent != self.group or self._awaits_the_join(code):
            return self.active
        if code == error_codes.REBALANCE_IN_PROGRESS:
            self._asked_to_rejoin(now)
            return True
        self._lost(now, code)
        return False

    # ------------------------------------------------------------ ends

    def _lost(self, now: int, code: int) -> None:
        """The coordinator no longer knows this identity: drop everything, and join again."""
        name = error_codes.name(code)
        log.warning(
            "group %s: member %s lost its session: %s", self.group.group_id, self.group.member_id, name
        )
        leaving = self.state is JoiningState.LEAVING
        keep = code == error_codes.ILLEGAL_GENERATION
        if leaving and keep:
            self._departures.add(now, self.group, self._join, self._leave_reason, awaited=True)
        self._partitions.lose()
        member_id = self.group.member_id if keep and not leaving else ""
        self._reset()
        self.group = replace(self.group, member_id=member_id)
        if leaving:
            self._go(JoiningState.UNJOINED)
        else:
            self._begin(now, f"session lost: {name}")

    def _fatal(self, now: int, error: KafkaError) -> None:
        """Give up until the application polls again; the poll raises the reason (B6)."""
        fenced = isinstance(error, FencedInstanceIdError)
        # Repeated polls must not join in a tight loop: each join may be a rebalance for all members.
        self._backoff.failed(now)
        log.error("group %s: %s", self.group.group_id, error)
        leaving = self.state is JoiningState.LEAVING
        if not fenced:
            self._departures.add(now, self.group, self._join, "fatal error")
        self._partitions.lose()
        self._reset()
        self._history.give_up(now, f"{'fenced' if fenced else 'gave up'}: {error}", self.group)
        self._go(JoiningState.UNJOINED)
        # A fenced member that rejoined would fence the other one, and so on for ever. So only a new subscribe() joins.
        self.needs_polled = not (leaving or fenced)
        self._add_event(Failed(error, fatal=fenced, gave_up=True))

    def _coordinator_failed(self, now: int, error: KafkaError) -> bool:
        if self.state in OUT:
            return False
        self._fatal(now, error)
        return True

    def _depart(self, now: int) -> None:
        self._departures.add(now, self.group, self._join, self._leave_reason, awaited=True)
        self._partitions.lose()
        self._history.forget()
        self._reset()
        self._user_data.last = LastAssignment()
        self._go(JoiningState.UNJOINED)
