"""The network thread (C1).

`Turn.run_once` reads like its design note:

    take the application's events
    ask every manager what it wants sent, and when it must be asked again; or only the one that something happened to
    one round of I/O, no longer than the nearest deadline of anything
    bring the answers to the managers that asked
    fail the calls whose time is over
    show the application what changed

A bug anywhere in it ends the thread with its cause in the shared state (B6): every call raises it, none hangs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from kadence.client.request_manager import IndependentManager, RequestManager
from kadence.clock import FOREVER, Clock
from kadence.consumer.event_processor import ApplicationEventProcessor
from kadence.consumer.events import (
    Answer,
    BackgroundEvent,
    CallbackDone,
    Failed,
    LosePartitions,
    RebalanceFailed,
    RebalanceFinished,
    RevokePartitions,
    Stalled,
)
from kadence.consumer.group.membership import Membership
from kadence.consumer.jobs import JobRunner
from kadence.consumer.log_limiter import in_short
from kadence.consumer.network_client_delegate import NetworkClientDelegate
from kadence.consumer.reaper import Reaper
from kadence.consumer.shared_state import SharedState
from kadence.consumer.subscription import Subscription
from kadence.errors import ClosedError, FatalNetworkError
from kadence.logs import logger

__all__ = ["BackgroundEventHandler", "NetworkSide", "NetworkThread", "Turn"]

log = logger("kadence.consumer")

_LATE_MS: Final = 200
"""A turn that begins so late was kept from it."""


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


class Turn:
    """One turn of the loop over everything that lives on the network thread."""

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
        independent: IndependentManager,
    ) -> None:
        self._clock = clock
        self._shared_state = shared_state
        self._delegate = delegate
        self._processor = processor
        self._reaper = reaper
        self._background_event_handler = background_event_handler
        self._jobs = jobs
        self._membership = membership
        self._managers = managers
        self._independent = independent
        # Whether something has happened to nobody else since all were asked, and when the others must be asked again.
        self._is_private = False
        self._others_wake_at = 0

    def run_once(self) -> bool:
        """One turn. False when the consumer is closed and nothing is left to do."""
        now = self._clock.now_ms()
        self._shared_state.measures.turned(now)
        if late := self._shared_state.lateness.turned(now):
            if late >= _LATE_MS:
                # What has arrived meanwhile is heard before anything is judged by the clock.
                self._delegate.deliver(now, self._delegate.poll(0))
                self._is_private = False
            self._tell_late(late)
        something = self._take_application_events(now)
        something = self._jobs.deliver(now) or something
        closing = self._processor.closing
        if closing is not None and now >= closing.deadline:
            self._processor.hurry(now)
        if something or closing is not None or now >= self._others_wake_at:
            self._is_private = False
        wake_at = min(self._reaper.next_deadline, self._ask(now))
        if not self._is_private:
            self._processor.settle(now)
            self._show()
        if closing is not None:
            if now >= closing.deadline:
                # What is ready gets its one attempt, as every call without any time does.
                self._delegate.poll(0)
                return False
            if self._processor.finished:
                return False
            wake_at = min(wake_at, closing.deadline)
        self._shared_state.lateness.due(now, wake_at)
        completed = self._delegate.poll(None if wake_at >= FOREVER else max(wake_at - now, 0))
        now = self._clock.now_ms()
        self._is_private = self._delegate.deliver(now, completed)
        for answer in self._reaper.reap(now):
            self._shared_state.measures.expired += 1
            self._shared_state.tell(answer)
        return True

    def _ask(self, now: int) -> int:
        """Ask the managers what they want sent. Returns when the first of them must be asked again."""
        independent = self._independent
        if not self._is_private:
            self._others_wake_at = FOREVER
            for manager in self._managers:
                if manager is not independent:
                    self._others_wake_at = min(self._others_wake_at, self._ask_one(now, manager))
        return min(self._others_wake_at, self._ask_one(now, independent))

    def _ask_one(self, now: int, manager: RequestManager) -> int:
        poll = manager.poll(now)
        if poll.requests:
            self._delegate.send(manager, poll.requests)
        return poll.wake_at

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

    def _take_application_events(self, now: int) -> bool:
        # A snapshot of the length: a flood of calls must not keep the loop from its I/O.
        application_events = self._shared_state.application_events
        if not application_events:
            return False
        for _ in range(len(application_events)):
            event = application_events.popleft()
            self._reaper.watch(event)
            self._processor.process(now, event)
        self._shared_state.measures.application_events.taken(now, self._clock.now_ms())
        return True

    def _show(self) -> None:
        shared_state, member = self._shared_state, self._membership
        self._background_event_handler.show_assignment()
        if member is not None and member.needs_polled and not shared_state.wants_polled:
            shared_state.wants_polled = True
            shared_state.alert()

    def finish(self, error: BaseException | None) -> None:
        """The loop has ended: tell everybody who waits."""
        for answer in self._reaper.fail_all(lambda: _ended(error)):
            self._shared_state.tell(answer)
        for event in list(self._shared_state.application_events):
            if event.id and not isinstance(event, CallbackDone):
                self._shared_state.tell(Answer(event.id, None, _ended(error)))
        self._jobs.close()


def _ended(error: BaseException | None) -> Exception:
    if error is None:
        return ClosedError("this consumer is closed")
    fatal = FatalNetworkError(f"the network thread ended with a bug: {error!r}; only close() works now")
    fatal.__cause__ = error
    return fatal


class NetworkSide:
    """One network side from its first turn to its end, on whatever thread runs its turns.

    Args:
        build: makes the `Turn`, where it will run: nothing of the network side is ever shared.
        dispose: closes the sockets, whether a turn was ever built or not.
    """

    def __init__(
        self, shared_state: SharedState, build: Callable[[], Turn], dispose: Callable[[], None]
    ) -> None:
        self._shared_state = shared_state
        self._build = build
        self._dispose = dispose
        self._turn: Turn | None = None

    def run_once(self) -> bool:
        """One turn. False when it was the last: the consumer is closed, or a bug ended it."""
        try:
            if self._turn is None:
                self._turn = self._build()
            if self._turn.run_once():
                return True
        except BaseException as error:
            log.exception("the network thread of this consumer ended with a bug")
            self._end(error)
        else:
            self._end(None)
        return False

    def _end(self, cause: BaseException | None) -> None:
        shared_state = self._shared_state
        shared_state.dead = cause
        # From here on every call raises; only then is whoever waits already told, so nobody waits for nothing.
        shared_state.ended = True
        try:
            if self._turn is not None:
                self._turn.finish(cause)
        finally:
            self._dispose()
            shared_state.alert()


class NetworkThread:
    """Runs turns on a daemon thread of its own until the consumer is closed. The arguments are `NetworkSide`'s."""

    def __init__(
        self, name: str, shared_state: SharedState, build: Callable[[], Turn], dispose: Callable[[], None]
    ) -> None:
        self._side = NetworkSide(shared_state, build, dispose)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        while self._side.run_once():
            pass
