"""Values of several subjects of the admin client; what belongs to one subject stands in its file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from kadence.errors import KafkaError
from kadence.lazy_dataclasses import dataclass, field
from kadence.types import PartitionInfo

__all__ = [
    "NewTopic",
    "Outcomes",
    "TopicDescription",
]

K = TypeVar("K")
V = TypeVar("V")


class Outcomes(dict[K, V]):
    """The result of a call for several items: a mapping with the results of those that succeeded.

    `errors` has the error of each item that failed.
    """

    def __init__(
        self, values: Mapping[K, V] | None = None, errors: Mapping[K, KafkaError] | None = None
    ) -> None:
        super().__init__(values or {})
        self.errors: dict[K, KafkaError] = dict(errors or {})

    def raise_errors(self) -> None:
        """Raise the first error, with a note for each other one. Without errors it does nothing."""
        if not self.errors:
            return
        first, *others = self.errors.values()
        for other in others:
            first.add_note(f"also: {other}")
        if self:
            first.add_note(f"done: {', '.join(str(key) for key in self)}")
        raise first


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. -1 means the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str | int | float | bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions. ``topic_id`` is all zero if the brokers have no topic ids."""

    name: str
    topic_id: bytes
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]
