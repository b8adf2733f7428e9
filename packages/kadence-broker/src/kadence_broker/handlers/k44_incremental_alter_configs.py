"""IncrementalAlterConfigs (44): single entries of the configuration of a topic or group (KIP-339). v1 flexible."""

from __future__ import annotations

from collections.abc import Mapping

from kadence.protocol import error_codes as codes
from kadence.protocol.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kadence_broker.configured import DELETE, Fault
from kadence_broker.handlers.k33_alter_configs import change_configs
from kadence_broker.service import Call, Handler, Services, Steps
from kadence_broker.topic_configs import TopicKey

__all__ = ["HANDLER"]

_SET, _APPEND, _SUBTRACT = 0, 2, 3


def handle(services: Services, call: Call) -> Steps:
    verdicts = yield from change_configs(services, call.message, _changed)
    responses = [
        _response(each, *verdict) for each, verdict in zip(call.message.resources, verdicts, strict=True)
    ]
    services.reply_durably(call, IncrementalAlterConfigsResponse(responses=responses))
    return None


def _changed(
    keys: Mapping[str, TopicKey], present: Mapping[str, str], asked: AlterConfigsResource
) -> tuple[Mapping[str, str], Fault | None]:
    config = dict(present)
    for each in asked.configs:
        refusal = _change(config, keys, each)
        if refusal is not None:
            return config, refusal
    return config, None


def _change(config: dict[str, str], keys: Mapping[str, TopicKey], asked: AlterableConfig) -> Fault | None:
    """Change one entry of ``config``, or return its error. Unknown names may be deleted, as in Kafka."""
    name, operation, value = asked.name, asked.config_operation, asked.value or ""
    key = keys.get(name)
    if operation == DELETE:
        config.pop(name, None)
    elif operation == _SET:
        config[name] = value
    elif operation not in (_APPEND, _SUBTRACT):
        # As in Kafka, which falls over it.
        return codes.UNKNOWN_SERVER_ERROR, None
    elif key is None or key.kind != "LIST":
        word = "APPEND" if operation == _APPEND else "SUBTRACT"
        return codes.INVALID_CONFIG, f"Can't {word} to key {name} because its type is not LIST."
    else:
        items = config.get(name, key.default).split(",")
        config[name] = ",".join(_edited([] if items == [""] else items, operation, value.split(",")))
    return None


def _edited(items: list[str], operation: int, changes: list[str]) -> list[str]:
    if operation == _APPEND:
        return items + [each for each in changes if each not in items]
    return [each for each in items if each not in changes]


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


HANDLER = Handler(IncrementalAlterConfigsRequest, handle, refuse, changes=True)
