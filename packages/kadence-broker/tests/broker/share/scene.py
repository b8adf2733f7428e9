"""A broker's insides with a clock that the test moves, and members of share groups that send it requests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.broker.stage import Nobody

from kadence.protocol.share_acknowledge import AcknowledgementBatch as AckBatch
from kadence.protocol.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kadence.protocol.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kadence.records import encode_batch, scan
from kadence_broker.cluster import BrokerNode
from kadence_broker.core import BrokerCore, Surroundings
from kadence_broker.handlers import HANDLERS
from kadence_broker.server.security import Security
from kadence_broker.service import Call
from kadence_broker.settings import Settings
from kadence_broker.storage import DataDirectory, FsyncPolicy, Partition
from kadence_testing import FakeClock

__all__ = ["GROUP", "Connection", "Member", "Scene", "acks", "acquired", "offsets"]

GROUP = "g"

Types = Sequence[int] | int
Acks = Sequence[tuple[int, int, Types]]
"""First and last offset, and one type or one for each."""


class Connection(Nobody):
    """In place of a client's connection."""

    def __init__(self, node_id: int) -> None:
        super().__init__(node_id)
        self.on_closed: Any = None
        self.on_abandon: list[Call] = []

    def close(self, _reason: str | None = None) -> None:
        self.is_closed = True
        for each in self.on_abandon:
            each.abandon()
        if self.on_closed is not None:
            self.on_closed()


class Scene:
    """A broker without sockets. Topic ``t`` has two partitions; the group begins at the earliest record.

    Args:
        path: of a data directory; None: in memory.
    """

    def __init__(
        self,
        path: Path | None = None,
        nodes: int = 1,
        *,
        fsync: FsyncPolicy = "never",
        **config: Any,
    ) -> None:
        self.clock = FakeClock()
        settings = Settings.parse({each.replace("__", "."): value for each, value in config.items()})
        disk = None if path is None else DataDirectory(path, "cluster", fsync)
        self.core = BrokerCore(
            settings,
            [],
            "h",
            advertised=[],
            security=Security(),
            cluster_id="cluster" if disk is None else disk.cluster_id,
            disk=disk,
            surroundings=Surroundings(clock=self.clock),
        )
        self.cluster = self.core.cluster
        for node_id in range(1, nodes + 1):
            self.cluster.nodes[node_id] = BrokerNode(node_id, "h", node_id)
        self.core.start({})
        self.services = self.core._services
        self.shares = self.core.shares
        if "t" not in self.cluster.topics:
            self.core.create_topic("t", 2)
            self.configure(**{"share.auto.offset.reset": "earliest"})
            self.initialise("t")

    def close(self) -> None:
        self.core.free()

    @property
    def topic_id(self) -> bytes:
        return self.cluster.topics["t"].topic_id

    def log(self, partition: int = 0, topic: str = "t") -> Partition:
        return self.cluster.topics[topic].partitions[partition]

    def configure(self, group: str = GROUP, **settings: str) -> None:
        """Change some settings of the group."""
        self.cluster.configure_group(group, {**self.cluster.group_configs.get(group, {}), **settings})

    def initialise(self, topic: str, group: str = GROUP, start_offset: int = -1) -> None:
        found = self.cluster.topics[topic]
        for each in found.partitions:
            assert self.shares.initialise(group, found.topic_id, each.index, start_offset, 1) == 0

    def produce(self, count: int, partition: int = 0, topic: str = "t", **batch: Any) -> int:
        """Append one batch of so many records; its first offset."""
        log = self.log(partition, topic)
        records = [(1_000, None, b"v%d" % (log.end_offset + number), ()) for number in range(count)]
        transactional_id = "x" if batch.get("transactional") else None
        return log.append(
            self.core.loop.wall_ms(),
            memoryview(encode_batch(records, **batch)),
            transactional_id=transactional_id,
        ).base_offset

    def member(self, name: str = "m", node: int = 1, group: str = GROUP) -> Member:
        return Member(self, name, Connection(node), group)

    def turn(self, ms: int = 0) -> None:
        """Let time pass, and the broker do what is due."""
        self.clock.advance(ms)
        for _ in range(4):
            self.core.loop.soon(lambda: None)  # else it would wait
            self.core.loop.turn()

    def call(self, connection: Connection, message: Any, version: int | None = None) -> list[Any]:
        """Send a request; its answer, once there is one."""
        answers: list[Any] = []
        handler = HANDLERS[message.API_KEY]
        version = type(message).MAX_VERSION if version is None else version
        call = Call(connection, handler, version, 1, "c", message, self.clock.now_ms())  # type: ignore[arg-type]
        call.on_reply = answers.append
        connection.on_abandon.append(call)
        self.services.serve(call)
        for _ in range(2):
            self.core.loop.soon(lambda: None)
            self.core.loop.turn()
        return answers


