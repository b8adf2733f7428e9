"""Why a consumer that has joined its group gets no partitions: other members have them, and may be dead.

A process that was killed did not leave, so the group keeps its partitions until its session ends. After a restart it
reads nothing for 45 s, and nothing else explains that. So the first long wait for partitions is explained once.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from kadence.client.request_manager import NOTHING, Jobs, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Completed, Request
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.membership import GroupConfig, Membership
from kadence.consumer.subscription import Subscription
from kadence.logs import logger
from kadence.printable import plural
from kadence.protocol import error_codes

__all__ = ["HeldBack"]

log = logger("kadence.consumer")

_LONG_MS: Final = 8_000
"""By then a live member has learnt by its heartbeats, every 5 s, that it must give partitions up."""
_NAMED: Final = 3


class HeldBack:
    """Asks the coordinator once which members have the partitions, and logs them at WARNING.

    Args:
        jobs: imports the message: most consumers never need it, and the network thread must not import.
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        membership: Membership,
        subscription: Subscription,
        config: GroupConfig,
        jobs: Jobs,
    ) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._subscription = subscription
        self._config = config
        self._jobs = jobs
        self._is_over = False
        self._since: int | None = None
        self._question: Callable[[], Any] | None = None

    def poll(self, now: int) -> Poll:
        """Ask when the wait has become long."""
        if self._is_over:
            return NOTHING
        member, node_id = self._membership, self._coordinator.node_id
        if self._subscription.partitions:
            self._is_over = True
            return NOTHING
        if node_id is None or not (member.managed and (member.active or member.joining)):
            self._since = None
            return NOTHING
        if self._since is None:
            self._since = now
        due = add_ms(self._since, _LONG_MS)
        if now < due:
            return Poll(wake_at=due)
        if self._question is None:
            self._question = lambda: None
            self._jobs.submit(_load, self._loaded)
        message = self._question()
        if message is None:
            return NOTHING
        self._is_over = True
        return Poll([Request(message, node_id, add_ms(now, self._config.request_timeout_ms))], FOREVER)

    def _loaded(self, now: int, result: object, error: Exception | None) -> None:
        del now
        if error is not None:
            raise error
        assert isinstance(result, tuple)
        describe_consumer_group, describe_groups = result
        group_id = self._config.group_id

        def question() -> Any:
            is_classic = self._membership.known_session_ms is not None
            return describe_groups([group_id]) if is_classic else describe_consumer_group([group_id])

        self._question = question

    def on_response(self, now: int, completed: Completed) -> None:
        """Log the explanation in the response; a response without one is ignored."""
        del now
        answer: Any = completed.response
        group = answer.groups[0] if answer is not None and answer.groups else None
        if group is None or group.error_code != error_codes.NONE or self._subscription.partitions:
            return
        own_id = self._membership.group.member_id
        others = [each for each in group.members if each.member_id != own_id]
        if hasattr(group, "protocol_data"):
            if others and group.group_state != "Stable":
                log.warning(
                    "group %r has been waiting for %d s for other members to join again: %s. If one is dead, the group "
                    "goes on without it when its session ends (its session.timeout.ms: 10 s by default in Kadence, "
                    "45 s in most other clients)",
                    self._config.group_id,
                    _LONG_MS // 1_000,
                    _listed([_who(each) for each in others]),
                )
            return
        own = next((each for each in group.members if each.member_id == own_id), None)
        holding = [each for each in others if each.assignment.topic_partitions]
        if holding and not (own is not None and own.assignment.topic_partitions):
            log.warning(
                "group %r has given this member no partitions for %d s: %s. If that process is dead, the group gives "
                "its partitions to others when its session ends: 45 s after its last heartbeat by default (the "
                "brokers' group.consumer.session.timeout.ms)",
                self._config.group_id,
                _LONG_MS // 1_000,
                _listed([f"{_who(each)} has {_partitions_of(each)}" for each in holding]),
            )


def _load() -> tuple[type, type]:
    """The messages for both protocols."""
    consumer = import_module("kadence.protocol.consumer_group_describe")
    classic = import_module("kadence.protocol.describe_groups")
    return consumer.ConsumerGroupDescribeRequest, classic.DescribeGroupsRequest


def _who(member: Any) -> str:
    return f"client {member.client_id!r} at {member.client_host.removeprefix('/')}"


def _partitions_of(member: Any) -> str:
    topics = member.assignment.topic_partitions
    names = [f"{topic.topic_name}-{number}" for topic in topics for number in topic.partitions]
    return names[0] if len(names) == 1 else plural(len(names), "partition")


def _listed(parts: list[str]) -> str:
    more = len(parts) - _NAMED
    return ", ".join(parts[:_NAMED]) + (f" and {more} more" if more > 0 else "")
