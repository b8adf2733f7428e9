"""Offsets as Spark's checkpoint holds them.

The shape is that of Spark's own Kafka connector, ``{"topic": {"0": 12}}`` with "next offset to read", because
tools parse it. Spark compares offsets as text, so topics and partitions are always sorted, and whoever has
nothing new returns the very dict it was given.

Three things are added, under marks that no topic's name can begin with, so that the shape stays that of the connector:

* Where a partition began. A source in Python has no place in the checkpoint where it could note at which offset a
  partition began when the query first met it, and asking the brokers again after a crash gives another answer
  ("latest" has moved on: records would be lost; "earliest" has moved on: they would not be missed). So the end offset
  of the batch that meets a partition carries that partition's start: ``{"#topic": {"0": 5}, "topic": {"0": 12}}``.
* The id of each topic (KIP-516), in the letters of Kafka's tools: ``{"@topic=Zc3yHpHcQ-SEaDD5bUYm7w": {}}``. A topic
  that was deleted and made anew has the old name and another id; the offsets of the old one mean nothing in it. A
  checkpoint without ids, of the connector or of an older Kadence, gets them with its next batch.
* That the query has not begun: ``{"#not begun": {}}`` is where every stream starts. A point without partitions, ``{}``,
  is another thing: the query began, and there was no partition, as of a pattern that matches no topic yet. What the
  query meets from then on begins at its earliest, also after a restart, or records would be lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kadence.errors import IllegalStateError
from kadence.types import TopicPartition

__all__ = ["NOT_BEGUN", "Json", "Offsets", "Point", "to_shape"]

Json = dict[str, dict[str, int]]
"""``{topic: {partition: offset}}``, what `json.dumps` is given."""

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
        first: for each partition that this point is the first to name, or that had to skip ahead, where the
            batch that ends here begins. It goes before what the previous point says.
        ids: the id of each topic whose id is known.
        has_begun: whether the options have said where the query begins. Only `NOT_BEGUN` says no.
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
        """Read what `to_json` wrote, or what Spark's own connector wrote.

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

    def start_after(self, previous: Point, partition: TopicPartition) -> int | None:
        """Where the batch between ``previous`` and this point begins in ``partition``; None: unknown."""
        start = self.first.get(partition)
        return previous.next.get(partition) if start is None else start


def to_shape(offsets: Offsets, mark: str = "") -> Json:
    """``{topic: {partition: offset}}``, sorted by topic, then by partition as a number."""
    shape: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        shape.setdefault(mark + topic, {})[str(partition)] = offset
    return shape
