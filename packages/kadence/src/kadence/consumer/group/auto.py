"""``group.protocol=auto``: KIP-848 where the broker has it, classic where the group already uses that (C4).

Whenever the consumer joins from outside, it asks the coordinator whether the group has classic
members (DescribeGroups knows no others). If so the consumer joins them in their protocol, because only an
explicit ``group.protocol=consumer`` may convert a live group. Otherwise it joins by KIP-848, and if the broker
does not speak that, or refuses it for this group, by the classic protocol: the member owned nothing yet, so no record
is lost or read twice.

Only KIP-848 has a `SubscriptionPattern`: if the group uses the classic protocol, or the broker speaks nothing else, the
application gets an error.

The question and the join are two requests. A classic member that joins an empty group between them is converted, as by
``group.protocol=consumer``: the protocol has no join that would be refused instead. It keeps reading.

It has a member for each protocol. One is in use; the other is outside the group, or still leaving it. The classic one
is created when it is first needed: its files, messages and assignors are not needed in groups without classic members.
The helper thread imports them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from kadence.client.request_manager import Jobs, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, Request
from kadence.consumer.group import member_states
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.kip848_member import ConsumerGroupHeartbeatRequest, ConsumerMembership
from kadence.consumer.group.membership import GroupConfig, HeartbeatOutcome
from kadence.consumer.subscription import PartitionState
from kadence.errors import UnsupportedVersionError
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kadence.consumer.group.classic_member import ClassicMembership

__all__ = ["AutoMembership", "LoadClassic"]

log = logger("kadence.consumer")

_NOT_HERE = frozenset({error_codes.UNSUPPORTED_VERSION, error_codes.GROUP_ID_NOT_FOUND})
"""Refusals of a join after which the classic protocol may still work."""

LoadClassic = Callable[[], "Callable[[], ClassicMembership]"]
"""Imports the classic protocol, on the helper thread. Its result creates the member, on the network thread."""


class AutoMembership:
    """Chooses the group protocol for ``group.protocol=auto``, and creates its member.

    It has the interface of `kadence.consumer.group.membership.Membership`.

    Args:
        coordinator: receives the question and the joins.
        consumer: the member that speaks KIP-848.
        load_classic: for the other one, on the same subscription. jobs: runs it.
        config: request and backoff times.
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        consumer: ConsumerMembership,
        config: GroupConfig,
        jobs: Jobs,
        load_classic: LoadClassic,
    ) -> None:
        self._coordinator = coordinator
        self._classic: ClassicMembership | None = None
        self._consumer = consumer
        self._jobs = jobs
        self._load_classic = load_classic
        self._is_loading = False
        self._why_classic: str | None = None
        """Why the classic member joins once it has been created; None: it does not."""
        self._config = config
        self._member: ClassicMembership | ConsumerMembership = consumer
        self._asking = False
        self._switching = False
        """The member is leaving the classic group, because the new subscription needs KIP-848."""
        self._question: Request | None = None
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        consumer.on_stumble = self._stumbled
        coordinator.on_failed.append(self._coordinator_failed)

    # ------------------------------------------------------------ the state

    @property
    def managed(self) -> bool:
        return self._member.managed

    @property
    def group(self) -> GroupMetadata:
        return self._member.group

    @property
    def active(self) -> bool:
        return self._member.active

    @property
    def joining(self) -> bool:
        return self._asking or self._member.joining

    @property
    def settled(self) -> bool:
        return self._member.settled

    @property
    def has_parted(self) -> bool:
        return not self._asking and all(member.has_parted for member in self._members)

    @property
    def left(self) -> bool:
        return not self._asking and all(member.left for member in self._members)

    @property
    def needs_polled(self) -> bool:
        # The coordinator must get our LeaveGroup before the question, or it would count us among the members.
        switched = self._switching and self._classic is not None and self._classic.left
        return (self._member.needs_polled or switched) and not self._asking

    @property
    def term(self) -> object:
        return (self._member is self._consumer, self._member.term)

    @property
    def urgent(self) -> bool:
        return self._member.urgent

    @property
    def heartbeat_interval_ms(self) -> int:
        return self._member.heartbeat_interval_ms

    @property
    def session_timeout_ms(self) -> int:
        return self._member.session_timeout_ms

    @property
    def known_session_ms(self) -> int | None:
        return self._member.known_session_ms

    @property
    def _members(self) -> tuple[ClassicMembership | ConsumerMembership, ...]:
        return (self._consumer,) if self._classic is None else (self._classic, self._consumer)

    @property
    def _outside(self) -> bool:
        return self._is_out_of_classic and self._consumer.state in member_states.OUT

    @property
    def _is_out_of_classic(self) -> bool:
        return self._classic is None or self._classic.has_parted

    def __repr__(self) -> str:
        return f"<auto {'asking' if self._asking else self._member!r}>"

    # ------------------------------------------------------------ the application's calls

    def subscription_changed(self, now: int) -> None:
        self._switching = self._consumer.needs_kip_848 and not self._is_out_of_classic
        if self._switching and self._classic is not None:
            self._classic.leave(now, reason="subscribe() with a SubscriptionPattern, which needs KIP-848")
        else:
            self._member.subscription_changed(now)

    def polled(self, now: int) -> None:
        if not self.needs_polled:
            return
        if self.managed and self._outside:
            self._asking, self._switching = True, False
        else:
            self._member.polled(now)

    def rebalance(self, now: int, reason: str) -> None:
        self._member.rebalance(now, reason)

    def callback_done(self, now: int, callback_id: int, error: str | None) -> None:
        self._member.callback_done(now, callback_id, error)

    def leave(self, now: int, *, reason: str, callbacks: bool = True, goodbye: bool | None = None) -> None:
        self._stop_asking()
        self._switching = False
        self._member.leave(now, reason=reason, callbacks=callbacks, goodbye=goodbye)

    def poll_timed_out(self, now: int) -> None:
        if self._asking:
            self._stop_asking()  # and the next poll asks again
        else:
            self._member.poll_timed_out(now)

    # ------------------------------------------------------------ the question

    def poll(self, now: int) -> Poll:
        classic = None if self._classic is None else self._classic.poll(now)
        poll = self._consumer.poll(now)
        if classic is not None:
            poll = Poll(classic.requests + poll.requests, min(classic.wake_at, poll.wake_at))
        if self._asking and self._question is None and self._why_classic is None:
            requests = list(poll.requests)
            poll = Poll(requests, min(poll.wake_at, self._ask(now, requests)))
        return poll

    def _ask(self, now: int, requests: list[Request]) -> int:
        node_id = self._coordinator.node_id
        if node_id is None:
            return self._coordinator.require(now)
        if not self._backoff.ready(now):
            return self._backoff.until
        message = DescribeGroupsRequest(groups=[self._config.group_id or ""])
        self._question = Request(message, node_id, add_ms(now, self._config.request_timeout_ms))
        requests.append(self._question)
        return FOREVER

    def on_response(self, now: int, completed: Completed) -> None:
        if isinstance(completed.request.message, DescribeGroupsRequest):
            if completed.request is self._question:
                self._question = None
                self._answered(now, completed)
            return
        for member in self._members:
            member.on_response(now, completed)

    def _answered(self, now: int, completed: Completed) -> None:
        if completed.error is not None:
            self._coordinator.check(now, completed.request.node_id, completed.error)
            if completed.error.retriable:
                self._backoff.failed(now)
            else:
                # The join will meet the same error, and report it.
                why = "the broker does not show its members"
                if self._consumer.needs_kip_848:
                    self._join(now, self._consumer, why)
                else:
                    self._join_classic(now, why)
            return
        answer: Any = completed.response
        if not answer.groups:
            # The response does not describe the group, so ask again.
            self._backoff.failed(now)
            return
        group = answer.groups[0]
        self._coordinator.check(now, completed.request.node_id, group.error_code)
        if group.error_code in error_codes.RETRIABLE:
            self._backoff.failed(now)
        elif group.error_code == error_codes.NONE and group.members:
            if self._consumer.needs_kip_848:
                self._refuse(now)
            else:
                self._join_classic(now, "it has classic members")
        else:
            self._join(now, self._consumer, "it has no classic members")

    def _join_classic(self, now: int, why: str) -> None:
        """As `_join`; the first time only after the helper thread has imported the protocol."""
        if self._classic is not None:
            self._join(now, self._classic, why)
            return
        self._asking, self._question, self._why_classic = True, None, why
        if not self._is_loading:
            self._is_loading = True
            self._jobs.submit(self._load_classic, self._loaded)

    def _loaded(self, now: int, make: object, error: Exception | None) -> None:
        if error is not None:
            raise error
        self._is_loading = False
        self._classic = cast("Callable[[], ClassicMembership]", make)()
        why, self._why_classic = self._why_classic, None
        if why is not None and not self._consumer.needs_kip_848:
            self._join(now, self._classic, why)

    def _join(self, now: int, member: ClassicMembership | ConsumerMembership, why: str) -> None:
        self._stop_asking()
        log.info(
            "group %s: group.protocol is %s: %s",
            self.group.group_id,
            "classic" if member is self._classic else "consumer",
            why,
        )
        self._member.needs_polled = False
        self._member = member
        member.needs_polled = True
        member.polled(now)

    def _refuse(self, now: int) -> None:
        """A SubscriptionPattern, but a group with classic members: only the user can decide which of them changes."""
        self._stop_asking()
        self._backoff.failed(now)
        self._member.needs_polled = False
        self._member = self._consumer
        self._consumer.refuse_classic_group(now)

    def _stop_asking(self) -> None:
        self._asking, self._question, self._why_classic = False, None, None

    def _coordinator_failed(self, now: int, error: Exception) -> bool:
        """Neither member is in the group to report the error: report it here, and let the next poll ask again."""
        del now, error
        self._stop_asking()
        return False

    # ------------------------------------------------------------ heartbeats, commits

    def heartbeat(self, deadline: int) -> Request:
        return self._member.heartbeat(deadline)

    def native_heartbeat(self) -> Any:
        return self._member.native_heartbeat()

    def on_heartbeat(self, now: int, completed: Completed) -> HeartbeatOutcome:
        if not isinstance(completed.request.message, ConsumerGroupHeartbeatRequest):
            assert self._classic is not None
            outcome = self._classic.on_heartbeat(now, completed)
        elif self._may_give_way and _not_here(completed):
            self._consumer.give_way(now)
            self._join_classic(now, "the broker does not offer KIP-848 to it")
            outcome = HeartbeatOutcome.LOST
        else:
            outcome = self._consumer.on_heartbeat(now, completed)
        if outcome is HeartbeatOutcome.ALIVE:
            self._backoff.succeeded()
        return outcome

    @property
    def _may_give_way(self) -> bool:
        """Whether we are joining by KIP-848 and could use the classic protocol."""
        joins = self._member is self._consumer and self._consumer.state is member_states.State.JOINING
        return joins and not self._consumer.needs_kip_848

    def _stumbled(self, now: int) -> HeartbeatOutcome:
        """The group is a classic one in its first rebalance, which the question came too early to see: ask again."""
        if not self._may_give_way:
            return HeartbeatOutcome.RETRY
        self._backoff.failed(now)
        self._consumer.give_way(now)
        self._asking = True
        return HeartbeatOutcome.LOST

    def tenure(self, partition: TopicPartition) -> PartitionState | None:
        return self._member.tenure(partition)

    def commit_refused(self, now: int, sent: GroupMetadata, code: int) -> bool:
        return self._member.commit_refused(now, sent, code)


def _not_here(completed: Completed) -> bool:
    if completed.error is not None:
        return isinstance(completed.error, UnsupportedVersionError)
    return completed.response.error_code in _NOT_HERE
