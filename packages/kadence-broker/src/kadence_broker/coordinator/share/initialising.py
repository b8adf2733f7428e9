"""Initialises share-partitions that a group subscribes to, and remembers which are: only those can be assigned.

A heartbeat writes down what is being initialised, and asks for it once that is stored; the result makes the partitions
assignable. So a new group's first assignment is empty. A topic's first partitions begin where
``share.auto.offset.reset`` says; those that it gets later begin at offset 0, whatever the reset (reference: §13.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.lookup import find_group
from kadence_broker.coordinator.share.recording import state_record
from kadence_broker.coordinator.share.state import NO_STATE, Results, StateAction, StateRequest, TopicState

__all__ = ["begin", "end", "initialise_if_needed", "topic_gone"]

_log = logger("kadence.coordinator")

States = Mapping[bytes, TopicState]


def initialise_if_needed(shard: Shard, now: int, group: ShareGroup) -> None:
    """Ask for the partitions that members subscribe to and that are not initialised yet."""
    missing = _missing(shard, now, group)
    if not missing:
        return
    known = group.initialised.keys() | {
        each for each in group.initialising if _is_asked(shard, now, group, each)
    }
    begin(shard, now, group.group_id, missing)
    _ask(
        shard,
        group,
        {
            topic: dict.fromkeys(state.partitions, 0 if topic in known else NO_STATE)
            for topic, state in missing.items()
        },
    )


def _missing(shard: Shard, now: int, group: ShareGroup) -> dict[bytes, TopicState]:
    missing: dict[bytes, TopicState] = {}
    for name in group.subscribed_topics():
        image = shard.topics.by_name(name)
        if image is None:
            continue
        done = _numbers(group.initialised, image.topic_id)
        if _is_asked(shard, now, group, image.topic_id):
            done |= _numbers(group.initialising, image.topic_id)
        left = frozenset(range(image.partitions)) - done
        if left:
            missing[image.topic_id] = TopicState(name, left)
    return missing


def _numbers(states: States, topic: bytes) -> frozenset[int]:
    return states[topic].partitions if topic in states else frozenset()


def _is_asked(shard: Shard, now: int, group: ShareGroup, topic: bytes) -> bool:
    """True if an answer for the topic is awaited. After the retry interval, or in another process, it is not."""
    since = group.asked_at.get(topic)
    return (
        topic in group.initialising
        and since is not None
        and now - since < shard.config.share.initialize_retry_interval_ms
    )


def _ask(shard: Shard, group: ShareGroup, partitions: Mapping[bytes, Mapping[int, int]]) -> None:
    deletions = dict(group.deletions)

    def then(shard: Shard, now: int, results: Results) -> None:
        end(shard, group, results, deletions)

    shard.request_state(StateRequest(StateAction.INITIALISE, group.group_id, partitions, group.epoch, then))


def begin(shard: Shard, now: int, group_id: str, topics: States) -> None:
    """Write down that these partitions are being initialised; the first such record makes a group."""
    group = find_group(shard, group_id) or ShareGroup(group_id)
    shard.write(
        *state_record(
            group_id,
            _merged(group.initialising, topics),
            group.initialised,
            {topic: name for topic, name in group.deleting.items() if topic not in topics},
        )
    )
    group = find_group(shard, group_id) or group
    group.asked_at.update(dict.fromkeys(topics, now))


def end(shard: Shard, asked_of: ShareGroup, results: Results, deletions: Mapping[bytes, int]) -> bool:
    """Write down which partitions are initialised now, and which are not and have to be asked for again.

    Args:
        asked_of: the group that asked. If it was loaded anew since then, the answer says nothing: it will ask again.
        deletions: of the group, when it asked: what was deleted since then is not initialised any more.

    Returns:
        whether the group is still the one that asked.
    """
    group_id = asked_of.group_id
    group = find_group(shard, group_id)
    if group is None:
        _forget(shard, group_id, results)
    if group is None or group is not asked_of:
        return False
    for (topic, number), code in results.items():
        if code != codes.NONE:
            _log.error(
                "group %r: partition %d of topic %s could not be initialised: %s",
                group_id,
                number,
                topic.hex(),
                codes.name(code),
            )
    answered = _by_topic(shard, group, results)
    gone = {each: code for each, code in results.items() if shard.topics.by_id(each[0]) is None}
    if gone:  # topics that were deleted meanwhile
        _forget(shard, group_id, gone)
    lasting = (
        each
        for each, code in results.items()
        if code == codes.NONE and each not in gone and group.deletions[each[0]] == deletions.get(each[0], 0)
    )
    done = _by_topic(shard, group, lasting)
    left = {
        topic: TopicState(state.name, state.partitions - _numbers(answered, topic))
        for topic, state in group.initialising.items()
    }
    # A topic without partitions is one of which AlterShareGroupOffsets named none that exists: Kafka keeps it, too.
    left = {topic: state for topic, state in left.items() if state.partitions or topic not in answered}
    for topic in answered.keys() - left.keys():
        group.asked_at.pop(topic, None)
    shard.write(*state_record(group_id, left, _merged(group.initialised, done), group.deleting))
    return True


def _forget(shard: Shard, group_id: str, results: Results) -> None:
    """The group was deleted meanwhile: nobody will need the state."""
    partitions: dict[bytes, dict[int, int]] = {}
    for topic, number in results:
        partitions.setdefault(topic, {})[number] = NO_STATE
    shard.request_state(
        StateRequest(StateAction.DELETE, group_id, partitions, 0, lambda _shard, _now, _results: None)
    )


def _by_topic(
    shard: Shard, group: ShareGroup, partitions: Iterable[tuple[bytes, int]]
) -> dict[bytes, TopicState]:
    topics: dict[bytes, set[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, set()).add(number)
    return {
        topic: TopicState(_name(shard, group, topic), frozenset(numbers)) for topic, numbers in topics.items()
    }


def _name(shard: Shard, group: ShareGroup, topic: bytes) -> str:
    image = shard.topics.by_id(topic)
    if image is not None:
        return image.name
    known = group.initialising.get(topic) or group.initialised.get(topic)
    return "<UNKNOWN>" if known is None else known.name


def _merged(some: States, more: States) -> dict[bytes, TopicState]:
    merged = dict(some)
    for topic, state in more.items():
        merged[topic] = TopicState(state.name, _numbers(some, topic) | state.partitions)
    return merged


def topic_gone(shard: Shard, name: str) -> None:
    """A topic was deleted: forget it in all share groups, and its state."""
    for group in [each for each in shard.groups.values() if isinstance(each, ShareGroup)]:
        states = (*group.initialising.items(), *group.initialised.items())
        gone = {topic for topic, state in states if state.name == name}
        gone |= {topic for topic, known in group.deleting.items() if known == name}
        if gone:
            _drop(shard, group, gone)


def _drop(shard: Shard, group: ShareGroup, gone: set[bytes]) -> None:
    numbers = {
        topic: _numbers(group.initialising, topic) | _numbers(group.initialised, topic) for topic in gone
    }
    shard.write(
        *state_record(
            group.group_id,
            {topic: state for topic, state in group.initialising.items() if topic not in gone},
            {topic: state for topic, state in group.initialised.items() if topic not in gone},
            {topic: name for topic, name in group.deleting.items() if topic not in gone},
        )
    )
    for topic in gone:
        group.asked_at.pop(topic, None)
    _forget(shard, group.group_id, {(topic, each): codes.NONE for topic in gone for each in numbers[topic]})
