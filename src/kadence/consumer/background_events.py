"""Where background events leave the network side of a client (C2). Network thread."""

from __future__ import annotations

from kadence.consumer.client_state import ClientState
from kadence.consumer.events import Answer, BackgroundEvent, Failed, Stalled
from kadence.consumer.reaper import Reaper

__all__ = ["BackgroundEventHandler"]


class BackgroundEventHandler:
    """Where background events leave the network side: an answer nobody waits for any more goes no further.

    `kadence.consumer.rebalance_events.RebalanceEventHandler` adds what goes with rebalances. A share consumer has none,
    and shows its assignment by a `show` of its own.
    """

    def __init__(self, client_state: ClientState, reaper: Reaper) -> None:
        self._client_state = client_state
        self._reaper = reaper
        self._failures: dict[tuple[object, ...], Failed] = {}
        """Errors that were told since the application had last taken all background events, the last of each kind."""

    def __call__(self, event: BackgroundEvent) -> None:
        if isinstance(event, Answer):
            if not self._reaper.answered(event.id):
                return
        elif isinstance(event, Failed) and self._is_told(event):
            return
        self.show()
        self._client_state.tell(event)
        if isinstance(event, Stalled):
            self._client_state.on_stall(event)

    def show(self) -> None:
        """Put what changed where the application side sees it.

        Called before each background event, which may tell of it, and at the end of each turn.
        """

    def _is_told(self, event: Failed) -> bool:
        """Whether the same error waits for the application already: it may repeat for days before the next poll."""
        waiting = self._client_state.background_events
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
