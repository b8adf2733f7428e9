"""One member of a KIP-848 group: everything is said by ConsumerGroupHeartbeat (C4, C5).

    UNSUBSCRIBED ─polled─> JOINING ─accepted─> RECONCILING ─owns its target─> ACKNOWLEDGING ─said so─> STABLE
                              ▲                     ▲                              └──── new target ────┘
                            FENCED                  └──────────────── new target ───────────────────────┘

The whole table is `kip848_heartbeats.TRANSITIONS`. The broker assigns; a member goes from what it owns to what
it was assigned in the background, one target at a time: what goes is revoked when the application has time for
it, then what comes is added, then the next heartbeat, sent at once, acknowledges. What stays keeps flowing.

Rules that are easy to lose:

* States that end with a heartbeat end when it is made, not when it is answered: a failure makes the next one say
  everything (`kip848_heartbeat_state`), so a lost acknowledgement is repaired.
* Only the answer to the latest heartbeat counts: an earlier one, overtaken after the coordinator moved,
  tells nothing that the full heartbeat after it will not.
* Each membership has a member id of its own making (KIP-1082), kept when it is fenced. A goodbye that is late
  can then not hit the next membership.
"""

from __future__ import annotations

import base64
import dataclasses
import uuid
from collections.abc import Callable

from kadence.client.request_manager import Poll
from kadence.clock import FOREVER
from kadence.connection.request import Completed
from kadence.consumer.events import AddBackgroundEvent, Failed
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.kip848_heartbeats import (
    HEARTBEATING,
    OUT,
    SILENT_INTERVALS,
    ConsumerHeartbeats,
    HeartbeatDepartures,
    State,
)
from kadence.consumer.group.leaving import explain_classic_members
from kadence.consumer.group.membership import ClusterView, GroupConfig
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.errors import FencedInstanceIdError, KafkaError
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["ConsumerMembership", "new_member_id"]

log = logger("kadence.consumer")


def new_member_id() -> str:
    """A random UUID in Kafka's URL-safe base64; never one that a command line would take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        if not text.startswith("-"):
            return text


class ConsumerMembership(ConsumerHeartbeats):
    """One member of a KIP-848 group.

    It has the interface of `kadence.consumer.group.membership.Membership`.

    The arguments are those of `ConsumerHeartbeats`, and ``new_id``, which makes member ids.
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
        super().__init__(coordinator, subscription, metadata, config, add_event, min_version=min_version)
        self.needs_polled = False
        self._new_id = new_id
        self._departures = HeartbeatDepartures(config, coordinator)
        self._leave_reason = ""
        self._becomes_stale = False
        self._comes_back = False
        self._held_back = False
        coordinator.on_failed.append(self._coordinator_failed)

    # ------------------------------------------------------------ what others ask

    @property
    def managed(self) -> bool:
        return self._subscription.by_group

    @property
    def active(self) -> bool:
        return self.state in HEARTBEATING or (self.state is State.JOINING and self._may_join)

    @property
    def joining(self) -> bool:
        return self.state is State.JOINING and not self._may_join

    @property
    def settled(self) -> bool:
        return self.state in HEARTBEATING

    @property
    def has_parted(self) -> bool:
        return self.state in OUT or self.state is State.LEAVING

    @property
    def left(self) -> bool:
        return self.state in OUT and self._departures.done

    @property
    def term(self) -> object:
        return self.group.member_id

    @property
    def urgent(self) -> bool:
        if self.state is State.PREPARE_LEAVING:
            return self._heartbeat_state.forgotten
        return self._listens or self._heartbeat_state.owes(self._round, subscription=not self.needs_polled)

    @property
    def session_timeout_ms(self) -> int:
        """The session is the broker's affair and not told: so much silence is too much whatever it is."""
        return max(self._config.session_timeout_ms, SILENT_INTERVALS * self.heartbeat_interval_ms)

    @property
    def known_session_ms(self) -> None:
        return None

    @property
    def _may_join(self) -> bool:
        """Not before there is a topic to join with, nor in a spin after refusals.

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
        """The application ran a callback. What it raised changes nothing: the group cannot wait for it."""
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
        self._add_event(Failed(error, gave_up=True))

    def give_way(self, now: int) -> None:
        """The join was refused and will be tried in another protocol: out, without a word."""
        self._heartbeat_state.reset()
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
        if self._cluster is not self._metadata.cluster:
            self._give_up_deleted(now)
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
            self._heartbeat_state.forget()
            return True
        self._fenced(now, code)
        return False

    # ------------------------------------------------------------ beginnings and ends

    def _join(self, now: int, cause: str) -> None:
        self._becomes_stale = self._comes_back = False
        self._history.begin(now, cause)
        if not self.group.member_id:
            self.group = dataclasses.replace(self.group, member_id=self._new_id())
        self._go(State.JOINING)

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
        self._history.give_up(now, f"{'fenced' if fenced else 'gave up'}: {error}", self.group)
        # A fenced member that came back would fence the other one, and so on for ever. So only a new subscribe() joins.
        self.needs_polled = not (leaving or fenced)
        self._add_event(Failed(error, fatal=fenced, gave_up=True))

    def _coordinator_failed(self, now: int, error: KafkaError) -> bool:
        if self.state in OUT or self.state is State.LEAVING:
            return False
        self._fatal(now, error)
        return True

    def _depart(self, now: int) -> None:
        self._go(State.LEAVING)
        self._held_back = False
        if self._heartbeat_state.announced:
            self._departures.add(now, self.group, None, self._leave_reason, awaited=not self._becomes_stale)
        self._partitions.lose()
        if not self._becomes_stale:
            self._history.forget()
        self._reset()

    def _reset(self) -> None:
        self.group = self._nobody()
        self._target = self._acknowledged = None
        self._owned_ids = {}
        self._unresolved = self._round_owed = False
        self._unanswered = None
        self._listens, self._listen_at, self._listens_until = False, FOREVER, 0
        self._heartbeat_state.reset()
        self._echo_until = -1
        self._metadata.want(frozenset())
        self._metadata.identify(frozenset())
        self._history.abandon()
