"""The topics in which coordinators keep records: `__consumer_offsets`, `__transaction_state`, `__share_group_state`.

A partition keeps the groups, transactional ids or share-partitions that hash to it; its leader is their coordinator.
The layout is Kafka's own (record keys and values, the hash, batches of one producer when they belong to a
transaction), so that Kafka's tools can read it. A topic is created at first use. Nothing is compacted: a partition that
has grown much is rewritten from a snapshot, and everything before the snapshot is removed. A header of its records,
which Kafka's tools ignore, distinguishes a complete snapshot from one that a crash has torn.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from struct import Struct
from typing import Final, NamedTuple

from kadence.errors import LocalError
from kadence.logs import logger
from kadence.records import BatchHeader, FetchedRecords, encode_batch, iter_batches
from kadence.wire import Buffer, WireError
from kadence_broker.cluster import STATE_PARTITIONS, BrokerNode, Cluster, coordinator_partition
from kadence_broker.coordinator import Record
from kadence_broker.coordinator.records import encode
from kadence_broker.storage import Isolation, Origin, Partition
from kadence_broker.storage.producers import read_marker

__all__ = ["Ended", "StateTopic"]

_log = logger("kadence.broker")

REWRITE_BYTES: Final = 1024 * 1024
"""The growth after which a partition is rewritten; or twice its last snapshot, if that is more."""

_CONFIG: Final = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "retention.bytes": "-1",
    "retention.ms": "-1",
    "segment.bytes": "104857600",
}
_READ_BYTES: Final = 1024 * 1024
_BATCH_RECORDS: Final = 500
"""Of a snapshot."""
_SNAPSHOT: Final = "kadence.snapshot"
"""A header of its records: the how-manieth this one is, and of how many."""
_PLACE: Final = Struct(">ii")

_Place = tuple[int, int]
_Headers = tuple[tuple[str, bytes], ...]


class Ended(NamedTuple):
    """The marker of a transaction, found among the records."""

    producer_id: int
    epoch: int
    committed: bool


class StateTopic:
    """The partitions of one such topic, and the growth of each since it was last rewritten.

    Args:
        wall_ms: returns the time of day in ms.
        decode: makes a record of a key and a value; None for an unknown type.
    """

    __slots__ = ("_cluster", "_decode", "_rewrite_at", "_rewrite_bytes", "_wall_ms", "name")

    def __init__(
        self,
        cluster: Cluster,
        wall_ms: Callable[[], int],
        name: str,
        decode: Callable[[Buffer, Buffer | None], Record | None],
        *,
        rewrite_bytes: int = REWRITE_BYTES,
    ) -> None:
        self.name = name
        self._cluster = cluster
        self._wall_ms = wall_ms
        self._decode = decode
        self._rewrite_bytes = rewrite_bytes
        self._rewrite_at: dict[int, int] = {}
        """By partition: the size at which it is rewritten."""

    def partitions(self) -> list[Partition]:
        """At least as many as keys hash to. The topic is made if it is not there; its leaders go round the nodes.

        Raises:
            OSError: the disk does not take it.
        """
        topic = self._cluster.topics.get(self.name)
        if topic is None:
            nodes = sorted(self._cluster.nodes)
            leaders = [nodes[index % len(nodes)] for index in range(STATE_PARTITIONS)]
            topic = self._cluster.create_topic(self.name, STATE_PARTITIONS, _CONFIG, leaders)
        elif len(topic.partitions) < STATE_PARTITIONS:
            # A client has made it: it may, as on Kafka.
            self._cluster.add_partitions(topic, STATE_PARTITIONS)
        return topic.partitions

    def partition(self, index: int) -> Partition:
        return self.partitions()[index]

    def coordinator_of(self, key: str) -> Partition:
        """The partition that keeps a group, or a transactional id."""
        return self.partition(coordinator_partition(key))

    @property
    def exists(self) -> bool:
        return self.name in self._cluster.topics

    def node_of(self, key: str) -> BrokerNode | None:
        """The node that coordinates a group, or a transactional id: it leads the partition.

        None: no node does, or there is no disk to keep it.
        """
        if not self._cluster.nodes:
            return None
        try:
            return self._cluster.nodes.get(self.coordinator_of(key).leader_id)
        except OSError as error:
            _log.error("%s could not be made: %s", self.name, error)
            return None

    def epoch_of(self, key: str) -> int:
        """The epoch of the key's coordinator, which is its partition's; 0 after the topic was deleted."""
        return self.coordinator_of(key).leader_epoch if self.exists else 0

    def append(self, index: int, records: Iterable[Record]) -> Partition:
        """Store records of one partition, in their order.

        Raises:
            BatchError, OSError: they could not all be stored.
        """
        partition = self.partition(index)
        self._append(partition, ((each, ()) for each in records))
        return partition

    def _append(self, partition: Partition, entries: Iterable[tuple[Record, _Headers]]) -> None:
        now = self._wall_ms()
        for producer, some in itertools.groupby(entries, lambda entry: entry[0].producer):
            producer_id, epoch = producer or (-1, -1)
            batch = encode_batch(
                [(now, *encode(record), headers) for record, headers in some],
                producer_id=producer_id,
                producer_epoch=epoch,
                transactional=producer is not None,
            )
            partition.append(now, memoryview(batch), origin=Origin.COORDINATOR)

    def read(self, index: int, isolation: Isolation = Isolation.LOG_END) -> Iterator[Record | Ended]:
        """All stored records of one partition, oldest first. Records that cannot be read are logged and left out.

        A snapshot that a crash has torn is left out, too: the records that it would replace are still there. To read
        a part of it would change the order of a partition's offsets, of which the last one counts.
        """
        snapshot: list[Record | Ended] = []
        for each, place in self._entries(self.partition(index), isolation):
            number, total = place or (1, 1)
            if number == 1:
                snapshot.clear()
            if each is not None:
                snapshot.append(each)
            if number == total:
                yield from snapshot
                snapshot.clear()

    def _entries(
        self, partition: Partition, isolation: Isolation
    ) -> Iterator[tuple[Record | Ended | None, _Place | None]]:
        """The input of `read`: records, each with its place in a snapshot; None for one that cannot be read."""
        offset = partition.start_offset
        while views := partition.read(offset, _READ_BYTES, isolation):
            for header, batch in itertools.chain.from_iterable(map(iter_batches, views)):
                # The first batch may begin before the offset, when a snapshot was begun within it.
                if header.is_control:
                    marker = read_marker(batch, header)
                    if marker is not None:
                        yield Ended(header.producer_id, header.producer_epoch, marker.committed), None
                else:
                    yield from self._records(partition, header, batch, offset)
                offset = header.next_offset

    def forget(self) -> None:
        """The topic was deleted."""
        self._rewrite_at.clear()

    def is_grown(self, index: int) -> bool:
        """True if the partition should be rewritten."""
        return self.partition(index).log.size_bytes >= self._rewrite_at.get(index, self._rewrite_bytes)

    def rewrite(self, index: int, snapshot: Iterable[Record]) -> None:
        """Append a snapshot of all that is stored so far, and remove what it replaces once it is on the disk.

        Raises:
            BatchError, OSError: it could not be stored; everything before it is still there.
        """
        partition, records = self.partition(index), list(snapshot)
        begin, size = partition.end_offset, partition.log.size_bytes
        entries = [
            (each, ((_SNAPSHOT, _PLACE.pack(number, len(records))),))
            for number, each in enumerate(records, 1)
        ]
        for at in range(0, len(entries), _BATCH_RECORDS):
            self._append(partition, entries[at : at + _BATCH_RECORDS])
        written = partition.log.size_bytes - size
        self._rewrite_at[index] = partition.log.size_bytes + max(self._rewrite_bytes, 2 * written)

        def stored(code: int) -> None:
            if code == 0:
                partition.delete_before(begin)
                self._rewrite_at[index] = partition.log.size_bytes + max(self._rewrite_bytes, 2 * written)

        # If no other request waits for the disk, this does: otherwise a power cut would take both the old and the new.
        partition.on_flushed(stored)

    def _records(
        self, partition: Partition, header: BatchHeader, batch: memoryview, offset: int
    ) -> Iterator[tuple[Record | None, _Place | None]]:
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
        try:
            found = FetchedRecords(batch, partition.topic.name, partition.index, offset).take()
        except LocalError:
            _log.exception("a batch of %s cannot be read: offset %d", partition, header.base_offset)
            return
        for each in found:
            record = None
            try:
                record = self._decode(each.key or b"", each.value)
            except WireError:
                _log.exception("a record of %s cannot be read: offset %d", partition, each.offset)
            place = next((value for name, value in each.headers if name == _SNAPSHOT and value), None)
            yield (
                None if record is None else replace(record, producer=producer),
                None if place is None or len(place) != _PLACE.size else _PLACE.unpack(place),
            )
