"""The requests of one admin call: sends them, and waits for their answers until the deadline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from kadence.admin.direct_calls import SOON_MS, AskedDirectly
from kadence.admin.leaders import Leaders
from kadence.admin.manager import OpenRequests
from kadence.admin.network import Network
from kadence.client.waits import Waits
from kadence.clock import Clock, Seconds, add_ms, to_ms
from kadence.config import AdminConfig
from kadence.connection.request import ANY_NODE, Completed, Request
from kadence.errors import (
    ConnectError,
    KafkaError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kadence.net.direct import Asked

__all__ = ["Ask", "Asking", "Changes"]


class Ask:
    """One request of a call: what, to whom, and in which versions.

    Attributes:
        is_unanswered: it was sent and no answer came, so the broker may have carried it out.
    """

    __slots__ = ("is_unanswered", "max_version", "message", "min_version", "node_id")

    def __init__(
        self,
        message: Any,
        node_id: int = ANY_NODE,
        *,
        min_version: int | None = None,
        max_version: int | None = None,
    ) -> None:
        self.message = message
        self.node_id = node_id
        self.min_version = min_version
        self.max_version = max_version
        self.is_unanswered = False


class _Sent(NamedTuple):
    """Requests that are on their way."""

    asks: Sequence[Ask]
    requests: Sequence[Request]
    asked: OpenRequests
    directly: AskedDirectly | None


class Changes(Protocol):
    """What the shell of a call waits for."""

    @property
    def listens(self) -> bool:
        """Whether `listen` is possible."""
        ...

    def set(self) -> None:
        """Something has changed. Any thread."""
        ...

    def listen(self, asked: Asked | None) -> bool:
        """Wait for this answer from now on, and no more if None. False: that is not possible any more."""
        ...


class Asking:
    """The requests of one call. `Calls` adds their repetition, and the choice of brokers.

    Args:
        network: sends the requests. leaders: the leaders and coordinators that the client's calls have found.
        changes: lets this call's shell resume it.
    """

    def __init__(
        self,
        config: AdminConfig,
        clock: Clock,
        network: Network,
        leaders: Leaders,
        changes: Changes,
    ) -> None:
        self._config = config
        self._clock = clock
        self._network = network
        self._leaders = leaders
        self._changes = changes
        self._began = clock.now_ms()

    def deadline(self, timeout: Seconds | None) -> int:
        """The time by which a call that starts now must end; None takes ``default.api.timeout.ms``."""
        wait_ms = to_ms(timeout)
        return add_ms(
            self._clock.now_ms(), self._config.default_api_timeout_ms if wait_ms is None else wait_ms
        )

    def left_ms(self, deadline: int) -> int:
        """The time that brokers may take: until the deadline, and at most for ``request.timeout.ms``."""
        return max(0, min(deadline - self._clock.now_ms(), self._config.request_timeout_ms))

    def ask(self, ask: Ask, deadline: int) -> Waits[Any]:
        """The answer to one request.

        Raises:
            TransportError: it could not be sent or was not answered.
        """
        (answer,) = yield from self.ask_all([ask], deadline)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def ask_all(self, asks: Sequence[Ask], deadline: int) -> Waits[list[Any | KafkaError]]:
        """The answer or the transport error of each, asked at the same time."""
        if self._clock.now_ms() >= deadline:
            # The requests before these took all the time: no broker is late with these.
            return [_not_sent(ask) for ask in asks]
        sent = self._sent(asks, deadline, directly=len(asks) == 1)
        try:
            if sent.directly is not None:
                yield from self._wait_directly(sent.directly, sent.asked, deadline)
            yield from self._wait(deadline, lambda: sent.asked.is_done)
        finally:
            sent.asked.is_given_up = True
        return self._answers(sent, deadline)

    def ask_all_or(
        self, asks: Sequence[tuple[Ask, Sequence[Ask]]], deadline: int
    ) -> Waits[list[tuple[bool, list[Any | KafkaError]]]]:
        """As `ask_all`; where a broker has no version for a request it is asked others at once.

        That waits for no other broker, which may stand still.

        Returns:
            Of each whether the others were asked, and the answers.
        """
        if self._clock.now_ms() >= deadline:
            return [(False, [_not_sent(ask)]) for ask, _ in asks]
        first = [self._sent([ask], deadline, directly=len(asks) == 1) for ask, _ in asks]
        others: dict[int, _Sent] = {}

        def is_done() -> bool:
            for place, sent in enumerate(first):
                completed = sent.asked.ended.get(sent.requests[0])
                if completed is not None and place not in others and _has_no_version(completed):
                    others[place] = self._sent(asks[place][1], deadline)
            return all(sent.asked.is_done for sent in (*first, *others.values()))

        try:
            if first and first[0].directly is not None:
                yield from self._wait_directly(first[0].directly, first[0].asked, deadline)
            yield from self._wait(deadline, is_done)
        finally:
            for sent in (*first, *others.values()):
                sent.asked.is_given_up = True
        return [
            (place in others, self._answers(others.get(place, sent), deadline))
            for place, sent in enumerate(first)
        ]

    def _wait_directly(self, sent: AskedDirectly, asked: OpenRequests, deadline: int) -> Waits[None]:
        """Wait for the plain answer. If it does not come soon the network thread takes the request over."""
        out = sent.asked
        soon = sent.sent_at + min(SOON_MS, self._config.request_timeout_ms)
        try:
            if self._changes.listen(out):
                yield from self._wait(min(deadline, soon), lambda: not out.is_waiting)
        finally:
            out.leave()
            self._changes.listen(None)
            if out.is_waiting:
                self._network.take_over()
        if out.is_answered and (completed := self._network.taken(sent)) is not None:
            asked.ended[sent.request] = completed

    def _sent(self, asks: Sequence[Ask], deadline: int, *, directly: bool = False) -> _Sent:
        send_by = min(deadline, add_ms(self._clock.now_ms(), self._config.request_timeout_ms))
        requests = [
            Request(
                ask.message, ask.node_id, send_by, min_version=ask.min_version, max_version=ask.max_version
            )
            for ask in asks
        ]
        asked = OpenRequests(requests, self._changes.set)
        directly = directly and self._changes.listens
        return _Sent(asks, requests, asked, self._network.ask(asked, directly=directly))

    def _answers(self, sent: _Sent, deadline: int) -> list[Any | KafkaError]:
        answers: list[Any | KafkaError] = []
        for ask, request in zip(sent.asks, sent.requests, strict=True):
            completed = sent.asked.ended.get(request)
            if completed is None or self._is_too_late(completed, deadline):
                answers.append(self._too_late(request))
            else:
                # Without a version it was never sent.
                ask.is_unanswered = completed.error is not None and completed.version >= 0
                answers.append(completed.response if completed.error is None else completed.error)
        return answers

    def _is_too_late(self, completed: Completed, deadline: int) -> bool:
        """True if the network thread has noticed the end of this call's time before this call has."""
        return isinstance(completed.error, RequestTimedOutError) and self._clock.now_ms() >= deadline

    def _too_late(self, request: Request) -> KafkaTimeoutError:
        why = self._network.trouble
        whom = self._network.broker(request.node_id) or ",".join(self._config.bootstrap_servers)
        late = KafkaTimeoutError(
            f"{request.name} was not answered in time by {whom}" + (f": {why}" if why else "")
        )
        if self._network.is_cut_off:
            late.__cause__ = ConnectError(why)
        return late

    def _wait(self, until: int, is_done: Callable[[], bool]) -> Waits[None]:
        """Wait for something, or for a time; no longer than the grace period of ``stop``.

        Raises:
            ClosedError: the client was closed meanwhile, or that is over.
        """
        while not is_done():
            self._network.check_going()
            now = self._clock.now_ms()
            if now >= until:
                return
            yield min(until, self._network.grace.wait_until(now, self._began))


def _not_sent(ask: Ask) -> KafkaTimeoutError:
    name = type(ask.message).__name__.removesuffix("Request")
    return KafkaTimeoutError(f"{name} was not sent: there was no time left for it")


def _has_no_version(completed: Completed) -> bool:
    """True if the request was never sent, because the broker does not know it in the versions that were asked for."""
    return completed.version < 0 and isinstance(completed.error, UnsupportedVersionError)
