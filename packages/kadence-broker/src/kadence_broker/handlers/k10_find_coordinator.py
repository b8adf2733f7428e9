"""FindCoordinator (10). v1 key type  v3 flexible  v4 several keys  v5 transaction v2 errors  v6 share groups."""

from __future__ import annotations

from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kadence_broker.service import Call, Handler, Services, Steps

__all__ = ["HANDLER"]

_GROUP = 0
_TRANSACTION = 1
_STEP_US: Final = 20


def handle(services: Services, call: Call) -> Steps:
    request: FindCoordinatorRequest = call.message
    if call.version >= 4:
        found: list[Any] = []
        for key in request.coordinator_keys:
            found.append(call.element(_find(services, key, request.key_type)))
            yield _STEP_US
        return FindCoordinatorResponse(coordinators=found)
    return _single(_find(services, request.key, request.key_type))


def _find(services: Services, key: str, key_type: int) -> Coordinator:
    if key_type not in (_GROUP, _TRANSACTION):
        return _refused(
            key, codes.INVALID_REQUEST, f"The embedded broker has no coordinator of type {key_type}."
        )
    node = (services.transactions if key_type == _TRANSACTION else services.coordination).node_of(key)
    if node is None:
        return _refused(key, codes.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(key=key, node_id=node.node_id, host=node.host, port=node.port, error_message="")


def _refused(key: str, code: int, message: str | None = None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def _single(found: Coordinator) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        error_code=found.error_code,
        # As in Kafka, whose single answers have a message for success, too.
        error_message=found.error_message or codes.name(found.error_code),
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def refuse(call: Call, code: int) -> FindCoordinatorResponse:
    if call.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_refused(key, code) for key in call.message.coordinator_keys]
        )
    return _single(_refused(call.message.key, code))


HANDLER = Handler(FindCoordinatorRequest, handle, refuse)
