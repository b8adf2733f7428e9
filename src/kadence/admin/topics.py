"""Topics and the cluster itself: the messages and what their answers mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kadence.admin.calls import Ask, Calls, refusal
from kadence.admin.values import (
    ClusterDescription,
    NewTopic,
    Outcomes,
    TopicDescription,
)
from kadence.errors import KafkaError
from kadence.protocol.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.delete_topics import DeleteTopicsRequest
from kadence.protocol.metadata import MetadataResponseTopic
from kadence.types import Node, PartitionInfo

__all__ = [
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_cluster",
    "describe_topics",
    "list_topics",
]


def create_topics(
    calls: Calls, deadline: int, topics: Iterable[NewTopic], *, validate_only: bool
) -> Outcomes[str, NewTopic]:
    """Create topics through the controller."""
    by_name = {topic.name: topic for topic in topics}

    def attempt(names: Collection[str], deadline: int) -> dict[str, NewTopic | KafkaError]:
        message = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name,
                    num_partitions=by_name[name].partitions,
                    replication_factor=by_name[name].replication_factor,
                    configs=[
                        CreatableTopicConfig(key, value) for key, value in by_name[name].configs.items()
                    ],
                )
                for name in names
            ],
            timeout_ms=30_000,
            validate_only=validate_only,
        )
        response = calls.ask(Ask(message, calls.controller(deadline)), deadline)
        result: dict[str, NewTopic | KafkaError] = {}
        for answer in response.topics:
            given = by_name[answer.name]
            if answer.error_code:
                result[answer.name] = refusal(
                    answer.error_code, f"topic {answer.name!r}", answer.error_message
                )
            else:
                partitions = answer.num_partitions if answer.num_partitions > 0 else given.partitions
                replicas = (
                    answer.replication_factor if answer.replication_factor > 0 else given.replication_factor
                )
                result[answer.name] = NewTopic(answer.name, partitions, replicas, given.configs)
        return result

    return calls.settle(by_name, attempt, deadline)


def delete_topics(calls: Calls, deadline: int, names: Iterable[str]) -> Outcomes[str, None]:
    """Delete topics through the controller."""

    def attempt(names: Collection[str], deadline: int) -> dict[str, None | KafkaError]:
        message = DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)
        # Version 6 names topics by id as well; by name alone is what every broker understands.
        response = calls.ask(Ask(message, calls.controller(deadline), max_version=5), deadline)
        return {
            answer.name: refusal(answer.error_code, f"topic {answer.name!r}", answer.error_message)
            if answer.error_code
            else None
            for answer in response.responses
        }

    # The controller knows its topics: what it does not know does not exist.
    return calls.settle(names, attempt, deadline, patience_ms=0)


def create_partitions(calls: Calls, deadline: int, totals: Mapping[str, int]) -> Outcomes[str, int]:
    """Grow topics to ``totals`` partitions."""

    def attempt(names: Collection[str], deadline: int) -> dict[str, int | KafkaError]:
        message = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=totals[name], assignments=None) for name in names],
            timeout_ms=30_000,
        )
        response = calls.ask(Ask(message, calls.controller(deadline)), deadline)
        return {
            answer.name: refusal(answer.error_code, f"topic {answer.name!r}", answer.error_message)
            if answer.error_code
            else totals[answer.name]
            for answer in response.results
        }

    return calls.settle(totals, attempt, deadline)


def list_topics(calls: Calls, deadline: int, *, internal: bool) -> dict[str, TopicDescription]:
    """Every topic that has no error."""
    response = calls.settle_one(lambda deadline: calls.metadata(None, deadline), deadline)
    return {
        topic.name: _describe(topic)
        for topic in sorted(response.topics, key=lambda topic: topic.name or "")
        if topic.name and not topic.error_code and (internal or not topic.is_internal)
    }


def describe_topics(calls: Calls, deadline: int, names: Iterable[str]) -> Outcomes[str, TopicDescription]:
    """Topics by name."""

    def attempt(names: Collection[str], deadline: int) -> dict[str, TopicDescription | KafkaError]:
        response = calls.metadata(names, deadline)
        return {
            topic.name or "": refusal(topic.error_code, f"topic {topic.name!r}")
            if topic.error_code
            else _describe(topic)
            for topic in response.topics
        }

    return calls.settle(names, attempt, deadline)


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


def describe_cluster(calls: Calls, deadline: int) -> ClusterDescription:
    """Brokers and controller, as metadata tells them."""
    response = calls.settle_one(lambda deadline: calls.metadata([], deadline), deadline)
    nodes = tuple(
        Node(broker.node_id, broker.host, broker.port, broker.rack)
        for broker in sorted(response.brokers, key=lambda broker: broker.node_id)
    )
    controller = next((node for node in nodes if node.node_id == response.controller_id), None)
    return ClusterDescription(response.cluster_id, controller, nodes)
