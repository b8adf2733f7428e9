"""Metrics with Kafka's names and statistics, and adapters to other monitoring systems.

`sensors` are written by one thread each and read by any; they know no clock. The adapters
(`kadence.metrics.prometheus`, `kadence.metrics.otel`) read the public ``metrics()`` of clients and know nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

__all__ = ["MetricName"]

_NO_TAGS: Mapping[str, str] = MappingProxyType({})


class MetricName:
    """The name of a metric: a ``name`` in a ``group``, with ``tags``; ``description`` explains it.

    Two names are equal when name, group and tags are; the description does not count (as in Kafka's own client).
    Immutable, hashable and picklable.
    """

    __slots__ = ("_hash", "description", "group", "name", "tags")

    name: str
    group: str
    tags: Mapping[str, str]
    description: str

    def __init__(
        self, name: str, group: str, tags: Mapping[str, str] = _NO_TAGS, description: str = ""
    ) -> None:
        put = object.__setattr__
        put(self, "name", name)
        put(self, "group", group)
        put(self, "tags", MappingProxyType(dict(tags)))
        put(self, "description", description)
        put(self, "_hash", hash((name, group, frozenset(tags.items()))))

    @property
    def cumulative(self) -> bool:
        """True if the name ends in ``-total``: the value only grows."""
        return self.name.endswith("-total")

    @property
    def level(self) -> str:
        """The metric's level: each "partition", each "topic", or (empty) the whole client."""
        return next((tag for tag in ("partition", "topic") if tag in self.tags), "")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MetricName):
            return NotImplemented
        return (self.name, self.group, self.tags) == (other.name, other.group, other.tags)

    def __hash__(self) -> int:
        value: int = self._hash  # type: ignore[attr-defined]
        return value

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a MetricName cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("a MetricName cannot be changed")

    def __reduce__(self) -> tuple[object, ...]:
        return MetricName, (self.name, self.group, dict(self.tags), self.description)

    def __repr__(self) -> str:
        tags = "".join(f" {tag}={value}" for tag, value in self.tags.items())
        return f"<{self.group} {self.name}{tags}>"


class Measured(Protocol):
    """The interface for adapters: consumers and producers, for threads and asyncio."""

    def metrics(self) -> Mapping[MetricName, float]: ...

    def metric_names(self) -> Sequence[MetricName]: ...
