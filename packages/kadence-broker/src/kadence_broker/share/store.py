"""Keeps the states of all share-partitions of this broker in `__share_group_state`, as Kafka's share coordinator does.

In Kafka leaders and group coordinators send it requests (83 to 87); here they call it. Errors are those that a leader
passes on to its clients: COORDINATOR_NOT_AVAILABLE where the state cannot be stored at present.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.protocol.share_snapshot_record import ShareSnapshotValue
from kadence.wire import WireError
from kadence_broker.cluster import SHARE_STATE_TOPIC, Cluster, coordinator_partition
from kadence_broker.coordinator.records import Record, decode_share_state
from kadence_broker.share.changes import StateBatch
from kadence_broker.share.interface import UNINITIALISED, Summary
from kadence_broker.share.stored import (
    ShareKey,
    StoredState,
    key_of,
    read_snapshot,
    read_update,
    snapshot,
    tombstone,
    update,
)
from kadence_broker.state_topic import Ended, StateTopic
from kadence_broker.storage import BatchError, Isolation, Partition

if TYPE_CHECKING:
    from kadence_broker.server.loop import Loop

__all__ = ["ShareStore"]

_log = logger("kadence.broker")


class ShareStore:
    """The stored states. The broker's thread owns it.

    Attributes:
        on_taken_back: called with share-partitions whose last changes the disk did not take: they are as before.
    """

    __slots__ = ("_by_group", "_cluster", "_loop", "_lost", "_states", "on_taken_back", "topic")

    def __init__(self, cluster: Cluster, loop: Loop) -> None:
        self._cluster = cluster
        self._loop = loop
        self._states: dict[ShareKey, StoredState] = {}
        self._by_group: dict[str, dict[bytes, dict[int, None]]] = {}
        self._lost: set[int] = set()
        """Partitions of the topic that take nothing until the broker is started again."""
        self.on_taken_back: Callable[[Collection[ShareKey]], None] = lambda _: None
        self.topic = StateTopic(cluster, loop.wall_ms, SHARE_STATE_TOPIC, decode_share_state)

    def start(self) -> None:
        """Load what an earlier broker has stored, and forget what belongs to topics that are gone."""
        if not self.topic.exists:
            return
        for partition in self.topic.partitions():
            for each in self.topic.read(partition.index):
                if not isinstance(each, Ended):
                    self._replay(each)
        known = [key for key in self._states if self._cluster.topic_by_id(key.topic_id) is None]
        for key in known:
            self.delete(key)

    # The state of one

    def get(self, key: ShareKey) -> StoredState | None:
        return self._states.get(key)

    def keys_of(self, group_id: str) -> Mapping[bytes, Collection[int]]:
        return self._by_group.get(group_id, {})

    def keys_of_topic(self, topic_id: bytes) -> list[ShareKey]:
        return [key for key in self._states if key.topic_id == topic_id]

    def summary(self, key: ShareKey) -> Summary | None:
        state = self._states.get(key)
        return None if state is None else Summary(state.start_offset, state.done_count, state.leader_epoch)

    def read(self, key: ShareKey, leader_epoch: int) -> StoredState | None:
        """The state for the leader of a partition, whose epoch is remembered; None: it is not initialised."""
        state = self._states.get(key)
        if state is not None:
            state.leader_epoch = max(state.leader_epoch, leader_epoch)
        return state

    def initialise(self, key: ShareKey, start_offset: int, state_epoch: int | None) -> int:
        """Let a share-partition begin anew. A state epoch of None: the one that it has.

        Returns:
            an error code.
        """
        old = self._states.get(key)
        epoch = (0 if old is None else old.state_epoch) if state_epoch is None else state_epoch
        if old is not None and epoch < old.state_epoch:
            return codes.FENCED_STATE_EPOCH
        now = self._loop.wall_ms()
        state = StoredState(
            start_offset,
            epoch,
            0 if old is None else old.leader_epoch,
            UNINITIALISED if start_offset == UNINITIALISED else 0,
            0 if old is None else old.snapshot_epoch + 1,
            now,
        )
        return self._store(key, snapshot(key, state, now))

    def write(self, key: ShareKey, start_offset: int, done_count: int, batches: Sequence[StateBatch]) -> int:
        """Store what a step changed.

        Returns:
            an error code; then nothing is changed.
        """
        state = self._states.get(key)
        if state is None:
            return codes.UNKNOWN_TOPIC_OR_PARTITION
        return self._store(key, update(key, state, start_offset, done_count, batches))

    def delete(self, key: ShareKey) -> int:
        """Forget a share-partition. Returns an error code."""
        return self._store(key, tombstone(key)) if key in self._states else codes.NONE

    def forget(self, key: ShareKey) -> None:
        """Its topic has been deleted: nobody asks for it again, also if that cannot be stored now."""
        if self.delete(key) != codes.NONE:
            self._forget(key)

    # The records

    def partition_of(self, key: ShareKey) -> Partition | None:
        """The partition that keeps the state; None if it has no leader, or the disk does not take it."""
        if not self._cluster.nodes:
            return None
        try:
            partition = self.topic.coordinator_of(key.coordinator_key)
        except OSError as error:
            _log.error("%s could not be made: %s", self.topic.name, error)
            return None
        return partition if partition.leader_id in self._cluster.nodes else None

    def when_durable(self, keys: Collection[ShareKey] | None, callback: Callable[[int], None]) -> None:
        """Call ``callback`` with an error code once the states of ``keys`` (None: all) are stored for good."""
        if not self.topic.exists:
            callback(codes.NONE)
            return
        partitions = self.topic.partitions()
        if keys is not None:
            partitions = [
                partitions[index] for index in {coordinator_partition(each.coordinator_key) for each in keys}
            ]
        pending, worst = len(partitions) + 1, codes.NONE

        def done(code: int) -> None:
            nonlocal pending, worst
            pending -= 1
            worst = worst or code
            if not pending:
                callback(codes.NONE if worst == codes.NONE else codes.COORDINATOR_NOT_AVAILABLE)

        def flushed(index: int, code: int) -> None:
            if code != codes.NONE:
                self._take_back(index)
            done(code)

        for each in partitions:
            each.on_durable(partial(flushed, each.index))
        done(codes.NONE)

    def _take_back(self, index: int) -> None:
        """The disk did not keep the last records of a partition: who wrote them gets an error, so they do not count."""
        if index in self._lost:
            return
        self._lost.add(index)
        keys = self._keys_in(index)
        _log.error(
            "the last changes of %s-%d are taken back: the disk has not kept them", self.topic.name, index
        )
        for key in keys:
            self._forget(key)
        for each in self.topic.read(index, Isolation.UNCOMMITTED):
            if not isinstance(each, Ended):
                self._replay(each)
        self.on_taken_back(keys)

    def _keys_in(self, index: int) -> list[ShareKey]:
        return [key for key in self._states if coordinator_partition(key.coordinator_key) == index]

    def _store(self, key: ShareKey, record: Record) -> int:
        partition = self.partition_of(key)
        if partition is None:
            return codes.COORDINATOR_NOT_AVAILABLE
        try:
            self.topic.append(partition.index, [record])
        except (BatchError, OSError, WireError) as error:
            _log.error("the state of %s could not be stored: %s", key.coordinator_key, error)
            return codes.COORDINATOR_NOT_AVAILABLE
        self._replay(record)
        if self.topic.is_grown(partition.index):
            self._rewrite(partition.index)
        return codes.NONE

    def _replay(self, record: Record) -> None:
        """Take in what a record says; nothing else changes states."""
        key, value = key_of(record), record.value
        if value is None:
            self._forget(key)
        elif isinstance(value, ShareSnapshotValue):
            self._states[key] = read_snapshot(value)
            self._by_group.setdefault(key.group_id, {}).setdefault(key.topic_id, {})[key.partition] = None
        elif key in self._states:
            read_update(value, self._states[key])

    def _forget(self, key: ShareKey) -> None:
        if self._states.pop(key, None) is None:
            return
        topics = self._by_group[key.group_id]
        del topics[key.topic_id][key.partition]
        if not topics[key.topic_id]:
            del topics[key.topic_id]
        if not topics:
            del self._by_group[key.group_id]

    def _rewrite(self, index: int) -> None:
        try:
            self.topic.rewrite(index, self._snapshots(index))
        except (BatchError, OSError) as error:
            # The stored records stay valid; the next step that grows the partition tries again.
            _log.warning("%s-%d could not be rewritten: %s", self.topic.name, index, error)

    def _snapshots(self, index: int) -> Iterator[Record]:
        now = self._loop.wall_ms()
        for key in self._keys_in(index):
            yield snapshot(key, self._states[key], now)

    def topic_deleted(self, name: str) -> None:
        """With the topic that keeps them, all states go."""
        if name == self.topic.name:
            self.topic.forget()
            self._lost.clear()
            self._states.clear()
            self._by_group.clear()
