"""ListPartitionReassignments (46): no replica is ever moved here (KIP-455). v0 flexible.

Kafka answers for partitions that do not exist as for those that rest: they are left out. Java's `kafka-topics.sh` asks
before it describes topics.
"""

from __future__ import annotations

from kadence.protocol.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]


def handle(_services: Services, _call: Call) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_message=None)


def refuse(_call: Call, code: int) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(error_code=code, error_message=None)


HANDLER = Handler(ListPartitionReassignmentsRequest, handle, refuse)
