"""Regular expressions of a group: when they are matched against the topics, and what that changes (KIP-848).

All expressions of a group are matched together, so that they cause one rebalance. That happens after the answer to a
heartbeat, as Kafka does it beside: the member that brings a new expression is first told an empty assignment.
"""

from __future__ import annotations

from typing import Final

from kadence.coordinator.consumer import patterns, writing
from kadence.coordinator.consumer.epochs import bump
from kadence.coordinator.consumer.group import ConsumerGroup
from kadence.coordinator.consumer.metadata_hash import metadata_hash
from kadence.coordinator.shard import Shard

__all__ = ["forget_unread", "resolve_if_due"]

_LEAST_INTERVAL_MS: Final = 10_000
"""Between two matchings of a group, whatever changed."""


def resolve_if_due(shard: Shard, now: int, group: ConsumerGroup) -> None:
    """Match the group's expressions if one is new, if topics changed, or if it was long ago."""
    read, time_of_day = group.patterns(), shard.wall(now)
    if not read:
        return
    resolved = group.resolved
    last = max((each.timestamp for each in resolved.values()), default=None)
    if last is not None and last <= time_of_day:
        if time_of_day <= last + _LEAST_INTERVAL_MS:
            return
        is_old = time_of_day > last + shard.config.consumer_regex_refresh_interval_ms
        # Not the version that is stored: another process may have counted otherwise.
        topics_changed = group.matched_version != shard.topics.version
        if not is_old and not topics_changed and all(pattern in resolved for pattern in read):
            return
    group.matched_version = shard.topics.version
    changed = False
    for pattern, names in patterns.matches(read, shard.topics.names()).items():
        before = resolved.get(pattern)
        changed |= names != (frozenset() if before is None else before.topics)
        found = patterns.Resolved(names, shard.topics.version, time_of_day)
        writing.write_pattern(shard, group.group_id, pattern, found)
    if changed or metadata_hash(group.subscribed_topics(), shard.topics) != group.metadata_hash:
        bump(shard, group)


def forget_unread(shard: Shard, group: ConsumerGroup) -> None:
    """What nobody subscribes to any more need not be matched."""
    for pattern in [each for each in group.resolved if not group.readers_of_pattern(each)]:
        writing.remove_pattern(shard, group.group_id, pattern)
