"""Implements the interfaces of the source with Kadence's clients. The only module of the source that imports them.

The driver's requests use an `Admin`, on the calling thread; commits use another one, because they have a thread of
their own. Only waiting for records and sampling their sizes (maxBytesPerTrigger, maxBytesPerPartition) need a consumer,
made when first needed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kadence import Admin
from kadence.clock import SystemClock
from kadence.config import AdminConfig, keys
from kadence.errors import (
    BrokerError,
    ConnectError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TransportError,
    UnknownTopicOrPartitionError,
)
from kadence.logs import logger
from kadence.protocol import error_codes
from kadence.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from kadence_spark.source.limits import read_samples
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.ports import LeadersAwayError, Listing
from kadence_spark.source.start import Partitions, Pattern, Subscription, Topics

if TYPE_CHECKING:
    import pyarrow as pa

    from kadence import Consumer

__all__ = ["AdminOffsets", "ConsumerRecords", "driver_client", "executor_client"]

_log = logger("kadence.spark")

ANSWER_SECONDS: Final = 10.0
"""How long the driver waits for an answer, once brokers have answered; see `kadence_spark.source.cluster`."""

COMMIT_SECONDS: Final = 10.0
"""How long a commit may take; see `kadence_spark.source.commits` for what follows then."""

RETRY_SECONDS: Final = 0.05
"""The pause after waiting for records has failed."""

GONE_SECONDS: Final = 2.0
"""How long the brokers must not have had a partition until it counts as gone. Their metadata may lag behind."""

RUN_MARK: Final = "kadence run "
"""The prefix of a commit's metadata."""

SHOWN: Final = 8
"""The most partitions of a broker in an error."""

SAMPLE_MS: Final = 5_000
"""How long records may take to be measured."""

_FETCHES: Final = {
    "max.partition.fetch.bytes": 4 * 1024 * 1024,
    "fetch.max.bytes": 16 * 1024 * 1024,
}
"""The fetch size of a partition is that of a poll, so that the memory of columns can be reused. Larger responses keep
that memory (`kadence.records`), and each table needs new pages: twice the CPU for values of 1 KiB."""

POLL_BYTES: Final = 4 * 1024 * 1024
"""The bytes of keys and values of a poll, which is one batch for Spark, or a few. Spark is fastest from about half a
MiB on. A part of a poll's cost is constant: with half of these bytes, values of 1 KiB took a quarter more of the
worker's CPU."""

POLL_BYTES_WITHOUT_VALUES: Final = 16 * 1024 * 1024
"""The same if values are not selected: they count, although they are not copied."""

_TINY: Final = {
    "fetch.min.bytes": "1",
    "fetch.max.bytes": "1024",
    "max.partition.fetch.bytes": "1024",
}
"""The fetch size of the consumer that waits for records, which are not used."""

_ADMIN_KEYS: Final = {key.name for key in keys(AdminConfig)}


def driver_client(options: SourceOptions, answer_seconds: float | None = ANSWER_SECONDS) -> AdminOffsets:
    """The client of a query's driver.

    Args:
        answer_seconds: how long it waits for an answer once brokers have answered; None: ``default.api.timeout.ms``.
    """
    name = f"{options.group_id_prefix}-{_application()}-{uuid.uuid4().hex[:8]}"
    return AdminOffsets(options, name, answer_seconds)


def _application() -> str:
    """An id that is the same in all runners of one Spark application, whose Java process starts each of them."""
    return hashlib.sha256(f"{socket.gethostname()} {os.getppid()}".encode()).hexdigest()[:6]


def executor_client(client: Mapping[str, str], name: str, columns: tuple[str, ...]) -> ConsumerRecords:
    """The client of a worker.

    Args:
        client: Kafka's keys, as `SourceOptions.client`. name: the default client.id.
        columns: the selected columns, by the names of Spark's Kafka schema.
    """
    room = POLL_BYTES if "value" in columns else POLL_BYTES_WITHOUT_VALUES
    settings = {**_FETCHES, "max.poll.arrow.bytes": room, **client}
    return ConsumerRecords(_consumer(settings, name), columns)


