"""One life: what happens to topics, options and application, and whether the rows are those that they have to be.

The rules, which are those of docs/spark.md, are written down here once more, by what is in the world and in the sink:

* where a query begins is evaluated once; what comes later begins at its earliest;
* a record that is there when the query has nothing to do any more was read once, and none below the start;
* with failOnDataLoss=true a query ends with an error where records are lost, and only there;
* a batch that is repeated has the rows that it had, but for those that no broker has any more;
* a partition leaves the checkpoint only if it is gone or the options do not name it. Named again it is read anew.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tests.spark.source.lives.engine import POINTS, Engine, KilledError, Row
from tests.spark.source.lives.sources import ConnectorSource, KadenceSource
from tests.spark.source.lives.world import Place, World
from tests.spark.source.memory import FakePace, stream_options

from kadence.errors import ConfigError, IllegalStateError, UnknownTopicOrPartitionError
from kadence.types import TopicPartition
from kadence_spark.checkpoints import Batch, Checkpoint, SourceOffset
from kadence_spark.source.loss import DataLossError
from kadence_spark.source.offsets import Point
from kadence_spark.source.options import SourceOptions
from kadence_spark.source.start import AtOffsets, AtTimestamp, Everywhere, Found, belongs, resolve

__all__ = ["Life", "WrongError"]

TOPICS: Final = ("a", "b", "ab", "c")
PATTERNS: Final = ("a", "^a$|c", "b", ".*", "nobody", "^c")
MOST_EVENTS: Final = 15
"""In one run, so that it comes to an end."""

TIME_OF_FIRST: Final = 1_000
"""The time of the record with offset 0, as `tests.spark.source.memory.Log` has it."""


class WrongError(AssertionError):
    """A rule was broken."""


@dataclass
class Reading:
    """What has to be read of one source.

    Attributes:
        given: the options as texts. options: of the present run.
        low, high: where a place begins at the earliest and at the latest; 0 where it is in neither.
        again: how often a place was named again. is_pinned: whether the start is in the checkpoint.
        seen: where the query may begin, while nothing is written. present: the places when the run began.
    """

    given: dict[str, str]
    options: SourceOptions = field(default_factory=stream_options)
    low: dict[Place, int] = field(default_factory=dict)
    high: dict[Place, int] = field(default_factory=dict)
    again: Counter[Place] = field(default_factory=Counter)
    seen: tuple[dict[Place, int], dict[Place, int]] | None = None
    present: set[Place] = field(default_factory=set)
    is_pinned: bool = False


class Life:
    """A story by its seed. `live` raises `WrongError` with what was done so far."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.luck = random.Random(seed)
        self.world = World(pace=FakePace())
        self.engine = Engine(self._at, self._repeated)
        self.steps: list[str] = []
        self.lost: set[Row] = set()
        self.is_destroyed = False
        self.is_calm = True
        self._kill: tuple[str, int] | None = None
        self._busy = False
        self._left = 0
        self.outcomes: Counter[str] = Counter()
        self.reads: list[Reading] = []
        for _ in range(self.luck.choice((0, 1, 3, 6))):
            self._happens()
        count = 2 if self.luck.random() < 0.2 else 1
        self.reads += [Reading(self._first_options()) for _ in range(count)]
        self.world.on_question = self._asked

    # ------------------------------------------------------------ the story

    def live(self) -> None:
        try:
            self._live()
        except WrongError:
            raise
        except Exception as problem:
            raise WrongError(self._story(f"{type(problem).__name__}: {problem}")) from problem

    def _live(self) -> None:
        if self.luck.random() < 0.2:
            self._live_with_the_connector()
        for _ in range(self.luck.randint(2, 5)):
            for _ in range(self.luck.randrange(4)):
                self._happens()
            if self.luck.random() < 0.3:
                self._change_options()
            self._run()
            if self.luck.random() < 0.4:
                self._finish()
                if self.luck.random() < 0.25:
                    self._live_back_with_the_connector()
        self._finish()

    def _run(self) -> None:
        """Until the application is killed, or has nothing to do."""
        point = self.luck.choice(POINTS)
        self._kill = (point, self.luck.choice((1, 1, 2, 3))) if self.luck.random() < 0.7 else None
        self._note(f"run, killed at {self._kill}")
        self._busy, self._left = True, MOST_EVENTS
        try:
            with self._judged():
                self.engine.run(
                    self._sources(), available_now=self.luck.random() < 0.5, idle=self.luck.randint(0, 6)
                )
        except KilledError:
            self._note("killed")
            self.outcomes["killed"] += 1
            if self.engine.offsets and len(self.engine.offsets) - 1 not in self.engine.commits:
                self.outcomes["killed in a batch"] += 1
        finally:
            self._busy, self._kill = False, None
            self.world.hidden.clear()
            lenient = {n for n, reading in enumerate(self.reads) if not reading.options.fail_on_data_loss}
            self.lost = {row for row in self.lost if row[0] not in lenient}

    def _finish(self) -> None:
        """A run in which nothing else happens; all that is there has to be in the sink then."""
        available_now = self.luck.random() < 0.5
        for _ in range(6):
            self._note(f"finish, {'availableNow' if available_now else 'on and on'}")
            with self._judged() as failed:
                self.engine.run(self._sources(), available_now=available_now, idle=5)
            if not failed:
                self._check()
                return
            self._react(failed[0])
        raise WrongError(self._story("the query fails again and again"))

    def _react(self, problem: Exception) -> None:
        """What a user does about an error."""
        if isinstance(problem, DataLossError):
            for reading in self.reads:
                self._give(reading, {"failOnDataLoss": "false"})
        elif isinstance(problem, UnknownTopicOrPartitionError):
            for topic in TOPICS:
                if topic not in self.world.ids:
                    self._note(f"create {topic}")
                    self.world.create(topic, [self.luck.randrange(6) for _ in range(3)])
                while len(self.world.of(topic)) < 3:
                    self._note(f"grow {topic}")
                    self.world.grow(topic)
        else:
            for reading in self.reads:
                self._give(reading, {"startingOffsets": "earliest", "startingTimestamp": ""})

    @contextmanager
    def _judged(self) -> Iterator[list[Exception]]:
        """Whether an error that ends a run has its ground."""
        failed: list[Exception] = []
        try:
            yield failed
        except (DataLossError, UnknownTopicOrPartitionError, ConfigError) as problem:
            self._note(f"{type(problem).__name__}: {problem}")
            self._judge(problem)
            failed.append(problem)
            self.outcomes[type(problem).__name__] += 1

    def _judge(self, problem: Exception) -> None:
        text = str(problem)
        points = [Point.from_json(end) for end in self.engine.ends()]
        if isinstance(problem, DataLossError):
            if not any(reading.options.fail_on_data_loss for reading in self.reads):
                raise WrongError(self._story("failOnDataLoss=false, and an error of lost data"))
            left_out = {
                str(partition)
                for reading, point in zip(self.reads, points, strict=False)
                for partition in point.next
                if not belongs(partition, reading.options.topics)
            }
            gone = any(
                not self.world.has((point.ids.get(topic, self.world.ids.get(topic, "")), number))
                for point in points
                for topic, number in point.next
            )
            if not (self.is_destroyed or left_out or gone):
                raise WrongError(self._story("nothing was lost, and an error of lost data"))
            if found := re.search(r"no longer name: ([^ ,]+(?:, [^ ,]+)*)\. ", text):
                named = set(found[1].split(", "))
                if not named <= left_out:
                    raise WrongError(self._story("partitions are called left out that are not"))
            found = re.search(r"do not exist any more: ([^ ,]+(?:, [^ ,]+)*)\. ", text)
            if found and set(found[1].split(", ")) & set(map(str, self.world.logs)):
                raise WrongError(self._story("partitions are called gone that are there"))
        elif all(reading.is_pinned for reading in self.reads):
            raise WrongError(self._story("the query had begun, and its start is asked for again"))

    # ------------------------------------------------------------ what happens

    def _happens(self) -> None:
        """One thing, to one topic."""
        topic = self.luck.choice(TOPICS)
        if topic not in self.world.ids:
            ends = [self.luck.choice((0, 0, 1, 5, 12)) for _ in range(self.luck.randint(1, 3))]
            self._note(f"create {topic} with {ends}")
            self.world.create(topic, ends)
            return
        chance = self.luck.random()
        if chance < 0.55 or not self._may_destroy():
            self._produce(topic)
        elif chance < 0.65:
            self._note(f"grow {topic}")
            self.world.grow(topic)
        elif chance < 0.75:
            self._retention(topic)
        elif chance < 0.85:
            self._delete(topic)
        elif chance < 0.95:
            self._delete(topic)
            ends = [self.luck.choice((0, 3, 20)) for _ in range(self.luck.randint(1, 3))]
            self._note(f"recreate {topic} with {ends}")
            self.world.create(topic, ends)
        elif self.reads and all(reading.is_pinned for reading in self.reads):
            self._note(f"hide {topic} once")
            self.world.hidden.add(topic)

    def _produce(self, topic: str) -> None:
        partition = self.luck.choice(self.world.of(topic))
        count = self.luck.choice((1, 3, 8))
        self._note(f"produce {count} to {partition}")
        self.world.append(partition, count)
        if self.luck.random() < 0.2:
            log = self.world.logs[partition]
            self.world.group[partition] = self.luck.randint(log.start, log.end)

    def _retention(self, topic: str) -> None:
        partition = self.luck.choice(self.world.of(topic))
        log = self.world.logs[partition]
        start = self.luck.randint(log.start, log.end)
        self._note(f"retention of {partition} to {start}")
        self._destroy(partition, start)
        log.start = start

    def _delete(self, topic: str) -> None:
        self._note(f"delete {topic}")
        for partition in self.world.of(topic):
            self._destroy(partition, self.world.logs[partition].end, is_gone=True)
            self.world.group.pop(partition, None)
        self.world.delete(topic)

    def _may_destroy(self) -> bool:
        """A checkpoint without ids cannot know a topic that was recreated."""
        points = [Point.from_json(end) for end in self.engine.ends()]
        return self.is_calm and all(p.topic in point.ids for point in points for p in point.next)

    def _destroy(self, partition: TopicPartition, start: int, *, is_gone: bool = False) -> None:
        """Records below ``start`` are about to go: which of them should have been read?"""
        place, rows = self.world.place(partition), self.engine.rows()
        for number, end in enumerate(self.engine.ends()):
            if (
                partition not in (point := Point.from_json(end)).next
                or point.ids.get(partition.topic) != place[0]
            ):
                continue
            self.is_destroyed |= is_gone
            begin = max(self.reads[number].high.get(place, 0), self.world.logs[partition].start)
            unread = {(number, *place, offset) for offset in range(begin, start)} - rows.keys()
            self.is_destroyed |= bool(unread)
            self.lost |= unread

    def _asked(self, what: str) -> None:
        """Producers are at work while the driver asks."""
        if (
            self._busy
            and self._left
            and what != "partitions"
            and self.luck.random() < 0.05
            and self.world.ids
        ):
            self._left -= 1
            self._produce(self.luck.choice(sorted(self.world.ids)))

    def _at(self, point: str) -> None:
        if point == "logged":
            self._logged()
        if not self._busy:
            return
        self.world.pace.advance(self.luck.choice((5, 70, 1_500)))
        if self._left and self.luck.random() < 0.15:
            self._left -= 1
            self._happens()
        if self._kill is not None and self._kill[0] == point:
            self._kill = (point, self._kill[1] - 1)
            if not self._kill[1]:
                raise KilledError

    # ------------------------------------------------------------ options

    def _first_options(self) -> dict[str, str]:
        given = {**self._subscribed(), **self._where(), **self._limits()}
        self._note(f"options {given}")
        return given

    def _subscribed(self) -> dict[str, str]:
        chance = self.luck.random()
        if chance < 0.4:
            return {"subscribePattern": self.luck.choice(PATTERNS)}
        there = [name for name in TOPICS if name in self.world.ids]
        names = self.luck.sample(TOPICS, self.luck.randint(1, 2))
        if there and self.luck.random() < 0.7:
            names = self.luck.sample(there, min(len(there), len(names)))
        if chance < 0.8:
            return {"subscribe": ",".join(names)}
        return {"assign": json.dumps({name: sorted(self.luck.sample(range(3), 2)) for name in names})}

    def _where(self) -> dict[str, str]:
        chance = self.luck.random()
        if chance < 0.3:
            return {"startingOffsets": "earliest"}
        if chance < 0.45:
            time = str(TIME_OF_FIRST + self.luck.randrange(12))
            return {"startingTimestamp": time, "startingOffsetsByTimestampStrategy": "latest"}
        if chance < 0.55:
            return {"startingOffsets": "committed", "kafka_group_id": "g"}
        if chance < 0.65:
            every = {topic: {str(n): self.luck.choice((-1, -2)) for n in range(2)} for topic in TOPICS[:1]}
            return {"startingOffsets": json.dumps(every)}
        return {} if chance < 0.9 else {"startingOffsets": "latest"}

    def _limits(self) -> dict[str, str]:
        given = {"failOnDataLoss": self.luck.choice(("true", "false", "false"))}
        if self.luck.random() < 0.3:
            given["maxOffsetsPerTrigger"] = self.luck.choice(("1", "4", "9"))
        if self.luck.random() < 0.1:
            given["maxRecordsPerPartition"] = self.luck.choice(("1", "3"))
        if self.luck.random() < 0.1:
            given["minPartitions"] = "4"
        return given

    def _change_options(self) -> None:
        reading = self.luck.choice(self.reads)
        kinds = ("subscribe", "subscribePattern", "assign")
        starts = (
            "startingOffsets",
            "startingTimestamp",
            "startingOffsetsByTimestampStrategy",
            "kafka_group_id",
        )
        chance = self.luck.random()
        if chance < 0.3:
            self._give(reading, dict.fromkeys(kinds, "") | self._subscribed())
        elif chance < 0.6:
            self._give(reading, dict.fromkeys(starts, "") | self._where())
        else:
            self._give(reading, {"maxOffsetsPerTrigger": ""} | self._limits())

    def _give(self, reading: Reading, more: dict[str, str]) -> None:
        """Other options from the next run on; an empty text takes one away."""
        reading.given = {name: text for name, text in (reading.given | more).items() if text}
        self._note(f"options {reading.given}")

    def _sources(self) -> list[KadenceSource]:
        """Those of a run."""
        for reading in self.reads:
            reading.options = stream_options(**reading.given)
            reading.seen = None
            reading.present = {self.world.place(partition) for partition in self.world.logs}
        at_once = self.luck.choice((1, 3, 100))
        return [
            KadenceSource(self.world, reading.options, at_once, partial(self._asking, reading))
            for reading in self.reads
        ]

    # ------------------------------------------------------------ where the query begins

    def _asking(self, reading: Reading, when: str) -> None:
        """Around a question about the latest offset: a start that is not written yet is evaluated in between."""
        if reading.is_pinned:
            return
        starts = self._starts(reading)
        if when == "before":
            reading.seen = ({p: at for p, at in starts.items() if p in reading.present}, starts)
        elif reading.seen is not None:
            reading.seen = (reading.seen[0], starts)

    def _starts(self, reading: Reading) -> dict[Place, int]:
        """Where the options begin now, in the logs that they name."""
        starting, found = reading.options.starting, {}
        for partition, log in self.world.logs.items():
            if not belongs(partition, reading.options.topics):
                continue
            match starting:
                case AtTimestamp():
                    begin = min(max(starting.timestamp - TIME_OF_FIRST, log.start), log.end)
                case AtOffsets():
                    begin = log.end if starting.offsets.get(partition) is Found.LATEST else 0
                case Everywhere(Found.LATEST):
                    begin = log.end
                case Everywhere(Found.COMMITTED):
                    begin = self.world.group.get(partition, 0)
                case _:
                    begin = 0
            found[self.world.place(partition)] = begin
        return found

    def _logged(self) -> None:
        """The ends of a batch are in the checkpoint."""
        for number, reading in enumerate(self.reads):
            if not reading.is_pinned and reading.seen is not None:
                reading.is_pinned = True
                reading.low, reading.high = reading.seen
            if len(self.engine.offsets) == 1:
                continue
            before, now = (Point.from_json(json.loads(ends[number])) for ends in self.engine.offsets[-2:])
            for partition in before.next.keys() - now.next.keys():
                topic_id = before.ids.get(partition.topic, self.world.ids.get(partition.topic, ""))
                place = topic_id, partition.partition
                if not belongs(partition, reading.options.topics):
                    reading.again[place] += 1
                    reading.low[place] = reading.high[place] = 0
                elif self.world.has(place):
                    raise WrongError(self._story(f"{partition} leaves the checkpoint, and is there"))

    # ------------------------------------------------------------ the connector

    def _live_with_the_connector(self) -> None:
        """The query begins with Spark's connector, and then goes on with Kadence, by the same options."""
        try:
            for reading in self.reads:
                reading.options = stream_options(**reading.given)
                resolve(reading.options.starting, self._named(reading), self.world)
        except ConfigError:
            return
        sources = [ConnectorSource(self.world, reading.options) for reading in self.reads]
        for reading, source in zip(self.reads, sources, strict=True):
            source.initial()
            reading.low = reading.high = self._starts(reading)
            reading.is_pinned = True
        self._kill = (self.luck.choice(POINTS), self.luck.randint(1, 2)) if self.luck.random() < 0.7 else None
        self._note(f"the connector, killed at {self._kill}")
        self._busy, self._left, self.is_calm = True, MOST_EVENTS, False
        try:
            self.engine.run(sources, available_now=True)
        except KilledError:
            self._note("killed")
        finally:
            self._busy, self._kill = False, None
        for _ in range(self.luck.randrange(3)):
            self._happens()
        if not self.engine.offsets:
            for reading in self.reads:
                reading.is_pinned, reading.low, reading.high = False, {}, {}
        self.outcomes["moved from the connector"] += 1
        try:
            self._finish()
        except IllegalStateError as problem:
            if "let the connector end this batch once" not in str(problem) or self.engine.commits:
                raise
            self._note("refused; the connector ends its batch")
            self.outcomes["refused"] += 1
            self.engine.run(sources, available_now=True)
            self._finish()
        self.is_calm = True

    def _live_back_with_the_connector(self) -> None:
        """The query goes on with Spark's connector, after ``kadence checkpoint to-connector``."""
        self.is_calm = False
        self._run()
        batches = [
            Batch(number, ("v1", "{}"), tuple(map(SourceOffset.read, ends)), number in self.engine.commits)
            for number, ends in enumerate(self.engine.offsets)
        ]
        if len(batches) > 1:
            self._note("the connector goes on")
            for batch in Checkpoint("", batches[-1], batches[-2]).for_connector():
                self.engine.offsets[batch.number] = [source.text for source in batch.sources]
            sources = [ConnectorSource(self.world, reading.options) for reading in self.reads]
            self.engine.run(sources, available_now=True)
            self._check()
            self.outcomes["moved back"] += 1
        self.is_calm = True

    def _named(self, reading: Reading) -> list[TopicPartition]:
        return [partition for partition in self.world.logs if belongs(partition, reading.options.topics)]

    # ------------------------------------------------------------ whether it is right

    def _repeated(self, first: Counter[Row], again: Counter[Row]) -> None:
        self.outcomes["repeated"] += 1
        if more := again - first:
            raise WrongError(self._story(f"a repeated batch has more rows: {sorted(more)[:5]}"))
        for number, topic_id, partition, offset in first - again:
            place, topic = (topic_id, partition), topic_id.rpartition(".")[0]
            is_there = self.world.has(place) and (
                offset >= self.world.logs[TopicPartition(topic, partition)].start
            )
            if is_there or self.reads[number].options.fail_on_data_loss:
                raise WrongError(self._story(f"a repeated batch lacks {topic_id}-{partition} {offset}"))

    def _check(self) -> None:
        rows = self.engine.rows()
        for number, reading in enumerate(self.reads):
            for partition in self._named(reading):
                place, log = self.world.place(partition), self.world.logs[partition]
                for offset in range(log.start, log.end):
                    count = rows[number, *place, offset]
                    if not count and offset >= reading.high.get(place, 0):
                        raise WrongError(self._story(f"source {number}: {place} {offset} was not read"))
                    if count > reading.again[place] and offset < reading.low.get(place, 0):
                        raise WrongError(
                            self._story(f"source {number}: {place} {offset} lies before the start")
                        )
            if reading.options.fail_on_data_loss and (
                lost := sorted(row for row in self.lost - rows.keys() if row[0] == number)
            ):
                raise WrongError(self._story(f"lost without an error: {lost[:5]}"))
        for (number, topic_id, numbered, offset), count in rows.items():
            place = topic_id, numbered
            if count > 1 + self.reads[number].again[place] or offset >= self.world.longest.get(place, 0):
                raise WrongError(self._story(f"source {number}: {place} {offset} was read {count} times"))
        self.outcomes["rows"] += sum(rows.values())
        self.outcomes["finished"] += 1
        self.lost.clear()
        self.is_destroyed = False

    def _note(self, what: str) -> None:
        self.steps.append(what)

    def _story(self, problem: str) -> str:
        lines = [f"seed {self.seed}: {problem}"]
        points = [f"  batch {n}: {' + '.join(each)}" for n, each in enumerate(self.engine.offsets)]
        return "\n".join([*lines, *(f"  {line}" for line in self.steps), *points])
