"""One turn of the network thread of a consumer (C1), or of a share consumer.

`Turn.run_once` reads like its design note:

take the application's events
ask every manager for its requests, and when it must be asked again
one round of I/O, no longer than the nearest deadline of anything
pass the responses to the managers that asked
fail the calls whose time is over
show the application what changed
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any, Final

from kadence.client import network_thread
from kadence.client.engine import ended
from kadence.client.network_thread import NetworkClientDelegate
from kadence.client.request_manager import RequestManager
from kadence.client.surroundings import JobRunner
from kadence.clock import Clock
from kadence.consumer.background_events import BackgroundEventHandler, Reaper
from kadence.consumer.client_state import ClientState
from kadence.consumer.events import Answer, ApplicationEvent, BackgroundEvent, Close, Polled, Unsubscribe
from kadence.consumer.group.membership import Liveness
from kadence.lazy_dataclasses import replace
from kadence.logs import logger

__all__ = ["EventProcessor", "Turn"]

log = logger("kadence.consumer")

_LATE_MS: Final = 200
"""A turn that begins this late (ms) was kept from running."""


class EventProcessor(abc.ABC):
    """Applies each kind of application event to the managers, one method each: here those for leaving the group.

    `kadence.consumer.event_processor.ApplicationEventProcessor` adds a consumer's. A share consumer adds its own, with
    acknowledgements where a consumer has commits and positions.

    Attributes:
        closing: the requested `Close`, until the thread has ended. is_cut_off: returns whether no broker can be
            reached.
    """

    def __init__(self, liveness: Liveness | None, tell: Callable[[BackgroundEvent], None]) -> None:
        self.closing: Close | None = None
        self.is_cut_off: Callable[[], bool] = lambda: False
        self._liveness = liveness
        self._tell = tell
        self._leaving: list[Unsubscribe] = []
        self._steps: dict[type[ApplicationEvent], Callable[[int, Any], None]] = {
            Unsubscribe: self._unsubscribe,
            Polled: self._polled,
            Close: self._close,
        }

    @property
    @abc.abstractmethod
    def _is_member(self) -> bool:
        """Whether there is a subscription, and so a group to leave."""

    @property
    @abc.abstractmethod
    def _is_pending(self) -> bool:
        """Whether requests are left to send that do not end with the group."""

    @abc.abstractmethod
    def _forget(self) -> None:
        """The group is left: forget the subscription."""

    def process(self, now: int, event: ApplicationEvent) -> None:
        self._steps[type(event)](now, event)

    def answer_left(self, now: int) -> None:
        """Answer the calls that waited for leaving the group."""
        del now
        member = self._liveness
        if self._leaving and (member is None or member.left or self._nobody_is_there):
            self._have_left()

    def _have_left(self) -> None:
        """The group is left: forget the subscription, and answer the calls that waited for it.

        Also called for a call whose time is over: its late end must not undo the application's next call.
        """
        self._forget()
        for call in self._leaving:
            self._answer(call)
        self._leaving.clear()

    @property
    def finished(self) -> bool:
        """Whether the client is closing and has nothing more to send."""
        if self.closing is None:
            return False
        left = self._liveness is None or self._liveness.left
        return (left and not self._is_pending) or self._nobody_is_there

    @property
    def _nobody_is_there(self) -> bool:
        """Only notifications to brokers are left, and no broker is reachable."""
        return (self._liveness is None or self._liveness.has_parted) and self.is_cut_off()

    def _unsubscribe(self, now: int, call: Unsubscribe) -> None:
        self._leaving.append(call)
        log.info("unsubscribed from all topics")
        if self._is_member and self._liveness is not None:
            self._liveness.leave(now, reason="unsubscribe() was called")
        self.answer_left(now)

    def _polled(self, now: int, call: Polled) -> None:
        del call
        if self._liveness is not None:
            self._liveness.polled(now)

    def _close(self, now: int, call: Close) -> None:
        """Of several closes the earliest deadline counts: one may be under way when the grace period ends."""
        if self.closing is not None:
            call = replace(call, deadline=min(call.deadline, self.closing.deadline))
        self.closing = call
        if self._is_member and self._liveness is not None:
            self._liveness.leave(
                now, reason="the consumer is closing", callbacks=bool(call.id), goodbye=call.leave
            )

    def hurry(self, now: int) -> None:
        """The time for closing is over: leave the group now, without waiting for callbacks of the application."""
        if self.closing is not None and self._is_member and self._liveness is not None:
            self._liveness.leave(
                now, reason="the consumer is closing", callbacks=False, goodbye=self.closing.leave
            )

    def _answer(self, call: ApplicationEvent, error: Exception | None = None) -> None:
        if call.id:
            self._tell(Answer(call.id, None, error))


class Turn(network_thread.Turn):
    """One turn of the loop over everything that lives on the network thread.

    Args:
        liveness: of the membership, if there is a group. managers: asked in this order.
        session_key: the broker's key of a session timeout that it tells no member.
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
        session_key: str = "group.consumer.session.timeout.ms",
    ) -> None:
        super().__init__(clock, delegate, managers)
        self._session_key = session_key
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
                # Read what has arrived meanwhile before checking any deadline.
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
                # Ready requests get one attempt, as for every call without any time.
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
            theirs = f"the broker's {self._session_key}"
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
