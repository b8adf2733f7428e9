"""Partitions that nobody has, because a static member came back without a rebalance (KIP-345).

It takes its old place, with the partitions of that. Others may be nobody's then, until the next rebalance, for whatever
reason that comes:

- Those that it gave up in the first round of a cooperative rebalance, if it was killed before the second, for which it
  would have asked (KIP-429).
- Those of topics to which only its new process subscribes.
- Those that were made while it was down, if it leads the group. It does not assign anew, so it does not see that they
  are new.

So a static member that came back looks once, after a while, whether each partition has an owner.
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
"""It looks after so many heartbeat intervals: by then a second round that is not owed by the dead has begun."""


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
        """The member came into this generation, and cannot know what it owed to it."""
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
        """Nothing is looked for: a rebalance has shared all out since, or the membership is over."""
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
        """What the answer says is nobody's. An answer that says nothing is asked for again, or not, by its error."""
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
            # It may not ask; or all is shared out anew just now.
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
