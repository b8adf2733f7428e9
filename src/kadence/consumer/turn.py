"""One turn of the network thread of a consumer (C1), or of a share consumer.

`Turn.run_once` reads like its design note:

take the application's events
ask every manager what it wants sent, and when it must be asked again
one round of I/O, no longer than the nearest deadline of anything
bring the answers to the managers that asked
fail the calls whose time is over
show the application what changed
"""

from __future__ import annotations

from typing import Final, Protocol

from kadence.client import network_thread
from kadence.client.engine import ended
from kadence.client.network_thread import NetworkClientDelegate
from kadence.client.request_manager import RequestManager
from kadence.client.surroundings import JobRunner
from kadence.clock import Clock
from kadence.consumer.background_events import BackgroundEventHandler, Reaper
from kadence.consumer.client_state import ClientState
from kadence.consumer.events import Answer, ApplicationEvent, Close
from kadence.consumer.group.membership import Liveness
from kadence.logs import logger

__all__ = ["EventProcessor", "Turn"]

log = logger("kadence.consumer")

_LATE_MS: Final = 200
"""A turn that begins so late was kept from it."""


class EventProcessor(Protocol):
    """What each application event means to the managers: `ApplicationEventProcessor` for those of a consumer.

    A share consumer has another one, for acknowledgements where a consumer has commits and positions.
    """

    @property
    def closing(self) -> Close | None:
        """The `Close` that was asked for, until the thread has ended."""
        ...

    @property
    def finished(self) -> bool:
        """Whether the client is closing and has nothing more to send."""
        ...

    def process(self, now: int, event: ApplicationEvent) -> None: ...

    def answer_left(self, now: int) -> None:
        """Answer what waited for the group to be left."""
        ...

    def hurry(self, now: int) -> None:
        """The time for closing is over: tell the group now, without waiting for the application."""
        ...


class Turn(network_thread.Turn):
    """One turn of the loop over everything that lives on the network thread.

    Args:
        liveness: of the membership, if there is a group. managers: asked in this order.
    """

    def __init__(
        self,
        clock: Clock,
        client_state: ClientState,
        delegate: NetworkClientDelegate,
        processor: EventProcessor,
        reaper: Reaper,
        background_event_handler: BackgroundEventHandler,
        jobs: JobRunner,
        liveness: Liveness | None,
        managers: tuple[RequestManager, ...],
    ) -> None:
        super().__init__(clock, delegate, managers)
        self._client_state = client_state
        self._processor = processor
        self._reaper = reaper
        self._background_event_handler = background_event_handler
        self._jobs = jobs
        self._liveness = liveness

    def run_once(self) -> bool:
        """One turn. False when the consumer is closed and nothing is left to do."""
        now = self._clock.now_ms()
        self._client_state.measures.turned(now)
        if late := self._client_state.lateness.turned(now):
            if late >= _LATE_MS:
                # What has arrived meanwhile is heard before anything is judged by the clock.
                self._delegate.deliver(now, self._delegate.poll(0))
            self._tell_late(late)
        self._take_application_events(now)
        self._jobs.deliver(now)
        closing = self._processor.closing
        if closing is not None and now >= closing.deadline:
            self._processor.hurry(now)
        wake_at = self._ask(now, self._managers)
        self._processor.answer_left(now)
        self._show()
        wake_at = min(self._reaper.next_deadline, wake_at)
        if closing is not None:
            if now >= closing.deadline:
                # What is ready gets its one attempt, as every call without any time does.
                self._delegate.poll(0)
                return False
            if self._processor.finished:
                return False
            wake_at = min(wake_at, closing.deadline)
        self._client_state.lateness.due(now, wake_at)
        for answer in self._reaper.reap(self._exchange(now, wake_at)):
            self._client_state.measures.expired += 1
            self._client_state.tell(answer)
        return True

    def _tell_late(self, late_ms: int) -> None:
        """Warn when a heartbeat came, or would have come, half an interval too late (B9)."""
        member = self._liveness
        if member is None or not member.active or late_ms < member.heartbeat_interval_ms // 2:
            return
        if self._client_state.lateness.worth_telling(late_ms):
            session_ms = member.known_session_ms
            theirs = "the broker's group.consumer.session.timeout.ms"
            log.warning(
                "the network thread was kept from running for %.1f s: something holds the interpreter (a C call that "
                "does not let go of the GIL) or the machine was paused. The membership ends after %s without "
                "heartbeats; the native heartbeat has sent %d so far because this thread could not",
                late_ms / 1000,
                theirs if session_ms is None else f"{session_ms / 1000:.1f} s",
                self._client_state.lateness.fallback_heartbeats,
            )

    def _take_application_events(self, now: int) -> None:
        # A snapshot of the length: a flood of calls must not keep the loop from its I/O.
        application_events = self._client_state.application_events
        if not application_events:
            return
        for _ in range(len(application_events)):
            event = application_events.popleft()
            self._reaper.watch(event)
            self._processor.process(now, event)
        self._client_state.measures.application_events.taken(now, self._clock.now_ms())

    def _show(self) -> None:
        client_state, member = self._client_state, self._liveness
        self._background_event_handler.show()
        if member is not None and member.needs_polled and not client_state.wants_polled:
            client_state.wants_polled = True
            client_state.alert()

    def finish(self, cause: BaseException | None) -> None:
        for answer in self._reaper.fail_all(lambda: ended("consumer", cause)):
            self._client_state.tell(answer)
        for event in list(self._client_state.application_events):
            if event.is_answered:
                self._client_state.tell(Answer(event.id, None, ended("consumer", cause)))
        self._jobs.close()
