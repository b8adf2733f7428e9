"""Lag of a running query, from what Spark reports of it. A source in Python has no metrics of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kadence.errors import IllegalStateError
from kadence.spark.source.offsets import Point
from kadence.types import TopicPartition

__all__ = ["lag"]


def lag(progress: Any) -> dict[TopicPartition, int]:
    """How many offsets of each partition are not in the sink yet, as of this progress report. Asks no broker.

    Args:
        progress: a `StreamingQueryProgress` (``query.lastProgress``, a listener's event) or its dict.

    Returns:
        Partitions of all sources of format kadence; empty before the first report.
    """
    found: dict[TopicPartition, int] = {}
    if progress is None:
        return found
    sources = progress["sources"] if isinstance(progress, Mapping) else json.loads(progress.json)["sources"]
    for source in sources:
        end, latest = _point(source.get("endOffset")), _point(source.get("latestOffset"))
        for partition, offset in latest.next.items():
            found[partition] = max(offset - end.next.get(partition, 0), 0)
    return found


def _point(shape: Any) -> Point:
    """Spark shows offsets as JSON or, depending on the way, as text of it; another source's are left out."""
    try:
        shape = json.loads(shape) if isinstance(shape, str) else shape
        return Point.from_json(shape or {})
    except (ValueError, IllegalStateError):
        return Point({})
