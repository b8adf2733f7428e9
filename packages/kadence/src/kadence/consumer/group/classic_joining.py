"""The states of a classic member, and its way into a generation: JoinGroup, the leader's assignment, SyncGroup.

A rebalance that is restarted before it ends begins here again: requests sent for it before are recognised by object
identity and ignored, so a late response changes nothing.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kadence import errors
from kadence.client.request_manager import Jobs
from kadence.clock import FOREVER
from kadence.connection.request import Backoff, Completed, Request
from kadence.consumer.assignors import LastAssignment, chosen, common_protocol
from kadence.consumer.assignors.base import Assignor, RebalanceProtocol
from kadence.consumer.assignors.embedded import decode_assignment
from kadence.consumer.events import AddBackgroundEvent
from kadence.consumer.group.assignment_reconciler import AssignmentReconciler, RebalanceHistory
from kadence.consumer.group.classic_leader import Leader, UserData
from kadence.consumer.group.classic_orphans import Orphans
from kadence.consumer.group.classic_requests import PROTOCOL_TYPE, ClassicRequests
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.leaving import explain, explain_transport
from kadence.consumer.group.membership import ClusterView, GroupConfig
from kadence.consumer.subscription import Subscription
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import replace
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.types import GroupMetadata, TopicPartition
from kadence.wire import WireError

__all__ = ["OUT", "SECOND_ROUND", "TRANSITIONS", "Joining", "JoiningState"]


class JoiningState(enum.Enum):
    """The states, under Kafka's names where there are any."""

    UNJOINED = "not in the group"
    REVOKING = "must give up partitions before it joins"
    PREPARING_REBALANCE = "is joining"
    COMPLETING_REBALANCE = "has joined, and waits for its assignment"
    STABLE = "has its assignment"
    STALE = "gave up its partitions, as the application did not poll"
    LEAVING = "must give up partitions before it leaves"


OUT: Final = frozenset({JoiningState.UNJOINED, JoiningState.STALE})
_REJOIN: Final = frozenset({JoiningState.REVOKING, JoiningState.PREPARING_REBALANCE})

TRANSITIONS: Final[Mapping[JoiningState, frozenset[JoiningState]]] = {
    JoiningState.UNJOINED: frozenset({JoiningState.PREPARING_REBALANCE}),
    JoiningState.REVOKING: OUT | _REJOIN | {JoiningState.LEAVING},
    JoiningState.PREPARING_REBALANCE: OUT
    | _REJOIN
    | {JoiningState.LEAVING, JoiningState.COMPLETING_REBALANCE},
    JoiningState.COMPLETING_REBALANCE: OUT | _REJOIN | {JoiningState.LEAVING, JoiningState.STABLE},
    JoiningState.STABLE: OUT | _REJOIN | {JoiningState.LEAVING},
    JoiningState.STALE: frozenset({JoiningState.PREPARING_REBALANCE, JoiningState.UNJOINED}),
    JoiningState.LEAVING: frozenset({JoiningState.UNJOINED}),
}


log = logger("kadence.consumer")

SECOND_ROUND: Final = "partitions revoked, second round (KIP-429)"


