"""AlterConfigs (33): a topic's whole configuration; what is not named has its default again. v2 flexible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from kadence.broker.cluster import Topic
from kadence.broker.service import Call, Handler, Services
from kadence.broker.topic_configs import check_topic_config
from kadence.protocol import error_codes as codes
from kadence.protocol.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

__all__ = ["HANDLER", "change_topics"]

_TOPIC = 2
Verdict = tuple[int, str | None]
Change = Callable[[Topic, Any], tuple[dict[str, str | None], Verdict | None]]
"""A topic and what a request says of it: the configuration that it would have, or why not."""


def handle(services: Services, call: Call) -> AlterConfigsResponse:
    verdicts = change_topics(services, call.message, _replaced)
    return AlterConfigsResponse(
        responses=[
            _response(each, *verdict) for each, verdict in zip(call.message.resources, verdicts, strict=True)
        ]
    )


def _replaced(_topic: Topic, asked: AlterConfigsResource) -> tuple[dict[str, str | None], Verdict | None]:
    return {each.name: each.value for each in asked.configs}, None


def change_topics(services: Services, request: Any, change: Change) -> list[Verdict]:
    """Configure each topic of the request, or say why not; also for IncrementalAlterConfigs."""
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    return [
        (codes.INVALID_REQUEST, "Each resource must appear at most once.")
        if counts[each.resource_type, each.resource_name] > 1
        else _change(services, each, change, validate_only=request.validate_only)
        for each in request.resources
    ]


def _change(services: Services, asked: Any, change: Change, *, validate_only: bool) -> Verdict:
    if asked.resource_type != _TOPIC:
        return codes.INVALID_REQUEST, "Only the configuration of topics (2) can be changed here."
    topic = services.cluster.topics.get(asked.resource_name)
    if topic is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION, "This topic does not exist."
    names = [each.name for each in asked.configs]
    if len(set(names)) < len(names):
        return codes.INVALID_REQUEST, "Error due to duplicate config keys"
    config, refusal = change(topic, asked)
    if refusal is not None:
        return refusal
    # A topic of the coordinators is compacted in name, so what was set stands; what is new is checked.
    wrong = check_topic_config({name: config[name] for name in names if name in config})
    if wrong is not None:
        return codes.INVALID_CONFIG, wrong
    if not validate_only:
        before = topic.config
        try:
            services.cluster.configure(topic, {name: str(value) for name, value in config.items()})
            services.cluster.keep(topic)
        except OSError as error:
            services.cluster.configure(topic, before)
            return codes.KAFKA_STORAGE_ERROR, f"The disk takes no more: {error}"
    return codes.NONE, None


def _response(asked: AlterConfigsResource, code: int, message: str | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


def refuse(call: Call, code: int) -> AlterConfigsResponse:
    return AlterConfigsResponse(responses=[_response(each, code, None) for each in call.message.resources])


HANDLER = Handler(AlterConfigsRequest, handle, refuse)
