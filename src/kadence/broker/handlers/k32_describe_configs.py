"""DescribeConfigs (32) of topics and brokers. v1 synonyms  v3 types and documentation  v4 flexible."""

from __future__ import annotations

from kadence.broker.service import Call, Handler, Services
from kadence.broker.topic_configs import TOPIC_DEFAULTS
from kadence.protocol import error_codes as codes
from kadence.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

__all__ = ["HANDLER"]

_TOPIC = 2
_BROKER = 4
_SOURCE_TOPIC = 1
_SOURCE_STATIC_BROKER = 4
_SOURCE_DEFAULT = 5


def handle(services: Services, call: Call) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(services, each) for each in call.message.resources])


def _describe(services: Services, asked: DescribeConfigsResource) -> DescribeConfigsResult:
    if asked.resource_type == _TOPIC:
        topic = services.cluster.topics.get(asked.resource_name)
        if topic is None:
            return _failed(asked, codes.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist.")
        values = [
            (
                name,
                topic.config.get(name, default),
                _SOURCE_TOPIC if name in topic.config else _SOURCE_DEFAULT,
            )
            for name, default in TOPIC_DEFAULTS.items()
        ]
    elif asked.resource_type == _BROKER:
        known = {str(node_id) for node_id in services.cluster.nodes}
        if asked.resource_name not in known:
            return _failed(asked, codes.INVALID_REQUEST, f"Brokers here are {', '.join(sorted(known))}.")
        values = [
            (name, value, _SOURCE_STATIC_BROKER) for name, value in services.settings.describe().items()
        ]
    else:
        return _failed(
            asked, codes.INVALID_REQUEST, "Only topics (2) and brokers (4) have configuration here."
        )
    wanted = asked.configuration_keys
    return DescribeConfigsResult(
        error_code=codes.NONE,
        error_message=None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[
            DescribeConfigsResourceResult(
                name=name,
                value=value,
                read_only=asked.resource_type == _BROKER,
                config_source=source,
                documentation=None,
            )
            for name, value, source in values
            if not wanted or name in wanted
        ],
    )


def _failed(asked: DescribeConfigsResource, code: int, message: str | None) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


def refuse(call: Call, code: int) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_failed(each, code, None) for each in call.message.resources])


HANDLER = Handler(DescribeConfigsRequest, handle, refuse)
