"""Random lives of a stream on one real Kafka, lived by Spark's connector and by Kadence side by side.

Topics come, grow, lose records, go and are recreated; the application dies in a batch and is started again; options
change. Both sides live the same story with checkpoints of their own. After each run that ends without an error, Kadence
must have read each row once that it has to have read, and both must have the same rows. What differs must have one of
the reasons of `REASONS`; docs/spark.md has them under "What differs from the connector" and "Data loss".

The same stories by the thousand, without Spark and Kafka: `tests.spark.source.lives`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from conformity.topics import START, World

__all__ = ["REASONS", "RealLife"]

SIDES: Final = ("kafka", "kadence")
GENERATION: Final = 100_000
"""The records of a topic's n-th incarnation have the numbers from n times this on, and times to match."""

TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark gives a process in Python ten seconds to come up. The query has not begun then, and is started again."""

MOST_SLOW: Final = 30

REASONS: Final = {
    "recreated": "a topic was recreated: the connector knows no ids, and goes on at the offset of the old one",
    "deleted": "a topic was deleted: the connector forgets less, or more, than that topic",
    "added": "a topic that the options add lacks its first records: the connector takes that for a loss",
    "nothing": "the options name nothing that is there any more: the connector waits, Kadence names what is left out",
    "missing": "assign names a partition that is not there, or subscribe a topic: one side waits or fails",
}

Ask = Callable[[dict[str, Any]], dict[str, Any]]
Row = tuple[str, int, int, int]
"""Topic, partition, offset, and the number of the record."""


@dataclass
class Side:
    """What one side has read: the rows of each batch, of which the sink takes the first that comes."""

    sink: dict[int, list[Row]] = field(default_factory=dict)
    error: str = ""

    def rows(self) -> Counter[Row]:
        return Counter(row for rows in self.sink.values() for row in rows)


class RealLife:
    """One story. `live` returns what is wrong with it, or None; `differences` has the reasons of what differed."""

    def __init__(self, seed: int, world: World, ask: Ask, scratch: Path) -> None:
        self.seed, self.world, self._ask, self._scratch = seed, world, ask, scratch
        self.luck = random.Random(seed)
        self.names = [f"life-{seed}-{letter}" for letter in ("a", "b", "ab")]
        self.made: dict[str, int] = dict.fromkeys(self.names, 0)
        self.logs: dict[tuple[str, int], tuple[int, int]] = {}
        self.sides = {side: Side() for side in SIDES}
        self.begins: dict[tuple[str, int, int], int] | None = None
        self.again: Counter[tuple[str, int]] = Counter()
        self.named: set[tuple[str, int]] = set()
        self.reasons: set[str] = set()
        self.differences: set[str] = set()
        self.steps: list[str] = []
        self.runs = self.slow = 0
        self.options: dict[str, str] = {}

    def live(self) -> str | None:
        for _ in range(self.luck.choice((0, 1, 2, 3))):
            self._happens()
        self.options = {"startingOffsets": self.luck.choice(("earliest", "latest", "latest"))} | self._named()
        self.options["failOnDataLoss"] = self.luck.choice(("true", "false"))
        for _ in range(self.luck.randint(2, 3)):
            if wrong := self._run(self.luck.choice(("", "", "before", "after"))):
                return wrong
            for _ in range(self.luck.randint(1, 3)):
                self._happens()
            if self.luck.random() < 0.4:
                self._change()
        for _ in range(4):
            if wrong := self._run(""):
                return wrong
            if not any(side.error for side in self.sides.values()):
                return None
        ours = self.sides["kadence"].error
        return self._story(f"it fails again and again: {ours}") if ours else None

    # ------------------------------------------------------------ what happens

    def _happens(self) -> None:
        name = self.luck.choice(self.names)
        there = [partition for topic, partition in self.logs if topic == name]
        chance = self.luck.random()
        if not there:
            self._create(name)
        elif chance < 0.6:
            self._produce(name, self.luck.choice(there), self.luck.choice((1, 4, 9)))
        elif chance < 0.72:
            self.steps.append(f"grow {name}")
            self.world.grow(name, len(there) + 1)
            self.world.wait_until(lambda: self.world.partitions(name) == len(there) + 1)
            self.logs[name, len(there)] = (0, 0)
            self._produce(name, len(there), self.luck.choice((0, 5)))
        elif chance < 0.82:
            partition = self.luck.choice(there)
            start, end = self.logs[name, partition]
            start = self.luck.randint(start, end)
            self.steps.append(f"delete records of {name}-{partition} below {start}")
            self.world.delete_below(name, partition, start)
            self.logs[name, partition] = (start, end)
        else:
            self._delete(name)
            if chance > 0.9:
                self.reasons.add("recreated")
                self._create(name)

    def _create(self, name: str) -> None:
        self.made[name] += 1
        count = self.luck.randint(1, 2)
        self.steps.append(f"create {name} for the {self.made[name]}. time with {count} partitions")
        if self.made[name] > 1:
            self.reasons.add("recreated")
        self.world.create(name, count)
        self.world.wait_until(lambda: self.world.partitions(name) == count)
        for partition in range(count):
            self.logs[name, partition] = (0, 0)
            self._produce(name, partition, self.luck.choice((0, 3, 12)))

    def _produce(self, name: str, partition: int, count: int) -> None:
        start, end = self.logs[name, partition]
        self.steps.append(f"produce {count} to {name}-{partition}")
        if count:
            base = self.made[name] * GENERATION + end
            self.world.produce(name, range(base, base + count), partition)
        self.logs[name, partition] = (start, end + count)

    def _delete(self, name: str) -> None:
        self.steps.append(f"delete {name}")
        self.reasons.add("deleted")
        self.world.delete(name)
        self.logs = {place: log for place, log in self.logs.items() if place[0] != name}

    # ------------------------------------------------------------ options

    def _named(self) -> dict[str, str]:
        """What is read. Lists name topics that are there, for what else they would be is a refusal."""
        there = sorted({name for name, _ in self.logs})
        if not there or self.luck.random() < 0.5:
            ends = self.luck.choice(("a$", "b$", ".*", "nobody"))
            return {"subscribePattern": f"life-{self.seed}-{ends}"}
        return {"subscribe": ",".join(self.luck.sample(there, self.luck.randint(1, len(there))))}

    def _change(self) -> None:
        chance = self.luck.random()
        kept = {n: t for n, t in self.options.items() if not n.startswith("subscribe")}
        if chance < 0.3:
            self.options = kept | self._named()
        elif chance < 0.5:
            self.options["startingOffsets"] = self.luck.choice(("earliest", "latest"))
        elif chance < 0.8:
            self.options["maxOffsetsPerTrigger"] = self.luck.choice(("2", "6"))
        else:
            self.options["failOnDataLoss"] = self.luck.choice(("true", "false"))

    def _belongs(self, name: str) -> bool:
        if "subscribe" in self.options:
            return name in self.options["subscribe"].split(",")
        ends = self.options["subscribePattern"].removeprefix(f"life-{self.seed}-")
        letter = name.rpartition("-")[2]
        return {"a$": letter == "a", "b$": letter == "b", ".*": True, "nobody": False}[ends]

    # ------------------------------------------------------------ runs

    def _run(self, dies: str) -> str | None:
        self.runs += 1
        self.steps.append(f"run {self.options}" + (f", dies {dies} the sink has a batch" if dies else ""))
        before = dict(self.logs)
        named = {place for place in self.logs if self._belongs(place[0])}
        self._note_options(named)
        for name, side in self.sides.items():
            checkpoint = self._scratch / f"life-{self.seed}-{name}"
            # A task of the connector waits for so long for records of a topic that was recreated.
            given = {
                "kafka.bootstrap.servers": self.world.bootstrap_servers,
                "kafkaConsumer.pollTimeoutMs": "10000",
            }
            given |= self.options
            order = {
                "kind": "life",
                "format": name,
                "options": given,
                "checkpoint": str(checkpoint),
                "dies": dies,
            }
            answer = self._ask(order)
            while TOO_SLOW in answer["error"] and self.slow < MOST_SLOW:
                self.slow += 1
                answer = self._ask(order)
            side.error = answer["error"]
            sizes = [(number, len(rows)) for number, rows in answer["batches"]]
            self.steps.append(f"  {name}: batches {sizes} {side.error[:300]}")
            for number, rows in answer["batches"]:
                found = [(row[0], row[1], row[2], round(row[3] * 1000 - START) // 1000) for row in rows]
                if number not in side.sink:
                    side.sink[number] = found
                elif name == "kadence" and not set(found) <= set(side.sink[number]):
                    return self._story("a repeated batch has other rows")
        ours = self.sides["kadence"].error
        has_begun = not any(word in ours for word in ("UnknownTopicOrPartition", "ConfigError"))
        if self.begins is None and has_begun:
            latest = self.options["startingOffsets"] == "latest"
            self.begins = {
                (*place, self.made[place[0]]): end if latest else 0
                for place, (_, end) in before.items()
                if place in named
            }
        if has_begun:
            for place in named - self.named:
                self.again[place] += 1
            self.named |= named
        if any("DataLoss" in side.error or "data loss" in side.error.lower() for side in self.sides.values()):
            self.options["failOnDataLoss"] = "false"
        if has_begun and not ours:
            self.named = named
            if wrong := self._check(named):
                return wrong
        return self._compare()

    def _note_options(self, named: set[tuple[str, int]]) -> None:
        """The reasons for differences in which partitions are named now, after others were."""
        if self.begins is None:
            return
        topics = {name for name, _ in self.named}
        if any(self.logs[place][0] and place[0] not in topics for place in named):
            self.reasons.add("added")
        if self.named and not named:
            self.reasons.add("nothing")

    def _check(self, named: set[tuple[str, int]]) -> str | None:
        assert self.begins is not None
        rows = self.sides["kadence"].rows()
        for name, partition in named:
            start, end = self.logs[name, partition]
            number = self.made[name]
            begin = self.begins.get((name, partition, number), 0)
            for offset in range(start, end):
                row = (name, partition, offset, number * GENERATION + offset)
                begins = 0 if self.again[name, partition] > 1 else begin
                if (rows[row] > 0) != (offset >= begins):
                    return self._story(f"{row} was read {rows[row]} times, and the query begins at {begins}")
        for row, count in rows.items():
            if count > max(1, self.again[row[:2]]):
                return self._story(f"{row} was read {count} times")
        return None

    def _compare(self) -> str | None:
        theirs, ours = (self.sides[side] for side in SIDES)
        if bool(theirs.error) == bool(ours.error) and (ours.error or theirs.rows() == ours.rows()):
            return None
        if not self.reasons:
            only = sorted((ours.rows() - theirs.rows()).items())[:3]
            lacks = sorted((theirs.rows() - ours.rows()).items())[:3]
            return self._story(f"the sides differ: ours alone {only}, theirs alone {lacks}")
        self.differences |= self.reasons
        return None

    def _story(self, problem: str) -> str:
        return "\n".join((f"life {self.seed}: {problem}", *(f"    {line}" for line in self.steps)))
