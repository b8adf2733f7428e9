"""Lag of a running query, from what Spark reports of it. A source in Python has no metrics of its own."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from kadence.errors import IllegalStateError
from kadence.spark.source.offsets import Point
from kadence.types import TopicPartition

__all__ = ["lag"]

_log = logging.getLogger("kadence.spark")

_TOLD_OF: Final[set[str]] = set()
"""Runs of queries that were told to have reported nothing yet."""


def lag(query: Any) -> dict[TopicPartition, int | None]:
    """How many offsets of each partition are not in the sink yet, as of the latest progress report. Asks no broker.

    Args:
        query: a `StreamingQuery`, a `StreamingQueryProgress` (``query.lastProgress``, a listener's ``event.progress``),
            or its dict.

    Returns:
        Partitions of all sources of format kadence; empty before the first report, that is until the first batch is
        done, which the log says once for each query. None for each of them while a broker that is needed does not
        answer: the lag is not known then. A partition that no batch has met yet counts from where the query will begin
        in it.

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
        report = query.lastProgress
        if report is None:
            _tell_of_nothing(query)
        query = report
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


def _tell_of_nothing(query: Any) -> None:
    run = str(query.runId)
    if run not in _TOLD_OF:
        _TOLD_OF.add(run)
        _log.warning(
            "query %s has reported no progress yet, so its lag is not known and lag() gives {}: ask again after its "
            "first batch",
            query.name or run,
        )


def _point(shape: Any) -> Point:
    """Spark shows offsets as JSON or, depending on the way, as text of it; another source's are left out."""
    try:
        shape = json.loads(shape) if isinstance(shape, str) else shape
        return Point.from_json(shape or {})
    except (ValueError, IllegalStateError):
        return Point({})
