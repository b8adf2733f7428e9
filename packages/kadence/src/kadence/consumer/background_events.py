"""Sends background events from the network side of a client, and enforces the deadlines of its calls (C2).

Network thread.

A call waits for its answer without a clock of its own; the reaper is the only thing that ends the wait. The loop
bounds its select by `next_deadline` and reaps with the time after it, so a call overshoots by no more than
one turn. It reaps after the network, so a call without any time left still gets one attempt.
"""

from __future__ import annotations

from collections.abc import Callable

from kadence.clock import FOREVER
from kadence.consumer.client_state import ClientState
from kadence.consumer.events import Answer, ApplicationEvent, BackgroundEvent, Failed, Stalled
from kadence.errors import ConnectError, KafkaTimeoutError

__all__ = ["BackgroundEventHandler", "Reaper"]


class BackgroundEventHandler:
    """Sends background events from the network side; drops an answer that no call waits for any more.

    `kadence.consumer.event_processor.RebalanceEventHandler` adds the events of rebalances. A share consumer has none,
    and overrides `show` for its assignment.
    """

    def __init__(self, client_state: ClientState, reaper: Reaper) -> None:
        self._client_state = client_state
        self._reaper = reaper
        self._failures: dict[tuple[object, ...], Failed] = {}
        """Errors sent since the application last took all background events, the last of each kind."""

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
        """Publish changes to the application side.

        Called before each background event, which may refer to them, and at the end of each turn.
        """

    def _is_told(self, event: Failed) -> bool:
        """Whether the same error is already queued for the application: it may repeat for days before the next poll."""
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
        # It may have been taken while others, such as those of lost partitions, are still queued. A copy, because the
        # application may take some meanwhile.
        if told is not None and any(each is told for each in waiting.copy()):
            return True
        self._failures[known] = event
        return False


class Reaper:
    """Calls that wait for an answer.

    Args:
        why: the current obstacle, for the error's text; None when nothing is known.
        away: why no broker can be reached, which is then the error's cause; None when one can be.

    Attributes:
        missing: what the call of an id still waits for, also for the error's text; None if unknown.
    """

    def __init__(self, why: Callable[[], str | None], away: Callable[[], str | None] = lambda: None) -> None:
        self.missing: Callable[[int], str | None] = lambda call_id: None
        self._away = away
        self._why = why
        self._waiting: dict[int, ApplicationEvent] = {}

    def watch(self, call: ApplicationEvent) -> None:
        if call.is_answered:
            self._waiting[call.id] = call

    def answered(self, call_id: int) -> bool:
        """An answer has come. False when the call was reaped before: it no longer waits."""
        return self._waiting.pop(call_id, None) is not None

    @property
    def next_deadline(self) -> int:
        if not self._waiting:
            return FOREVER
        return min(call.reaped_at for call in self._waiting.values())

    def reap(self, now: int) -> list[Answer]:
        if not self._waiting:
            return []
        overdue = [call_id for call_id, call in self._waiting.items() if call.reaped_at <= now]
        answers = []
        for call_id in overdue:
            call = self._waiting.pop(call_id)
            missing, away = self.missing(call_id), self._away()
            why = away or self._why()
            text = f"{call.what} did not finish in time"
            text += (f": {missing}" if missing else "") + (f"; last error: {why}" if why else "")
            late = KafkaTimeoutError(text)
            late.__cause__ = ConnectError(away) if away else None
            answers.append(Answer(call_id, None, late))
        return answers

    def fail_all(self, make: Callable[[], Exception]) -> list[Answer]:
        """The thread ends: answer every call that still waits."""
        answers = [Answer(call_id, None, make()) for call_id in self._waiting]
        self._waiting.clear()
        return answers
