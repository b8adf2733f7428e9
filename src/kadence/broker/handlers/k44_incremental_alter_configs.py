"""IncrementalAlterConfigs (44): single entries of the configuration of a topic or group (KIP-339). v1 flexible."""

from __future__ import annotations

from collections.abc import Mapping

from kadence.broker.configured import GROUP, Configured, Verdict
from kadence.broker.handlers.k33_alter_configs import change_configs
from kadence.broker.service import Call, Handler, Services
from kadence.broker.topic_configs import TopicKey
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


def handle(services: Services, call: Call) -> None:
    verdicts = change_configs(services, call.message, _changed)
    responses = [
        _response(each, *verdict) for each, verdict in zip(call.message.resources, verdicts, strict=True)
    ]
    services.reply_durably(call, IncrementalAlterConfigsResponse(responses=responses))


def _changed(
    present: Configured, asked: AlterConfigsResource
) -> tuple[Mapping[str, str | None], Verdict | None]:
    config: dict[str, str | None] = dict(present.config)
    for each in asked.configs:
        refusal = _change(config, present, asked.resource_type, each)
        if refusal is not None:
            return config, refusal
    return config, None


def _change(
    config: dict[str, str | None], present: Configured, resource_type: int, asked: AlterableConfig
) -> Verdict | None:
    """Change one entry of ``config``, or say why not."""
    name, operation = asked.name, asked.config_operation
    key = present.keys.get(name)
    if operation == _DELETE:
        # As in Kafka, where names that nobody knows may be deleted.
        config.pop(name, None)
    elif operation in (_SET, _APPEND, _SUBTRACT) and asked.value is None and resource_type != GROUP:
        return codes.INVALID_REQUEST, f"Null value not supported for: {name}"
    elif key is None:
        return codes.INVALID_CONFIG, f"Unknown {present.noun} config name: {name}"
    elif operation == _SET:
        config[name] = asked.value
    elif operation in (_APPEND, _SUBTRACT):
        if key.kind != "LIST":
            word = "APPEND" if operation == _APPEND else "SUBTRACT"
            return codes.INVALID_CONFIG, f"Can't {word} to key {name} because its type is not LIST."
        config[name] = None if asked.value is None else _edited(config.get(name), key, asked)
    else:
        return codes.INVALID_REQUEST, f"There is no config operation {operation}."
    return None


def _edited(present: str | None, key: TopicKey, asked: AlterableConfig) -> str:
    value = key.default if present is None else present
    items = value.split(",") if value else []
    changes = (asked.value or "").split(",")
    if asked.config_operation == _APPEND:
        items += [each for each in changes if each not in items]
    else:
        items = [each for each in items if each not in changes]
    return ",".join(items)


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
