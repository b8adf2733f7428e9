"""The state of a consumer and the calls that any thread may make: one class for threads and asyncio.

Nothing here waits, and nothing sends a request. Application side.
"""

from __future__ import annotations

from collections.abc import Sequence

from kadence.consumer.application.arguments import Partition, Partitions
from kadence.consumer.application.calls import Calls
from kadence.consumer.application.core import Core
from kadence.consumer.application.member_state import MemberState
from kadence.consumer.events import Rebalance
from kadence.consumer.shared_partition import NotFetched
from kadence.metrics import MetricName
from kadence.types import GroupMetadata, TopicPartition

__all__ = ["ConsumerState"]


class ConsumerState(MemberState):
    """The part of `Consumer` and `AsyncConsumer` that is one class for both."""

    _calls: Calls
    _core: Core

    # ------------------------------------------------------------ what is read

    def subscription(self) -> frozenset[str]:
        """Topics given to `subscribe`; empty for a manual assignment.

        For a pattern: the topics known to match it now. Where the broker matches (`SubscriptionPattern`): those of
        which this consumer has partitions.
        """
        return self._calls.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are assigned to this consumer, as of the last poll, or of the callback that runs in it.

        `group_metadata` and `rebalances` change in the same poll. `assign` and the calls like it change it at once;
        partitions that are created later (`assign_topics`) appear after the next poll. Between polls the group may take
        some away. Until the next poll reports that (`on_partitions_lost`), calls for such a partition have no effect on
        it, or raise an error.
        """
        return self._calls.assignment()

    def pause(self, partitions: Partitions) -> None:
        """Return no records of these partitions until `resume`. Buffered records are kept. Any thread may call it.

        A rebalance that revokes a partition ends its pause, even if the partition comes back at once (`EAGER`).
        Independently of this, `process` pauses partitions of which it has read enough ahead.
        """
        self._calls.pause(partitions)

    def resume(self, partitions: Partitions) -> None:
        """Undo `pause`: the next poll returns buffered records, and fetching goes on at once.

        Any thread may call it.
        """
        self._calls.resume(partitions)

    def finished(self) -> frozenset[TopicPartition]:
        """The partitions whose range (see `assign`) is done: every existing record of the range was returned."""
        return self._calls.finished()

    def paused(self) -> frozenset[TopicPartition]:
        """The partitions that `pause` has paused; not those that `process` pauses."""
        return self._calls.paused()

    def not_fetched(self) -> dict[TopicPartition, NotFetched]:
        """Each assigned partition that is not being fetched now, with the reason and for how long.

        Any thread may call it.

        For every other assigned partition a fetch request is under way. The call sends no request. A topic of
        `subscribe` or `assign_topics` that the cluster does not have is listed, too, with −1 as its partition. So is a
        partition that is fetched but returns nothing: because polls raise for its next record, or because a transaction
        has been open for 5 seconds at the position of a read_committed reader.
        """
        return self._calls.not_fetched()

    def current_lag(self, partition: Partition) -> int | None:
        """How many offsets the position is behind the last known end of the log; None while unknown.

        With isolation.level=read_committed that is the last stable offset, as in Kafka's own client: records behind an
        open transaction are not counted. `not_fetched` names a transaction that holds the partition up.
        Sends no request.
        """
        return self._calls.current_lag(partition)

    # ------------------------------------------------------------ the group

    def group_metadata(self) -> GroupMetadata:
        """This member's group id, member id, generation and group.instance.id, as one value: those of the last poll.

        Raises:
            InvalidGroupIdError: no group.id.
        """
        return self._calls.group_metadata()

    def rebalances(self) -> Sequence[Rebalance]:
        """The last 100 rebalances of this member, oldest first: cause, times, partitions added and removed.

        The poll that shows the new `assignment` adds the rebalance.
        """
        return self._calls.rebalances()

    # ------------------------------------------------------------ what was measured

    @staticmethod
    def metric_names() -> Sequence[MetricName]:
        """Every name that `metrics` can return, with empty tag values; for tools that register names in advance."""
        from kadence.consumer.application.metrics import catalogue

        return catalogue()