class Joining(abc.ABC):
    """Takes a classic member into a generation by JoinGroup and SyncGroup.

    `ClassicMembership` adds heartbeats, lost sessions and leaving.

    Args:
        coordinator: finds the broker; a fatal error of its own ends the attempt to join.
        subscription: the topics to join with; assignments are installed in it.
        metadata: partition counts for the leader.
        config: the group's keys.
        jobs: runs the assignor.
        add_event: background events for the application.
        assignors: in order of preference; by default those that the configuration names.
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
        self.state = JoiningState.UNJOINED
        self._config = config
        self._coordinator = coordinator
        self._subscription = subscription
        self._add_event = add_event
        self._assignors = {a.name: a for a in (assignors or chosen(config.partition_assignment_strategy))}
        self._eager = common_protocol(self._assignors.values()) is RebalanceProtocol.EAGER
        self.group = self._nobody()
        self._requests = ClassicRequests(config)
        self._user_data = UserData(self._assignors.values(), jobs)
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._leader = Leader(metadata, jobs)
        self._leads = False
        self._join: Request | None = None
        self._sync: Request | None = None
        self._owes_sync = False
        self._joined_topics: frozenset[str] = frozenset()
        self._protocol_name: str | None = None
        self._asked_again = False
        self._history = RebalanceHistory(add_event)
        self._partitions = AssignmentReconciler(subscription, add_event)
        self._gave_up: set[TopicPartition] = set()
        self._orphans = Orphans(coordinator, subscription, metadata, config)

    @abc.abstractmethod
    def _lost(self, now: int, code: int) -> None:
        """The coordinator no longer knows this identity."""

    @abc.abstractmethod
    def _fatal(self, now: int, error: KafkaError) -> None:
        """Give up until the application polls again."""

    # ------------------------------------------------------------ join

    def _begin(self, now: int, cause: str) -> None:
        """Start a rebalance, or restart it; the first cause stays."""
        if self._history.begin(now, cause):
            log.info(
                "group %s: member %s joins a rebalance: %s",
                self.group.group_id,
                self.group.member_id or "-",
                cause,
            )
        self._join = self._sync = None
        self._owes_sync = self._asked_again = False
        self._leader.stop()
        self._user_data.stop()
        self._partitions.before_joining(self._subscription.topics, eager=self._eager)
        self._go(JoiningState.PREPARING_REBALANCE if self._partitions.may_join else JoiningState.REVOKING)

    def _send_join(self, now: int, requests: list[Request]) -> int:
        # A pattern that matches nothing yet has no topic to join with.
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
            self._history.cause,
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
            if not completed.request.message.member_id:
                self._first_joined(answer)
            return
        self._coordinator.check(now, completed.request.node_id, code)
        if code == error_codes.MEMBER_ID_REQUIRED:
            self.group = replace(self.group, member_id=answer.member_id)
        if self.state is JoiningState.LEAVING or code == error_codes.MEMBER_ID_REQUIRED:
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
        self.group = replace(self.group, member_id=answer.member_id, generation_id=answer.generation_id)
        self._backoff.succeeded()
        self._owes_sync, self._asked_again = True, False
        self._protocol_name = answer.protocol_name
        self._leads = answer.leader == answer.member_id
        if self._leads:
            self._leader.lead(
                now,
                self._assignors[answer.protocol_name],
                answer.members,
                skip_assignment=answer.skip_assignment,
            )
            self._history.found(self._leader.changes)
        else:
            self._leader.follow()
            self._history.found("")
        if self.state is not JoiningState.LEAVING:
            self._go(JoiningState.COMPLETING_REBALANCE)

    def _first_joined(self, answer: Any) -> None:
        """A static member has its old place again, unless it leads a rebalance and assigns all partitions itself."""
        if self.group.group_instance_id is not None and (not self._leads or answer.skip_assignment):
            self._orphans.came_back(self.group.generation_id)

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
        self._owes_sync = False
        if completed.error is not None:
            self._not_answered(now, completed, completed.error)
            return
        answer: Any = completed.response
        code = answer.error_code
        self._coordinator.check(now, completed.request.node_id, code)
        if self.state is JoiningState.LEAVING:
            return
        if code == error_codes.NONE:
            self._sync_accepted(now, answer)
        elif code in (error_codes.UNKNOWN_MEMBER_ID, error_codes.ILLEGAL_GENERATION):
            self._lost(now, code)
        elif code == error_codes.REBALANCE_IN_PROGRESS:
            self._begin(now, "the coordinator asked (sync)")
        elif code in error_codes.RETRIABLE:
            # Also COORDINATOR_LOAD_IN_PROGRESS, which Kafka's client treats as a failure.
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
            # The subscription has changed since the join, or the leader is wrong: in that case do not rejoin in a tight
            # loop.
            if topics == self._joined_topics:
                self._backoff.failed(now)
            self._begin(now, "assigned topics are not subscribed")
            return
        self._go(JoiningState.STABLE)
        self._partitions.target = target
        self._user_data.last = LastAssignment(target, self.group.generation_id)
        self._partitions.reconcile(self._history.finish(now, self.group, target))
        self._orphans.assigned(now, self.group.generation_id)
        if self._asked_again:
            self._begin(now, "the coordinator asked (heartbeat)")
        elif self._gave_up - target:
            self._begin(now, SECOND_ROUND)

    def _not_answered(self, now: int, completed: Completed, error: KafkaError) -> None:
        """Join or sync was not answered: keep the member id, or the group would contain this member twice."""
        self._coordinator.check(now, completed.request.node_id, error)
        if self.state is JoiningState.LEAVING:
            return
        if error.retriable:
            self._backoff.failed(now)
            self._begin(now, str(error))
        else:
            self._fatal(now, explain_transport(error, self._config))

    def _drop_stranded(self, now: int) -> None:
        """Start again at the current coordinator: requests to the previous one will not be answered."""
        node_id = self._coordinator.node_id
        sent = self._join or self._sync
        if node_id is None or sent is None or sent.node_id == node_id or self.state is JoiningState.LEAVING:
            return
        log.info("group %s: the coordinator moved to %d during the rebalance", self.group.group_id, node_id)
        self._begin(now, "the coordinator moved")

    def _reset(self) -> None:
        self.group = self._nobody()
        self._join = self._sync = None
        self._history.abandon()
        self._owes_sync = self._asked_again = False
        self._gave_up.clear()
        self._leader.follow()
        self._orphans.forget()

    def _nobody(self) -> GroupMetadata:
        return GroupMetadata(self._config.group_id or "", group_instance_id=self._config.group_instance_id)

    def _explained(self, code: int) -> KafkaError:
        return explain(code, self.group.group_id, tuple(self._assignors), self._config)

    def _go(self, state: JoiningState) -> None:
        if state is self.state:
            return
        assert state in TRANSITIONS[self.state], f"{self.state.name} -> {state.name}"
        self.state = state
        log.debug("group %s: %s", self.group.group_id, repr(self))
