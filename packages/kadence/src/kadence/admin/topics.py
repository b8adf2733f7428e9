"""Topics: the messages and what their answers mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kadence.admin.arguments import as_name, as_names, check, several
from kadence.admin.calls import Calls, operation, refusal
from kadence.admin.configs import text_of
from kadence.admin.lost_answers import Change, faults_of, partitions_of
from kadence.admin.values import NewTopic, Outcomes, TopicDescription
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.protocol import error_codes as ec
from kadence.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_topics import DeleteTopicsRequest
from kadence.protocol.metadata import MetadataResponseTopic
from kadence.types import PartitionInfo

__all__ = [
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_topics",
    "list_topics",
]


@operation
def create_topics(
    calls: Calls,
    deadline: int,
    topics: Mapping[str, int] | str | NewTopic | Iterable[NewTopic | str],
    *,
    validate_only: bool = False,
) -> Waits[Outcomes[str, NewTopic]]:
    """Create topics, given as ``{name: partitions}``, or as one or several names or `NewTopic` values.

    If an answer is lost and the topic exists with the partitions, replicas and settings asked for, it counts as
    created.

    Returns:
        The created topics, with the numbers of partitions and replicas that the broker chose, if it reports them.
    """
    by_name = {topic.name: topic for topic in as_topics(topics)}
    change = Change(calls, ec.TOPIC_ALREADY_EXISTS)

    def attempt(names: Collection[str], deadline: int) -> Waits[dict[str, NewTopic | KafkaError]]:
        message = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=by_name[name].partitions,
                    replication_factor=by_name[name].replication_factor,
                    configs=[
                        CreatableTopicConfig(key, text_of(value))
                        for key, value in by_name[name].configs.items()
                    ],
                )
                for name in names
            ],
            timeout_ms=30_000,
            validate_only=validate_only,
        )
        response = yield from change.ask(message, names, deadline)
        result: dict[str, NewTopic | KafkaError] = {}
        for answer in response.topics:
            given = by_name.get(answer.name)
            if given is None:
                # Not asked for; `settle` fails topics that the answer lacks.
                continue
            change.refused(answer.name, answer.error_code)
            if answer.error_code:
                result[answer.name] = _refusal(answer)
            else:
                partitions = answer.num_partitions if answer.num_partitions > 0 else given.partitions
                replicas = (
                    answer.replication_factor if answer.replication_factor > 0 else given.replication_factor
                )
                result[answer.name] = NewTopic(answer.name, partitions, replicas, given.configs)
        return result

    outcomes = yield from calls.settle(by_name, attempt, deadline)
    if validate_only or not (repeated := change.repeated(outcomes)):
        return outcomes
    found = yield from describe_topics(calls, deadline, repeated)
    faults = yield from faults_of(calls, deadline, by_name, found)
    return change.settled(outcomes, by_name, {**found.errors, **faults})


@operation
def delete_topics(calls: Calls, deadline: int, names: str | Iterable[str]) -> Waits[Outcomes[str, None]]:
    """Delete topics and all their records.

    If an answer is lost and the topic is not there, it counts as deleted.
    """
    order = list(dict.fromkeys(as_names(names)))
    change = Change(calls, ec.UNKNOWN_TOPIC_OR_PARTITION)

    def attempt(names: Collection[str], deadline: int) -> Waits[dict[str, None | KafkaError]]:
        message = DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)
        # Version 6 names topics by id as well; by name alone is what every broker understands.
        response = yield from change.ask(message, names, deadline, max_version=5)
        result: dict[str, None | KafkaError] = {}
        for answer in response.responses:
            change.refused(answer.name, answer.error_code)
            result[answer.name] = _refusal(answer) if answer.error_code else None
        return result

    # The controller knows all topics: one that it does not know does not exist.
    outcomes = yield from calls.settle(order, attempt, deadline, patience_ms=0)
    return change.settled(outcomes, order, dict.fromkeys(change.repeated(outcomes), (None, "")))


@operation
def create_partitions(calls: Calls, deadline: int, totals: Mapping[str, int]) -> Waits[Outcomes[str, int]]:
    """Add partitions to topics until they have these total numbers.

    A key's new records may then go to another partition than its old ones. If an answer is lost and the topic has
    the number asked for, the call counts as successful.
    """
    totals = as_totals(totals)
    change = Change(calls, ec.INVALID_PARTITIONS)

    def attempt(names: Collection[str], deadline: int) -> Waits[dict[str, int | KafkaError]]:
        message = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=totals[name], assignments=None) for name in names],
            timeout_ms=30_000,
        )
        response = yield from change.ask(message, names, deadline)
        result: dict[str, int | KafkaError] = {}
        for answer in response.results:
            if answer.name not in totals:
                continue
            change.refused(answer.name, answer.error_code)
            result[answer.name] = _refusal(answer) if answer.error_code else totals[answer.name]
        return result

    outcomes = yield from calls.settle(totals, attempt, deadline)
    if not (repeated := change.repeated(outcomes)):
        return outcomes
    found = yield from describe_topics(calls, deadline, repeated)
    faults = {name: partitions_of(totals[name], found[name]) for name in found}
    return change.settled(outcomes, totals, {**found.errors, **faults})


def _refusal(answer: Any) -> KafkaError:
    return refusal(answer.error_code, f"topic {answer.name!r}", answer.error_message)


@operation
def list_topics(calls: Calls, deadline: int, *, internal: bool = False) -> Waits[dict[str, TopicDescription]]:
    """All topics that this client may see, by name, sorted; Kafka's internal ones only if ``internal`` is true."""
    response = yield from calls.settle_one(lambda deadline: calls.metadata(None, deadline), deadline)
    known = calls.known_as(response)
    if known is None:
        return _described(response.topics, internal=internal)
    if known.described is None:
        known.described = _described(response.topics, internal=True)
    return {name: topic for name, topic in known.described.items() if internal or not topic.is_internal}


