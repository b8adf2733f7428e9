"""A member that joins, stays and leaves by heartbeats, whose responses assign partitions (KIP-848, KIP-932).

As Kafka's AbstractMembershipManager and AbstractHeartbeatRequestManager it is one skeleton for two kinds of groups.
`ConsumerMembership` adds the subscription's fields, the reconciliation with callbacks, and commits. A member of a share
group adds its own message: it owns its assignment at once, so it is never RECONCILING or ACKNOWLEDGING.

Rules that are easy to lose:

* States that end with a heartbeat end when it is built, not when it is answered: after a failure the next one contains
  all fields, so a lost acknowledgement is repaired.
* Only the response to the latest heartbeat counts: an earlier one, overtaken after the coordinator moved, has nothing
  that the response to the full heartbeat after it will not have.
* Each membership generates its own member id (KIP-1082), and keeps it when it is fenced. So a late goodbye cannot end
  the next membership.
"""

from __future__ import annotations

import abc
import binascii
import os
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from kadence.client.request_manager import Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, Request
from kadence.consumer.events import AddBackgroundEvent, Failed, IdentityChanged
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.leaving import PARTITIONS_GO, Departures, warn_of_silence
from kadence.consumer.group.member_states import HEARTBEATING, OUT, TRANSITIONS, State
from kadence.consumer.group.membership import SENT_NATIVELY, ClusterView, GroupConfig, HeartbeatOutcome
from kadence.errors import FencedInstanceIdError, KafkaError
from kadence.lazy_dataclasses import replace
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.types import GroupMetadata, TopicPartition

__all__ = [
    "SILENT_INTERVALS",
    "STUMBLES",
    "EpochMember",
    "Target",
    "new_member_id",
]

log = logger("kadence.consumer")

Target = Mapping[bytes, frozenset[int]]
"""An assignment as the broker sends it: partitions by topic id."""


STUMBLES: Final = 8
"""How often a join that failed in the broker is repeated, for about five seconds in all.

Kafka 4.3 fails so (UNKNOWN_SERVER_ERROR) when it should convert a classic group that is in its first
rebalance, which takes three seconds (group.initial.rebalance.delay.ms).
"""
SILENT_INTERVALS: Final = 3
"""After this many unanswered heartbeats the coordinator counts as silent."""
_SOON_MS: Final = 1_000
"""group.consumer.assignment.interval.ms (KIP-1263): how long the broker may delay an assignment."""
_UUID_MASK: Final = 0xF000_C000_0000_0000_0000
_UUID_4: Final = 0x4000_8000_0000_0000_0000
"""The bits that say that a UUID is random (RFC 9562, version 4). The module `uuid` would load `platform`, too."""
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def new_member_id() -> str:
    """A random UUID in Kafka's URL-safe base64; never one that a command line would read as an option."""
    while True:
        number = int.from_bytes(os.urandom(16)) & ~_UUID_MASK | _UUID_4
        text = (
            binascii.b2a_base64(number.to_bytes(16), newline=False).rstrip(b"=").translate(_URL_SAFE).decode()
        )
        if not text.startswith("-"):
            return text


