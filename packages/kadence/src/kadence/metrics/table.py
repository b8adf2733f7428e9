"""The table that `metrics()` returns: rows of a client, which are always there, and of parts, which come and go."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from kadence.metrics import MetricName
from kadence.metrics.rows import Read, Rows

__all__ = ["Grouped", "Part", "Table", "catalogue"]

Grouped = tuple[str, Rows]
"""Rows and the group that they are in."""

Part = tuple[Hashable, list[Grouped], dict[str, str]]
"""A broker, topic and so on that has rows of its own: its key, its rows, its tags."""

_Named = list[tuple[MetricName, Read]]


class Table:
    """Reads the rows of one client. Those of a part are made when it is first seen. Any thread."""

    def __init__(self, client_id: str, fixed: Iterable[Grouped]) -> None:
        self._client_id = client_id
        self._fixed = self._named(fixed, {})
        # Replaced as a whole, so that threads that read at once do not disturb each other.
        self._found: dict[Hashable, _Named] = {}

    def read(self, now: int, parts: Iterable[Part]) -> dict[MetricName, float]:
        """Every value as of ``now`` (ms)."""
        known = self._found
        found: dict[Hashable, _Named] = {}
        for key, groups, tags in parts:
            found[key] = known.get(key) or self._named(groups, tags)
        self._found = found
        everything = [*self._fixed, *(row for part in found.values() for row in part)]
        return {name: float(read(now)) for name, read in everything}

    def _named(self, groups: Iterable[Grouped], tags: dict[str, str]) -> _Named:
        tags = {"client-id": self._client_id, **tags}
        return [
            (MetricName(row.name, group, tags, row.description), row.read)
            for group, rows in groups
            for row in rows
        ]


def catalogue(groups: Iterable[tuple[str, Rows, tuple[str, ...]]]) -> tuple[MetricName, ...]:
    """The names of these rows, with their tags' values left empty."""
    return tuple(
        MetricName(row.name, group, dict.fromkeys(("client-id", *tags), ""), row.description)
        for group, rows, tags in groups
        for row in rows
    )
