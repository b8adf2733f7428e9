"""What the native thread may send if the network thread is kept from running (G3), decided ahead of it.

The network thread asks for its turn when a heartbeat is due, or when the answer to one is overdue. If it does not come
within a *grace* after that, something holds the interpreter. From then on the native thread sends heartbeats, one each
interval, until the processing timeout forbids it: who holds the interpreter does not poll (B4).

The processing timeout is counted from the last poll that was seen here. The application may have polled since, so the
native heartbeat may stop too early, never too late.
"""

from __future__ import annotations

from collections.abc import Callable

from kadence.clock import FOREVER, add_ms
from kadence.connection.request import ConnectionPurpose, NativeHeartbeatPlan, Request
from kadence.consumer.group.coordinator import CoordinatorRequestManager
from kadence.consumer.group.membership import SENT_NATIVELY, GroupConfig, Membership
from kadence.consumer.progress import Progress

__all__ = ["NativeHeartbeatPlanner"]


class NativeHeartbeatPlanner:
    """Decides what the native thread is left, and tells `on_change` of it: None, when it must send nothing."""

    def __init__(
        self,
        coordinator: CoordinatorRequestManager,
        membership: Membership,
        progress: Progress,
        config: GroupConfig,
    ) -> None:
        self.on_change: Callable[[NativeHeartbeatPlan | None], None] | None = None
        self._coordinator = coordinator
        self._membership = membership
        self._progress = progress
        self._config = config
        self._present: NativeHeartbeatPlan | None = None

    def arrange(self, now: int, wake_at: int, session_ends: int) -> None:
        """Put the native thread off until the next turn is overdue.

        Args:
            wake_at: when the heartbeats ask for their next turn.
            session_ends: when the coordinator counts as silent, if it goes on like this.
        """
        if self.on_change is None:
            return
        present, wanted = self._present, self._wanted(now, wake_at, session_ends)
        if present is not None and wanted is not None and present[:2] == wanted[:2]:
            gained = wanted.until - present.until
            near = present.until - now < 2 * self._membership.session_timeout_ms
            if gained < (1 if near else self._membership.heartbeat_interval_ms):
                return
        elif present is wanted:
            return
        self._present = wanted
        self.on_change(wanted)

    def _wanted(self, now: int, wake_at: int, session_ends: int) -> NativeHeartbeatPlan | None:
        member, node_id = self._membership, self._coordinator.node_id
        message = None if node_id is None else member.native_heartbeat()
        if message is None or node_id is None:
            return None
        interval_ms = member.heartbeat_interval_ms
        margin = member.session_timeout_ms - interval_ms
        grace = min(margin, interval_ms) // 2
        # However long an answer is waited for, half of the margin is left. But this turn has come: no sooner than soon.
        due = max(min(add_ms(wake_at, grace), session_ends - margin // 2), add_ms(now, grace // 2))
        since = self._progress.processing_since(now)
        until = add_ms(now if since is None else since, self._config.processing_timeout_ms)
        request = self._present.request if self._present is not None else None
        if request is None or request.message is not message or request.node_id != node_id:
            request = Request(message, node_id, FOREVER, ConnectionPurpose.GROUP, SENT_NATIVELY)
        return NativeHeartbeatPlan(request, due, until, interval_ms)
