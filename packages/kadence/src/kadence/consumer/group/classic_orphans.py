"""Finds partitions that no member has, because a static member returned without a rebalance (KIP-345).

It takes its old place, with the partitions of that. Other partitions may then have no owner until the next rebalance:

- Those that it gave up in the first round of a cooperative rebalance, if it was killed before it could ask for the
  second (KIP-429).
- Partitions of topics to which only its new process subscribes.
- Partitions that were created while it was down, if it leads the group. It makes no new assignment, so it does not
  notice them.

So a static member that has returned checks once, after a while, whether each partition has an owner.
"""

from __future__ import annotations

from typing import Any, Final

from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, ConnectionPurpose, Request
from kadence.consumer.assignors.embedded import decode_assignment
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.membership import ClusterView, GroupConfig
from kadence.consumer.subscription import Subscription
from kadence.protocol import error_codes
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.types import TopicPartition
from kadence.wire import WireError

__all__ = ["Orphans"]

_HEARTBEATS: Final = 2
"""It checks after this many heartbeat intervals: by then any second round requested by live members has begun."""


class Orphans:
    """Looks for partitions of the subscribed topics that no member of the group has.

    Attributes:
        sent: the look under way.
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        subscription: Subscription,
        metadata: ClusterView,
        config: GroupConfig,
    ) -> None:
        self._coordinator = coordinator
        self._subscription = subscription
        self._metadata = metadata
        self._config = config
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._generation = -1
        self._look_at = FOREVER
        self.sent: Request | None = None

    def came_back(self, generation: int) -> None:
        """The member joined in this generation, and cannot know whether it owed it a second round."""
        self._generation = generation
        self._look_at = FOREVER
        self.sent = None

    def assigned(self, now: int, generation: int) -> None:
        """The member got its partitions in this generation."""
        if generation == self._generation:
            self._look_at = add_ms(now, _HEARTBEATS * self._config.heartbeat_interval_ms)
        else:
            self.forget()

    def forget(self) -> None:
        """Stop looking: a rebalance has assigned all partitions since, or the membership is over."""
        self._generation, self._look_at, self.sent = -1, FOREVER, None

    def poll(self, now: int, requests: list[Request]) -> int:
        """Ask when it is time to. Returns when to be polled again."""
        if self._look_at == FOREVER or self.sent is not None:
            return FOREVER
        due = max(self._look_at, self._backoff.until)
        if now < due:
            return due
        node_id = self._coordinator.node_id
        if node_id is None:
            return self._coordinator.require(now)
        self.sent = Request(
            DescribeGroupsRequest(groups=[self._config.group_id or ""]),
            node_id,
            add_ms(now, self._config.request_timeout_ms),
            ConnectionPurpose.GROUP,
        )
        requests.append(self.sent)
        return FOREVER

    def found(self, now: int, completed: Completed) -> list[TopicPartition]:
        """The partitions without an owner, by the response.

        After an error the request is repeated or not, depending on it.
        """
        if completed.request is not self.sent:
            return []
        self.sent = None
        answer: Any = completed.response
        group = answer.groups[0] if answer is not None and answer.groups else None
        error = completed.error or (error_codes.NONE if group is None else group.error_code)
        self._coordinator.check(now, completed.request.node_id, error)
        is_passing = (
            completed.error.retriable if completed.error is not None else error in error_codes.RETRIABLE
        )
        if is_passing:
            self._backoff.failed(now)
            return []
        self.forget()
        if error or group is None or group.group_state != "Stable":
            # It is not allowed to ask, or a rebalance is assigning all partitions now.
            return []
        try:
            owned = {p for each in group.members for p in decode_assignment(each.member_assignment)}
        except WireError:
            return []
        return sorted(self._everything() - owned)

    def _everything(self) -> set[TopicPartition]:
        topics = self._metadata.cluster.topics
        return {
            TopicPartition(name, each.partition)
            for name in self._subscription.topics
            if (topic := topics.get(name)) is not None
            for each in topic.partitions
        }
