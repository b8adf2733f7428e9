"""AlterConfigs (33): all configuration of a topic or group; keys that it omits get their defaults. v2 flexible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kadence_broker.configured import DELETE, KEYS, Fault, find_configured
from kadence_broker.service import Call, Handler, Services, Steps
from kadence_broker.topic_configs import TopicKey

__all__ = ["HANDLER", "change_configs"]

Change = Callable[[Mapping[str, TopicKey], Mapping[str, str], Any], tuple[Mapping[str, str], Fault | None]]
"""Takes the names that are known, a topic's or group's configuration, and what a request says of it. Returns the
configuration that it would have, or why it cannot."""


_STEP_US: Final = 1_000
"""It may write to the disk, and look for a name that is like a wrong one."""


def handle(services: Services, call: Call) -> Steps:
    verdicts = yield from change_configs(services, call.message, _replaced)
    responses = [
        _response(each, *verdict) for each, verdict in zip(call.message.resources, verdicts, strict=True)
    ]
    services.reply_durably(call, AlterConfigsResponse(responses=responses))
    return None


def _replaced(
    _keys: Mapping[str, TopicKey], _present: Mapping[str, str], asked: AlterConfigsResource
) -> tuple[Mapping[str, str], Fault | None]:
    return {each.name: each.value or "" for each in asked.configs}, None


def change_configs(services: Services, request: Any, change: Change) -> Generator[int, None, list[Fault]]:
    """Configure each resource of the request, or say why not; also for IncrementalAlterConfigs.

    An entry has a value, unless it is deleted, when ``change`` is called.
    """
    counts = Counter((each.resource_type, each.resource_name) for each in request.resources)
    verdicts: list[Fault] = []
    for each in request.resources:
        if counts[each.resource_type, each.resource_name] > 1:
            verdicts.append((codes.INVALID_REQUEST, "Each resource must appear at most once."))
        else:
            verdicts.append(_change(services, each, change, validate_only=request.validate_only))
        yield _STEP_US
    return verdicts


def _change(services: Services, asked: Any, change: Change, *, validate_only: bool) -> Fault:
    # In Kafka's order: the settings are checked before the resource.
    names = [each.name for each in asked.configs]
    if len(set(names)) < len(names):
        return codes.INVALID_REQUEST, "Error due to duplicate config keys"
    # AlterConfigs has no operations.
    set_ = [each for each in asked.configs if getattr(each, "config_operation", None) != DELETE]
    missing = [each.name for each in set_ if each.value is None]
    if missing:
        return codes.INVALID_REQUEST, f"Null value not supported for : {', '.join(missing)}"
    found = find_configured(services, asked.resource_type, asked.resource_name)
    if isinstance(found, tuple):
        # Kafka looks at operations first, also of a topic that is not there.
        keys = KEYS.get(asked.resource_type)
        refusal = None if keys is None else change(keys, {}, asked)[1]
        return refusal or found
    config, refusal = change(KEYS[asked.resource_type], found.config, asked)
    refusal = refusal or found.fault(config, names)
    if refusal is not None:
        return refusal
    if not validate_only:
        try:
            found.configure(config)
        except OSError as error:
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


HANDLER = Handler(AlterConfigsRequest, handle, refuse, changes=True)
