"""AlterShareGroupOffsets and DeleteShareGroupOffsets: only while the group has no members.

Both change the state of share-partitions, so their answers come after that: see `state`.
"""

from __future__ import annotations

from kadence.protocol import alter_share_group_offsets as alter_api
from kadence.protocol import delete_share_group_offsets as delete_api
from kadence.protocol import error_codes as codes
from kadence.wire import ZERO_UUID
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.refusal import RefusedError
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share import initialising
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.lookup import find_group, found_or_new, share_group
from kadence_broker.coordinator.share.recording import state_record
from kadence_broker.coordinator.share.state import NO_STATE, Results, StateAction, StateRequest, TopicState

__all__ = ["alter_offsets", "delete_offsets", "refuse_if_not_empty"]

_UNKNOWN_TOPIC = "This server does not host this topic-partition."


def refuse_if_not_empty(group: ShareGroup) -> None:
    """Raise `RefusedError`: NON_EMPTY_GROUP."""
    if not group.is_empty:
        raise RefusedError(codes.NON_EMPTY_GROUP, "The group is not empty.")


def _check(shard: Shard, group_id: str) -> None:
    if shard.config.share.version < 1:
        raise RefusedError(codes.UNSUPPORTED_VERSION, "The version of API is not supported.")
    if not group_id:
        raise RefusedError(codes.INVALID_GROUP_ID, "The group id is invalid.")


# ------------------------------------------------------------ AlterShareGroupOffsets


def alter_offsets(
    shard: Shard, now: int, caller: Caller, request: alter_api.AlterShareGroupOffsetsRequest
) -> None:
    """Let share-partitions begin at other offsets; a group that does not exist is made."""
    try:
        _check(shard, request.group_id)
        group = found_or_new(shard, request.group_id)
        refuse_if_not_empty(group)
    except RefusedError as problem:
        shard.answer(
            caller,
            alter_api.AlterShareGroupOffsetsResponse(error_code=problem.code, error_message=problem.message),
        )
        return
    response = alter_api.AlterShareGroupOffsetsResponse(
        responses=[_altered(shard, topic) for topic in request.topics]
    )
    offsets = _offsets(shard, request)
    known = {
        image.topic_id: TopicState(image.name, frozenset(offsets.get(image.topic_id, {})))
        for topic in request.topics
        if (image := shard.topics.by_name(topic.topic_name)) is not None
    }
    if known:
        initialising.begin(shard, now, request.group_id, known)
    if not offsets:
        shard.answer(caller, response)
        return

    asking = share_group(shard, request.group_id)
    deletions = dict(asking.deletions)

    def then(shard: Shard, now: int, results: Results) -> None:
        if initialising.end(shard, asking, results, deletions):
            _put_codes(response, results)
            shard.answer(caller, response)
        else:
            shard.answer(caller, alter_api.AlterShareGroupOffsetsResponse(error_code=codes.NOT_COORDINATOR))

    shard.request_state(StateRequest(StateAction.ALTER, request.group_id, offsets, group.epoch, then, caller))


def _offsets(shard: Shard, request: alter_api.AlterShareGroupOffsetsRequest) -> dict[bytes, dict[int, int]]:
    """The start offsets of the partitions that exist."""
    offsets: dict[bytes, dict[int, int]] = {}
    for topic in request.topics:
        image = shard.topics.by_name(topic.topic_name)
        for each in topic.partitions:
            if image is not None and 0 <= each.partition_index < image.partitions:
                offsets.setdefault(image.topic_id, {})[each.partition_index] = each.start_offset
    return offsets


def _altered(
    shard: Shard, asked: alter_api.AlterShareGroupOffsetsRequestTopic
) -> alter_api.AlterShareGroupOffsetsResponseTopic:
    image = shard.topics.by_name(asked.topic_name)
    count = 0 if image is None else image.partitions
    return alter_api.AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=ZERO_UUID if image is None else image.topic_id,
        partitions=[
            alter_api.AlterShareGroupOffsetsResponsePartition(partition_index=each.partition_index)
            if 0 <= each.partition_index < count
            else alter_api.AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index,
                error_code=codes.UNKNOWN_TOPIC_OR_PARTITION,
                error_message=_UNKNOWN_TOPIC,
            )
            for each in asked.partitions
        ],
    )


