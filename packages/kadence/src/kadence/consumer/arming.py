"""Leaves the heartbeats that the network thread cannot send in time to the native thread (G3).

Of a consumer and of a share consumer. Network thread.
"""

from __future__ import annotations

from kadence.client.network_thread import NetworkClientDelegate
from kadence.clock import Clock
from kadence.connection.request import Request
from kadence.consumer.client_state import ClientState
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.consumer.measures import Group
from kadence.net import NetworkClient

__all__ = ["arm_native_heartbeat"]


def arm_native_heartbeat(
    heartbeat: HeartbeatRequestManager,
    client: NetworkClient,
    delegate: NetworkClientDelegate,
    client_state: ClientState,
    group: Group,
    clock: Clock,
) -> None:
    """What the network thread cannot send in time the native thread sends. ``group``: counts them."""

    def native_heartbeats_sent(requests: list[Request], sent_at: int) -> None:
        client_state.lateness.fallback_heartbeats += len(requests)
        group.heartbeat_sent_at = max(group.heartbeat_sent_at, sent_at)
        delegate.sent_by_others(heartbeat, requests)
        heartbeat.native_heartbeats_sent(clock.now_ms(), requests, sent_at)

    client.on_native_heartbeats = native_heartbeats_sent
    heartbeat.native_heartbeats.on_change = client.arm_native_heartbeat
