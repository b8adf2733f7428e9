"""DescribeCluster (60). v1 endpoint type  v2 fenced brokers."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from kadence_broker.operations import CLUSTER_OPERATIONS
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]

_BROKERS = 1
_CONTROLLERS = 2


def handle(services: Services, call: Call) -> DescribeClusterResponse:
    if call.message.endpoint_type != _BROKERS:
        is_controllers = call.message.endpoint_type == _CONTROLLERS
        answer = refuse(
            call, codes.MISMATCHED_ENDPOINT_TYPE if is_controllers else codes.UNSUPPORTED_ENDPOINT_TYPE
        )
        answer.error_message = "The embedded broker has broker endpoints (1) only."
        return answer
    cluster = services.cluster
    answer = DescribeClusterResponse(
        error_code=codes.NONE,
        error_message=None,
        cluster_id=cluster.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port)
            for each in cluster.nodes.values()
        ],
    )
    if call.message.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = CLUSTER_OPERATIONS
    return answer


def refuse(_call: Call, code: int) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=None)


HANDLER = Handler(DescribeClusterRequest, handle, refuse)
