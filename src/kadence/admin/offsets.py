"""Offsets of partitions and of groups: the messages and what their answers mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kadence.admin.calls import Ask, Calls, refusal
from kadence.admin.values import OffsetSpec, Outcomes
from kadence.errors import KafkaError, MalformedMessageError
from kadence.protocol import error_codes as ec
from kadence.protocol.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kadence.protocol.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = [
    "alter_consumer_group_offsets",
    "by_leader",
    "delete_consumer_group_offsets",
    "list_consumer_group_offsets",
    "list_offsets",
    "log_ranges",
]

_ENDS: Final = {"latest": -1, "earliest": -2, "max_timestamp": -3}
_MAX_TIMESTAMP_SINCE: Final = 7
_OFFSET_FETCH_LAST_SINGLE_GROUP: Final = 7
_OFFSET_COMMIT_LAST_BY_NAME: Final = 9

Item = TypeVar("Item", bound=tuple[TopicPartition, int])


class _Wanted(NamedTuple):
    """A partition, and the time or end that is asked for."""

    partition: TopicPartition
    timestamp: int

    def __str__(self) -> str:
        end = next((name for name, timestamp in _ENDS.items() if timestamp == self.timestamp), None)
        if end is None:
            return f"the offset of {self.partition} at time {self.timestamp}"
        return f"the {end} offset of {self.partition}"


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def list_offsets(
    calls: Calls, deadline: int, specs: Mapping[TopicPartition, OffsetSpec], *, read_committed: bool
) -> Outcomes[TopicPartition, OffsetAndTimestamp | None]:
    """One offset of each partition, from its leader; None where no record is late enough."""
    wanted = [_Wanted(TopicPartition(*tp), _timestamp(spec)) for tp, spec in specs.items()]
    found = _offsets(calls, wanted, deadline, read_committed=read_committed)
    return Outcomes(
        {tp: offset for (tp, _), offset in found.items()},
        {tp: error for (tp, _), error in found.errors.items()},
    )


def log_ranges(
    calls: Calls, deadline: int, partitions: Iterable[TopicPartition], *, read_committed: bool
) -> Outcomes[TopicPartition, tuple[int, int]]:
    """Start and end of each partition's log, both asked for at the same time."""
    wanted = [TopicPartition(*tp) for tp in partitions]
    first, last = _ENDS["earliest"], _ENDS["latest"]
    edges = [_Wanted(tp, edge) for tp in wanted for edge in (first, last)]
    found = _offsets(calls, edges, deadline, read_committed=read_committed)
    ranges: Outcomes[TopicPartition, tuple[int, int]] = Outcomes()
    for tp in wanted:
        begin, end = found.get(_Wanted(tp, first)), found.get(_Wanted(tp, last))
        if begin is not None and end is not None:
            # Retention may pass the end between the two answers.
            ranges[tp] = begin.offset, max(begin.offset, end.offset)
        else:
            error = found.errors.get(_Wanted(tp, first)) or found.errors.get(_Wanted(tp, last))
            ranges.errors[tp] = error or MalformedMessageError(f"the broker's answer has no offset of {tp}")
    return ranges


def _offsets(
    calls: Calls, wanted: Iterable[_Wanted], deadline: int, *, read_committed: bool
) -> Outcomes[_Wanted, OffsetAndTimestamp | None]:
    def attempt(
        items: Collection[_Wanted], deadline: int
    ) -> dict[_Wanted, OffsetAndTimestamp | None | KafkaError]:
        result: dict[_Wanted, OffsetAndTimestamp | None | KafkaError] = {}
        parts = _requests(by_leader(calls, items, deadline, result))
        asks = [_ask(node, times, read_committed=read_committed) for node, times in parts]
        for (_, times), answer in zip(parts, calls.ask_all(asks, deadline), strict=True):
            if isinstance(answer, KafkaError):
                result.update({_Wanted(*each): answer for each in times.items()})
                continue
            for topic in answer.topics:
                for item in topic.partitions:
                    tp = TopicPartition(topic.name, item.partition_index)
                    if tp in times:
                        result[_Wanted(tp, times[tp])] = _read(tp, item)
        return result

    return calls.settle(wanted, attempt, deadline)


def _requests(by_node: Mapping[int, list[_Wanted]]) -> list[tuple[int, dict[TopicPartition, int]]]:
    """What each request asks: a broker refuses one that names a partition twice."""
    parts: list[tuple[int, dict[TopicPartition, int]]] = []
    for node, items in by_node.items():
        rounds: list[dict[TopicPartition, int]] = []
        for tp, timestamp in items:
            free = next((times for times in rounds if tp not in times), None)
            if free is None:
                free = {}
                rounds.append(free)
            free[tp] = timestamp
        parts += [(node, times) for times in rounds]
    return parts


def _ask(node: int, times: Mapping[TopicPartition, int], *, read_committed: bool) -> Ask:
    message = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(read_committed),
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=times[TopicPartition(topic, index)])
                    for index in indexes
                ],
            )
            for topic, indexes in _by_topic(times).items()
        ],
        timeout_ms=30_000,
    )
    wants_max = _ENDS["max_timestamp"] in times.values()
    return Ask(message, node, min_version=_MAX_TIMESTAMP_SINCE if wants_max else None)


def _read(tp: TopicPartition, item: ListOffsetsPartitionResponse) -> OffsetAndTimestamp | None | KafkaError:
    if item.error_code:
        return refusal(item.error_code, tp)
    if item.offset < 0:
        return None
    return OffsetAndTimestamp(
        item.offset, item.timestamp, item.leader_epoch if item.leader_epoch >= 0 else None
    )


