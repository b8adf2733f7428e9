"""The form of offsets in Spark's checkpoint.

The form is that of Spark's own Kafka connector, ``{"topic": {"0": 12}}`` with the next offset to read, because tools
parse it. Spark compares offsets as text, so topics and partitions are always sorted, and without new records a source
returns the same dict again.

Three kinds of entries are added, under marks with which a topic name cannot begin, so that the form is compatible:

* The start of a partition. A source in Python has no other place in the checkpoint for the offset at which the query
  began to read a partition, and looking it up again after a crash gives another result ("latest" has moved: records
  would be lost; "earliest" has moved: the loss would not be noticed). So the end offset of the first batch with a
  partition has that partition's start: ``{"#topic": {"0": 5}, "topic": {"0": 12}}``.
* The id of each topic (KIP-516), in the notation of Kafka's tools: ``{"@topic=Zc3yHpHcQ-SEaDD5bUYm7w": {}}``. A
  recreated topic has the old name and another id, and the old offsets do not apply to it. A checkpoint without ids, of
  the connector or of an older Kadence, gets them with its next batch.
* The mark of a query that has not begun, ``{"#not begun": {}}``, the initial offset of each stream. A point without
  partitions, ``{}``, is different: the query has begun, without partitions, for example with a pattern that does not
  match a topic yet. Later partitions then begin at their earliest, also after a restart, or records would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kadence.errors import IllegalStateError
from kadence.types import TopicPartition

__all__ = ["NOT_BEGUN", "Json", "Offsets", "Point", "to_shape"]

Json = dict[str, dict[str, int]]
"""``{topic: {partition: offset}}``, the argument of `json.dumps`."""

Offsets = Mapping[TopicPartition, int]

FIRST_MARK: Final = "#"
ID_MARK: Final = "@"
NOT_BEGUN: Final[Json] = {f"{FIRST_MARK}not begun": {}}
"""The point of a stream that has not begun. Spark's connector sees a topic without partitions in it."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of the stream: what Spark calls an offset.

    Attributes:
        next: for each partition the next offset to read.
        first: for each partition that is new in this point, or that had to skip ahead, the start of the batch that ends
            here. It takes precedence over the previous point.
        ids: the known topic ids.
        has_begun: whether the query's starts are determined. False only in `NOT_BEGUN`.
    """

    next: Offsets
    first: Offsets = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    has_begun: bool = True

    def to_json(self) -> Json:
        """Sorted, so that equal points are equal texts."""
        if not self.has_begun:
            return dict(NOT_BEGUN)
        ids: Json = {f"{ID_MARK}{topic}={topic_id}": {} for topic, topic_id in sorted(self.ids.items())}
        return to_shape(self.first, FIRST_MARK) | ids | to_shape(self.next)

    @classmethod
    def from_json(cls, shape: Mapping[str, Any]) -> Point:
        """Parse the output of `to_json`, or of Spark's own connector.

        Raises:
            IllegalStateError: it is neither; the checkpoint is probably another source's.
        """
        following: dict[TopicPartition, int] = {}
        first: dict[TopicPartition, int] = {}
        ids: dict[str, str] = {}
        try:
            for topic, partitions in shape.items():
                if topic.startswith(ID_MARK):
                    name, _, ids[name] = topic.removeprefix(ID_MARK).partition("=")
                    continue
                into = first if topic.startswith(FIRST_MARK) else following
                for partition, offset in partitions.items():
                    if type(offset) is not int:
                        raise TypeError(offset)
                    into[TopicPartition(topic.removeprefix(FIRST_MARK), int(partition))] = offset
        except (AttributeError, TypeError, ValueError):
            raise IllegalStateError(
                f"the checkpoint holds {shape!r} where an offset such as {{'topic': {{'0': 12}}}} belongs; "
                "it seems to be the checkpoint of another source: give this query a checkpointLocation of its own"
            ) from None
        return cls(following, first, ids, shape != NOT_BEGUN)

    def starts_after(self, previous: Point) -> dict[TopicPartition, int | None]:
        """The starts of the batch between ``previous`` and this point in each partition; None: unknown.

        Without new records a source repeats its point, whose `first` is of an earlier batch: the batch is empty then.
        """
        if self == previous:
            return dict(self.next)
        return {p: self.first.get(p, previous.next.get(p)) for p in self.next}


def to_shape(offsets: Offsets, mark: str = "") -> Json:
    """``{topic: {partition: offset}}``, sorted by topic, then by partition as a number."""
    shape: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shape.setdefault(mark + topic, {})[str(partition)] = offset
    return shape