class Member:
    """A member of a share group with one connection; it counts its session's epoch by itself."""

    def __init__(self, scene: Scene, name: str, connection: Connection, group: str) -> None:
        self.scene = scene
        self.name = name
        self.connection = connection
        self.group = group
        self.epoch = 0

    def _next(self, epoch: int | None) -> int:
        if epoch is not None:
            return epoch
        self.epoch += 1
        return self.epoch - 1

    def send_fetch(
        self,
        partitions: Sequence[int] | None = None,
        *,
        acks: dict[int, Acks] | None = None,
        forget: Sequence[int] = (),
        epoch: int | None = None,
        version: int = 2,
        topic: str = "t",
        **options: Any,
    ) -> list[Any]:
        """Send a fetch. Partitions: None: 0 with the first request of a session, else none."""
        number = self._next(epoch)
        if partitions is None:
            partitions = [0] if number == 0 else []
        named: dict[int, list[AcknowledgementBatch]] = {each: [] for each in [*partitions, *(acks or {})]}
        for each, batches in (acks or {}).items():
            named[each] = [AcknowledgementBatch(*ack(*batch)) for batch in batches]
        topic_id = options.pop("topic_id", None) or self.scene.cluster.topics[topic].topic_id
        defaults = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
        }
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=number,
            topics=[FetchTopic(topic_id, [FetchPartition(each, batches) for each, batches in named.items()])]
            if named
            else [],
            forgotten_topics_data=[ForgottenTopic(topic_id, list(forget))] if forget else [],
            **{**defaults, **options},
        )
        return self.scene.call(self.connection, request, version)

    def fetch(self, *args: Any, **options: Any) -> Any:
        (answer,) = self.send_fetch(*args, **options)
        return answer

    def renew(self, batches: Acks, partition: int = 0, **options: Any) -> Any:
        """Renew by a fetch."""
        limits = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        return self.fetch(acks={partition: batches}, is_renew_ack=True, **{**limits, **options})

    def send_acknowledgement(
        self,
        batches: Acks = (),
        partition: int = 0,
        *,
        epoch: int | None = None,
        version: int = 2,
        topic_id: bytes | None = None,
        **options: Any,
    ) -> list[Any]:
        """Send a ShareAcknowledge; its answer, once there is one."""
        topics = [
            AcknowledgeTopic(
                topic_id or self.scene.topic_id,
                [AcknowledgePartition(partition, [AckBatch(*ack(*batch)) for batch in batches])],
            )
        ]
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=self._next(epoch),
            topics=topics if batches else [],
            **options,
        )
        return self.scene.call(self.connection, request, version)

    def acknowledge(self, *args: Any, **options: Any) -> Any:
        """Send a ShareAcknowledge; the error code of the partition, or of the whole."""
        (answer,) = self.send_acknowledgement(*args, **options)
        if answer.error_code or not answer.responses:
            return answer.error_code
        return answer.responses[0].partitions[0].error_code

    def close(self) -> Any:
        """End the session."""
        return self.acknowledge(epoch=-1)


def ack(first: int, last: int, types: Types) -> tuple[int, int, list[int]]:
    return first, last, [types] if isinstance(types, int) else list(types)


def partition_of(answer: Any, partition: int = 0) -> Any:
    for topic in answer.responses:
        for each in topic.partitions:
            if each.partition_index == partition:
                return each
    return None


def acquired(answer: Any, partition: int = 0) -> list[tuple[int, int, int]]:
    """First offset, last offset and delivery count of what an answer gives of a partition."""
    found = partition_of(answer, partition)
    if found is None:
        return []
    assert found.error_code == 0, found.error_code
    return [(each.first_offset, each.last_offset, each.delivery_count) for each in found.acquired_records]


def acks(answer: Any, partition: int = 0) -> int:
    """The error code of the acknowledgements of a partition."""
    return int(partition_of(answer, partition).acknowledge_error_code)


def offsets(answer: Any, partition: int = 0) -> int:
    """How many records the bytes of an answer hold."""
    found = partition_of(answer, partition)
    return 0 if found is None or not len(found.records) else _count(found.records)


def _count(records: Any) -> int:
    data = b"".join(records.views) if hasattr(records, "views") else bytes(records)
    return scan(data, 0)[1]
