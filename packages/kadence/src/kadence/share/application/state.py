"""The state of a share consumer and the calls that any thread may make: one class for threads and asyncio.

Nothing here waits, and nothing sends a request. Application side.
"""

from __future__ import annotations

from collections.abc import Sequence

from kadence.consumer.application.member_state import MemberState
from kadence.metrics import MetricName
from kadence.share.application.calls import ShareCalls
from kadence.share.application.core import ShareCore
from kadence.types import TopicPartition

__all__ = ["ShareConsumerState"]


class ShareConsumerState(MemberState):
    """The part of `ShareConsumer` and `AsyncShareConsumer` that is one class for both."""

    _calls: ShareCalls
    _core: ShareCore

    def subscription(self) -> frozenset[str]:
        """Topics given to `subscribe`."""
        return self._calls.subscription()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the group has assigned to this consumer. Other members may have them, too."""
        return self._calls.assignment()

    @property
    def lock_timeout(self) -> float | None:
        """How many seconds the broker locks a record for this consumer; None before the first answer to a fetch.

        It is the group's ``share.record.lock.duration.ms``. The consumer renews locks in time (share.lock.renewal).
        """
        return self._calls.lock_timeout()

    @staticmethod
    def metric_names() -> Sequence[MetricName]:
        """Every name that `metrics` can return, with empty tag values; for tools that register names in advance."""
        from kadence.share.application.metrics import catalogue

        return catalogue()