def _described(topics: Iterable[MetadataResponseTopic], *, internal: bool) -> dict[str, TopicDescription]:
    return {
        topic.name: _describe(topic)
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        if topic.name and not topic.error_code and (internal or not topic.is_internal)
    }


@operation
def describe_topics(
    calls: Calls, deadline: int, names: str | Iterable[str]
) -> Waits[Outcomes[str, TopicDescription]]:
    """Partitions, leaders and replicas of topics."""

    def attempt(names: Collection[str], deadline: int) -> Waits[dict[str, TopicDescription | KafkaError]]:
        response = yield from calls.metadata(names, deadline)
        return {
            topic.name or "": refusal(topic.error_code, f"topic {topic.name!r}")
            if topic.error_code
            else _describe(topic)
            for topic in response.topics
        }

    return calls.settle(as_names(names), attempt, deadline)


def _describe(topic: MetadataResponseTopic) -> TopicDescription:
    name = topic.name or ""
    partitions = tuple(
        PartitionInfo(
            name,
            partition.partition_index,
            partition.leader_id if partition.leader_id >= 0 else None,
            partition.leader_epoch if partition.leader_epoch >= 0 else None,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
            tuple(partition.offline_replicas),
            topic.topic_id,
        )
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    )
    return TopicDescription(name, topic.topic_id, topic.is_internal, partitions)


def as_topics(topics: Mapping[str, int] | str | NewTopic | Iterable[NewTopic | str]) -> list[NewTopic]:
    """Topics to create, given as {name: partitions}, names or values; one or several."""
    if isinstance(topics, Mapping):
        return [NewTopic(name, number) for name, number in as_totals(topics).items()]
    wanted = "topics are {name: partitions}, names or NewTopic values"
    found = [
        NewTopic(each) if isinstance(each, str) else each for each in several(topics, (str, NewTopic), wanted)
    ]
    for topic in found:
        for number in (topic.partitions, topic.replication_factor):
            check(number, int, f"topic {topic.name!r}: numbers of partitions and replicas are whole numbers")
        for name, value in topic.configs.items():
            wanted = "is text or a number; leave the setting out for its default"
            check(value, (str, int, float), f"topic {topic.name!r}: the value of {name!r} {wanted}")
    return found


def as_totals(totals: Mapping[str, int]) -> dict[str, int]:
    """Topics with their numbers of partitions."""
    check(totals, Mapping, "numbers of partitions are given as {name: partitions}")
    for name, number in totals.items():
        as_name("the name of a topic", name)
        check(number, int, f"topic {name!r}: the number of partitions is a whole number")
    return dict(totals)
