"""The timers that keep a member in its group, and the poll timer, which makes it leave (KIP-62; B3, B4, B5).

One step, in this order:

    not in a group                          nothing to do
    no success for a session timeout        give the coordinator up
    no poll for the processing timeout      leave the group
    coordinator unknown                     ask for it, wait
    no answer for a third of the margin     hang up; the next heartbeat dials anew
    heartbeat not due, or one under way     wait (due at once when the membership has something to say)
    otherwise                               send one

In each case the native thread gets the heartbeat to send if this thread does not run again in time.

The poll timer comes before the look-up (Java's client looks at it only while the coordinator is known): a member that
makes no progress gives its partitions up at once, even if no coordinator is known (B4).

The interval counts from the moment a heartbeat is sent, not from its answer, so a slow broker does not
stretch it. Any failure is repeated after a backoff, not after a whole interval: an interval may be most of
what is left of the session. And a network path that drops packets is noticed by an unanswered heartbeat, early enough
for two more over new connections before the session ends: request.timeout.ms is longer than a session.

`NativeHeartbeatPlanner` decides in advance which heartbeats the native thread may send if the network thread is kept
from running (G3). The network thread asks for its turn when a heartbeat is due, or when the answer to one is overdue.
If that does not come within a *grace* period, some code holds the interpreter. From then on the native thread sends
heartbeats, one each interval, until the processing timeout forbids it: while the interpreter is held the application
does not poll (B4).

The processing timeout is counted from the last poll that was seen here. The application may have polled since, so the
native heartbeat may stop too early, never too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Backoff, Completed, ConnectionPurpose, NativeHeartbeatPlan, Request
from kadence.consumer.client_state import Progress
from kadence.consumer.events import AddBackgroundEvent, Stalled
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.membership import SENT_NATIVELY, GroupConfig, HeartbeatOutcome, Liveness
from kadence.logs import logger

__all__ = ["HeartbeatRequestManager", "NativeHeartbeatPlanner"]


class NativeHeartbeatPlanner:
    """Decides which heartbeat the native thread gets, and passes it to `on_change`: None when it must send nothing."""

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        membership: Liveness,
    ) -> None:
        self.on_change: Callable[[NativeHeartbeatPlan | None], None] | None = None
        self._coordinator = coordinator
        self._membership = membership
        self._present: NativeHeartbeatPlan | None = None
        # The inputs of the current plan, and the time (ms) from which the same inputs give another one.
        self._made_of: tuple[object, ...] = ()
        self._again_at = 0

    def arrange(self, now: int, wake_at: int, session_ends: int, until: int) -> None:
        """Put the native thread off until the next turn is overdue.

        Args:
            wake_at: when the heartbeats ask for their next turn.
            session_ends: when the coordinator counts as silent, if it goes on like this.
            until: when the application must have polled.
        """
        if self.on_change is None:
            return
        member, node, present = self._membership, self._coordinator.node, self._present
        message = None if node is None else member.native_heartbeat()
        if node is None or message is None:
            if present is not None:
                self._present = None
                self.on_change(None)
            return
        made_of = (message, node.node_id, wake_at, session_ends)
        if (
            present is not None
            and now < self._again_at
            and until - present.until < present.interval_ms
            and made_of == self._made_of
        ):
            return
        interval_ms, session_ms = member.heartbeat_interval_ms, member.session_timeout_ms
        margin = session_ms - interval_ms
        grace = min(margin, interval_ms) // 2
        # At least half of the margin is left, however long the wait for a response. But not at once: this turn has
        # come.
        due = min(add_ms(wake_at, grace), session_ends - margin // 2)
        soon = grace // 2
        request = None if present is None else present.request
        if request is None or request.message is not message or request.node_id != node.node_id:
            request = Request(message, node.node_id, FOREVER, ConnectionPurpose.GROUP, SENT_NATIVELY)
        wanted = NativeHeartbeatPlan(request, max(due, add_ms(now, soon)), until, interval_ms)
        if present is not None and present[:2] == wanted[:2]:
            near = present.until - now < 2 * session_ms
            if until - present.until < (1 if near else interval_ms):
                wanted = present
        self._made_of, self._again_at = made_of, min(due - soon, wanted.until - 2 * session_ms)
        if wanted is not present:
            self._present = wanted
            self.on_change(wanted)


log = logger("kadence.consumer")

_INTERVALS_OF_A_SESSION = 9
"""A KIP-848 coordinator does not report its session timeout: the default is 45 s, with heartbeats every 5 s."""

_EARLY = 10
"""The first heartbeat of a generation comes after this part of the interval. A cooperative rebalance is often
followed by its second round at once, and members learn of it only from a heartbeat: partitions that move would wait up
to a whole interval for the last member to notice."""

_TRIES = 3
"""How many heartbeats fit between a due one and the end of the session, if each is lost."""

_LEAST_PATIENCE = 10
"""The share of the session that the response to a heartbeat may always take."""


class HeartbeatRequestManager:
    """Sends the membership's heartbeats when they are due.

    Attributes:
        heartbeats_sent: how many, ever. sent_at: when (ms) the last one of this membership was sent; -1: none was.
        alive_until: when (ms) the coordinator removes this member if no heartbeat is answered before, by our estimate;
            `FOREVER` when none are sent.
        last_lateness_ms, max_lateness_ms: how long after its due time the last (the latest) of them was
            sent. Normally zero; it grows by time in which the network thread did not run (B9).
    """

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        membership: Liveness,
        progress: Progress,
        config: GroupConfig,
        add_event: AddBackgroundEvent,
    ) -> None:
        self.heartbeats_sent = 0
        self.sent_at = -1
        self.alive_until = FOREVER
        self.last_lateness_ms = 0
        self.max_lateness_ms = 0
        self._coordinator = coordinator
        self._membership = membership
        self._progress = progress
        self._config = config
        self._processing_timeout_ms = config.processing_timeout_ms
        self._add_event = add_event
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._term: object = None
        self._found_at = -1
        self._due = 0
        self._session_ends = FOREVER
        self._in_flight: Request | None = None
        self._answer_by = FOREVER
        self._hung_up = 0
        self._answered_in_ms = 0
        self._stalled_since: int | None = None
        self.native_heartbeats = NativeHeartbeatPlanner(coordinator, membership)
        # Unanswered heartbeats of the native thread.
        self._sent_natively: set[Request] = set()

    def poll(self, now: int) -> Poll:
        since = self._progress.processing_since(now)
        ends_at = add_ms(now if since is None else since, self._processing_timeout_ms)
        poll = self._step(now, since, ends_at)
        wake_at = self._answer_by if self._waits_for_an_answer else self._due
        self.native_heartbeats.arrange(now, wake_at, self._session_ends, ends_at)
        return poll

    def native_heartbeats_sent(self, now: int, requests: Iterable[Request], sent_at: int) -> None:
        """The native thread has sent these, the last one at ``sent_at``. They count as if sent from here."""
        self._sent_natively.update(requests)
        self.sent_at = max(self.sent_at, sent_at)
        self._due = max(self._due, add_ms(self.sent_at, self._membership.heartbeat_interval_ms))
        self._answer_by = add_ms(now, self._patience_ms)

    @property
    def _waits_for_an_answer(self) -> bool:
        return self._in_flight is not None or bool(self._sent_natively)

    def _step(self, now: int, since: int | None, ends_at: int) -> Poll:
        """The action that the timers require now.

        Args:
            since: see `Progress.processing_since`. ends_at: when the application must have polled.
        """
        member = self._membership
        is_active = self._coordinator.watched = member.active
        if not is_active:
            self._disarm()
            if not member.joining:
                return NOTHING
            if since is not None and now >= ends_at:
                self._give_up(now, since)
                return Poll(wake_at=now)
            return Poll(wake_at=self._watch_polls(now, since, ends_at))
        self._arm(now)
        if self._coordinator.node is not None and now >= self._session_ends:
            self._in_flight = None
            self._coordinator.mark_silent(
                now,
                now - member.session_timeout_ms,
                f"no heartbeat succeeded for a session timeout, {member.session_timeout_ms} ms",
            )
        if since is not None and now >= ends_at:
            self._give_up(now, since)
            return Poll(wake_at=now)
        wake_at = self._watch_polls(now, since, ends_at)
        if self._coordinator.node is None:
            return Poll(wake_at=min(wake_at, self._coordinator.require(now)))
        wake_at = min(wake_at, self._session_ends)
        if self._waits_for_an_answer:
            if now >= self._answer_by:
                self._answer_by = FOREVER
                waited = now - self.sent_at
                self._hung_up += 1
                self._coordinator.hang_up(
                    now, f"no answer to a heartbeat for {waited} ms, trying another connection"
                )
            return Poll(wake_at=min(wake_at, self._answer_by))
        due = max(min(self._due, now) if member.urgent else self._due, self._backoff.until)
        if now < due:
            return Poll(wake_at=min(wake_at, due))
        request = self._send(now, due)
        return Poll([request], min(wake_at, self._answer_by))

    def on_response(self, now: int, completed: Completed) -> None:
        """Handle a response, even to a heartbeat that was given up: its result for the current identity counts."""
        outcome = self._membership.on_heartbeat(now, completed)
        present = completed.request is self._in_flight
        if present:
            self._in_flight = None
        self._sent_natively.discard(completed.request)
        if outcome is HeartbeatOutcome.ALIVE:
            self._backoff.succeeded()
            self._hung_up = 0
            self._session_ends = add_ms(now, self._membership.session_timeout_ms)
            self._is_alive(now)
            if present:
                self._answered_in_ms = now - self.sent_at
                # The response may have changed the interval.
                self._due = add_ms(self.sent_at, self._membership.heartbeat_interval_ms)
        elif outcome is HeartbeatOutcome.RETRY and not self._sent_natively:
            self._backoff.failed(now)
            self._due = min(self._due, self._backoff.until)

    def _arm(self, now: int) -> None:
        """Restart all timers: a new term began, or a coordinator was found."""
        term = self._membership.term
        if term == self._term and self._coordinator.found_at == self._found_at:
            return
        if term != self._term:
            # The term came with a response.
            self._is_alive(now)
            self._term = term
            self._due = add_ms(now, self._membership.heartbeat_interval_ms // _EARLY)
        else:
            self._due = now
        self._found_at = self._coordinator.found_at
        self._backoff.succeeded()
        self._in_flight = None
        self._sent_natively.clear()
        self._session_ends = add_ms(now, self._membership.session_timeout_ms)

    def _is_alive(self, now: int) -> None:
        """The coordinator has just received a request of this member."""
        member = self._membership
        session_ms = member.known_session_ms
        if session_ms is None:
            session_ms = max(
                _INTERVALS_OF_A_SESSION * member.heartbeat_interval_ms, member.session_timeout_ms
            )
        self.alive_until = add_ms(now, session_ms)

    def _disarm(self) -> None:
        self._term = None
        self.sent_at = -1
        self.alive_until = FOREVER
        self._in_flight = None
        self._sent_natively.clear()

    def _send(self, now: int, due: int) -> Request:
        self.last_lateness_ms = now - due
        self.max_lateness_ms = max(self.max_lateness_ms, self.last_lateness_ms)
        self.heartbeats_sent += 1
        self.sent_at = now
        self._due = add_ms(now, self._membership.heartbeat_interval_ms)
        self._answer_by = add_ms(now, self._patience_ms)
        self._in_flight = self._membership.heartbeat(add_ms(now, self._config.request_timeout_ms))
        return self._in_flight

    def _give_up(self, now: int, since: int) -> None:
        """Leave the group: the application has not polled for the processing timeout (B4)."""
        self._membership.poll_timed_out(now)
        self._stalled_since = since
        self._add_event(Stalled(since, now, self._processing_timeout_ms, left=True))
        self._disarm()

    @property
    def _patience_ms(self) -> int:
        """How long the response to a heartbeat may take before the network path counts as dead.

        A coordinator may be alive but slow for a while: one that took long the last time gets longer, and so does one
        that answers on no connection, once the attempts that fit into a session are used up.
        """
        session = self._membership.session_timeout_ms
        margin = session - self._membership.heartbeat_interval_ms
        least = max(margin // _TRIES, session // _LEAST_PATIENCE)
        return min(max(least << max(self._hung_up - 1, 0), 2 * self._answered_in_ms), session)

    def _watch_polls(self, now: int, since: int | None, ends_at: int) -> int:
        """Report a stall, once, when stall.report.ratio of the processing timeout is over (B4).

        Returns:
            When the next of the two can be due at the earliest. Progress is read again then: a poll does not wake this
            thread.
        """
        timeout, ratio = self._processing_timeout_ms, self._config.stall_report_ratio
        if not ratio or since == self._stalled_since is not None:
            return ends_at
        report_at = add_ms(now if since is None else since, int(timeout * ratio))
        if since is None or now < report_at:
            return min(ends_at, report_at)
        self._stalled_since = since
        self._add_event(Stalled(since, now, timeout, left=False))
        return ends_at

    def __repr__(self) -> str:
        return f"<heartbeat sent={self.heartbeats_sent} max_lateness={self.max_lateness_ms} ms>"
