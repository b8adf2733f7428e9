"""Offsets of partitions and of groups: the messages and what their answers mean."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeVar

from kadence.admin.arguments import (
    P,
    Partitions,
    as_name,
    as_names,
    as_partitions,
    by_partition,
    by_topic,
    check,
    is_read_committed,
)
from kadence.admin.calls import Ask, Calls, operation, refusal
from kadence.admin.groups import by_coordinator
from kadence.admin.values import Outcomes
from kadence.client.waits import Waits
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
from kadence.protocol.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kadence.wire import ZERO_UUID

__all__ = [
    "OffsetSpec",
    "alter_consumer_group_offsets",
    "delete_consumer_group_offsets",
    "list_consumer_group_offsets",
    "list_offsets",
    "list_offsets_of_groups",
    "log_ranges",
]

OffsetSpec = Literal["earliest", "latest", "max_timestamp"] | int
"""An offset of a partition, as `Admin.list_offsets` takes it.

The first, the end, that of the record with the greatest timestamp, or the first at or after a time (ms since 1970).
"""

_ENDS: Final = {"latest": -1, "earliest": -2, "max_timestamp": -3}
_MAX_TIMESTAMP_SINCE: Final = 7
_OFFSET_FETCH_MANY_GROUPS: Final = 8
_OFFSET_FETCH_LAST_BY_NAME: Final = 9
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


@operation
def list_offsets(
    calls: Calls, deadline: int, specs: Mapping[P, OffsetSpec], *, isolation_level: str = "read_uncommitted"
) -> Waits[Outcomes[TopicPartition, OffsetAndTimestamp | None]]:
    """One offset of each partition.

    ``"earliest"``: the first. ``"latest"``: the end, with ``read_committed`` the last stable offset.
    ``"max_timestamp"``: that of the record with the greatest timestamp. A number: the first offset whose timestamp
    is at or after this time (ms since 1970).

    Returns:
        The offset and timestamp (-1 for ``"earliest"`` and ``"latest"``); None for a partition without such a
        record.
    """
    wanted = [_Wanted(tp, _timestamp(spec)) for tp, spec in by_partition(specs).items()]
    found = yield from _offsets(calls, wanted, deadline, isolation_level)
    return Outcomes(
        {tp: offset for (tp, _), offset in found.items()},
        {tp: error for (tp, _), error in found.errors.items()},
    )


@operation
def log_ranges(
    calls: Calls, deadline: int, partitions: Partitions, *, isolation_level: str = "read_uncommitted"
) -> Waits[Outcomes[TopicPartition, tuple[int, int]]]:
    """The log of each partition: its first offset, and its end offset, which the next record will get.

    Both are requested together, so this takes one round trip where two calls of `list_offsets` take two. With
    ``read_committed`` the end is the last stable offset: where the oldest open transaction begins, if there is one.
    """
    wanted = as_partitions(partitions)
    first, last = _ENDS["earliest"], _ENDS["latest"]
    edges = [_Wanted(tp, edge) for tp in wanted for edge in (first, last)]
    found = yield from _offsets(calls, edges, deadline, isolation_level)
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
    calls: Calls, wanted: Iterable[_Wanted], deadline: int, isolation_level: str
) -> Waits[Outcomes[_Wanted, OffsetAndTimestamp | None]]:
    read_committed = is_read_committed(isolation_level)

    def attempt(
        items: Collection[_Wanted], deadline: int
    ) -> Waits[dict[_Wanted, OffsetAndTimestamp | None | KafkaError]]:
        result: dict[_Wanted, OffsetAndTimestamp | None | KafkaError] = {}
        by_node = yield from by_leader(calls, items, deadline, result)
        parts = _requests(by_node)
        asks = [_ask(node, times, read_committed=read_committed) for node, times in parts]
        answers = yield from calls.ask_all(asks, deadline)
        for (_, times), answer in zip(parts, answers, strict=True):
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
    """The partitions of each request: a broker refuses one that names a partition twice."""
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
            for topic, indexes in by_topic(times).items()
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
) -> Waits[dict[int, list[Item]]]:
    """Group items by the leader to ask; partitions without one get their error in ``result``."""
    topics = yield from calls.topics({tp for tp, _ in items}, deadline)
    by_node: dict[int, list[Item]] = {}
    # Of each topic once: made for each partition of a topic of thousands, it would take seconds.
    partitions = {
        name: {each.partition_index: each for each in topics[name].partitions}
        for name in {tp.topic for tp, _ in items}
        if name in topics
    }
    for item in items:
        tp, _ = item
        topic, known = topics.get(tp.topic), partitions.get(tp.topic, {})
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


@operation
def list_consumer_group_offsets(
    calls: Calls,
    deadline: int,
    group: str,
    partitions: Partitions | None = None,
    *,
    require_stable: bool = False,
) -> Waits[Outcomes[TopicPartition, OffsetAndMetadata]]:
    """The offsets that a group has committed, for all partitions or for these.

    Partitions without one are left out.

    Args:
        require_stable: wait until open transactions that commit offsets of the group have ended (KIP-447). Without
            ``partitions`` brokers leave out those that have no offset before such a transaction ends; name them.
    """
    wanted = None if partitions is None else by_topic(as_partitions(partitions))
    found = yield from _committed(
        calls, {as_name("a group", group): wanted}, deadline, require_stable=require_stable
    )
    found.raise_errors()
    return found[group]


@operation
def list_offsets_of_groups(
    calls: Calls, deadline: int, groups: str | Iterable[str], *, require_stable: bool = False
) -> Waits[Outcomes[str, dict[TopicPartition, OffsetAndMetadata]]]:
    """The offsets that each of several groups has committed, for all its partitions.

    Each coordinator gets one request for all of its groups (KIP-709; before Kafka 3.0 one for each group). A group
    that does not exist has no offsets.

    Args:
        require_stable: as of `list_consumer_group_offsets`.
    """
    found = yield from _committed(
        calls, dict.fromkeys(as_names(groups)), deadline, require_stable=require_stable
    )
    outcomes: Outcomes[str, dict[TopicPartition, OffsetAndMetadata]] = Outcomes(errors=found.errors)
    for group, offsets in found.items():
        if offsets.errors:
            outcomes.errors[group] = next(iter(offsets.errors.values()))
        else:
            outcomes[group] = dict(offsets)
    return outcomes


_Topics = Mapping[str, list[int]] | None
"""Partitions of a group, by topic; None for all that it has committed."""

_Committed = Outcomes[TopicPartition, OffsetAndMetadata]


def _committed(
    calls: Calls, wanted: Mapping[str, _Topics], deadline: int, *, require_stable: bool
) -> Waits[Outcomes[str, _Committed]]:
    def attempt(groups: Collection[str], deadline: int) -> Waits[dict[str, _Committed | KafkaError]]:
        result: dict[str, _Committed | KafkaError] = {}
        by_node = yield from by_coordinator(calls, groups, deadline, result)
        asks = [
            (
                _ask_many({group: wanted[group] for group in names}, node, require_stable=require_stable),
                [_ask_one(group, wanted[group], node, require_stable=require_stable) for group in names],
            )
            for node, names in by_node.items()
        ]
        answers = yield from calls.ask_all_or(asks, deadline)
        for names, (is_singly, found) in zip(by_node.values(), answers, strict=True):
            if is_singly:
                for group, answer in zip(names, found, strict=True):
                    result[group] = answer if isinstance(answer, KafkaError) else _of_group(group, answer)
            elif isinstance(found[0], KafkaError):
                result.update(dict.fromkeys(names, found[0]))
            else:
                result.update({each.group_id: _of_group(each.group_id, each) for each in found[0].groups})
        return result

    return calls.settle(wanted, attempt, deadline)


def _ask_many(wanted: Mapping[str, _Topics], node: int, *, require_stable: bool) -> Ask:
    groups = [
        OffsetFetchRequestGroup(
            group_id=group,
            topics=None
            if topics is None
            else [OffsetFetchRequestTopics(name=topic, partition_indexes=topics[topic]) for topic in topics],
        )
        for group, topics in wanted.items()
    ]
    message = OffsetFetchRequest(groups=groups, require_stable=require_stable)
    return Ask(message, node, min_version=_OFFSET_FETCH_MANY_GROUPS, max_version=_OFFSET_FETCH_LAST_BY_NAME)


def _ask_one(group: str, topics: _Topics, node: int, *, require_stable: bool) -> Ask:
    message = OffsetFetchRequest(
        group_id=group,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopic(name=topic, partition_indexes=topics[topic]) for topic in topics],
        require_stable=require_stable,
    )
    last = _OFFSET_FETCH_MANY_GROUPS - 1
    return Ask(message, node, min_version=last if require_stable else 2, max_version=last)


def _of_group(group: str, answer: OffsetFetchResponse | OffsetFetchResponseGroup) -> _Committed | KafkaError:
    """The offsets of one group in a response. A retriable error fails the whole group, so that it is asked again."""
    if answer.error_code:
        return refusal(answer.error_code, f"group {group!r}")
    outcomes: _Committed = Outcomes()
    for topic in answer.topics:
        for item in topic.partitions:
            tp = TopicPartition(topic.name, item.partition_index)
            if item.error_code:
                error = refusal(item.error_code, f"group {group!r}, {tp}")
                if error.retriable and item.error_code != ec.UNKNOWN_TOPIC_OR_PARTITION:
                    return error
                outcomes.errors[tp] = error
            elif item.committed_offset >= 0:
                epoch = item.committed_leader_epoch if item.committed_leader_epoch >= 0 else None
                outcomes[tp] = OffsetAndMetadata(item.committed_offset, epoch, item.metadata or "")
    return outcomes


@operation
def alter_consumer_group_offsets(
    calls: Calls,
    deadline: int,
    group: str,
    offsets: Mapping[P, OffsetAndMetadata | int],
    *,
    topic_ids: Mapping[str, bytes] | None = None,
) -> Waits[Outcomes[TopicPartition, OffsetAndMetadata]]:
    """Commit offsets for a group that has no members.

    Args:
        topic_ids: the ids of the topics. If every topic has one, a broker of Kafka 4.1 or newer refuses offsets
            of a topic that was deleted and created again. Older brokers know topics by name only.
    """
    as_name("a group", group)
    wanted, ids = as_offsets(offsets), topic_ids or {}
    names = {topic_id: name for name, topic_id in ids.items()}
    by_name = not {tp.topic for tp in wanted} <= ids.keys()

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> Waits[dict[TopicPartition, OffsetAndMetadata | KafkaError]]:
        message = OffsetCommitRequest(
            group_id=group,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=ids.get(topic, ZERO_UUID),
                    partitions=[_commit(index, wanted[TopicPartition(topic, index)]) for index in indexes],
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        last = _OFFSET_COMMIT_LAST_BY_NAME if by_name else None
        coordinator = yield from calls.coordinator(group, deadline)
        response = yield from calls.ask(Ask(message, coordinator, max_version=last), deadline)
        result: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
        for topic in response.topics:
            for item in topic.partitions:
                tp = TopicPartition(topic.name or names.get(topic.topic_id, ""), item.partition_index)
                if tp not in wanted:
                    # Not asked for; `settle` fails partitions that the answer lacks.
                    continue
                result[tp] = _refused_commit(item.error_code, group, tp) if item.error_code else wanted[tp]
        return result

    return calls.settle(wanted, attempt, deadline)


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


@operation
def delete_consumer_group_offsets(
    calls: Calls, deadline: int, group: str, partitions: Partitions
) -> Waits[Outcomes[TopicPartition, None]]:
    """Delete a group's committed offsets of these partitions. No member may be subscribed to their topics."""
    as_name("a group", group)

    def attempt(
        partitions: Collection[TopicPartition], deadline: int
    ) -> Waits[dict[TopicPartition, None | KafkaError]]:
        message = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(i) for i in indexes]
                )
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        coordinator = yield from calls.coordinator(group, deadline)
        response = yield from calls.ask(Ask(message, coordinator), deadline)
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

    return calls.settle(as_partitions(partitions), attempt, deadline)


def as_offsets(offsets: Mapping[P, OffsetAndMetadata | int]) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to commit; a number is one without metadata."""
    found = {}
    for partition, at in by_partition(offsets).items():
        check(at, (int, OffsetAndMetadata), f"{partition}: an offset is a whole number or OffsetAndMetadata")
        found[partition] = OffsetAndMetadata(at) if isinstance(at, int) else at
    return found
