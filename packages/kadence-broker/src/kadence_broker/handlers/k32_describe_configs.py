"""DescribeConfigs (32) of topics, brokers and groups. v1 synonyms  v3 types and documentation  v4 flexible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kadence_broker.cluster import is_valid_topic_name
from kadence_broker.configured import GROUP, TOPIC
from kadence_broker.group_configs import GROUP_KEYS
from kadence_broker.service import Call, Handler, Services, Steps
from kadence_broker.settings import Settings
from kadence_broker.topic_configs import SYNONYMS, TOPIC_KEYS, UNTOLD_DEFAULTS, topic_defaults

__all__ = ["HANDLER"]

_KINDS = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "DOUBLE": 6, "LIST": 7}
_BROKER = 4
_SOURCE_TOPIC = 1
_SOURCE_STATIC_BROKER = 4
_SOURCE_DEFAULT = 5
_SOURCE_GROUP = 8


_MOST_BYTES: Final = 64 * 1024 * 1024
"""Once an answer is so long, what else was asked for is refused: a few bytes of a request ask for thousands."""
_STEP_US: Final = 200


def handle(services: Services, call: Call) -> Steps:
    shared = _Shared(services.settings, call)
    results: list[Any] = []
    for each in call.message.resources:
        if call.answer_bytes < _MOST_BYTES:
            result = _describe(services, shared, each)
        else:
            result = _failed(
                each,
                codes.POLICY_VIOLATION,
                f"One answer has {_MOST_BYTES} bytes at most; ask again for this.",
            )
        results.append(call.element(result))
        yield _STEP_US
    return DescribeConfigsResponse(results=results)


class _Shared:
    """The common part of resources without a configuration of their own, made once for a request."""

    def __init__(self, settings: Settings, call: Call) -> None:
        self._settings = settings
        self._call = call
        self._with_synonyms: bool = call.message.include_synonyms
        self._known: dict[int, dict[str, Any]] = {}

    def entries(self, kind: int, own: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Names and entries of a resource with ``own`` settings."""
        known = self._known.get(kind)
        if known is None:
            known = self._known[kind] = {
                each.name: self._element(each) for each in _ENTRIES[kind](self._settings, {})
            }
        if not own:
            yield from known.items()
            return
        for each in _ENTRIES[kind](self._settings, own):
            yield each.name, self._element(each) if each.name in own else known[each.name]

    def _element(self, entry: DescribeConfigsResourceResult) -> Any:
        if not self._with_synonyms:
            entry.synonyms = []
        return self._call.element(entry)


def _describe(services: Services, shared: _Shared, asked: DescribeConfigsResource) -> DescribeConfigsResult:
    own: Mapping[str, Any] = {}
    if asked.resource_type == TOPIC:
        if not is_valid_topic_name(asked.resource_name):
            return _failed(asked, codes.INVALID_TOPIC_EXCEPTION, "No topic can have this name.")
        topic = services.cluster.topics.get(asked.resource_name)
        if topic is None:
            return _failed(asked, codes.UNKNOWN_TOPIC_OR_PARTITION, "")
        own = topic.config
    elif asked.resource_type == _BROKER:
        known = {str(node_id) for node_id in services.cluster.nodes}
        if asked.resource_name not in known:
            return _failed(asked, codes.INVALID_REQUEST, f"Brokers here are {', '.join(sorted(known))}.")
    elif asked.resource_type == GROUP:
        if not asked.resource_name:
            return _failed(asked, codes.INVALID_REQUEST, "Group name must not be empty")
        own = services.cluster.group_configs.get(asked.resource_name, {})
    else:
        return _failed(
            asked,
            codes.INVALID_REQUEST,
            "Only topics (2), brokers (4) and groups (32) have configuration here.",
        )
    wanted = frozenset(asked.configuration_keys or ())
    return DescribeConfigsResult(
        error_code=codes.NONE,
        error_message="",  # as Kafka, though null could be said
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        configs=[
            entry for name, entry in shared.entries(asked.resource_type, own) if not wanted or name in wanted
        ],
    )


def _of_topic(settings: Settings, own: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    defaults = topic_defaults(settings)
    for name, known in TOPIC_KEYS.items():
        value, is_brokers = defaults[name]
        brokers_name = SYNONYMS.get(name, name)
        source = _SOURCE_STATIC_BROKER if is_brokers else _SOURCE_DEFAULT
        synonyms: list[DescribeConfigsSynonym] = []
        if is_brokers:
            synonyms.append(DescribeConfigsSynonym(name=brokers_name, value=value, source=source))
        if name not in UNTOLD_DEFAULTS:
            default = known.default
            synonyms.append(DescribeConfigsSynonym(name=brokers_name, value=default, source=_SOURCE_DEFAULT))
        if name in own:
            value, source = own[name], _SOURCE_TOPIC
            synonyms.insert(0, DescribeConfigsSynonym(name=name, value=value, source=source))
        yield DescribeConfigsResourceResult(
            name=name,
            value=value,
            config_source=source,
            synonyms=synonyms,
            config_type=_KINDS[known.kind],
            documentation=None,
        )


def _of_group(settings: Settings, own: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    """A group need not exist: without settings of its own it would have the broker's."""
    brokers = settings.describe()
    for name, known in GROUP_KEYS.items():
        inherited = f"group.{name}"
        chosen = [DescribeConfigsSynonym(name=inherited, value=known.default, source=_SOURCE_DEFAULT)]
        brokers_value = brokers.get(inherited)
        if brokers_value is None:  # only a group can have it
            chosen[0].name = name
        elif brokers_value != known.default:
            static = DescribeConfigsSynonym(name=inherited, value=brokers_value, source=_SOURCE_STATIC_BROKER)
            chosen.insert(0, static)
        if name in own:
            chosen.insert(0, DescribeConfigsSynonym(name=name, value=own[name], source=_SOURCE_GROUP))
        yield DescribeConfigsResourceResult(
            name=name,
            value=chosen[0].value,
            config_source=chosen[0].source,
            synonyms=chosen,
            config_type=_KINDS[known.kind],
            documentation=None,
        )


def _of_broker(settings: Settings, _own: Mapping[str, str]) -> Iterable[DescribeConfigsResourceResult]:
    for name, value in settings.describe().items():
        yield DescribeConfigsResourceResult(
            name=name,
            value=value,
            read_only=True,
            config_source=_SOURCE_STATIC_BROKER,
            synonyms=[DescribeConfigsSynonym(name=name, value=value, source=_SOURCE_STATIC_BROKER)],
            config_type=_KINDS[_kind(value)],
            documentation=None,
        )


_ENTRIES: Final[
    Mapping[int, Callable[[Settings, Mapping[str, Any]], Iterable[DescribeConfigsResourceResult]]]
] = {TOPIC: _of_topic, _BROKER: _of_broker, GROUP: _of_group}


def _kind(value: str) -> str:
    if value in ("true", "false"):
        return "BOOLEAN"
    if not value.lstrip("-").isdigit():
        return "STRING"
    return "INT" if abs(int(value)) < 2**31 else "LONG"


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