def _put_codes(response: alter_api.AlterShareGroupOffsetsResponse, results: Results) -> None:
    for topic in response.responses:
        for partition in topic.partitions:
            code = results.get((topic.topic_id, partition.partition_index), codes.NONE)
            if code != codes.NONE and partition.error_code == codes.NONE:
                partition.error_code, partition.error_message = code, codes.name(code)


# ------------------------------------------------------------ DeleteShareGroupOffsets


def delete_offsets(
    shard: Shard, now: int, caller: Caller, request: delete_api.DeleteShareGroupOffsetsRequest
) -> None:
    """Forget topics: the group begins in them anew. Refused topics come last in the answer, as in Kafka."""
    try:
        _check(shard, request.group_id)
        group = share_group(shard, request.group_id)
        refuse_if_not_empty(group)
    except RefusedError as problem:
        shard.answer(
            caller,
            delete_api.DeleteShareGroupOffsetsResponse(
                error_code=problem.code, error_message=problem.message
            ),
        )
        return
    if not group.has_state:
        shard.answer(caller, delete_api.DeleteShareGroupOffsetsResponse())
        return
    partitions: dict[bytes, dict[int, int]] = {}
    refused: list[delete_api.DeleteShareGroupOffsetsResponseTopic] = []
    for topic in request.topics:
        _choose(shard, group, topic.topic_name, partitions, refused)
    if not partitions:
        shard.answer(caller, delete_api.DeleteShareGroupOffsetsResponse(responses=refused))
        return
    names = {topic: _name(shard, topic) for topic in partitions}
    shard.write(
        *state_record(
            group.group_id,
            group.initialising,
            {topic: state for topic, state in group.initialised.items() if topic not in partitions},
            {**group.deleting, **names},
        )
    )

    group.deletions.update(partitions.keys())

    def then(shard: Shard, now: int, results: Results) -> None:
        responses = _deleted(shard, request.group_id, names, results)
        shard.answer(caller, delete_api.DeleteShareGroupOffsetsResponse(responses=responses + refused))

    shard.request_state(
        StateRequest(StateAction.DELETE, group.group_id, partitions, group.epoch, then, caller)
    )


def _choose(
    shard: Shard,
    group: ShareGroup,
    name: str,
    partitions: dict[bytes, dict[int, int]],
    refused: list[delete_api.DeleteShareGroupOffsetsResponseTopic],
) -> None:
    """Add the topic's partitions, or why it has none; one whose deletion has not come to its end is deleted again."""
    image = shard.topics.by_name(name)
    if image is not None and image.topic_id in group.initialised:
        numbers = sorted(group.initialised[image.topic_id].partitions)
    elif image is not None and image.topic_id in group.deleting:
        numbers = list(range(image.partitions))
    else:
        message = _UNKNOWN_TOPIC if image is None else "There is no offset information to delete."
        refused.append(
            delete_api.DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, error_code=codes.UNKNOWN_TOPIC_OR_PARTITION, error_message=message
            )
        )
        return
    partitions[image.topic_id] = dict.fromkeys(numbers, NO_STATE)


def _name(shard: Shard, topic: bytes) -> str:
    image = shard.topics.by_id(topic)
    return "<UNKNOWN>" if image is None else image.name


def _deleted(
    shard: Shard, group_id: str, names: dict[bytes, str], results: Results
) -> list[delete_api.DeleteShareGroupOffsetsResponseTopic]:
    """Write down that the deletion has come to its end, where it has."""
    failed: dict[bytes, int] = {}
    for (topic, _), code in results.items():
        if code != codes.NONE:
            failed.setdefault(topic, code)
    group = find_group(shard, group_id)
    if group is not None and len(failed) < len(names):
        deleting = {
            topic: name for topic, name in group.deleting.items() if topic not in names or topic in failed
        }
        shard.write(*state_record(group_id, group.initialising, group.initialised, deleting))
    return [
        delete_api.DeleteShareGroupOffsetsResponseTopic(
            topic_id=topic,
            topic_name=name,
            error_code=failed.get(topic, codes.NONE),
            error_message=codes.name(failed[topic]) if topic in failed else None,
        )
        for topic, name in sorted(names.items(), key=lambda item: item[0] in failed)
    ]
