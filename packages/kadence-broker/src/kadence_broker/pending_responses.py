"""Holds a coordinator's answers back until the records that they depend on are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator import Answer, Caller

if TYPE_CHECKING:
    from kadence_broker.service import Call

__all__ = ["PendingResponses", "deliver", "refuse"]


class PendingResponses:
    """One step's answers, until all that they depend on is stored for good.

    It waits for one `done` more than there were calls of `begin`: the last one says that nothing else will be begun.

    Args:
        then: done after the answers have been delivered, if everything was stored.
        otherwise: done after the answers were refused, if something could not be stored.
    """

    __slots__ = ("_answers", "_failed", "_followers", "_otherwise", "_pending", "_then")

    def __init__(
        self,
        answers: list[Answer],
        then: Callable[[], None] | None = None,
        otherwise: Callable[[], None] | None = None,
    ) -> None:
        self._answers = answers
        self._then = then
        self._otherwise = otherwise
        self._followers: list[PendingResponses] = []
        self._pending = 1
        self._failed = False

    def begin(self) -> None:
        self._pending += 1

    def follow(self, earlier: PendingResponses) -> None:
        """Wait for ``earlier``, too; it is not over yet."""
        self.begin()
        earlier._followers.append(self)

    def fail(self) -> None:
        self._failed = True

    def done(self, code: int) -> None:
        """One of the things that the step waits for has happened, or failed with ``code``."""
        self._failed |= code != codes.NONE
        self._pending -= 1
        if self._pending:
            return
        try:
            self._end()
        finally:
            for each in self._followers:
                each.done(codes.NOT_COORDINATOR if self._failed else codes.NONE)

    def _end(self) -> None:
        if self._failed:
            refuse(each.caller for each in self._answers)
            if self._otherwise is not None:
                self._otherwise()
            return
        deliver(self._answers)
        if self._then is not None:
            self._then()


def refuse(callers: Iterable[Caller]) -> None:
    """Answer these requests with NOT_COORDINATOR: their effects were reverted."""
    for caller in callers:
        call: Call = caller.ticket
        call.reply(call.handler.refuse(call, codes.NOT_COORDINATOR))


def deliver(answers: Iterable[Answer]) -> None:
    """Send answers to those who wait for them."""
    for answer in answers:
        answer.caller.ticket.reply(answer.response)
