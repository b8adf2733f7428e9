"""Regular expressions of a group: the times of matching them against the topics, and the effect (KIP-848).

All expressions of a group are matched together, so that they cause one rebalance. That happens after the answer to a
heartbeat, as in Kafka, which matches in the background: a member with a new expression first gets an empty
assignment. If matching takes longer than other clients may wait, a timer of the group continues it.
"""

from __future__ import annotations

from typing import Final

from kadence.clock import add_ms
from kadence_broker.coordinator.consumer import patterns, writing
from kadence_broker.coordinator.consumer.epochs import bump
from kadence_broker.coordinator.consumer.group import ConsumerGroup
from kadence_broker.coordinator.consumer.lookup import find_group
from kadence_broker.coordinator.metadata_hash import metadata_hash
from kadence_broker.coordinator.shard import Shard
from kadence_broker.coordinator.timers import TimerKey, TimerKind

__all__ = ["forget_unread", "on_match_timer", "resolve_if_due"]

_LEAST_INTERVAL_MS: Final = 10_000
"""The least time between two matchings of a group, whatever changed."""


def resolve_if_due(shard: Shard, now: int, group: ConsumerGroup) -> None:
    """Match the group's expressions if one is new, if topics changed, or if the last matching was long ago."""
    read, time_of_day = group.patterns(), shard.wall(now)
    if not read:
        return
    resolved = group.resolved
    last = max((each.timestamp for each in resolved.values()), default=None)
    if last is not None and last <= time_of_day:
        if time_of_day <= last + _LEAST_INTERVAL_MS:
            return
        is_old = time_of_day > last + shard.config.consumer_regex_refresh_interval_ms
        # Not the stored version: another process counts from another start.
        topics_changed = group.matched_version != shard.topics.version
        if not is_old and not topics_changed and all(pattern in resolved for pattern in read):
            return
    if group.matching is None:
        group.matched_version = shard.topics.version
        group.matching = patterns.Matching(read, shard.topics.names())
        _go_on(shard, now, group)


def on_match_timer(shard: Shard, now: int, key: TimerKey) -> None:
    """Continue matching after other clients were served."""
    group = find_group(shard, key.group_id)
    if group is not None and group.matching is not None:
        _go_on(shard, now, group)


def _go_on(shard: Shard, now: int, group: ConsumerGroup) -> None:
    matching, version = group.matching, group.matched_version
    assert matching is not None
    assert version is not None
    if not matching.advance():
        shard.timers.schedule(TimerKey(TimerKind.MATCH, group.group_id), add_ms(now, 1))
        return
    group.matching = None
    changed = False
    for pattern, names in matching.found.items():
        if not group.readers_of_pattern(pattern):
            continue  # Its last member left while it was matched.
        before = group.resolved.get(pattern)
        changed |= names != (frozenset() if before is None else before.topics)
        found = patterns.Resolved(names, version, shard.wall(now))
        writing.write_pattern(shard, group.group_id, pattern, found)
    if changed or metadata_hash(group.subscribed_topics(), shard.topics) != group.metadata_hash:
        bump(shard, group)


def forget_unread(shard: Shard, group: ConsumerGroup) -> None:
    """Forget expressions without a subscriber."""
    for pattern in [each for each in group.resolved if not group.readers_of_pattern(each)]:
        writing.remove_pattern(shard, group.group_id, pattern)
