"""The two sources that live: Kadence's driver and tasks, and a model of Spark's own connector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
from tests.spark.source.lives.world import COLUMNS, World, WorldRecords

from kadence_spark.source.driver import StreamDriver
from kadence_spark.source.executor import ReadSettings, read_ranges
from kadence_spark.source.offsets import NOT_BEGUN, Json, Offsets, Point, to_shape
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.planning import OffsetRange, Task
from kadence_spark.source.same_topics import SameTopics
from kadence_spark.source.start import resolve

__all__ = ["ConnectorSource", "KadenceSource"]

_SCHEMA: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.binary())]
)


class KadenceSource:
    """One run of Kadence's source: what `kadence_spark.source.stream_reader` does, without Spark.

    Args:
        before: called before each question about the latest offset, and after it.
    """

    def __init__(
        self, world: World, options: SourceOptions, at_once: int, asking: Callable[[str], None]
    ) -> None:
        self.options = options
        self._world = world
        self._driver = StreamDriver(options, world.connect, world.pace)
        self._records = WorldRecords(world, at_once)
        self._asking = asking

    def initial(self) -> Json:
        return dict(NOT_BEGUN)

    def prepare_available_now(self) -> None:
        self._driver.prepare_available_now()

    def latest(self, start: Json) -> Json:
        self._asking("before")
        end = self._driver.latest(start)
        self._asking("after")
        self._driver.report()
        return end

    def plan(self, start: Json, end: Json) -> list[Task]:
        return self._driver.plan(start, end)

    def read(self, task: Task) -> list[tuple[str, int, int]]:
        fail = self.options.fail_on_data_loss
        reading = ReadSettings(COLUMNS, fail_on_data_loss=fail)
        same = SameTopics(self._records, task, fail_on_data_loss=fail)
        rows: list[tuple[str, int, int]] = []
        for batch in read_ranges(task, same, reading, _SCHEMA, self._world.pace):
            columns = (batch[name].to_pylist() for name in ("value", "partition", "offset"))
            rows += [
                (value.decode(), partition, offset) for value, partition, offset in zip(*columns, strict=True)
            ]
        same.park()
        return rows


class ConnectorSource:
    """Spark's connector, as far as its checkpoints go: no ids, no starts, and the first start in a file of its own.

    Attributes:
        begun: that file, ``sources/N/0``; None: it is not written yet.
    """

    def __init__(self, world: World, options: SourceOptions) -> None:
        self._world = world
        self._options = options
        self._records = WorldRecords(world, 1_000)
        self.begun: Offsets | None = None

    def initial(self) -> Json:
        if self.begun is None:
            listing = self._world.partitions(self._options.topics)
            self.begun = resolve(self._options.starting, listing.leaders, self._world)
        return to_shape(self.begun)

    def prepare_available_now(self) -> None:
        pass

    def latest(self, start: Json) -> Json:
        del start
        listing = self._world.partitions(self._options.topics)
        return to_shape(self._world.log_ends(listing.leaders))

    def plan(self, start: Json, end: Json) -> list[Task]:
        before, after = Point.from_json(start).next, Point.from_json(end).next
        starts = {partition: self._world.logs[partition].start for partition in after}
        ranges = [
            OffsetRange(*partition, before.get(partition, starts[partition]), until)
            for partition, until in after.items()
        ]
        return [(piece,) for piece in ranges if piece.size]

    def read(self, task: Task) -> list[tuple[str, int, int]]:
        return [
            (*self._world.place(piece.topic_partition), offset)
            for piece in task
            for offset in range(piece.start, piece.end)
        ]
