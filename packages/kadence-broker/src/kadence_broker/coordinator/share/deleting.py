"""DeleteGroups, of share groups: their share-partitions go first, and the group after that, if it is still empty."""

from __future__ import annotations

from collections.abc import Callable

from kadence.protocol import error_codes as codes
from kadence_broker.coordinator.effects import Caller
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.share.group import ShareGroup
from kadence_broker.coordinator.share.lookup import find_group
from kadence_broker.coordinator.share.recording import state_record
from kadence_broker.coordinator.share.state import NO_STATE, Results, StateAction, StateRequest

__all__ = ["delete_state"]


def delete_state(
    shard: Shard, caller: Caller, group_ids: list[str], then: Callable[[Shard, dict[str, int]], None]
) -> None:
    """Delete the state of those of the groups that are empty share groups, and call ``then`` after that.

    Args:
        then: takes the codes of groups that must stay; it is called at once if there is nothing to delete.
    """
    requests = [
        (group, wanted)
        for group_id in group_ids
        if (group := find_group(shard, group_id)) is not None
        and group.is_empty
        and (wanted := _partitions(shard, group))
    ]
    if not requests:
        then(shard, {})
        return
    failed: dict[str, int] = {}
    left = {group.group_id for group, _ in requests}

    def ended(group_id: str) -> Callable[[Shard, int, Results], None]:
        def end(shard: Shard, now: int, results: Results) -> None:
            left.discard(group_id)
            code = next((each for each in results.values() if each != codes.NONE), codes.NONE)
            if code != codes.NONE:
                failed[group_id] = code
            if not left:
                then(shard, failed)

        return end

    for group, partitions in requests:
        names = {topic: group.initialised.get(topic) or group.initialising.get(topic) for topic in partitions}
        deleting = {topic: state.name for topic, state in names.items() if state is not None}
        shard.write(*state_record(group.group_id, {}, {}, {**group.deleting, **deleting}))
        group.deletions.update(partitions.keys())
        shard.request_state(
            StateRequest(
                StateAction.DELETE, group.group_id, partitions, group.epoch, ended(group.group_id), caller
            )
        )


def _partitions(shard: Shard, group: ShareGroup) -> dict[bytes, dict[int, int]]:
    """All that is initialised or may be, and what an earlier deletion did not come to the end of."""
    wanted: dict[bytes, dict[int, int]] = {}
    for states in (group.initialised, group.initialising):
        for topic, state in states.items():
            wanted.setdefault(topic, {}).update(dict.fromkeys(state.partitions, NO_STATE))
    for topic in group.deleting:
        image = shard.topics.by_id(topic)
        if image is not None:
            wanted.setdefault(topic, {}).update(dict.fromkeys(range(image.partitions), NO_STATE))
    return {topic: numbers for topic, numbers in wanted.items() if numbers}
