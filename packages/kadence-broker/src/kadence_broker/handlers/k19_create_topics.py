"""CreateTopics (19). v2 oldest  v4 default counts (-1)  v5 what was made, flexible  v7 topic id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kadence_broker.cluster import MOST_PARTITIONS, Cluster, is_valid_topic_name
from kadence_broker.service import Call, Handler, Services, Steps
from kadence_broker.topic_configs import check_topic_config, parsed, topic_defaults

__all__ = ["HANDLER"]

_BROKER_SOURCE = 4
_DEFAULT_SOURCE = 5
_TOPIC_SOURCE = 1


_TOPIC_US: Final = 200
_PARTITION_US: Final = 60
_REFUSAL_US: Final = 10


def handle(services: Services, call: Call) -> Steps:
    request: CreateTopicsRequest = call.message
    counts = Counter(each.name for each in request.topics)
    results: list[Any] = []
    if (too_much := (yield from _too_much(services, request, counts))) is not None:
        # As in Kafka, nothing of it is looked at.
        for each in request.topics:
            results.append(call.element(_failed(each, codes.POLICY_VIOLATION, too_much)))
            yield _REFUSAL_US
        return CreateTopicsResponse(topics=results)
    defaults = {
        name: call.element(
            CreatableTopicConfigs(
                name=name, value=value, config_source=_BROKER_SOURCE if is_brokers else _DEFAULT_SOURCE
            )
        )
        for name, (value, is_brokers) in topic_defaults(services.settings).items()
    }
    for name, asked in {each.name: each for each in request.topics}.items():
        if counts[name] > 1:  # answered once, as in Kafka
            result = _failed(asked, codes.INVALID_REQUEST, "Duplicate topic name.")
        else:
            result = _create(services, asked, defaults, validate_only=request.validate_only)
        results.append(call.element(result))
        yield _TOPIC_US + max(result.num_partitions, 0) * _PARTITION_US
    services.reply_durably(call, CreateTopicsResponse(topics=results))
    return None


def _too_much(services: Services, request: CreateTopicsRequest, counts: Counter[str]) -> Steps:
    """Returns why one request may not ask for so much; None if it may."""
    default = services.settings.num_partitions
    asked = [
        (
            each,
            len(each.assignments) or (default if each.num_partitions == -1 else max(each.num_partitions, 0)),
        )
        for each in request.topics
        if counts[each.name] == 1
    ]
    if sum(partitions for _, partitions in asked) > MOST_PARTITIONS:
        return f"One request makes {MOST_PARTITIONS} partitions at most."
    # Kafka counts the entries in its log: one for each topic, partition and setting that it makes.
    entries = [(each, 1 + partitions + len(each.configs)) for each, partitions in asked]
    if sum(count for _, count in entries) > MOST_PARTITIONS:
        total = 0
        for each, count in entries:
            total += count if _could_be_made(services, each) else 0
            yield _TOPIC_US
        if total > MOST_PARTITIONS:
            return (
                f"One request has {MOST_PARTITIONS} topics, partitions and settings of topics together at most; "
                f"these are {total}."
            )
    return None


def _could_be_made(services: Services, asked: CreatableTopic) -> bool:
    config = {each.name: each.value for each in asked.configs}
    is_possible = _name_fault(services.cluster, asked.name) is None and check_topic_config(config) is None
    return is_possible and (asked.num_partitions != 0 or bool(asked.assignments))


def _create(
    services: Services, asked: CreatableTopic, defaults: Mapping[str, Any], *, validate_only: bool
) -> CreatableTopicResult:
    cluster, count = services.cluster, asked.num_partitions
    if asked.assignments:
        if count != -1 or asked.replication_factor != -1:
            return _failed(
                asked,
                codes.INVALID_REQUEST,
                "With a manual assignment numPartitions and replicationFactor must be -1.",
            )
        count = len(asked.assignments)
        indexes = sorted(each.partition_index for each in asked.assignments)
        named = {node_id for each in asked.assignments for node_id in each.broker_ids}
        is_odd = any(
            not each.broker_ids or len(set(each.broker_ids)) != len(each.broker_ids)
            for each in asked.assignments
        )
        if is_odd or indexes != list(range(count)) or not named <= cluster.nodes.keys():
            return _failed(
                asked,
                codes.INVALID_REPLICA_ASSIGNMENT,
                "Assign each partition from 0 on to brokers that exist, each once.",
            )
    elif count == -1:
        count = services.settings.num_partitions
    config = {each.name: each.value for each in asked.configs}
    fault = _name_fault(cluster, asked.name)
    if fault is not None:
        return _failed(asked, *fault)
    if count < 1:
        return _failed(asked, codes.INVALID_PARTITIONS, "A topic needs at least one partition.")
    factor = asked.replication_factor
    if factor == 0 or factor < -1:
        return _failed(
            asked, codes.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0, or -1."
        )
    if factor > len(cluster.nodes):
        return _failed(
            asked,
            codes.INVALID_REPLICATION_FACTOR,
            f"Replication factor {factor} is more than the {len(cluster.nodes)} brokers there are.",
        )
    wrong = check_topic_config(config)
    if wrong is not None:
        return _failed(asked, codes.INVALID_CONFIG, wrong)
    result = CreatableTopicResult(
        name=asked.name,
        error_code=codes.NONE,
        error_message=None,
        num_partitions=count,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(name=name, value=config[name], config_source=_TOPIC_SOURCE)
            if name in config
            else default
            for name, default in defaults.items()
        ],
    )
    if not validate_only:
        values = parsed({name: str(value) for name, value in config.items()})
        leaders = {each.partition_index: each.broker_ids[0] for each in asked.assignments}
        try:
            topic = cluster.create_topic(
                asked.name, count, values, [leaders[index] for index in range(count)] if leaders else None
            )
        except OSError as error:
            return _failed(asked, codes.KAFKA_STORAGE_ERROR, f"The disk takes no more: {error}")
        result.topic_id = topic.topic_id
    return result


def _name_fault(cluster: Cluster, name: str) -> tuple[int, str] | None:
    """Why no topic of this name can be made."""
    if name in cluster.topics:
        return codes.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
    if not is_valid_topic_name(name):
        return (
            codes.INVALID_TOPIC_EXCEPTION,
            "A topic name has 1 to 249 letters, digits, dots, underscores and hyphens.",
        )
    if cluster.collides(name):
        return (
            codes.INVALID_TOPIC_EXCEPTION,
            f"A topic exists whose name differs from '{name}' only in dots and underscores.",
        )
    return None


def _failed(asked: CreatableTopic, code: int, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=code, error_message=message, configs=[])


def refuse(call: Call, code: int) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_failed(each, code, None) for each in call.message.topics])


HANDLER = Handler(CreateTopicsRequest, handle, refuse, changes=True)
