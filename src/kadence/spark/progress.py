"""Lag of a running query, from what Spark reports of it. A source in Python has no metrics of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kadence.errors import IllegalStateError
from kadence.spark.source.offsets import Point
from kadence.types import TopicPartition

__all__ = ["lag"]


def lag(query: Any) -> dict[TopicPartition, int | None]:
    """How many offsets of each partition are not in the sink yet, as of the latest progress report. Asks no broker.

    Args:
        query: a `StreamingQuery`, a `StreamingQueryProgress` (``query.lastProgress``, a listener's ``event.progress``),
            or its dict.

    Returns:
        Partitions of all sources of format kadence; empty before the first report. None for each of them while no
        broker answers: the lag is not known then. A partition that no batch has met yet counts from where the
        query will begin in it.

    Raises:
        TypeError: something else was given.
    """
    found: dict[TopicPartition, int | None] = {}
    for source in _sources(query):
        end, latest = _point(source.get("endOffset")), _point(source.get("latestOffset"))
        if not latest.next:
            found |= dict.fromkeys(end.next)
        for partition, offset in latest.next.items():
            begin = end.next.get(partition, latest.first.get(partition, 0))
            found[partition] = max(offset - begin, 0)
    return found


def _sources(query: Any) -> Any:
    if hasattr(query, "lastProgress"):
        query = query.lastProgress
    if query is None:
        return []
    if isinstance(query, Mapping) and "sources" in query:
        return query["sources"]
    if isinstance(getattr(query, "json", None), str):
        return json.loads(query.json)["sources"]
    raise TypeError(
        "lag() takes a streaming query, its lastProgress, or that progress as a dict with 'sources', not "
        f"{type(query).__name__}: {query!r:.100}"
    )


def _point(shape: Any) -> Point:
    """Spark shows offsets as JSON or, depending on the way, as text of it; another source's are left out."""
    try:
        shape = json.loads(shape) if isinstance(shape, str) else shape
        return Point.from_json(shape or {})
    except (ValueError, IllegalStateError):
        return Point({})
