"""IncrementalAlterConfigs (44): single entries of a topic's configuration (KIP-339). v1 flexible."""

from __future__ import annotations

from kadence.broker.cluster import Topic
from kadence.broker.handlers.k33_alter_configs import Verdict, change_topics
from kadence.broker.service import Call, Handler, Services
from kadence.broker.topic_configs import TOPIC_KEYS
from kadence.protocol import error_codes as codes
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

__all__ = ["HANDLER"]

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)


def handle(services: Services, call: Call) -> IncrementalAlterConfigsResponse:
    verdicts = change_topics(services, call.message, _changed)
    return IncrementalAlterConfigsResponse(
        responses=[
            _response(each, *verdict) for each, verdict in zip(call.message.resources, verdicts, strict=True)
        ]
    )


def _changed(topic: Topic, asked: AlterConfigsResource) -> tuple[dict[str, str | None], Verdict | None]:
    config: dict[str, str | None] = dict(topic.config)
    for each in asked.configs:
        if each.name not in TOPIC_KEYS:
            return config, (codes.INVALID_CONFIG, f"Unknown topic config name: {each.name}")
        if each.config_operation == _DELETE:
            config.pop(each.name, None)
        elif each.value is None:
            return config, (codes.INVALID_CONFIG, f"Null value not supported for topic configs: {each.name}")
        elif each.config_operation == _SET:
            config[each.name] = each.value
        elif each.config_operation in (_APPEND, _SUBTRACT):
            if TOPIC_KEYS[each.name].kind != "LIST":
                return config, (codes.INVALID_CONFIG, f"Can't append or subtract: {each.name} is not a list.")
            config[each.name] = _edited(config.get(each.name), each)
        else:
            return config, (codes.INVALID_REQUEST, f"There is no config operation {each.config_operation}.")
    return config, None


def _edited(present: str | None, asked: AlterableConfig) -> str:
    items = (TOPIC_KEYS[asked.name].default if present is None else present).split(",")
    changes = (asked.value or "").split(",")
    if asked.config_operation == _APPEND:
        items += [each for each in changes if each not in items]
    else:
        items = [each for each in items if each not in changes]
    return ",".join(each for each in items if each)


def _response(asked: AlterConfigsResource, code: int, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


def refuse(call: Call, code: int) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[_response(each, code, None) for each in call.message.resources]
    )


HANDLER = Handler(IncrementalAlterConfigsRequest, handle, refuse)
