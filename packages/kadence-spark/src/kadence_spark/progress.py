"""The lag of a running query, from Spark's progress reports. A source in Python has no metrics of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from kadence.errors import IllegalStateError
from kadence.lag import lag as offsets_behind
from kadence.logs import logger
from kadence.types import TopicPartition
from kadence_spark.source.offsets import Point

__all__ = ["lag"]

_log = logger("kadence.spark")

_TOLD_OF: Final[set[str]] = set()
"""Runs of queries whose missing report was logged."""


def lag(query: Any) -> dict[TopicPartition, int | None]:
    """How many offsets of each partition were not in the sink at the latest progress report. Sends no request.

    Args:
        query: a `StreamingQuery`, a `StreamingQueryProgress` (``query.lastProgress``, a listener's ``event.progress``),
            or its dict.

    Returns:
        The lag of each partition of all sources of format kadence. Empty before the first report, which follows the
        first batch; this is logged once for each query. None for each partition of a source while brokers do not
        answer. In a partition that no batch has read yet, the lag counts from the offset at which the query will
        begin.

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
            found[partition] = offsets_behind(offset, begin)
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
            "query %s has not reported progress yet, so its lag is unknown and lag() gives {}: call it again after its "
            "first batch",
            query.name or run,
        )


def _point(shape: Any) -> Point:
    """Spark reports offsets as an object or as JSON text; offsets of other sources are left out."""
    try:
        shape = json.loads(shape) if isinstance(shape, str) else shape
        return Point.from_json(shape or {})
    except (ValueError, IllegalStateError):
        return Point({})
