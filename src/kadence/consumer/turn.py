"""One turn of a consumer's network thread (C1).

`Turn.run_once` reads like its design note:

take the application's events
ask every manager what it wants sent, and when it must be asked again
one round of I/O, no longer than the nearest deadline of anything
bring the answers to the managers that asked
fail the calls whose time is over
show the application what changed
"""

from __future__ import annotations

from typing import Final

from kadence.client import network_thread
from kadence.client.engine import ended
from kadence.client.network_thread import NetworkClientDelegate
from kadence.client.request_manager import RequestManager
from kadence.client.surroundings import JobRunner
from kadence.clock import Clock
from kadence.consumer.background_events import BackgroundEventHandler
from kadence.consumer.event_processor import ApplicationEventProcessor
from kadence.consumer.events import Answer, CallbackDone
from kadence.consumer.group.membership import Membership
from kadence.consumer.reaper import Reaper
from kadence.consumer.shared_state import SharedState
from kadence.logs import logger

__all__ = ["Turn"]

log = logger("kadence.consumer")

_LATE_MS: Final = 200
"""A turn that begins so late was kept from it."""


class Turn(network_thread.Turn):
    """One turn of the loop over everything that lives on a consumer's network thread.

    Args:
        managers: asked in this order.
    """

    def __init__(
        self,
        clock: Clock,
        shared_state: SharedState,
        delegate: NetworkClientDelegate,
        processor: ApplicationEventProcessor,
        reaper: Reaper,
        background_event_handler: BackgroundEventHandler,
        jobs: JobRunner,
        membership: Membership | None,
        managers: tuple[RequestManager, ...],
    ) -> None:
        super().__init__(clock, delegate, managers)
        self._shared_state = shared_state
        self._processor = processor
        self._reaper = reaper
        self._background_event_handler = background_event_handler
        self._jobs = jobs
        self._membership = membership

    def run_once(self) -> bool:
        """One turn. False when the consumer is closed and nothing is left to do."""
        now = self._clock.now_ms()
        self._shared_state.measures.turned(now)
        if late := self._shared_state.lateness.turned(now):
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
        self._shared_state.lateness.due(now, wake_at)
        for answer in self._reaper.reap(self._exchange(now, wake_at)):
            self._shared_state.measures.expired += 1
            self._shared_state.tell(answer)
        return True

    def _tell_late(self, late_ms: int) -> None:
        """Warn when a heartbeat came, or would have come, half an interval too late (B9)."""
        member = self._membership
        if member is None or not member.active or late_ms < member.heartbeat_interval_ms // 2:
            return
        if self._shared_state.lateness.worth_telling(late_ms):
            session_ms = member.known_session_ms
            theirs = "the broker's group.consumer.session.timeout.ms"
            log.warning(
                "the network thread was kept from running for %.1f s: something holds the interpreter (a C call that "
                "does not let go of the GIL) or the machine was paused. The membership ends after %s without "
                "heartbeats; the native heartbeat has sent %d so far because this thread could not",
                late_ms / 1000,
                theirs if session_ms is None else f"{session_ms / 1000:.1f} s",
                self._shared_state.lateness.fallback_heartbeats,
            )

    def _take_application_events(self, now: int) -> None:
        # A snapshot of the length: a flood of calls must not keep the loop from its I/O.
        application_events = self._shared_state.application_events
        if not application_events:
            return
        for _ in range(len(application_events)):
            event = application_events.popleft()
            self._reaper.watch(event)
            self._processor.process(now, event)
        self._shared_state.measures.application_events.taken(now, self._clock.now_ms())

    def _show(self) -> None:
        shared_state, member = self._shared_state, self._membership
        self._background_event_handler.show_assignment()
        if member is not None and member.needs_polled and not shared_state.wants_polled:
            shared_state.wants_polled = True
            shared_state.alert()

    def finish(self, cause: BaseException | None) -> None:
        for answer in self._reaper.fail_all(lambda: ended("consumer", cause)):
            self._shared_state.tell(answer)
        for event in list(self._shared_state.application_events):
            if event.id and not isinstance(event, CallbackDone):
                self._shared_state.tell(Answer(event.id, None, ended("consumer", cause)))
        self._jobs.close()
