"""The timers that keep a member in its group, and the one that gives it up (KIP-62; B3, B4, B5).

One step, in this order; the first that applies ends it:

    not in a group                          nothing to do
    coordinator unknown                     ask for it, wait
    no answer for a session timeout         give the coordinator up
    no poll for the processing timeout      leave the group
    heartbeat not due, or one under way     wait (due at once when the membership has something to say)
    otherwise                               send one

The interval counts from the moment a heartbeat is sent, not from its answer, so a slow broker does not
stretch it. Any failure is repeated after a backoff, not after a whole interval: an interval may be most of
what is left of the session.
"""

from __future__ import annotations

import logging

from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Completed, Request
from kadence.consumer.border.progress import Progress
from kadence.consumer.managers.base import NOTHING, Backoff, Outbox, Poll
from kadence.consumer.managers.coordinator import CoordinatorManager
from kadence.consumer.managers.membership import GroupConfig, Membership, Verdict

__all__ = ["HeartbeatManager"]

log = logging.getLogger("kadence.consumer")

_EARLY = 10
"""The first heartbeat of a generation comes after this part of the interval. A cooperative rebalance is often
followed by its second round at once, and members learn of that from a heartbeat only: partitions that move
would wait for a whole interval of whoever is last to notice."""


class HeartbeatManager:
    """Sends the membership's heartbeats when they are due.

    Attributes:
        heartbeats_sent: how many, ever.
        last_lateness_ms, max_lateness_ms: how long after its due time the last (the latest) of them was
            sent. Zero in health; what grows is time during which the network thread did not run (B9).
    """

    def __init__(
        self,
        coordinator: CoordinatorManager,
        membership: Membership,
        progress: Progress,
        config: GroupConfig,
        outbox: Outbox,
    ) -> None:
        self.heartbeats_sent = 0
        self.last_lateness_ms = 0
        self.max_lateness_ms = 0
        self._coordinator = coordinator
        self._membership = membership
        self._progress = progress
        self._config = config
        self._outbox = outbox
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._term: object = None
        self._found_at = -1
        self._due = 0
        self._sent_at = 0
        self._session_ends = FOREVER
        self._in_flight: Request | None = None

    def poll(self, now: int) -> Poll:
        member = self._membership
        if not member.active:
            self._disarm()
            if not member.joining:
                return NOTHING
            return Poll(wake_at=now) if self._gave_up(now) else Poll(wake_at=self._poll_ends(now))
        self._arm(now)
        if self._coordinator.node is None:
            return Poll(wake_at=self._coordinator.require(now))
        if now >= self._session_ends:
            self._in_flight = None
            self._coordinator.mark_silent(
                now,
                f"no answer for a session timeout, {member.session_timeout_ms} ms",
            )
            return Poll(wake_at=self._coordinator.require(now))
        if self._gave_up(now):
            return Poll(wake_at=now)
        wake_at = min(self._session_ends, self._poll_ends(now))
        due = max(min(self._due, now) if member.urgent else self._due, self._backoff.until)
        if self._in_flight is not None:
            return Poll(wake_at=wake_at)
        if now < due:
            return Poll(wake_at=min(wake_at, due))
        return Poll([self._send(now, due)], wake_at)

    def on_response(self, now: int, completed: Completed) -> None:
        """Also of a heartbeat that was given up: whatever the coordinator says of the present identity counts."""
        verdict = self._membership.on_heartbeat(now, completed)
        present = completed.request is self._in_flight
        if present:
            self._in_flight = None
        if verdict is Verdict.ALIVE:
            self._backoff.succeeded()
            self._session_ends = add_ms(now, self._membership.session_timeout_ms)
            if present:
                # The answer may have brought another interval.
                self._due = add_ms(self._sent_at, self._membership.heartbeat_interval_ms)
        elif verdict is Verdict.RETRY:
            self._backoff.failed(now)
            self._due = min(self._due, self._backoff.until)

    def _arm(self, now: int) -> None:
        """A new term, or a coordinator just found, has just been heard of: all timers start again."""
        if self._membership.term == self._term and self._coordinator.found_at == self._found_at:
            return
        if self._membership.term != self._term:
            self._term = self._membership.term
            self._due = add_ms(now, self._membership.heartbeat_interval_ms // _EARLY)
        else:
            self._due = now
        self._found_at = self._coordinator.found_at
        self._backoff.succeeded()
        self._in_flight = None
        self._session_ends = add_ms(now, self._membership.session_timeout_ms)

    def _disarm(self) -> None:
        self._term = None
        self._in_flight = None

    def _send(self, now: int, due: int) -> Request:
        self.last_lateness_ms = now - due
        self.max_lateness_ms = max(self.max_lateness_ms, self.last_lateness_ms)
        self.heartbeats_sent += 1
        self._sent_at = now
        self._due = add_ms(now, self._membership.heartbeat_interval_ms)
        self._in_flight = self._membership.heartbeat(add_ms(now, self._config.request_timeout_ms))
        return self._in_flight

    def _gave_up(self, now: int) -> bool:
        """Leave the group if the application has not polled for the processing timeout (B4)."""
        since = self._progress.processing_since(now)
        if since is None or now < add_ms(since, self._config.processing_timeout_ms):
            return False
        log.debug("group %s: no poll for %d ms", self._config.group_id, now - since)
        self._membership.poll_timed_out(now)
        self._disarm()
        return True

    def _poll_ends(self, now: int) -> int:
        """When the processing timeout can pass at the earliest. The border is read again then: a poll wakes nobody."""
        since = self._progress.processing_since(now)
        return add_ms(now if since is None else since, self._config.processing_timeout_ms)

    def __repr__(self) -> str:
        return f"<heartbeat sent={self.heartbeats_sent} max_lateness={self.max_lateness_ms} ms>"
