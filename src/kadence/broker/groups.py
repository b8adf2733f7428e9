"""What the handlers of group APIs share: is this node the group's coordinator, and off to the coordinator."""

from __future__ import annotations

from kadence.broker.service import Call, Services
from kadence.protocol import error_codes as codes

__all__ = ["coordinator_error"]


def coordinator_error(services: Services, call: Call, group_id: str) -> int:
    """NONE if the node that was asked coordinates ``group_id``, else NOT_COORDINATOR.

    No node coordinates an empty group id; the node that is asked lets the coordinator refuse it.
    """
    if not group_id or services.coordination.is_coordinated_by(call.node_id, group_id):
        return codes.NONE
    return codes.NOT_COORDINATOR
