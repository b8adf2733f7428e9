"""Where background events leave the network side of a consumer (C2). Network thread."""

from __future__ import annotations

from dataclasses import replace

from kadence.consumer.events import (
    Answer,
    AssignPartitions,
    BackgroundEvent,
    Failed,
    LosePartitions,
    RebalanceFailed,
    RebalanceFinished,
    RevokePartitions,
    Stalled,
)
from kadence.consumer.reaper import Reaper
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import Subscription
from kadence.logs import in_short, logger

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
        self._failures: dict[tuple[object, ...], Failed] = {}
        """Errors that were told since the application had last taken all background events, the last of each kind."""

    def __call__(self, event: BackgroundEvent) -> None:
        if isinstance(event, Answer) and not self._reaper.answered(event.id):
            return
        if isinstance(event, RebalanceFinished):
            event = self._finished(event)
        elif isinstance(event, AssignPartitions) and event.finished is not None:
            event = replace(event, finished=self._finished(event.finished))
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

    def _finished(self, event: RebalanceFinished) -> RebalanceFinished:
        self._shared_state.measures.group.rebalanced(event.rebalance)
        return replace(event, rebalance=event.rebalance.by_wall_clock(self._shared_state.wall_offset_ms()))

    def _is_told(self, event: Failed) -> bool:
        """Whether the same error waits for the application already: it may repeat for days before the next poll."""
        waiting = self._shared_state.background_events
        if not waiting:
            self._failures.clear()
        known = (
            type(event.error),
            str(event.error),
            event.fatal,
            event.gave_up,
            event.partition,
            event.fetch_epoch,
        )
        told = self._failures.get(known)
        # It may have been taken, and others wait: those of partitions that were lost just before, say. A copy, for the
        # application may take some meanwhile.
        if told is not None and any(each is told for each in waiting.copy()):
            return True
        self._failures[known] = event
        return False

    def show_assignment(self) -> None:
        if self._shared_state.assignment is not self._subscription.snapshot:
            self._shared_state.assignment = self._subscription.snapshot
        self._shared_state.starts = self._subscription.starts
        self._shared_state.topics = self._subscription.topics
        if self._moves != self._subscription.moves:
            self._moves = self._shared_state.moves = self._subscription.moves
            self._shared_state.signal.set()


def _log(event: BackgroundEvent) -> None:
    """What moved: the states between are the membership's to tell."""
    finished = event.finished if isinstance(event, AssignPartitions) else event
    if isinstance(finished, RebalanceFinished):
        rebalance = finished.rebalance
        log.info(
            "group %s: rebalanced in %.1f s (%s): generation %d, owns %s; added %s, removed %s",
            finished.group.group_id,
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
