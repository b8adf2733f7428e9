"""The share-partitions that the nodes of this broker lead, and the sessions of their readers (KIP-932).

A share-partition is loaded by the first fetch of it, and leaves the memory when it is fenced, or when the last session
of its group at its node has ended with its connection. After Apache Kafka 4.4's SharePartitionManager.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kadence.config.values import duration_ms
from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence.wire import ZERO_UUID
from kadence_broker.cluster import Cluster
from kadence_broker.share.acknowledging import Acknowledgement
from kadence_broker.share.interface import UNINITIALISED, SettingsOf, Summary
from kadence_broker.share.led import Led, SendLetter
from kadence_broker.share.partition import DamagedStateError, SharePartition
from kadence_broker.share.sessions import SessionKey, ShareSession, ShareSessions, TopicIdPartition
from kadence_broker.share.store import ShareStore
from kadence_broker.share.stored import ShareKey

if TYPE_CHECKING:
    from kadence_broker.server.connection import Connection
    from kadence_broker.server.loop import Loop
    from kadence_broker.storage import Partition

__all__ = ["ShareLeader"]

_log = logger("kadence.broker")

_BY_DURATION: Final = "by_duration:"


class ShareLeader:
    """Everything of share groups that is not their coordinator's. The broker's thread owns it.

    It is the `kadence_broker.share.interface.SharePartitions` of the group coordinator.

    Args:
        settings_of: the settings of a group.
        most_sessions: of one node.
        send_letter: has a dead letter written.
    """

    __slots__ = ("_cluster", "_led", "_loop", "_send_letter", "sessions", "settings_of", "store")

    def __init__(
        self,
        cluster: Cluster,
        loop: Loop,
        settings_of: SettingsOf,
        most_sessions: int,
        send_letter: SendLetter,
    ) -> None:
        self._cluster = cluster
        self._loop = loop
        self._send_letter = send_letter
        self._led: dict[ShareKey, Led] = {}
        self.settings_of = settings_of
        self.store = ShareStore(cluster, loop)
        self.store.on_taken_back = self._taken_back
        self.sessions = ShareSessions(most_sessions)

    # Fetches and acknowledgements

    def partition(self, node_id: int, named: TopicIdPartition) -> tuple[Partition | None, int]:
        """The partition that a request to a node names, and an error code."""
        topic = None if named.topic_id == ZERO_UUID else self._cluster.topic_by_id(named.topic_id)
        if topic is None:
            return None, codes.UNKNOWN_TOPIC_ID
        partition = topic.partition(named.partition)
        if partition is None:
            return None, codes.UNKNOWN_TOPIC_OR_PARTITION
        return partition, codes.NONE if partition.leader_id == node_id else codes.NOT_LEADER_OR_FOLLOWER

    def led(self, node_id: int, group_id: str, named: TopicIdPartition) -> tuple[Led | None, int]:
        """The share-partition for a fetch of it, loaded if need be, and an error code."""
        partition, code = self.partition(node_id, named)
        if partition is None or code != codes.NONE:
            return None, code
        key = ShareKey(group_id, *named)
        led = self._led.get(key)
        if led is None or led.state.is_fenced:
            self._led.pop(key, None)
            return self._load(key, partition)
        return led, codes.NONE

    def acknowledge(
        self,
        node_id: int,
        group_id: str,
        named: TopicIdPartition,
        member: str,
        said: Sequence[Acknowledgement],
        *,
        is_on_the_way: bool = False,
    ) -> int:
        """Take a member's acknowledgements for a partition, all or none (`Led.acknowledge`). Returns an error code."""
        partition, code = self.partition(node_id, named)
        if partition is None or code != codes.NONE:
            return code
        key = ShareKey(group_id, *named)
        led = self._led.get(key)
        if led is None:
            # Nobody reads it here, so nobody has anything of it.
            return codes.UNKNOWN_TOPIC_OR_PARTITION
        now = self._loop.clock.now_ms()
        code = led.acknowledge(now, member, said, is_on_the_way=is_on_the_way)
        if led.state.is_fenced:
            del self._led[key]
        elif code == codes.UNKNOWN_TOPIC_OR_PARTITION:
            self._unload(key)
        return code

    def _load(self, key: ShareKey, partition: Partition) -> tuple[Led | None, int]:
        if self.store.topic.exists and self.store.partition_of(key) is None:
            return None, codes.COORDINATOR_NOT_AVAILABLE
        stored = self.store.read(key, partition.leader_epoch)
        if stored is None:
            # Its group has not been told to the coordinator yet, as in Kafka: no heartbeat came before.
            return None, codes.UNKNOWN_SERVER_ERROR
        start = stored.start_offset
        if start == UNINITIALISED:
            start = self._reset(partition, self.settings_of(key.group_id).offset_reset)
        try:
            state = SharePartition(start, stored.state_epoch, stored.batches)
        except DamagedStateError as error:
            _log.error("the stored state of %s cannot be used: %s", key.coordinator_key, error)
            return None, codes.UNKNOWN_SERVER_ERROR
        led = Led(key, partition, state, self.store, self._loop, self.settings_of, self._send_letter)
        self._led[key] = led
        return led, codes.NONE

    def _reset(self, partition: Partition, strategy: str) -> int:
        """Where a group begins that has no place in a partition yet."""
        if strategy == "earliest":
            return partition.start_offset
        if strategy.startswith(_BY_DURATION):
            since = self._loop.wall_ms() - duration_ms(strategy.removeprefix(_BY_DURATION))
            found = partition.offset_since(since)
            if found is not None:
                return found.offset
        return partition.high_watermark

    def _unload(self, key: ShareKey) -> None:
        led = self._led.pop(key, None)
        if led is not None:
            led.fence()

    # Sessions

    def open_session(
        self, key: SessionKey, partitions: Iterable[TopicIdPartition], connection: Connection
    ) -> ShareSession | None:
        """A new session of the connection; None: the node has too many."""
        session = self.sessions.open(key, partitions, connection)
        if session is not None:
            connection.on_closed = partial(self._disconnected, connection)
        return session

    def close_session(self, session: ShareSession) -> bool:
        """End a session; what its member has of its node's partitions is released. False: it has ended before.

        It may name partitions that another node leads. Their records belong to the member's session there.
        """
        if not self.sessions.close(session):
            return False
        for named in session.partitions:
            led = self._led.get(ShareKey(session.key.group_id, *named))
            if led is not None and led.log.leader_id == session.key.node_id:
                led.release_member(session.key.member_id)
        return True

    def _disconnected(self, connection: Connection) -> None:
        """End all sessions of a connection. Kafka 4.4 ends the last that it opened, and keeps the others for good."""
        ended = self.sessions.of(connection)
        for session in ended:
            self.close_session(session)
        left = {
            (node_id, group_id)
            for node_id, group_id, _ in (session.key for session in ended)
            if not self.sessions.has_members(node_id, group_id)
        }
        for key, led in list(self._led.items()):
            if (led.log.leader_id, key.group_id) in left:
                led.when_letters_are_written(partial(self._unload_if_idle, key, led))

    def _unload_if_idle(self, key: ShareKey, led: Led) -> None:
        if self._led.get(key) is led and not self.sessions.has_members(led.log.leader_id, key.group_id):
            self._unload(key)

    # Changes from elsewhere

    def _taken_back(self, keys: Collection[ShareKey]) -> None:
        for key in keys:
            self._unload(key)

    def start(self) -> None:
        """Load what an earlier broker has stored."""
        self.store.start()

    def on_new_leader(self, partition: Partition) -> None:
        """A partition has another leader, or none: what was acquired of it is available again there."""
        moved = (partition.topic.topic_id, partition.index)
        for key in [key for key in self._led if (key.topic_id, key.partition) == moved]:
            self._unload(key)

    def topic_deleted(self, name: str, topic_id: bytes) -> None:
        """Its share-partitions go; with the topic that keeps their states, all do."""
        for key in self.store.keys_of_topic(topic_id):
            self.store.forget(key)
        self.store.topic_deleted(name)
        for key in [key for key in self._led if self.store.get(key) is None]:
            self._unload(key)

    # For the group coordinator: see `kadence_broker.share.interface`

    def initialise(
        self, group_id: str, topic_id: bytes, partition: int, start_offset: int, state_epoch: int
    ) -> int:
        return self._begin(ShareKey(group_id, topic_id, partition), start_offset, state_epoch)

    def alter(self, group_id: str, topic_id: bytes, partition: int, start_offset: int) -> int:
        return self._begin(ShareKey(group_id, topic_id, partition), start_offset, None)

    def _begin(self, key: ShareKey, start_offset: int, state_epoch: int | None) -> int:
        code = self.store.initialise(key, start_offset, state_epoch)
        if code == codes.NONE and key in self._led:
            # It stays, fenced, until it is asked for: who holds something of it is to hear of it.
            self._led[key].fence(is_void=True)
        return code

    def delete(self, group_id: str, topic_id: bytes, partition: int) -> int:
        key = ShareKey(group_id, topic_id, partition)
        code = self.store.delete(key)
        if code == codes.NONE and key in self._led:
            self._led.pop(key).fence(is_void=True)
        return code

    def is_initialised(self, group_id: str, topic_id: bytes, partition: int) -> bool:
        return self.store.get(ShareKey(group_id, topic_id, partition)) is not None

    def initialised(self, group_id: str) -> Mapping[bytes, Sequence[int]]:
        return {topic_id: sorted(indexes) for topic_id, indexes in self.store.keys_of(group_id).items()}

    def summary(self, group_id: str, topic_id: bytes, partition: int) -> Summary | None:
        return self.store.summary(ShareKey(group_id, topic_id, partition))

    def when_durable(self, callback: Callable[[int], None], keys: Collection[ShareKey] | None = None) -> None:
        """See the interface. ``keys``: only the states of these matter."""
        self.store.when_durable(keys, callback)
