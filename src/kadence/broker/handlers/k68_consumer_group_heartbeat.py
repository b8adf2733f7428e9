"""ConsumerGroupHeartbeat (68), KIP-848. The rules and versions are in `kadence.coordinator.consumer.heartbeat`."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.protocol import error_codes as codes
from kadence.protocol.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

__all__ = ["HANDLER"]


def handle(services: Services, call: Call) -> ConsumerGroupHeartbeatResponse | None:
    code = services.coordination.coordinator_error(call, call.message.group_id)
    if code != codes.NONE:
        return refuse(call, code)
    services.coordination.serve(call)
    return None


def refuse(_call: Call, code: int) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code)


HANDLER = Handler(ConsumerGroupHeartbeatRequest, handle, refuse)
