"""What Spark's micro-batch engine does with the sources of a query, and what a kill leaves of it.

Before batch N Spark writes the end of each source into ``offsets/N``, and after it ``commits/N``. A run that finds the
last batch without its commit repeats it: it has both ends planned again, from the initial offset where the batch is the
first one. Then it asks each source for the next end. A batch follows where a text has changed, and before anything is
written, always; a source whose text has not changed is not planned. (Seen with PySpark 4.2 and 4.3.)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kadence_spark.source.offsets import Json
from kadence_spark.source.planning import Task

__all__ = ["POINTS", "Engine", "KilledError", "Row", "Source"]

Row = tuple[int, str, int, int]
"""The number of the source, the id of the topic, partition and offset."""

POINTS = ("asked", "logged", "planned", "read", "written", "committed")
"""Where a run may be killed, in the order of a batch."""


class KilledError(Exception):
    """The application ended at once."""


class Source(Protocol):
    """What Spark asks of a reader."""

    def initial(self) -> Json: ...

    def prepare_available_now(self) -> None: ...

    def latest(self, start: Json) -> Json: ...

    def plan(self, start: Json, end: Json) -> list[Task]: ...

    def read(self, task: Task) -> list[tuple[str, int, int]]: ...


@dataclass
class Engine:
    """A checkpoint and a sink that takes each batch once.

    Attributes:
        offsets: the texts of each batch, one for each source. commits: the batches that have ended.
        sink: the rows of each batch. at: called at each of `POINTS`.
        repeated: called with the rows of a batch that the sink has already, and those of its repetition.
    """

    at: Callable[[str], None]
    repeated: Callable[[Counter[Row], Counter[Row]], None]
    offsets: list[list[str]] = field(default_factory=list)
    commits: set[int] = field(default_factory=set)
    sink: dict[int, Counter[Row]] = field(default_factory=dict)

    def rows(self) -> Counter[Row]:
        found: Counter[Row] = Counter()
        for batch in self.sink.values():
            found += batch
        return found

    def ends(self) -> list[Json]:
        """The points of the last batch that was begun."""
        return [json.loads(text) for text in self.offsets[-1]] if self.offsets else []

    def run(self, sources: Sequence[Source], *, available_now: bool, idle: int = 0) -> None:
        """Batches until an availableNow query ends, or nothing has been new ``idle`` times in a row."""
        if available_now:
            for source in sources:
                source.prepare_available_now()
        if self.offsets and len(self.offsets) - 1 not in self.commits:
            self._batch(sources)
        quiet = 0
        while True:
            starts = self.ends() or [json.loads(json.dumps(source.initial())) for source in sources]
            ends = [json.dumps(source.latest(start)) for source, start in zip(sources, starts, strict=True)]
            self.at("asked")
            if self.offsets and ends == self.offsets[-1]:
                quiet += 1
                if available_now or quiet > idle:
                    return
                continue
            quiet = 0
            self.offsets.append(ends)
            self.at("logged")
            self._batch(sources)
            assert len(self.offsets) < 300, "the query does not come to an end"

    def _batch(self, sources: Sequence[Source]) -> None:
        number = len(self.offsets) - 1
        rows: Counter[Row] = Counter()
        plans: list[list[Task]] = []
        for place, source in enumerate(sources):
            if number and self.offsets[number - 1][place] == self.offsets[number][place]:
                plans.append([])
                continue
            start = json.loads(self.offsets[number - 1][place]) if number else source.initial()
            plans.append(source.plan(start, json.loads(self.offsets[number][place])))
        self.at("planned")
        for place, (source, tasks) in enumerate(zip(sources, plans, strict=True)):
            for task in tasks:
                rows.update((place, *row) for row in source.read(task))
                self.at("read")
        if number in self.sink:
            self.repeated(self.sink[number], rows)
        else:
            self.sink[number] = rows
        self.at("written")
        self.commits.add(number)
        self.at("committed")
