"""A cluster in memory behind the ports of the Spark room, and a clock that moves when somebody sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from kadence.errors import BrokerError, KafkaError, for_code
from kadence.protocol import error_codes
from kadence.types import TopicPartition
from kadence_spark.source.options import SourceOptions, parse
from kadence_spark.source.ports import Listing
from kadence_spark.source.start import Topics, belongs
from kadence_testing.clock import FakeClock


class FakePace(FakeClock):
    """Sleeping advances it; ``on_sleep`` is what happens in the world meanwhile."""

    __slots__ = ("on_sleep", "slept")

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[int] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def sleep_ms(self, duration: int) -> None:
        self.slept.append(duration)
        self.advance(duration)
        self.on_sleep()


@dataclass
class Log:
    """One partition: offsets ``start`` to ``end``, the time of its records, bytes of each."""

    start: int = 0
    end: int = 0
    time_of_first: int = 1_000
    record_bytes: int = 100
    late_bytes: int = 0
    leader: int | None = 1


@dataclass
class MemoryCluster:
    """Implements `kadence_spark.source.ports.OffsetClient`; what it was asked is counted."""

    logs: dict[TopicPartition, Log] = field(default_factory=dict)
    group: dict[TopicPartition, int] = field(default_factory=dict)
    members: int = 0
    commits: list[dict[TopicPartition, int]] = field(default_factory=list)
    commit_ids: list[dict[str, str]] = field(default_factory=list)
    sampled: list[dict[TopicPartition, tuple[int, int]]] = field(default_factory=list)
    failures: list[KafkaError] = field(default_factory=list)
    commit_failures: list[KafkaError] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    pace: FakePace = field(default_factory=FakePace)
    ids: dict[str, str] = field(default_factory=dict)
    run: str = "this-run"
    by_run: dict[TopicPartition, str] = field(default_factory=dict)
    on_question: Callable[[str], None] = lambda what: None

    def add(self, name: str, end: int = 0, *, start: int = 0, **more: int) -> TopicPartition:
        """``add("t-0", 10)``: a log with ten records, or new bounds for one that is there."""
        topic, _, number = name.rpartition("-")
        partition = TopicPartition(topic, int(number))
        self.logs[partition] = Log(start, end, **more)
        return partition

    def produce(self, name: str, count: int) -> None:
        """Append records."""
        topic, _, number = name.rpartition("-")
        self.logs[TopicPartition(topic, int(number))].end += count

    def drop(self, name: str) -> None:
        """Delete a partition."""
        topic, _, number = name.rpartition("-")
        del self.logs[TopicPartition(topic, int(number))]

    def make_anew(self, topic: str, *ends: int) -> None:
        """Delete a topic and make another one of that name, with a log for each end."""
        for partition in [p for p in self.logs if p.topic == topic]:
            del self.logs[partition]
        self.ids[topic] = f"{self.ids.get(topic, topic)}'"
        for number, end in enumerate(ends):
            self.add(f"{topic}-{number}", end)

    def connect(self) -> MemoryCluster:
        self.connections += 1
        return self

    def _answer(self, what: str) -> None:
        self.asked.append(what)
        self.on_question(what)
        if self.failures:
            raise self.failures.pop(0)

    def partitions(self, topics: Topics) -> Listing:
        self._answer("partitions")
        leaders = {p: log.leader for p, log in self.logs.items() if belongs(p, topics)}
        return Listing(leaders, {p.topic: self.ids[p.topic] for p in leaders if p.topic in self.ids})

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        self._answer("log_ranges")
        return {p: (self.logs[p].start, self.logs[p].end) for p in partitions}

    def wait_for_records(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        """In steps of 50 ms; whether there is news is looked at after each."""
        until = self.pace.now_ms() + timeout_ms
        while self.pace.now_ms() < until and all(self.logs[p].end <= end for p, end in ends.items()):
            self.pace.sleep_ms(min(50, until - self.pace.now_ms()))

    def log_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._answer("log_starts")
        return {p: self.logs[p].start for p in partitions}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._answer("log_ends")
        return {p: self.logs[p].end for p in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """Record n of a log is ``time_of_first + n``."""
        self._answer("offsets_for_times")
        found: dict[TopicPartition, int | None] = {}
        for partition, time in times.items():
            log = self.logs[partition]
            offset = max(log.start, time - log.time_of_first)
            found[partition] = offset if offset < log.end else None
        return found

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        self._answer("committed")
        return {p: self.group.get(p) for p in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
        if self.commit_failures:
            raise self.commit_failures.pop(0)
        self.commit_ids.append(dict(ids))
        self.commits.append(dict(offsets))
        self.group.update(offsets)
        self.by_run.update(dict.fromkeys(offsets, self.run))

    def committers(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        return {p: self.by_run.get(p, "") for p in partitions if p in self.by_run or p in self.group}

    def live_members(self) -> int:
        self._answer("live_members")
        return self.members

    def sample(
        self, ranges: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Ten records of each; those in the second half of a log have ``late_bytes``."""
        self.sampled.append(dict(ranges))
        found = {}
        for partition, (start, end) in ranges.items():
            log, span = self.logs[partition], min(10, end - start)
            size = log.record_bytes if start < log.end // 2 else log.late_bytes or log.record_bytes
            found[partition] = (span * size, span)
        return found

    def close(self) -> None:
        self.closed += 1


