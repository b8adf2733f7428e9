"""What a consumer's background events tell of rebalances, and where the assignment is shown. Network thread."""

from __future__ import annotations

from dataclasses import replace

from kadence.consumer.background_events import BackgroundEventHandler
from kadence.consumer.events import (
    AssignPartitions,
    BackgroundEvent,
    LosePartitions,
    RebalanceFailed,
    RebalanceFinished,
    RevokePartitions,
)
from kadence.consumer.reaper import Reaper
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import Subscription
from kadence.logs import in_short, logger

__all__ = ["RebalanceEventHandler"]

log = logger("kadence.consumer")


class RebalanceEventHandler(BackgroundEventHandler):
    """Measures and logs rebalances on their way to the application.

    The assignment is shown before the background event that tells of it, so a callback sees what it is told about.
    """

    def __init__(self, shared_state: SharedState, subscription: Subscription, reaper: Reaper) -> None:
        super().__init__(shared_state, reaper)
        self._shared_state = shared_state
        self._subscription = subscription
        self._moves = 0

    def __call__(self, event: BackgroundEvent) -> None:
        if isinstance(event, RebalanceFinished):
            event = self._finished(event)
        elif isinstance(event, AssignPartitions):
            if event.finished is not None:
                event = replace(event, finished=self._finished(event.finished))
        elif isinstance(event, RebalanceFailed):
            measures = self._shared_state.measures
            measures.group.failed.record(measures.turned_at)
            return
        elif isinstance(event, RevokePartitions):
            log.info("revoking %s", in_short(event.partitions))
        elif isinstance(event, LosePartitions):
            log.warning(
                "lost %s: their records after the committed offsets will be processed again",
                in_short(event.partitions),
            )
        super().__call__(event)

    def _finished(self, event: RebalanceFinished) -> RebalanceFinished:
        """What moved: the states between are the membership's to tell."""
        rebalance = event.rebalance
        self._shared_state.measures.group.rebalanced(rebalance)
        log.info(
            "group %s: rebalanced in %.1f s (%s): generation %d, owns %s; added %s, removed %s",
            event.group.group_id,
            rebalance.duration,
            rebalance.cause,
            rebalance.generation,
            in_short(rebalance.assigned),
            in_short(rebalance.added),
            in_short(rebalance.removed),
        )
        return replace(event, rebalance=rebalance.by_wall_clock(self._shared_state.wall_offset_ms()))

    def show(self) -> None:
        shared_state, subscription = self._shared_state, self._subscription
        if shared_state.shared_partitions is not subscription.snapshot:
            shared_state.shared_partitions = subscription.snapshot
        shared_state.starts = subscription.starts
        shared_state.topics = subscription.topics
        if self._moves != subscription.moves:
            self._moves = shared_state.moves = subscription.moves
            shared_state.signal.set()