def _consumer(client: Mapping[str, Any], name: str) -> Consumer:
    from kadence import Consumer

    settings: dict[str, Any] = {
        "client.id": name,
        **client,
        # A position outside the log is judged by failOnDataLoss.
        "auto.offset.reset": "none",
        "max.poll.records": -1,
    }
    return Consumer(settings)


class AdminOffsets:
    """`kadence_spark.source.ports.OffsetClient`."""

    def __init__(
        self, options: SourceOptions, name: str, answer_seconds: float | None = ANSWER_SECONDS
    ) -> None:
        self._options = options
        self._answer_seconds = answer_seconds
        self._run = name
        self._settings = {"client.id": name, **options.client}
        self._admin = self._connect()
        self._committing: Admin | None = None
        self._isolation = options.client.get("isolation.level", "read_uncommitted").lower()
        self._sampler: ConsumerRecords | None = None
        self._watch: _Watch | None = None
        self._has_answered = False
        self._missing: set[str] = set()
        self._leaders: Mapping[TopicPartition, int | None] = {}

    def _connect(self) -> Admin:
        return Admin({key: value for key, value in self._settings.items() if key in _ADMIN_KEYS})

    @property
    def _timeout(self) -> float | None:
        """The first answer may take ``default.api.timeout.ms``; later ones less, so that silent brokers are noticed."""
        if not self._has_answered or self._answer_seconds is None:
            return None
        configured = self._options.client.get("default.api.timeout.ms")
        return (
            self._answer_seconds if configured is None else min(self._answer_seconds, int(configured) / 1000)
        )

    def check_reachable(self, seconds: float) -> None:
        """Try to connect to a broker for so long. A slow broker is not an error: later requests may wait longer.

        Raises:
            KafkaTimeoutError: no address could be connected to, or each closed the connection.
        """
        try:
            self._admin.describe_cluster(timeout=seconds)
        except KafkaTimeoutError as problem:
            if isinstance(problem.__cause__, ConnectError | DisconnectedError):
                raise
        except BrokerError as problem:
            _log.debug("the cluster is not described: %s", problem)

    # ------------------------------------------------------------ logs

    def partitions(self, topics: Topics) -> Listing:
        match topics:
            case Pattern():
                listed = self._admin.list_topics(timeout=self._timeout)
                described = {name: topic for name, topic in listed.items() if topics.matches(name)}
            case Subscription(names):
                described = self._describe(names)
            case Partitions(chosen):
                described = self._describe({partition.topic for partition in chosen})
        self._has_answered = True
        leaders = {
            TopicPartition(info.topic, info.partition): info.leader
            for topic in described.values()
            for info in topic.partitions
        }
        if isinstance(topics, Partitions):
            leaders = {
                partition: leaders[partition] for partition in topics.partitions if partition in leaders
            }
        self._leaders = leaders
        ids = {name: _id_text(topic.topic_id) for name, topic in described.items() if any(topic.topic_id)}
        return Listing(leaders, ids)

    def _describe(self, names: Iterable[str]) -> dict[str, Any]:
        wanted = set(names)
        if self._missing & wanted:
            # A request for a topic by name would wait each time if it does not exist.
            listed = self._admin.list_topics(internal=True, timeout=self._timeout)
            described = {name: listed[name] for name in sorted(wanted & listed.keys())}
        else:
            described = self._admin.describe_topics(sorted(wanted), raise_errors=False, timeout=self._timeout)
            for problem in described.errors.values():
                if not isinstance(problem, UnknownTopicOrPartitionError):
                    raise problem
        self._missing = wanted - described.keys()
        return described

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        found = self._admin.log_ranges(
            partitions, isolation_level=self._isolation, raise_errors=False, timeout=self._timeout
        )
        for problem in found.errors.values():
            if not found or not isinstance(problem, KafkaTimeoutError | TransportError):
                raise problem
        if found.errors:
            first = next(iter(found.errors.values()))
            raise LeadersAwayError(_silent(found.errors, self._leaders), first.__cause__ or first) from first
        return found

    def log_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._edge(partitions, "earliest")

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._edge(partitions, "latest")

    def _edge(self, partitions: Iterable[TopicPartition], edge: Any) -> dict[TopicPartition, int]:
        found = self._list_offsets(dict.fromkeys(partitions, edge))
        return {partition: at.offset for partition, at in found.items() if at is not None}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = self._list_offsets(times)
        told = {partition: None if at is None else at.offset for partition, at in found.items()}
        if all(at is None for at in told.values()):
            return told
        from kadence.reading.by_time import by_own_times

        settings = {**self._options.client, "isolation.level": self._isolation}
        return by_own_times(settings, times, told, self.log_ends(times))

    def _list_offsets(
        self, specs: Mapping[TopicPartition, Any]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return self._admin.list_offsets(specs, isolation_level=self._isolation, timeout=self._timeout)

    def wait_for_records(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        if self._watch is None:
            self._watch = _Watch(_consumer({**self._options.client, **_TINY}, self._run))
        self._watch.wait(ends, timeout_ms / 1000)

    def sample(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        if self._sampler is None:
            # Small fetches, since the records are only measured.
            small = {"max.partition.fetch.bytes": "65536", "fetch.max.bytes": "262144"}
            counted = ("key", "value", "headers") if self._options.include_headers else ("key", "value")
            self._sampler = executor_client(
                {**self._options.client, **small}, self._run, ("topic", "partition", *counted)
            )
        try:
            return read_samples(self._sampler, ranges, SAMPLE_MS, SystemClock())
        except KafkaError as problem:
            # Records were deleted, or a leader is away: calls that need more than an estimate raise the error.
            _log.info("sizes of records could not be measured: %s", problem)
            return {}

    # ------------------------------------------------------------ the group

    @property
    def run(self) -> str:
        return self._run

    @property
    def _group(self) -> str:
        assert self._options.group_id is not None  # the options were checked for it
        return self._options.group_id

    @property
    def _committer(self) -> Admin:
        if self._committing is None:
            self._committing = self._connect()
        return self._committing

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        wanted = list(partitions)
        found = self._admin.list_consumer_group_offsets(self._group, wanted, timeout=self._timeout)
        return {p: found[p].offset if p in found else None for p in wanted}

    def commit(self, offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
        noted = {p: OffsetAndMetadata(offset, metadata=RUN_MARK + self._run) for p, offset in offsets.items()}
        outcomes = self._committer.alter_consumer_group_offsets(
            self._group,
            noted,
            topic_ids={topic: _id_bytes(topic_id) for topic, topic_id in ids.items()},
            raise_errors=False,
            timeout=COMMIT_SECONDS,
        )
        for problem in outcomes.errors.values():
            # The topic was deleted, or recreated, since it was listed: the next look-up detects that.
            if getattr(problem, "code", None) != error_codes.UNKNOWN_TOPIC_ID:
                raise problem

    def committers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        found = self._committer.list_consumer_group_offsets(self._group, partitions, timeout=COMMIT_SECONDS)
        return {
            p: at.metadata.removeprefix(RUN_MARK) if at.metadata.startswith(RUN_MARK) else ""
            for p, at in found.items()
        }

    def live_members(self) -> int:
        outcomes = self._admin.describe_consumer_groups(
            [self._group], raise_errors=False, timeout=self._timeout
        )
        for problem in outcomes.errors.values():
            # For an unused group, brokers answer either with the state Dead or with an error.
            if getattr(problem, "code", None) != error_codes.GROUP_ID_NOT_FOUND:
                raise problem
        return sum(len(group.members) for group in outcomes.values())

    def close(self) -> None:
        for client in (self._sampler, self._watch, self._committing):
            if client is not None:
                client.close()
        self._sampler = self._watch = self._committing = None
        self._admin.close()


def _id_text(topic_id: bytes) -> str:
    """The id in the notation of Kafka's tools."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def _id_bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")


def _silent(partitions: Iterable[TopicPartition], leaders: Mapping[TopicPartition, int | None]) -> str:
    """``broker 2 (leader of t-0, t-3)``."""
    led: dict[int | None, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        led.setdefault(leaders.get(partition), []).append(partition)
    groups = []
    for node, those in led.items():
        names = ", ".join(map(str, those[:SHOWN])) + (
            f" and {len(those) - SHOWN} more" * (len(those) > SHOWN)
        )
        groups.append(
            f"any leader of {names} (none is known)" if node is None else f"broker {node} (leader of {names})"
        )
    return " and ".join(groups)


class _Watch:
    """Waits for records by fetching at the end of each log. A broker answers when there is a record."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._ends: Mapping[TopicPartition, int] | None = None

    def wait(self, ends: Mapping[TopicPartition, int], seconds: float) -> None:
        try:
            if ends != self._ends:
                self._consumer.assign({partition: (end, end + 1) for partition, end in ends.items()})
                self._ends = dict(ends)
            if self._consumer.poll(seconds):
                self._ends = None
        except KafkaError as problem:
            # A log was truncated or recreated: the driver must check it. Not at once: it may be transient.
            _log.debug("waiting for records failed: %s", problem)
            self._ends = None
            time.sleep(min(seconds, RETRY_SECONDS))

    def close(self) -> None:
        self._consumer.close(timeout=0)


class ConsumerRecords:
    """`kadence_spark.source.ports.RecordClient`."""

    def __init__(self, consumer: Consumer, columns: tuple[str, ...]) -> None:
        self._consumer = consumer
        self._columns = columns
        self._ranges: Mapping[TopicPartition, tuple[int, int]] = {}
        self._ids: Mapping[str, str] = {}
        self._proved: dict[TopicPartition, tuple[int, str]] = {}
        """The topic id of buffered records, with the offset up to which it is known."""

    def start(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str] | None = None
    ) -> None:
        self._ranges, self._ids = dict(ranges), ids or {}
        if any(p in self._proved and self._proved[p][1] != self._ids.get(p.topic) for p in ranges):
            # Buffered records are of another topic with that name.
            self._forget()
        # A range that begins where the last one ended uses the buffered records; any other one fetches again.
        self._proved = {
            p: (end, self._proved[p][1])
            for p, (start, end) in ranges.items()
            if p in self._proved and self._proved[p][0] == start
        }
        self._consumer.assign(ranges)

    def _forget(self) -> None:
        self._consumer.unsubscribe()
        self._proved = {}

    def others(self) -> dict[str, str]:
        wanted = {p.topic for p in self._ranges if p not in self._proved} & self._ids.keys()
        now = {name: self._consumer.partitions_for(name) for name in wanted}
        ids = {
            name: _id_text(infos[0].topic_id)
            for name, infos in now.items()
            if infos and any(infos[0].topic_id)
        }
        same = {name for name, topic_id in ids.items() if topic_id == self._ids[name]}
        self._proved |= {p: (end, ids[p.topic]) for p, (_, end) in self._ranges.items() if p.topic in same}
        return {name: topic_id for name, topic_id in ids.items() if name not in same}

    def gone(self) -> set[TopicPartition]:
        from kadence import NotFetchedReason

        waiting = self._consumer.not_fetched()
        gone = {
            partition
            for partition in self._ranges.keys() & waiting.keys()
            if waiting[partition].reason is NotFetchedReason.UNKNOWN_TOPIC
            and waiting[partition].since >= GONE_SECONDS
        }
        # Another request, without the client's cache.
        for topic in {partition.topic for partition in gone}:
            gone -= {TopicPartition(topic, info.partition) for info in self._consumer.partitions_for(topic)}
        return gone

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        try:
            return self._consumer.poll_arrow(timeout, max_records=max_records, columns=self._columns)
        except OffsetOutOfRangeError:
            self._proved = {}
            raise

    def is_done(self) -> bool:
        return len(self._consumer.finished()) == len(self._ranges)

    def position(self, partition: TopicPartition) -> int:
        return self._consumer.position(partition)

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        start = self._consumer.beginning_offsets([partition])[partition]
        return start, self._consumer.end_offsets([partition])[partition]

    def park(self) -> None:
        # Done ranges have no cost, and the next micro-batch may continue where they ended.
        if self._consumer.finished() != self._consumer.assignment():
            self._forget()

    def close(self) -> None:
        self._consumer.close(timeout=0)
