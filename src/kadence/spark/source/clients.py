"""The ports of this room, done with Kadence's own clients. The only file of the room that knows them.

The driver needs no consumer: an `Admin` answers all its questions on the calling thread, so the query's runner
process has no thread of ours. Only sampling record sizes (maxBytesPerTrigger) takes one, made when first asked for.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence import Admin, Consumer
from kadence.config import AdminConfig, keys
from kadence.errors import (
    UnknownTopicOrPartitionError,
)
from kadence.protocol import error_codes
from kadence.spark.source.options import SourceOptions
from kadence.spark.source.start import Partitions, Pattern, Subscription, Topics
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AdminOffsets", "ConsumerRecords", "driver_client", "executor_client"]

COMMIT_SECONDS: Final = 10.0
"""How long a commit may hold up a micro-batch; see `kadence.spark.source.commits` for what follows then."""

SAMPLE_RECORDS: Final = 1_000
SAMPLE_SECONDS: Final = 5.0

_BIG_FETCHES: Final = {
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 32 * 1024 * 1024,
}
"""A task reads its ranges from end to end, and a fetch costs the same whatever it brings."""

_ADMIN_KEYS: Final = {key.name for key in keys(AdminConfig)}


def driver_client(options: SourceOptions) -> AdminOffsets:
    """The client of a query's driver."""
    return AdminOffsets(options, f"{options.group_id_prefix}-{uuid.uuid4().hex[:8]}")


def executor_client(client: Mapping[str, str], name: str, *, headers: bool) -> ConsumerRecords:
    """The client of a worker.

    Args:
        client: Kafka's keys, as `SourceOptions.client`. name: a client.id where the keys have none.
    """
    settings: dict[str, Any] = {
        "client.id": name,
        **_BIG_FETCHES,
        **client,
        # A position outside the log is for this room's rule of data loss to judge.
        "auto.offset.reset": "none",
        "max.poll.records": -1,
    }
    return ConsumerRecords(Consumer(settings), headers=headers)


class AdminOffsets:
    """`kadence.spark.source.ports.OffsetClient`."""

    def __init__(self, options: SourceOptions, name: str) -> None:
        settings = {"client.id": name, **options.client}
        self._options = options
        self._name = name
        self._admin = Admin({key: value for key, value in settings.items() if key in _ADMIN_KEYS})
        self._isolation = options.client.get("isolation.level", "read_uncommitted").lower()
        self._sampler: ConsumerRecords | None = None

    def partitions(self, topics: Topics) -> dict[TopicPartition, int | None]:
        match topics:
            case Pattern():
                listed = self._admin.list_topics()
                described = {name: topic for name, topic in listed.items() if topics.matches(name)}
            case Subscription(names):
                described = self._describe(names)
            case Partitions(chosen):
                described = self._describe({partition.topic for partition in chosen})
        found = {
            TopicPartition(info.topic, info.partition): info.leader
            for topic in described.values()
            for info in topic.partitions
        }
        if isinstance(topics, Partitions):
            return {partition: found[partition] for partition in topics.partitions if partition in found}
        return found

    def _describe(self, names: Iterable[str]) -> dict[str, Any]:
        outcomes = self._admin.describe_topics(sorted(names), raise_errors=False)
        for problem in outcomes.errors.values():
            if not isinstance(problem, UnknownTopicOrPartitionError):
                raise problem
        return outcomes

    def log_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._edge(partitions, "earliest")

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._edge(partitions, "latest")

    def _edge(self, partitions: Iterable[TopicPartition], edge: Any) -> dict[TopicPartition, int]:
        found = self._list_offsets(dict.fromkeys(partitions, edge))
        return {partition: at.offset for partition, at in found.items() if at is not None}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = self._list_offsets(times)
        return {partition: None if at is None else at.offset for partition, at in found.items()}

    def _list_offsets(
        self, specs: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._admin.list_offsets(specs, isolation_level=self._isolation)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        wanted = list(partitions)
        found = self._admin.group_offsets(self._group, wanted)
        return {p: found[p].offset if p in found else None for p in wanted}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        noted = {p: OffsetAndMetadata(offset, metadata=self._name) for p, offset in offsets.items()}
        self._admin.alter_group_offsets(self._group, noted, timeout=COMMIT_SECONDS)

    def live_members(self) -> int:
        outcomes = self._admin.describe_groups([self._group], raise_errors=False)
        for problem in outcomes.errors.values():
            # Brokers differ in what they say of a group that nobody has used yet: dead, or no such group.
            if getattr(problem, "code", None) != error_codes.GROUP_ID_NOT_FOUND:
                raise problem
        return sum(len(group.members) for group in outcomes.values())

    @property
    def _group(self) -> str:
        assert self._options.group_id is not None  # the options were checked for it
        return self._options.group_id

    def sample(self, partition: TopicPartition, offset: int) -> tuple[int, int]:
        if self._sampler is None:
            # Small fetches, since the records are only measured.
            small = {"max.partition.fetch.bytes": "65536", "fetch.max.bytes": "262144"}
            self._sampler = executor_client(
                {**self._options.client, **small},
                self._name,
                headers=self._options.include_headers,
            )
        self._sampler.start({partition: (offset, offset + SAMPLE_RECORDS)})
        try:
            table = self._sampler.poll(SAMPLE_RECORDS, SAMPLE_SECONDS)
            payload = [name for name in ("key", "value", "headers") if name in table.column_names]
            return table.select(payload).nbytes, self._sampler.position(partition) - offset
        finally:
            self._sampler.park()

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
            self._sampler = None
        self._admin.close()


class ConsumerRecords:
    """`kadence.spark.source.ports.RecordClient`."""

    def __init__(self, consumer: Consumer, *, headers: bool) -> None:
        self._consumer = consumer
        self._headers = headers

    def start(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        self._consumer.assign(ranges)

    def poll(self, max_records: int, timeout: float) -> pa.Table:
        return self._consumer.poll_arrow(timeout, max_records=max_records, headers=self._headers)

    def position(self, partition: TopicPartition) -> int:
        return self._consumer.position(partition)

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        start = self._consumer.beginning_offsets([partition])[partition]
        return start, self._consumer.end_offsets([partition])[partition]

    def park(self) -> None:
        # Ranges that are done cost nothing, and the next micro-batch may go on where they ended.
        if self._consumer.finished() != self._consumer.assignment():
            self._consumer.unsubscribe()

    def close(self) -> None:
        self._consumer.close(timeout=0)
