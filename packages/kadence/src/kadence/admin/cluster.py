"""The cluster itself: the messages and what their answers mean."""

from __future__ import annotations

from kadence.admin.calls import Calls, operation
from kadence.client.waits import Waits
from kadence.lazy_dataclasses import dataclass
from kadence.types import Node

__all__ = ["ClusterDescription", "describe_cluster"]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster, and its controller (None: there is none; with KRaft brokers name any broker)."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


@operation
def describe_cluster(calls: Calls, deadline: int) -> Waits[ClusterDescription]:
    """The cluster's brokers, controller and id."""
    response = yield from calls.settle_one(lambda deadline: calls.metadata([], deadline), deadline)
    nodes = tuple(
        Node(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
    )
    controller = next((node for node in nodes if node.node_id == response.controller_id), None)
    return ClusterDescription(response.cluster_id, controller, nodes)