def broker_failure(retriable: bool = True) -> BrokerError:
    """A broker's error of one kind or the other."""
    code = error_codes.COORDINATOR_NOT_AVAILABLE if retriable else error_codes.GROUP_AUTHORIZATION_FAILED
    return for_code(code)


def stream_options(**more: str) -> SourceOptions:
    """Options of a stream over topic ``t``; keywords are option names with ``_`` for ``.``."""
    return _options(streaming=True, more=more)


def batch_options(**more: str) -> SourceOptions:
    """The same for a batch query."""
    return _options(streaming=False, more=more)


def _options(*, streaming: bool, more: Mapping[str, str]) -> SourceOptions:
    given = {"kafka.bootstrap.servers": "localhost:9092"}
    given |= {name.replace("_", "."): value for name, value in more.items()}
    if not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given["subscribe"] = "t"
    return parse(given, streaming=streaming)


@dataclass
class MemoryRecords:
    """Implements `kadence_spark.source.ports.RecordClient`: a log per partition as (offset, value) pairs.

    ``ends`` are the positions behind the last offset, which may lie above the last record (control records). Each
    poll gives records of one or several partitions, ``at_once`` of them at most.
    """

    logs: dict[TopicPartition, list[tuple[int, bytes]]]
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)
    at_once: int = 5
    columns: tuple[str, ...] = ("topic", "partition", "offset", "value")
    clock: FakeClock | None = None
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    started: list[dict[TopicPartition, tuple[int, int]]] = field(default_factory=list)
    polled: list[int | None] = field(default_factory=list)
    parked: int = 0
    closed: int = 0
    ids: dict[str, str] = field(default_factory=dict)
    meant: dict[str, str] = field(default_factory=dict)
    _until: dict[TopicPartition, int] = field(default_factory=dict)

    def start(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str] | None = None
    ) -> None:
        self.meant = dict(ids or {})
        self.positions = {partition: start for partition, (start, _) in ranges.items()}
        self.started.append(dict(ranges))
        self._until = {partition: end for partition, (_, end) in ranges.items()}

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        self.polled.append(max_records)
        tables = []
        left = self.at_once if max_records is None else min(max_records, self.at_once)
        for partition, until in sorted(self._until.items()):
            if partition not in self.logs:
                continue
            start, end = self.log_range(partition)
            position = self.positions[partition]
            if position >= until:
                continue
            if not start <= position <= end:
                raise for_code(error_codes.OFFSET_OUT_OF_RANGE, str(partition))
            fresh = [pair for pair in self.logs[partition] if position <= pair[0] < until][:left]
            left -= len(fresh)
            if fresh:
                tables.append(kafka_table(partition, fresh))
                self.positions[partition] = fresh[-1][0] + 1
            elif left:
                self.positions[partition] = min(end, until)
        if not tables and self.clock is not None:
            self.clock.advance(int(timeout * 1000))
        table = pa.concat_tables(tables) if tables else kafka_table(TopicPartition("t", 0), [])
        return table.select(list(self.columns))

    def is_done(self) -> bool:
        return all(self.positions[partition] >= end for partition, end in self._until.items())

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        log = self.logs[partition]
        end = self.ends.get(partition, log[-1][0] + 1 if log else 0)
        return self.starts.get(partition, log[0][0] if log else end), end

    def others(self) -> dict[str, str]:
        topics = {partition.topic for partition in self._until} & self.meant.keys() & self.ids.keys()
        return {topic: self.ids[topic] for topic in topics if self.ids[topic] != self.meant[topic]}

    def gone(self) -> set[TopicPartition]:
        return self._until.keys() - self.logs.keys()

    def park(self) -> None:
        self.parked += 1

    def close(self) -> None:
        self.closed += 1


def kafka_table(partition: TopicPartition, records: list[tuple[int, bytes]]) -> pa.Table:
    """Spark's Kafka schema as an Arrow table."""
    count = len(records)
    return pa.table(
        {
            "key": pa.array([None] * count, pa.binary()),
            "value": pa.array([value for _, value in records], pa.binary()),
            "topic": pa.array([partition.topic] * count, pa.string()),
            "partition": pa.array([partition.partition] * count, pa.int32()),
            "offset": pa.array([offset for offset, _ in records], pa.int64()),
            "timestamp": pa.array([0] * count, pa.timestamp("us", "UTC")),
            "timestampType": pa.array([0] * count, pa.int32()),
        }
    )
