"""Consumer groups, classic and KIP-848: the messages and what their answers mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeAlias

from kadence.admin.arguments import as_names
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.lost_answers import Change
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError, UnsupportedVersionError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol import error_codes as ec
from kadence.protocol.consumer_group_describe import Assignment, ConsumerGroupDescribeRequest
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.delete_groups import DeleteGroupsRequest
from kadence.protocol.describe_groups import DescribeGroupsRequest
from kadence.protocol.share_group_describe import Assignment as ShareAssignment
from kadence.types import TopicPartition
from kadence.wire import Reader, WireError

__all__ = [
    "ConsumerGroupDescription",
    "MemberDescription",
    "delete_consumer_groups",
    "describe_consumer_groups",
]


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """One member of a group and what it owns.

    Attributes:
        target_assignment: the partitions that the coordinator has assigned to it. While it differs from
            ``assignment``, the member has partitions to revoke, or waits for those of others. None: a classic or
            share group.
        member_epoch: the epoch of a KIP-848 or share group that the member has reached. None: a classic group, or
            not reported.
        subscription: the topics that it has subscribed to by name. None: a classic group.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target_assignment: frozenset[TopicPartition] | None = None
    member_epoch: int | None = None
    subscription: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group as its coordinator knows it.

    Attributes:
        state: Kafka's name of the state, e.g. "Stable", "PreparingRebalance", "Empty".
        group_type: "classic" or "consumer" (KIP-848). assignor: the name of the assignor in use.
        epoch: the epoch of a KIP-848 group, which rises with each rebalance. None for a classic group, because
            brokers do not report its generation.
    """

    group_id: str
    state: str
    group_type: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    epoch: int | None = None


_DEAD = "Dead"


@operation
def describe_consumer_groups(
    calls: Calls, deadline: int, groups: str | Iterable[str]
) -> Waits[Outcomes[str, ConsumerGroupDescription]]:
    """State, members and assignment of groups, both classic ones and those of KIP-848."""

    def attempt(
        groups: Collection[str], deadline: int
    ) -> Waits[dict[str, ConsumerGroupDescription | KafkaError]]:
        result: dict[str, ConsumerGroupDescription | KafkaError] = {}
        by_node = yield from by_coordinator(calls, groups, deadline, result)
        # All at once: a coordinator that stands still takes no time from the others. Each is asked in both ways, since
        # nothing says of which type a group is.
        asks = [Ask(ConsumerGroupDescribeRequest(group_ids=names), node) for node, names in by_node.items()]
        asks += [Ask(DescribeGroupsRequest(groups=names), node) for node, names in by_node.items()]
        answers = yield from calls.ask_all(asks, deadline)
        for (node, names), newer, older in zip(
            by_node.items(), answers[: len(by_node)], answers[len(by_node) :], strict=True
        ):
            result |= _described(names, _of_kip848(node, names, newer), _of_classic(node, names, older))
        return result

    return calls.settle(as_names(groups), attempt, deadline)


def by_coordinator(
    calls: Calls, groups: Collection[str], deadline: int, result: dict[str, Any]
) -> Waits[dict[int, list[str]]]:
    """Groups by the node that coordinates them; those without one get their error in ``result``."""
    by_node: dict[int, list[str]] = {}
    coordinators = yield from calls.coordinators(groups, deadline)
    for group, node in coordinators.items():
        if isinstance(node, KafkaError):
            result[group] = node
        else:
            by_node.setdefault(node, []).append(group)
    return by_node


_Description: TypeAlias = ConsumerGroupDescription | KafkaError


def _described(
    names: Iterable[str], newer: Mapping[str, _Description], older: Mapping[str, _Description]
) -> dict[str, _Description]:
    """Of each group what is known, by the answers for KIP-848 groups and for classic ones.

    A group that is none of the first kind lacks there, and the other answer counts.
    """
    return {name: each for name in names if (each := newer.get(name, older.get(name))) is not None}


def _of_kip848(node: int, names: Iterable[str], answer: Any) -> dict[str, _Description]:
    """Groups of KIP-848; those are left out that the broker does not take for such."""
    result: dict[str, _Description] = {}
    if isinstance(answer, UnsupportedVersionError):
        return result
    if isinstance(answer, KafkaError):
        return dict.fromkeys(names, answer)
    for group in answer.groups:
        if group.error_code in (ec.GROUP_ID_NOT_FOUND, ec.UNSUPPORTED_VERSION):
            continue
        if group.error_code:
            result[group.group_id] = refusal(
                group.error_code, f"group {group.group_id!r}", group.error_message
            )
        else:
            members = tuple(
                MemberDescription(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    assigned_to(member.assignment),
                    assigned_to(member.target_assignment),
                    member.member_epoch,
                    frozenset(member.subscribed_topic_names),
                )
                for member in group.members
            )
            result[group.group_id] = ConsumerGroupDescription(
                group.group_id,
                group.group_state,
                "consumer",
                "consumer",
                group.assignor_name,
                node,
                members,
                group.group_epoch,
            )
    return result


def assigned_to(assignment: Assignment | ShareAssignment) -> frozenset[TopicPartition]:
    """The partitions of a member of a KIP-848 or share group."""
    return frozenset(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _of_classic(node: int, names: Iterable[str], answer: Any) -> dict[str, _Description]:
    """Classic groups."""
    result: dict[str, _Description] = {}
    if isinstance(answer, KafkaError):
        return dict.fromkeys(names, answer)
    for group in answer.groups:
        if group.error_code:
            result[group.group_id] = refusal(
                group.error_code, f"group {group.group_id!r}", group.error_message
            )
        elif group.group_state == _DEAD:
            # Before version 6 a group that does not exist is described as dead.
            result[group.group_id] = refusal(ec.GROUP_ID_NOT_FOUND, f"group {group.group_id!r}")
        else:
            members = tuple(
                MemberDescription(
                    member.member_id,
                    member.group_instance_id,
                    member.client_id,
                    member.client_host,
                    _assigned(group.protocol_type, member.member_assignment),
                )
                for member in group.members
            )
            result[group.group_id] = ConsumerGroupDescription(
                group.group_id,
                group.group_state,
                "classic",
                group.protocol_type,
                group.protocol_data,
                node,
                members,
            )
    return result


def _assigned(protocol_type: str, data: bytes) -> frozenset[TopicPartition]:
    """The partitions of a classic member; none for other protocols than the consumer's, whose bytes differ."""
    if protocol_type != "consumer" or not data:
        return frozenset()
    try:
        reader = Reader(data)
        version = min(max(reader.int16(), 0), ConsumerProtocolAssignment.MAX_VERSION)
        assignment = ConsumerProtocolAssignment.read(reader, version)
    except WireError:
        # Another client's bytes; the rest of the description is still worth having.
        return frozenset()
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in assignment.assigned_partitions
        for partition in topic.partitions
    )


