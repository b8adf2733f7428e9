"""Leaves the renewal of locks to the native thread, for when the network thread cannot run (Q2, G3; KIP-1222).

Whatever the application calls may hold the interpreter for longer than a lock holds. So each broker of which records
are held has one renewal in store: all that is not acknowledged there, as a frame for the session's own connection, with
the session's next epoch. The network thread renews when half of a lock is over. If it does not come until two thirds
are over, the native thread sends the frame, and again each third of a lock, with an epoch more each time.

It stops when the application must have polled (max.poll.interval.ms), as its heartbeats do: the time is counted from
the last poll that was seen here, so it may stop too early, never too late.

Network thread, sans-IO.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kadence.clock import FOREVER, add_ms
from kadence.connection.request import ConnectionPurpose, NativeHeartbeatPlan, Request
from kadence.consumer.client_state import Progress
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.share.keys import ShareKeys
from kadence.share.network.held import Held
from kadence.share.network.node import Sent, ShareNode, carried
from kadence.share.network.offsets import Range
from kadence.share.network.session import acknowledge_topics

__all__ = ["WITH_RENEWALS", "NativeRenewals"]

WITH_RENEWALS = 2
"""The version of ShareAcknowledge that has renewals."""


class NativeRenewals:
    """Decides what the native thread is left for each broker.

    Attributes:
        on_change: called with a broker's new plan; None: there is no native thread.
    """

    def __init__(self, config: ShareKeys, progress: Progress) -> None:
        self.on_change: Callable[[int, NativeHeartbeatPlan | None], None] | None = None
        self._config = config
        self._progress = progress
        self._plans: dict[int, NativeHeartbeatPlan] = {}

    def arrange(self, now: int, nodes: Sequence[ShareNode], lock_ms: int) -> None:
        """Put the native thread off, and give it what changed."""
        if self.on_change is None or not self._config.share_lock_renewal:
            return
        since = self._progress.processing_since(now)
        until = add_ms(now if since is None else since, self._config.processing_timeout_ms)
        known = {node.node_id for node in nodes}
        for node_id in self._plans.keys() - known:
            self._arm(node_id, None)
        for node in nodes:
            self._look_at_ends(now, node)
            before = self._plans.get(node.node_id)
            if not node.changed and (before is None or until - before.until < lock_ms // 3):
                continue
            node.changed = False
            self._arm(node.node_id, self._plan(now, node, lock_ms, until))

    @staticmethod
    def _look_at_ends(now: int, node: ShareNode) -> None:
        """The native thread has not kept what ended while this thread ran: a broker that is silent keeps no lock."""
        if node.native:
            return
        for fetch in node.held:
            if fetch.kept_until and fetch.lock_ends <= now:
                fetch.kept_until = 0
                node.changed = True

    def _plan(self, now: int, node: ShareNode, lock_ms: int, until: int) -> NativeHeartbeatPlan | None:
        epoch = node.next_epoch
        renewals: dict[Held, list[Range]] = {
            held: held.open
            for held in node.held.values()
            if held.renewable and held.open and not held.alone and (node.native or now < held.fetch.lock_ends)
        }
        if epoch is None or not renewals or not node.can_renew:
            return None
        member_id = node.session.member_id
        message = ShareAcknowledgeRequest(
            group_id=self._config.group_id,
            member_id=member_id,
            share_session_epoch=epoch,
            is_renew_ack=True,
            topics=acknowledge_topics(carried((), renewals)),
        )
        request = Request(
            message,
            node.node_id,
            FOREVER,
            ConnectionPurpose.FETCH,
            Sent(node, member_id, now, renewals=renewals),
            min_version=WITH_RENEWALS,
        )
        ends = min(held.ends for held in renewals)
        due = max(ends - lock_ms // 3, now + lock_ms // 6)
        # The epoch follows the member id, which is like nothing else in the frame.
        return NativeHeartbeatPlan(request, due, until, lock_ms // 3, member_id.encode())

    def _arm(self, node_id: int, plan: NativeHeartbeatPlan | None) -> None:
        assert self.on_change is not None
        before = self._plans.pop(node_id, None)
        if before is plan is None:
            return
        self._keep(before, 0)
        if plan is not None:
            self._plans[node_id] = plan
            self._keep(plan, plan.until)
        self.on_change(node_id, plan)

    @staticmethod
    def _keep(plan: NativeHeartbeatPlan | None, until: int) -> None:
        """Tell the application side until when the native thread keeps locks."""
        if plan is not None:
            sent: Sent = plan.request.tag
            for held in sent.renewals:
                held.fetch.kept_until = until
