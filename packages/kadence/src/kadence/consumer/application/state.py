"""The state of a consumer and the calls that any thread may make: one class for threads and asyncio.

Nothing here waits, and nothing sends a request. Application side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from kadence.clock import Seconds
from kadence.consumer.application.arguments import Partition, Partitions
from kadence.consumer.application.calls import Calls
from kadence.consumer.application.core import Core
from kadence.consumer.application.processing import Stall
from kadence.consumer.client_state import NetworkLateness
from kadence.consumer.events import Rebalance
from kadence.consumer.shared_partition import NotFetched
from kadence.idioms import unmade
from kadence.metrics import MetricName
from kadence.types import GroupMetadata, TopicPartition

if TYPE_CHECKING:
    from kadence.consumer.application.health import Health

__all__ = ["ConsumerState"]


class ConsumerState:
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
        some away. Calls that name one of these then have no effect on it, even if it has come back meanwhile, or raise
        that it was lost; the next poll reports it (`on_partitions_lost`).
        """
        return self._calls.assignment()

    def pause(self, partitions: Partitions) -> None:
        """Return no records of these partitions until `resume`. Buffered records are kept. Any thread may call it.

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
        """The partitions that `pause` was called for and `resume` was not; not those that `process` pauses."""
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

    def network_lateness(self) -> NetworkLateness:
        """How late the network thread ran, and how many heartbeats the native thread sent in its place."""
        return self._calls.network_lateness()

    def stalls(self) -> Sequence[Stall]:
        """The last 100 stalls (stall.report.ratio): where the application's thread was, and with which records."""
        return self._calls.stalls()

    def health(self) -> Health:
        """Whether it is alive and ready, and if not why: for the probes of a supervisor.

        Any thread may call it; it sends no request and waits for nothing.
        """
        return self._calls.health()

    def metrics(self) -> Mapping[MetricName, float]:
        """All metrics, under the names of Kafka's own client (docs/metrics.md).

        Any thread may call it; sends no request.

        Rates and averages are of the last 30 to 60 s. A value that was never measured is NaN; a metric that says
        how long ago something happened is -1 if it never did.
        """
        return self._calls.metrics()

    @staticmethod
    def metric_names() -> Sequence[MetricName]:
        """Every name that `metrics` can return, with empty tag values; for tools that register names in advance."""
        from kadence.consumer.application.metrics import catalogue

        return catalogue()

    # ------------------------------------------------------------ ending a wait

    def wakeup(self) -> None:
        """From any thread: make the call that waits now, or the next one that would, raise `WakeupError`."""
        self._core.wakeup()

    def stop(self, *, grace: Seconds | None = None) -> None:
        """Stop reading: iterations end after the current record, and polls return nothing, at once.

        No exception is raised. A poll that waits returns at once. Records that were fetched and not returned are
        left for the partitions' next owner. Commits, seeks and `close` work as before. It cannot be undone. Any
        thread and a signal handler may call it; `kadence.stop_on_signals` calls it when a signal comes.

        Args:
            grace: within how many seconds from now `close` must end, unless it gets a timeout of its own. Pass the time
                that the program's supervisor (Kubernetes, systemd) allows. A call that waits for brokers raises
                `ClosedError` two seconds before; one that begins later has two seconds. None: `close` has 30 s, as by
                default, and calls what their own timeouts allow.
        """
        return self._calls.stop(grace)

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called: for loops such as ``while not consumer.stopping``."""
        return self._calls.stopping

    def _unfinished(self) -> str | None:
        """The work that keeps the application from closing this consumer, and its stack; None when there is none."""
        return self._calls.busy()

    _end_means = "leaves the group"

    def _end_unfinished(self) -> None:
        """Leave the group, whatever the application is doing. Any thread; waits for nothing."""
        self._calls.leave_unfinished()

    def __reduce__(self) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"{kind} has connections and a thread, and cannot be pickled or copied: create one where it is used"
        )

    def __repr__(self) -> str:
        kind = type(self).__name__
        return self._calls.describe(kind) if "_calls" in vars(self) else unmade(kind)