@operation
def delete_consumer_groups(
    calls: Calls, deadline: int, groups: str | Iterable[str]
) -> Waits[Outcomes[str, None]]:
    """Delete groups and their committed offsets. A group that has members is refused.

    If an answer is lost and the group is not there, it counts as deleted.
    """
    return deleted(calls, deadline, as_names(groups))


def deleted(calls: Calls, deadline: int, order: list[str]) -> Waits[Outcomes[str, None]]:
    """Delete groups of any type."""
    change = Change(calls, ec.GROUP_ID_NOT_FOUND)

    def attempt(groups: Collection[str], deadline: int) -> Waits[dict[str, None | KafkaError]]:
        result: dict[str, None | KafkaError] = {}
        by_node = yield from by_coordinator(calls, groups, deadline, result)
        asks = [Ask(DeleteGroupsRequest(groups_names=names), node) for node, names in by_node.items()]
        answers = yield from calls.ask_all(asks, deadline)
        for ask, names, answer in zip(asks, by_node.values(), answers, strict=True):
            change.asked(ask, names)
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(names, answer))
                continue
            for item in answer.results:
                what = f"group {item.group_id!r}"
                result[item.group_id] = (
                    refusal(item.error_code, what, item.error_message) if item.error_code else None
                )
        return result

    outcomes = yield from calls.settle(order, attempt, deadline)
    return change.settled(outcomes, order, dict.fromkeys(change.repeated(outcomes), (None, "")))
