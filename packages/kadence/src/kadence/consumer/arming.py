"""Gives the native thread the heartbeats of a consumer, or of a share consumer (G3). Network thread."""

from __future__ import annotations

from kadence.client.network_thread import NetworkClientDelegate
from kadence.clock import Clock
from kadence.connection.request import Request
from kadence.consumer.client_state import ClientState
from kadence.consumer.group.heartbeat import HeartbeatRequestManager
from kadence.net import NetworkClient

__all__ = ["arm_native_heartbeat"]


def arm_native_heartbeat(
    heartbeat: HeartbeatRequestManager,
    client: NetworkClient,
    delegate: NetworkClientDelegate,
    client_state: ClientState,
    clock: Clock,
) -> None:
    """The native thread sends heartbeats that the network thread cannot send in time."""

    def native_heartbeats_sent(requests: list[Request], sent_at: int) -> None:
        client_state.lateness.fallback_heartbeats += len(requests)
        delegate.sent_by_others(heartbeat, requests)
        heartbeat.native_heartbeats_sent(clock.now_ms(), requests, sent_at)

    client.on_native_heartbeats = native_heartbeats_sent
    heartbeat.native_heartbeats.on_change = client.arm_native_heartbeat
