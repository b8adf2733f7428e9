"""ListConfigResources (74): resources with configuration (KIP-1142). v0 client metrics only  v1 kinds of resources."""

from __future__ import annotations

from kadence.protocol import error_codes as codes
from kadence.protocol.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kadence_broker.service import Call, Handler, Services

__all__ = ["HANDLER"]

_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP = 2, 4, 8, 16, 32
_ALL = (_TOPIC, _BROKER, _LOGGER, _CLIENT_METRICS, _GROUP)


def handle(services: Services, call: Call) -> ListConfigResourcesResponse:
    # Before v1 only client metrics are asked for, and there are none.
    wanted = set(call.message.resource_types or _ALL) if call.version >= 1 else {_CLIENT_METRICS}
    if not wanted <= set(_ALL):
        return refuse(call, codes.UNSUPPORTED_VERSION)
    found: list[ConfigResource] = []
    if _TOPIC in wanted:
        found += [
            ConfigResource(resource_name=name, resource_type=_TOPIC) for name in services.cluster.topics
        ]
    if _BROKER in wanted:
        found += [
            ConfigResource(resource_name=str(node_id), resource_type=_BROKER)
            for node_id in services.cluster.nodes
        ]
    if _GROUP in wanted:
        # As in Kafka: those that have settings of their own, whether they exist or not.
        found += [
            ConfigResource(resource_name=name, resource_type=_GROUP)
            for name in services.cluster.group_configs
        ]
    return ListConfigResourcesResponse(error_code=codes.NONE, config_resources=found)


def refuse(_call: Call, code: int) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=code)


HANDLER = Handler(ListConfigResourcesRequest, handle, refuse)