class EpochMember(abc.ABC):
    """One member of one group whose identity is a member id and an epoch.

    It has the interface of `kadence.consumer.group.membership.Liveness`.

    Args:
        coordinator: finds the broker; a fatal error of its own ends the attempt to join.
        metadata: the names of topic ids.
        config: the group's keys.
        add_event: background events for the application.
        departures: sends the last heartbeats.
        new_id: makes member ids.
    """

    REJOINS: ClassVar = frozenset(
        {
            error_codes.FENCED_MEMBER_EPOCH,
            error_codes.UNKNOWN_MEMBER_ID,
            # Kafka's client gives up here, although joining creates the group again.
            error_codes.GROUP_ID_NOT_FOUND,
        }
    )
    """Codes after which a member joins again, under the same member id."""

    LOSS: ClassVar[str] = PARTITIONS_GO
    """What it loses by leaving because nothing was polled, for the log."""

    KEEPS_ERRORS: ClassVar[bool] = False
    """Whether every poll raises what the member was refused with, until it is in the group; else one poll does."""

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        metadata: ClusterView,
        config: GroupConfig,
        add_event: AddBackgroundEvent,
        departures: Departures,
        new_id: Callable[[], str],
    ) -> None:
        self.state = State.UNSUBSCRIBED
        self.needs_polled = False
        self.heartbeat_interval_ms = config.heartbeat_interval_ms
        self.on_stumble: Callable[[int], HeartbeatOutcome] = lambda now: HeartbeatOutcome.RETRY
        """Counts joins that failed in the broker; see `STUMBLES`."""
        self._config = config
        self._coordinator = coordinator
        self._metadata = metadata
        self._add_event = add_event
        self._departures = departures
        self._new_id = new_id
        self.group = self._nobody()
        self._target: Target | None = None
        self._names: dict[bytes, str] = {}
        self._unresolved = False
        self._cluster: object = None
        self._unanswered: Request | None = None
        # Whether any heartbeat was sent: a broker may know of this membership.
        self._announced = False
        # Whether a response to a native heartbeat, which may have had a new epoch, was ignored since our last
        # heartbeat.
        self._passed_over = False
        self._listens = False
        self._listen_at, self._listens_until = FOREVER, 0
        self._refusals = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._stumbles = 0
        self._leave_reason = ""
        self._becomes_stale = False
        self._comes_back = False
        self._held_back = False
        coordinator.on_failed.append(self._coordinator_failed)

    # ------------------------------------------------------------ for subclasses

    @property
    @abc.abstractmethod
    def managed(self) -> bool:
        """Whether there is a subscription."""

    @property
    @abc.abstractmethod
    def urgent(self) -> bool:
        """As `Liveness.urgent`."""

    @abc.abstractmethod
    def native_heartbeat(self) -> Any:
        """As `Liveness.native_heartbeat`."""

    @property
    @abc.abstractmethod
    def _names_something(self) -> bool:
        """Whether there is a topic to join with."""

    @property
    def _is_matched_by_broker(self) -> bool:
        """Whether the topics of the subscription are known only by the ids in assignments."""
        return False

    @abc.abstractmethod
    def _new_heartbeat(self, node_id: int, deadline: int) -> Request:
        """The next heartbeat, which from now on counts as sent."""

    @abc.abstractmethod
    def _may_bring_partitions(self, message: Any) -> bool:
        """Whether this heartbeat may cause a new assignment."""

    @abc.abstractmethod
    def _forget_said(self) -> None:
        """It is unknown whether the broker received the last heartbeat: the next one contains all fields."""

    @abc.abstractmethod
    def _assign(self, now: int, request: Request, target: Target | None) -> None:
        """An answer to a heartbeat was accepted. ``target``: the assignment in it, None if unchanged."""

    @abc.abstractmethod
    def _reconcile(self, now: int) -> None:
        """Move towards the target, in which more topics may have names now."""

    @abc.abstractmethod
    def _look_at_cluster(self, now: int) -> None:
        """Metadata has changed, whether or not a name is needed."""

    def _give_up_partitions(self) -> bool:
        """Ask the application to give up all of them before the member leaves. Returns whether it has to."""
        return False

    @abc.abstractmethod
    def _lose(self, *, leaves: bool) -> None:
        """From now on this member owns nothing. ``leaves``: it leaves on its own, and the next poll does not rejoin."""

    @abc.abstractmethod
    def _joins(self, now: int, cause: str) -> None:
        """It is joining the group."""

    @abc.abstractmethod
    def _gave_up(self, now: int, why: str) -> None:
        """It will not join again before the application polls."""

    @abc.abstractmethod
    def _explained(self, code: int, message: str | None) -> KafkaError:
        """The error for the code of a refused heartbeat."""

    @abc.abstractmethod
    def _explained_transport(self, error: KafkaError) -> KafkaError:
        """The error for a heartbeat that ended without a response."""

    # ------------------------------------------------------------ the state

    @property
    def active(self) -> bool:
        return self.state in HEARTBEATING or (self.state is State.JOINING and self._may_join)

    @property
    def joining(self) -> bool:
        return self.state is State.JOINING and not self._may_join

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
    def session_timeout_ms(self) -> int:
        """The broker does not report its session timeout: this much silence is too long in any case."""
        return max(self._config.session_timeout_ms, SILENT_INTERVALS * self.heartbeat_interval_ms)

    @property
    def known_session_ms(self) -> int | None:
        return None

    @property
    def _may_join(self) -> bool:
        """Not before there is a topic to join with, nor in a tight loop after refusals.

        And a static member not before its own goodbye has been answered.
        """
        static = self._config.group_instance_id is not None
        return self._names_something and not self._held_back and (self._departures.done or not static)

    # ------------------------------------------------------------ the application's calls

    def subscription_changed(self, now: int) -> None:
        """subscribe() was called; the next poll joins with it, or sends it to the broker."""
        if self.state is State.PREPARE_LEAVING:
            self._depart(now)
        self.needs_polled = self.managed

    def polled(self, now: int) -> None:
        """The application polls: actions that waited for that may begin."""
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

    def leave(self, now: int, *, reason: str, callbacks: bool = True, goodbye: bool | None = None) -> None:
        """Leave the group: give the partitions up (RevokePartitions), then send the last heartbeat; see `left`.

        Args:
            reason: for the log; this protocol has no place for it.
            callbacks: False when the application cannot run them (or has no time left). goodbye: True leaves for good,
                False sends nothing; None: as usual for the kind of member (KIP-1092).
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
        if not (callbacks and self._give_up_partitions()):
            self._depart(now)

    def poll_timed_out(self, now: int) -> None:
        """Nothing was polled for the processing timeout: leave until something is (B4)."""
        warn_of_silence(self.group, self._config.processing_timeout_ms, self.LOSS)
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
            self._look_at_cluster(now)
        if self._unresolved and self._cluster is not self._metadata.cluster:
            self._reconcile(now)
            if self._cluster is self._metadata.cluster:
                # Handled: heartbeats, and metadata if it is requested again, had their turn already.
                return Poll(goodbyes.requests, now)
        if self._listen_at == FOREVER:
            return goodbyes
        return Poll(goodbyes.requests, min(goodbyes.wake_at, self._listen_at))

    def on_response(self, now: int, completed: Completed) -> None:
        self._departures.on_response(now, completed)

    # ------------------------------------------------------------ heartbeats

    def heartbeat(self, deadline: int) -> Request:
        if self._unanswered is not None:
            self._forget_said()
        self._listens, self._listen_at = False, FOREVER
        self._passed_over = False
        node_id = self._coordinator.node_id
        assert node_id is not None
        self._unanswered = self._new_heartbeat(node_id, deadline)
        self._announced = True
        return self._unanswered

    def on_heartbeat(self, now: int, completed: Completed) -> HeartbeatOutcome:
        latest = completed.request is self._unanswered
        if completed.request.tag is SENT_NATIVELY:
            if (
                completed.error is not None
                or self._unanswered is not None
                or not self._sent_as_now(completed)
            ):
                # The broker repeats the assignment to a member that reports its full state.
                self._forget_said()
                self._passed_over = True
            else:
                latest = True
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if latest:
                self._unanswered = None
                self._forget_said()
            if completed.error.retriable or not latest:
                return HeartbeatOutcome.RETRY
            self._fatal(now, self._explained_transport(completed.error))
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
        self._forget_said()
        if code in error_codes.RETRIABLE:
            return HeartbeatOutcome.RETRY
        if code == error_codes.TOPIC_AUTHORIZATION_FAILED:
            # The broker keeps the member as it was; once the ACL is restored, it continues without a rebalance.
            self._add_event(Failed(self._explained(code, answer.error_message)))
            return HeartbeatOutcome.RETRY
        epoch = completed.request.message.member_epoch
        if code == error_codes.FENCED_MEMBER_EPOCH and (
            self._passed_over
            or (completed.request.tag is SENT_NATIVELY and epoch != self.group.generation_id)
        ):
            # The native thread repeats an epoch, and so may one heartbeat from here. If a response in between has
            # brought a new epoch, the old one is refused. That ends no membership: a heartbeat with all fields gets the
            # new one.
            return HeartbeatOutcome.RETRY
        joined = epoch > 0
        if code == error_codes.UNKNOWN_SERVER_ERROR and not joined and self._stumbles < STUMBLES:
            self._stumbles += 1
            return self.on_stumble(now)
        if code in self.REJOINS and (joined or code != error_codes.GROUP_ID_NOT_FOUND):
            self._fenced(now, code)
            return HeartbeatOutcome.RETRY
        self._fatal(now, self._explained(code, answer.error_message))
        return HeartbeatOutcome.LOST

    def _sent_as_now(self, completed: Completed) -> bool:
        """Whether the response to a native heartbeat belongs to the current identity, which may have changed."""
        member_id: str = completed.request.message.member_id
        return self.state in HEARTBEATING and member_id == self.group.member_id

    def _accepted(self, now: int, request: Request, answer: Any) -> None:
        if answer.heartbeat_interval_ms > 0:
            self.heartbeat_interval_ms = answer.heartbeat_interval_ms
        if answer.member_epoch <= 0:
            # Answered, but not a member yet (librdkafka's mock does this): join again an interval later.
            return
        self._refusals.succeeded()
        self._stumbles = 0
        group = replace(
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
        target: Target | None = None
        if answer.assignment is not None:
            target = {
                topic.topic_id: frozenset(topic.partitions) for topic in answer.assignment.topic_partitions
            }
        self._assign(now, request, target)
        if self.state is State.JOINING:
            self._go(State.STABLE)

    def _listen(self, now: int, request: Request) -> None:
        """After a heartbeat that may change the assignment, poll again soon, for as long as that may take.

        An interval is five seconds, and the broker answers a join before it has assigned: a single member that is
        restarted would wait for all of it.
        """
        if self._may_bring_partitions(request.message):
            self._listens_until = add_ms(now, self.heartbeat_interval_ms + 2 * _SOON_MS)
        soon = add_ms(now, _SOON_MS)
        regular = add_ms(now, self.heartbeat_interval_ms)
        self._listen_at = soon if soon < min(self._listens_until, regular) else FOREVER

    # ------------------------------------------------------------ the assignment

    def _resolve(self, now: int) -> dict[TopicPartition, bytes]:
        """The target by topic names, with their ids. Ids without a name yet are looked up; the others continue."""
        cluster, target = self._metadata.cluster, self._target or {}
        known = self._names | cluster.names_of(target.keys() - self._names.keys())
        self._names = {topic_id: known[topic_id] for topic_id in target if topic_id in known}
        names = {
            topic_id: name
            for topic_id, name in self._names.items()
            if not cluster.is_made_anew(name, topic_id)
        }
        self._unresolved, self._cluster = len(names) < len(target), cluster
        by_broker = self._is_matched_by_broker
        self._metadata.want(frozenset(self._names.values()) if by_broker else frozenset())
        self._metadata.identify(frozenset(target.keys() - self._names.keys()) if by_broker else frozenset())
        if len(self._names) < len(target) and not by_broker:
            self._metadata.request_update(now)
        return {
            TopicPartition(name, number): topic_id
            for topic_id, name in names.items()
            for number in target[topic_id]
        }

    # ------------------------------------------------------------ beginnings and ends

    def _join(self, now: int, cause: str) -> None:
        self._becomes_stale = self._comes_back = False
        self._joins(now, cause)
        if not self.group.member_id:
            self.group = replace(self.group, member_id=self._new_id())
        self._go(State.JOINING)

    def _fenced(self, now: int, code: int) -> None:
        """The coordinator no longer accepts this epoch: drop everything, and join again under the same member id."""
        name = error_codes.name(code)
        log.warning("group %s: member %s is fenced: %s", self.group.group_id, self.group.member_id, name)
        leaving, member_id = self.state is State.PREPARE_LEAVING, self.group.member_id
        self._go(State.FENCED)
        self._lose(leaves=False)
        self._reset()
        if leaving:
            self._go(State.UNSUBSCRIBED)
        else:
            self.group = replace(self.group, member_id=member_id)
            self._join(now, f"session lost: {name}")

    def _fatal(self, now: int, error: KafkaError) -> None:
        """Give up until the application polls again; the poll raises the reason (B6)."""
        fenced = isinstance(error, FencedInstanceIdError)
        self._refusals.failed(now)
        self._stumbles = 0
        log.error("group %s: %s", self.group.group_id, error)
        leaving = self.state is State.PREPARE_LEAVING
        if not fenced and self.group.generation_id >= 0:
            self._departures.add(now, self.group, None, "fatal error")
        self._go(State.FATAL)
        self._lose(leaves=False)
        self._reset()
        self._gave_up(now, f"{'fenced' if fenced else 'gave up'}: {error}")
        # A fenced member that rejoined would fence the other one, and so on for ever. So only a new subscribe() joins.
        self.needs_polled = not (leaving or fenced)
        self._add_event(Failed(error, fatal=fenced or self.KEEPS_ERRORS, gave_up=True))

    def _coordinator_failed(self, now: int, error: KafkaError) -> bool:
        if self.state in OUT or self.state is State.LEAVING:
            return False
        self._fatal(now, error)
        return True

    def _depart(self, now: int) -> None:
        self._go(State.LEAVING)
        self._held_back = False
        if self._announced:
            self._departures.add(now, self.group, None, self._leave_reason, awaited=not self._becomes_stale)
        self._lose(leaves=not self._becomes_stale)
        self._reset()

    def _reset(self) -> None:
        self.group = self._nobody()
        self._target = None
        self._unresolved = False
        self._unanswered = None
        self._announced = False
        self._forget_said()
        self._listens, self._listen_at, self._listens_until = False, FOREVER, 0
        self._metadata.want(frozenset())
        self._metadata.identify(frozenset())

    def _nobody(self) -> GroupMetadata:
        return GroupMetadata(self._config.group_id or "", group_instance_id=self._config.group_instance_id)

    def _go(self, state: State) -> None:
        if state is self.state:
            return
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"
        self.state = state
        log.debug("group %s: %s", self.group.group_id, repr(self))
