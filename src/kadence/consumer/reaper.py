"""The deadlines of the application's calls (C2): what is overdue fails, even while every broker is silent.

Network thread. A call waits for its answer without a clock of its own; the reaper is the only thing that ends the wait.
The loop bounds its select by `next_deadline` and reaps with the time after it, so a call overshoots by no more than one
turn. It reaps after the network, so a call without any time left still gets one attempt.
"""

from __future__ import annotations

from collections.abc import Callable

from kadence.clock import FOREVER
from kadence.consumer.events import Answer, ApplicationEvent
from kadence.errors import ConnectError, KafkaTimeoutError

__all__ = ["Reaper"]


class Reaper:
    """Calls that wait for an answer.

    Args:
        why: what stands in the way at the moment, for the error's text; None when nothing is known.
        away: why no broker can be reached, which is then the error's cause; None when one can be.

    Attributes:
        missing: what the call of an id still waits for, for the same; None when there is nothing to say.
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
        """An answer is there. False when the call was reaped before: nobody waits any more."""
        return self._waiting.pop(call_id, None) is not None

    @property
    def next_deadline(self) -> int:
        if not self._waiting:
            return FOREVER
        return min(call.deadline for call in self._waiting.values())

    def reap(self, now: int) -> list[Answer]:
        if not self._waiting:
            return []
        overdue = [call_id for call_id, call in self._waiting.items() if call.deadline <= now]
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
        """The thread ends: whoever still waits is told."""
        answers = [Answer(call_id, None, make()) for call_id in self._waiting]
        self._waiting.clear()
        return answers
