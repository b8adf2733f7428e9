"""A cluster of topics with ids, behind the ports of driver and tasks. A record is an id, a partition and an offset."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

import pyarrow as pa
from tests.spark.source.memory import Log, MemoryCluster, kafka_table

from kadence.errors import for_code
from kadence.protocol import error_codes
from kadence.types import TopicPartition
from kadence_spark.source.ports import Listing
from kadence_spark.source.start import Topics

__all__ = ["COLUMNS", "Place", "World", "WorldRecords"]

Place = tuple[str, int]
"""The id of a topic and the number of a partition: a log, whatever has its name later."""

COLUMNS = ("topic", "partition", "offset", "value")


@dataclass
class World(MemoryCluster):
    """Topics come, go and are recreated.

    Attributes:
        longest: how far each log has ever gone. hidden: topics that the next listing leaves out, as metadata that
            lags behind does.
    """

    longest: dict[Place, int] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    _made: int = 0

    def create(self, topic: str, ends: Iterable[int]) -> None:
        self._made += 1
        self.ids[topic] = f"{topic}.{self._made}"
        for number, end in enumerate(ends):
            self.logs[TopicPartition(topic, number)] = Log(0, 0)
            self.append(TopicPartition(topic, number), end)

    def delete(self, topic: str) -> None:
        for partition in self.of(topic):
            del self.logs[partition]
        del self.ids[topic]

    def grow(self, topic: str) -> None:
        self.logs[TopicPartition(topic, len(self.of(topic)))] = Log(0, 0)

    def append(self, partition: TopicPartition, count: int) -> None:
        self.logs[partition].end += count
        place = self.place(partition)
        self.longest[place] = max(self.longest.get(place, 0), self.logs[partition].end)

    def of(self, topic: str) -> list[TopicPartition]:
        return [partition for partition in self.logs if partition.topic == topic]

    def place(self, partition: TopicPartition) -> Place:
        return self.ids[partition.topic], partition.partition

    def has(self, place: Place) -> bool:
        topic = place[0].rpartition(".")[0]
        return self.ids.get(topic) == place[0] and TopicPartition(topic, place[1]) in self.logs

    def partitions(self, topics: Topics) -> Listing:
        listing = super().partitions(topics)
        hidden, self.hidden = self.hidden, set()
        leaders = {p: leader for p, leader in listing.leaders.items() if p.topic not in hidden}
        return Listing(leaders, {topic: each for topic, each in listing.ids.items() if topic not in hidden})

    def _answer(self, what: str) -> None:
        self.asked.clear()
        super()._answer(what)

    def _known(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        wanted = list(partitions)
        if not self.logs.keys() >= set(wanted):
            raise for_code(error_codes.UNKNOWN_TOPIC_OR_PARTITION)
        return wanted

    def log_ranges(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return super().log_ranges(self._known(partitions))

    def log_starts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return super().log_starts(self._known(partitions))

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return super().log_ends(self._known(partitions))

    def wait_for_records(self, ends: Mapping[TopicPartition, int], timeout_ms: int) -> None:
        if self.logs.keys() >= ends.keys():
            super().wait_for_records(ends, timeout_ms)
        else:
            self.pace.sleep_ms(min(50, timeout_ms))


class WorldRecords:
    """`kadence_spark.source.ports.RecordClient`: the value of each record is the id of its topic."""

    def __init__(self, world: World, at_once: int) -> None:
        self._world = world
        self._at_once = at_once
        self._positions: dict[TopicPartition, int] = {}
        self._until: dict[TopicPartition, int] = {}
        self._meant: Mapping[str, str] = {}

    def start(
        self, ranges: Mapping[TopicPartition, tuple[int, int]], ids: Mapping[str, str] | None = None
    ) -> None:
        self._meant = ids or {}
        self._positions = {partition: start for partition, (start, _) in ranges.items()}
        self._until = {partition: end for partition, (_, end) in ranges.items()}

    def poll(self, max_records: int | None, timeout: float) -> pa.Table:
        del max_records
        logs = {
            p: log for p, log in self._world.logs.items() if self._positions.get(p, 0) < self._until.get(p, 0)
        }
        for partition, log in logs.items():
            if not log.start <= self._positions[partition] <= log.end:
                raise for_code(error_codes.OFFSET_OUT_OF_RANGE, str(partition))
        tables = []
        for partition, log in sorted(logs.items(), key=itemgetter(0)):
            position, until = self._positions[partition], self._until[partition]
            end = min(until, log.end, position + self._at_once)
            if end > position:
                value = self._world.ids[partition.topic].encode()
                tables.append(kafka_table(partition, [(offset, value) for offset in range(position, end)]))
                self._positions[partition] = end
        if not tables and not self.is_done():
            self._world.pace.advance(int(timeout * 1000))
        table = pa.concat_tables(tables) if tables else kafka_table(TopicPartition("", 0), [])
        return table.select(list(COLUMNS))

    def is_done(self) -> bool:
        return all(self._positions[partition] >= end for partition, end in self._until.items())

    def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    def log_range(self, partition: TopicPartition) -> tuple[int, int]:
        return self._world.log_ranges([partition])[partition]

    def others(self) -> dict[str, str]:
        now = self._world.ids
        topics = {partition.topic for partition in self._until} & self._meant.keys() & now.keys()
        return {topic: now[topic] for topic in topics if now[topic] != self._meant[topic]}

    def gone(self) -> set[TopicPartition]:
        return self._until.keys() - self._world.logs.keys()

    def park(self) -> None:
        pass

    def close(self) -> None:
        pass