def _timestamp(spec: OffsetSpec) -> int:
    if isinstance(spec, str) and spec in _ENDS:
        return _ENDS[spec]
    if isinstance(spec, int) and not isinstance(spec, bool) and spec >= 0:
        return spec
    raise ValueError(f"an offset is given as one of {', '.join(_ENDS)} or a time in ms >= 0, not {spec!r}")


def by_leader(
    calls: Calls, items: Collection[Item], deadline: int, result: dict[Item, Any]
) -> dict[int, list[Item]]:
    """What to ask each leader; partitions without one get their error in ``result``."""
    topics = calls.topics({tp for tp, _ in items}, deadline)
    by_node: dict[int, list[Item]] = {}
    for item in items:
        tp, _ = item
        topic = topics.get(tp.topic)
        known = {partition.partition_index: partition for partition in topic.partitions} if topic else {}
        partition = known.get(tp.partition)
        if topic is None or topic.error_code:
            result[item] = refusal(topic.error_code if topic else ec.UNKNOWN_TOPIC_OR_PARTITION, tp)
        elif partition is None:
            result[item] = refusal(
                ec.UNKNOWN_TOPIC_OR_PARTITION, tp, f"topic {tp.topic!r} has {len(known)} partitions"
            )
        elif partition.leader_id < 0:
            result[item] = refusal(ec.LEADER_NOT_AVAILABLE, tp)
        else:
            by_node.setdefault(partition.leader_id, []).append(item)
    return by_node


def list_consumer_group_offsets(
    calls: Calls,
    deadline: int,
    group: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
) -> Outcomes[TopicPartition, OffsetAndMetadata]:
    """What a group committed; all or nothing where the error passes."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in _by_topic(partitions).items()
        ]

    def attempt(deadline: int) -> Outcomes[TopicPartition, OffsetAndMetadata]:
        message = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)
        ask = Ask(
            message,
            calls.coordinator(group, deadline),
            min_version=_OFFSET_FETCH_LAST_SINGLE_GROUP if require_stable else 2,
            max_version=_OFFSET_FETCH_LAST_SINGLE_GROUP,
        )
        response = calls.ask(ask, deadline)
        if response.error_code:
            raise refusal(response.error_code, f"group {group!r}")
        outcomes: Outcomes[TopicPartition, OffsetAndMetadata] = Outcomes()
        for topic in response.topics:
            for item in topic.partitions:
                tp = TopicPartition(topic.name, item.partition_index)
                if item.error_code:
                    error = refusal(item.error_code, f"group {group!r}, {tp}")
                    if error.retriable and item.error_code != ec.UNKNOWN_TOPIC_OR_PARTITION:
                        raise error
                    outcomes.errors[tp] = error
                elif item.committed_offset >= 0:
                    epoch = item.committed_leader_epoch if item.committed_leader_epoch >= 0 else None
                    outcomes[tp] = OffsetAndMetadata(item.committed_offset, epoch, item.metadata or "")
        return outcomes

    return calls.settle_one(attempt, deadline)


def alter_consumer_group_offsets(
    calls: Calls,
    deadline: int,
    group: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    topic_ids: Mapping[str, bytes],
) -> Outcomes[TopicPartition, OffsetAndMetadata]:
    """Commit from outside of the group.

    Topics are named by their ids where all of them are known and the broker takes them (Kafka 4.1 and newer).
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    by_name = not {tp.topic for tp in offsets} <= topic_ids.keys()

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        message = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=topic_ids.get(topic, ZERO_UUID),
                    partitions=[_commit(index, offsets[TopicPartition(topic, index)]) for index in indexes],
                )
                for topic, indexes in _by_topic(partitions).items()
            ],
        )
        last = _OFFSET_COMMIT_LAST_BY_NAME if by_name else None
        ask = Ask(message, calls.coordinator(group, deadline), max_version=last)
        result: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
        for topic in calls.ask(ask, deadline).topics:
            for item in topic.partitions:
                tp = TopicPartition(topic.name or names.get(topic.topic_id, ""), item.partition_index)
                result[tp] = _refused_commit(item.error_code, group, tp) if item.error_code else offsets[tp]
        return result

    return calls.settle(offsets, attempt, deadline)


def _commit(index: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=index,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def _refused_commit(code: int, group: str, tp: TopicPartition) -> KafkaError:
    if code in (ec.UNKNOWN_MEMBER_ID, ec.ILLEGAL_GENERATION, ec.NON_EMPTY_GROUP):
        return refusal(code, f"group {group!r}, {tp}", "the group has live members; stop its consumers first")
    return refusal(code, f"group {group!r}, {tp}")


def delete_consumer_group_offsets(
    calls: Calls, deadline: int, group: str, partitions: Iterable[TopicPartition]
) -> Outcomes[TopicPartition, None]:
    """Forget committed offsets."""

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> dict[TopicPartition, None | KafkaError]:
        message = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(i) for i in indexes]
                )
                for topic, indexes in _by_topic(partitions).items()
            ],
        )
        response = calls.ask(Ask(message, calls.coordinator(group, deadline)), deadline)
        if response.error_code:
            raise refusal(response.error_code, f"group {group!r}")
        return {
            TopicPartition(topic.name, item.partition_index): refusal(
                item.error_code, f"group {group!r}, {topic.name}-{item.partition_index}"
            )
            if item.error_code
            else None
            for topic in response.topics
            for item in topic.partitions
        }

    return calls.settle(partitions, attempt, deadline)
