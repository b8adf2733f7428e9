"""Offsets as records: OffsetCommit, whose tombstone removes an offset."""

from __future__ import annotations

from collections.abc import Iterator

from kadence.protocol.offset_commit_record import OffsetCommitKey, OffsetCommitValue
from kadence_broker.coordinator.classic.group import ClassicGroup
from kadence_broker.coordinator.offsets.store import Committed
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.shard import Shard

__all__ = ["forget_all", "forget_topic", "records", "replay"]


def replay(shard: Shard, record: Record) -> None:
    """Keep an offset, for its group or for its transaction. A group that did not exist is created empty."""
    key: OffsetCommitKey = record.key
    value: OffsetCommitValue | None = record.value
    if value is None:
        shard.offsets.remove(key.group, key.topic, key.partition)
        return
    if key.group not in shard.groups:
        shard.groups[key.group] = ClassicGroup(key.group)
    committed = Committed(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        committed_at=value.commit_timestamp,
        expires_at=value.expire_timestamp if value.expire_timestamp >= 0 else None,
        topic_id=value.topic_id,
        serial=shard.offsets.next_serial(),
    )
    if record.producer is None:
        shard.offsets.put(key.group, key.topic, key.partition, committed)
    else:
        shard.offsets.put_pending(key.group, key.topic, key.partition, record.producer, committed)


def records(shard: Shard, group_id: str) -> Iterator[Record]:
    """The group's offsets, in the order in which they came."""
    for (topic, partition), committed, producer in shard.offsets.in_order(group_id):
        value = OffsetCommitValue(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.committed_at,
            expire_timestamp=-1 if committed.expires_at is None else committed.expires_at,
            topic_id=committed.topic_id,
        )
        yield Record(OffsetCommitKey(group_id, topic, partition), value, producer)


def forget_all(shard: Shard, group_id: str) -> None:
    """Write tombstones for all offsets of a group."""
    for topic, partition in sorted(shard.offsets.partitions(group_id)):
        shard.write(OffsetCommitKey(group_id, topic, partition), None)


def forget_topic(shard: Shard, deleted: str) -> None:
    """Write tombstones for the offsets of all groups in a deleted topic."""
    for group_id in sorted(shard.offsets.groups()):
        for topic, partition in sorted(shard.offsets.partitions(group_id)):
            if topic == deleted:
                shard.write(OffsetCommitKey(group_id, topic, partition), None)
