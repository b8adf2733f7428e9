"""Offsets of share groups (KIP-932): where the oldest record of each partition is that is not done yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kadence.admin.arguments import (
    P,
    Partitions,
    as_name,
    as_names,
    as_partitions,
    by_partition,
    by_topic,
    check,
)
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.groups import by_coordinator
from kadence.admin.lost_answers import Change
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass
from kadence.protocol import error_codes as ec
from kadence.protocol.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kadence.protocol.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kadence.protocol.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
)
from kadence.types import TopicPartition

__all__ = [
    "ShareGroupOffset",
    "alter_share_group_offsets",
    "delete_share_group_offsets",
    "list_offsets_of_share_groups",
    "list_share_group_offsets",
]


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """The place of a share group in a partition.

    Attributes:
        start_offset: the oldest record that is neither accepted nor archived has this offset or a higher one. None:
            the brokers have stored none, because the group has not acknowledged a record there. Until then it
            begins by ``share.auto.offset.reset``.
        lag: records from there to the end that are not done, with those that members hold. None: not known, as it
            is without a start offset, and before Kafka 4.2. leader_epoch: None if the broker does not say.
    """

    start_offset: int | None
    lag: int | None
    leader_epoch: int | None = None


_Offsets = Outcomes[TopicPartition, ShareGroupOffset]


@operation
def list_share_group_offsets(
    calls: Calls, deadline: int, group: str, partitions: Partitions | None = None
) -> Waits[Outcomes[TopicPartition, ShareGroupOffset]]:
    """Start offset and lag of a share group, for all partitions that its members were ever assigned, or for these.

    A group that does not exist, or is of another type, has none.
    """
    wanted = None if partitions is None else as_partitions(partitions)
    found = yield from _offsets(calls, [as_name("a group", group)], deadline)
    found.raise_errors()
    if wanted is None:
        return found[group]
    # All are asked for: brokers answer a request that names a partition which does not exist after half a minute.
    errors = found[group].errors
    return Outcomes(
        {tp: found[group].get(tp, ShareGroupOffset(None, None)) for tp in wanted if tp not in errors},
        {tp: errors[tp] for tp in wanted if tp in errors},
    )


@operation
def list_offsets_of_share_groups(
    calls: Calls, deadline: int, groups: str | Iterable[str]
) -> Waits[Outcomes[str, dict[TopicPartition, ShareGroupOffset]]]:
    """Start offset and lag of several share groups, for all their partitions.

    Each coordinator gets one request for all of its groups. A group that does not exist, or is of another type, has
    none.
    """
    found = yield from _offsets(calls, as_names(groups), deadline)
    outcomes: Outcomes[str, dict[TopicPartition, ShareGroupOffset]] = Outcomes(errors=found.errors)
    for group, offsets in found.items():
        if offsets.errors:
            outcomes.errors[group] = next(iter(offsets.errors.values()))
        else:
            outcomes[group] = dict(offsets)
    return outcomes


def _offsets(calls: Calls, wanted: list[str], deadline: int) -> Waits[Outcomes[str, _Offsets]]:
    def attempt(groups: Collection[str], deadline: int) -> Waits[dict[str, _Offsets | KafkaError]]:
        result: dict[str, _Offsets | KafkaError] = {}
        by_node = yield from by_coordinator(calls, groups, deadline, result)
        asks = [
            Ask(
                DescribeShareGroupOffsetsRequest(
                    [DescribeShareGroupOffsetsRequestGroup(name, None) for name in names]
                ),
                node,
            )
            for node, names in by_node.items()
        ]
        answers = yield from calls.ask_all(asks, deadline)
        for names, answer in zip(by_node.values(), answers, strict=True):
            if isinstance(answer, KafkaError):
                result.update(dict.fromkeys(names, answer))
            else:
                result.update({each.group_id: _of_group(each) for each in answer.groups})
        return result

    return calls.settle(wanted, attempt, deadline)


def _of_group(group: DescribeShareGroupOffsetsResponseGroup) -> _Offsets | KafkaError:
    """The offsets of one group in a response. A retriable error fails the whole group, so that it is asked again."""
    if group.error_code:
        return refusal(group.error_code, f"group {group.group_id!r}", group.error_message)
    outcomes: _Offsets = Outcomes()
    for topic in group.topics:
        for item in topic.partitions:
            tp = TopicPartition(topic.topic_name, item.partition_index)
            if item.error_code:
                error = refusal(item.error_code, f"group {group.group_id!r}, {tp}", item.error_message)
                if error.retriable and item.error_code != ec.UNKNOWN_TOPIC_OR_PARTITION:
                    return error
                outcomes.errors[tp] = error
            else:
                outcomes[tp] = _offset(item)
    return outcomes


def _offset(item: DescribeShareGroupOffsetsResponsePartition) -> ShareGroupOffset:
    if item.start_offset < 0:
        return ShareGroupOffset(None, None)
    return ShareGroupOffset(
        item.start_offset,
        item.lag if item.lag >= 0 else None,
        item.leader_epoch if item.leader_epoch >= 0 else None,
    )


@operation
def alter_share_group_offsets(
    calls: Calls, deadline: int, group: str, offsets: Mapping[P, int]
) -> Waits[Outcomes[TopicPartition, int]]:
    """Set where a share group without members begins in these partitions. A group that does not exist is created.

    All records from the offset on are delivered, with new delivery counts. A new group has no start offset before
    it acknowledges a first record: with ``share.auto.offset.reset=latest`` it misses records written before that
    while it has no member. This call prevents that.

    Raises:
        BrokerError: NON_EMPTY_GROUP: the group has members. GROUP_ID_NOT_FOUND: it is of another type.
    """
    as_name("a group", group)
    wanted = by_partition(offsets)
    for tp, offset in wanted.items():
        check(offset, int, f"{tp}: an offset is a whole number")
        if offset < 0:
            raise ValueError(f"{tp}: an offset is a whole number of 0 or more, not {offset}")

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> Waits[dict[TopicPartition, int | KafkaError]]:
        message = AlterShareGroupOffsetsRequest(
            group,
            [
                AlterShareGroupOffsetsRequestTopic(
                    topic,
                    [
                        AlterShareGroupOffsetsRequestPartition(number, wanted[TopicPartition(topic, number)])
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(partitions).items()
            ],
        )
        coordinator = yield from calls.coordinator(group, deadline)
        response = yield from calls.ask(Ask(message, coordinator), deadline)
        if response.error_code:
            raise _refused(response.error_code, group, response.error_message)
        result: dict[TopicPartition, int | KafkaError] = {}
        for topic in response.responses:
            for item in topic.partitions:
                tp = TopicPartition(topic.topic_name, item.partition_index)
                if tp in wanted:
                    what = f"group {group!r}, {tp}"
                    result[tp] = (
                        refusal(item.error_code, what, item.error_message) if item.error_code else wanted[tp]
                    )
        return result

    return calls.settle(wanted, attempt, deadline)


def _refused(code: int, group: str, message: str | None) -> KafkaError:
    if code == ec.NON_EMPTY_GROUP:
        message = "the group has live members; stop its consumers first"
    return refusal(code, f"group {group!r}", message)


@operation
def delete_share_group_offsets(
    calls: Calls, deadline: int, group: str, topics: str | Iterable[str]
) -> Waits[Outcomes[str, None]]:
    """Delete the start offsets of a share group without members, in all partitions of these topics.

    The group begins there again by ``share.auto.offset.reset``.

    Raises:
        BrokerError: NON_EMPTY_GROUP: the group has members. GROUP_ID_NOT_FOUND: there is no such group, or it is of
            another type.
    """
    as_name("a group", group)
    order = as_names(topics)
    change = Change(calls, ec.UNKNOWN_TOPIC_OR_PARTITION)

    def attempt(topics: Collection[str], deadline: int) -> Waits[dict[str, None | KafkaError]]:
        message = DeleteShareGroupOffsetsRequest(
            group, [DeleteShareGroupOffsetsRequestTopic(topic) for topic in topics]
        )
        ask = Ask(message, (yield from calls.coordinator(group, deadline)))
        try:
            response = yield from calls.ask(ask, deadline)
        finally:
            change.asked(ask, topics)
        if response.error_code:
            raise _refused(response.error_code, group, response.error_message)
        return {
            each.topic_name: refusal(
                each.error_code, f"group {group!r}, topic {each.topic_name!r}", each.error_message
            )
            if each.error_code
            else None
            for each in response.responses
        }

    outcomes = yield from calls.settle(order, attempt, deadline)
    return change.settled(outcomes, order, dict.fromkeys(change.repeated(outcomes), (None, "")))
