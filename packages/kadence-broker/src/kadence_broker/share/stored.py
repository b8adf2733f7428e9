"""The state of a share-partition as it is stored, and as records of `__share_group_state` (KIP-932).

A snapshot has all of it, an update only what a step changed; newer batches take the place of older ones where they
overlap, as in Kafka's PersisterStateBatchCombiner. Locks are not stored: after a restart nobody holds anything.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from kadence.protocol.share_snapshot_record import ShareSnapshotKey, ShareSnapshotValue
from kadence.protocol.share_snapshot_record import StateBatch as SnapshotBatch
from kadence.protocol.share_update_record import ShareUpdateKey, ShareUpdateValue
from kadence.protocol.share_update_record import StateBatch as UpdateBatch
from kadence_broker.coordinator.records import Record
from kadence_broker.share.changes import StateBatch
from kadence_broker.share.delivery import RecordState
from kadence_broker.share.interface import UNINITIALISED

__all__ = [
    "ShareKey",
    "StoredState",
    "key_of",
    "read_snapshot",
    "read_update",
    "snapshot",
    "tombstone",
    "update",
]

_FIRST: Final = attrgetter("first")
_LAST: Final = attrgetter("last")


class ShareKey(NamedTuple):
    """A share-partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The text whose hash says which partition of the topic keeps it."""
        topic_id = urlsafe_b64encode(self.topic_id).rstrip(b"=").decode()
        return f"{self.group_id}:{topic_id}:{self.partition}"


@dataclass(slots=True)
class StoredState:
    """What is stored of one share-partition.

    Attributes:
        done_count: -1 if it is not known.
    """

    start_offset: int = UNINITIALISED
    state_epoch: int = 0
    leader_epoch: int = 0
    done_count: int = -1
    snapshot_epoch: int = 0
    created_at: int = 0
    batches: list[StateBatch] = field(default_factory=list)

    def apply(self, start_offset: int, done_count: int, batches: Iterable[StateBatch]) -> None:
        """A step has changed this."""
        for each in batches:
            self._put(each)
        self.done_count = done_count
        if start_offset >= 0:
            self.start_offset = start_offset
            self._prune()

    def _put(self, new: StateBatch) -> None:
        """Let ``new`` be the state of its offsets, joined with its neighbours if they are alike."""
        begin = bisect_left(self.batches, new.first - 1, key=_LAST)
        end = bisect_right(self.batches, new.last + 1, key=_FIRST)
        before: list[StateBatch] = []
        after: list[StateBatch] = []
        for old in self.batches[begin:end]:
            if old[2:] == new[2:]:
                new = new._replace(first=min(old.first, new.first), last=max(old.last, new.last))
                continue
            if old.first < new.first:
                before.append(old._replace(last=min(old.last, new.first - 1)))
            if old.last > new.last:
                after.append(old._replace(first=max(old.first, new.last + 1)))
        self.batches[begin:end] = [*before, new, *after]

    def _prune(self) -> None:
        del self.batches[: bisect_left(self.batches, self.start_offset, key=_LAST)]
        if self.batches and self.batches[0].first < self.start_offset:
            self.batches[0] = self.batches[0]._replace(first=self.start_offset)


def key_of(record: Record) -> ShareKey:
    """The share-partition that a record is about."""
    key: ShareSnapshotKey | ShareUpdateKey = record.key
    return ShareKey(key.group_id, key.topic_id, key.partition)


def snapshot(key: ShareKey, state: StoredState, now: int) -> Record:
    """All of a share-partition's state; ``now`` is milliseconds since 1970."""
    value = ShareSnapshotValue(
        snapshot_epoch=state.snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.done_count,
        create_timestamp=state.created_at,
        write_timestamp=now,
        state_batches=[SnapshotBatch(*each) for each in state.batches],
    )
    return Record(ShareSnapshotKey(*key), value)


def update(
    key: ShareKey, state: StoredState, start_offset: int, done_count: int, batches: Sequence[StateBatch]
) -> Record:
    """A change of a share-partition's state."""
    value = ShareUpdateValue(
        snapshot_epoch=state.snapshot_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=done_count,
        state_batches=[UpdateBatch(*each) for each in batches],
    )
    return Record(ShareUpdateKey(*key), value)


def tombstone(key: ShareKey) -> Record:
    """Nothing is stored of this share-partition any more."""
    return Record(ShareSnapshotKey(*key), None)


def read_snapshot(value: ShareSnapshotValue) -> StoredState:
    """The state that a snapshot says."""
    return StoredState(
        value.start_offset,
        value.state_epoch,
        value.leader_epoch,
        value.delivery_complete_count,
        value.snapshot_epoch,
        value.create_timestamp,
        [_batch(each) for each in value.state_batches],
    )


def read_update(value: ShareUpdateValue, state: StoredState) -> None:
    """Change ``state`` as the record says."""
    state.leader_epoch = max(state.leader_epoch, value.leader_epoch)
    state.apply(
        value.start_offset, value.delivery_complete_count, [_batch(each) for each in value.state_batches]
    )


def _batch(stored: SnapshotBatch | UpdateBatch) -> StateBatch:
    state = RecordState(stored.delivery_state)
    # A lock is never stored; from elsewhere it would be one that nobody holds.
    if state is RecordState.ACQUIRED:
        state = RecordState.AVAILABLE
    return StateBatch(stored.first_offset, stored.last_offset, state, stored.delivery_count)
