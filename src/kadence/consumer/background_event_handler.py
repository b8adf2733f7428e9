"""Where background events leave the network side of a consumer. Network thread."""

from __future__ import annotations

from dataclasses import replace

from kadence.consumer.events import (
    Answer,
    BackgroundEvent,
    Failed,
    LosePartitions,
    RebalanceFailed,
    RebalanceFinished,
    RevokePartitions,
    Stalled,
)
from kadence.consumer.log_limiter import in_short
from kadence.consumer.reaper import Reaper
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import Subscription
from kadence.logs import logger

__all__ = ["BackgroundEventHandler"]

log = logger("kadence.consumer")


class BackgroundEventHandler:
    """Where background events leave the network side: an answer nobody waits for any more goes no further.

    The assignment is shown before the background event that tells of it, so a callback sees what it is told about.
    """

    def __init__(self, shared_state: SharedState, subscription: Subscription, reaper: Reaper) -> None:
        self._shared_state = shared_state
        self._subscription = subscription
        self._reaper = reaper
        self._moves = 0
        self._failures: set[tuple[object, ...]] = set()
        """Errors among the background events that the application has not taken yet."""

    def __call__(self, event: BackgroundEvent) -> None:
        if isinstance(event, Answer) and not self._reaper.settle(event.id):
            return
        if isinstance(event, RebalanceFinished):
            self._shared_state.measures.group.rebalanced(event.rebalance)
            event = replace(
                event, rebalance=event.rebalance.by_wall_clock(self._shared_state.wall_offset_ms())
            )
        elif isinstance(event, RebalanceFailed):
            measures = self._shared_state.measures
            measures.group.failed.record(measures.turned_at)
            return
        elif isinstance(event, Failed) and self._is_told(event):
            return
        self.show_assignment()
        self._shared_state.tell(event)
        if isinstance(event, Stalled):
            self._shared_state.on_stall(event)
        else:
            _log(event)

    def _is_told(self, event: Failed) -> bool:
        """Whether the same error waits for the application already: it may repeat for days before the next poll."""
        if not self._shared_state.background_events:
            self._failures.clear()
        known = (type(event.error), str(event.error), event.fatal, event.partition, event.fetch_epoch)
        if known in self._failures:
            return True
        self._failures.add(known)
        return False

    def show_assignment(self) -> None:
        if self._shared_state.assignment is not self._subscription.snapshot:
            self._shared_state.assignment = self._subscription.snapshot
        if self._moves != self._subscription.moves:
            self._moves = self._subscription.moves
            self._shared_state.signal.set()


def _log(event: BackgroundEvent) -> None:
    """What moved: the states between are the membership's to tell."""
    if isinstance(event, RebalanceFinished):
        rebalance = event.rebalance
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
    elif isinstance(event, RevokePartitions):
        log.info("revoking %s", in_short(event.partitions))
    elif isinstance(event, LosePartitions):
        log.warning(
            "lost %s: their records after the committed offsets will be processed again",
            in_short(event.partitions),
        )
