"""The output of ``kadence pipeline status`` on a terminal: words instead of the fields of the JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from kadence_spark.pipeline.progress import shown_lag, shown_seconds

__all__ = ["facts"]

_STATES: Final = {
    "starting": "starting",
    "running": "running",
    "finished": "finished: it has read everything",
    "stopped": "stopped on request; the next run goes on from here",
    "failed": "failed; the next run repeats the batch that failed",
    "killed": "killed: its process ended without a message; the next run repeats its last batch",
    "unknown": "unknown: only its checkpoint is known",
}


def facts(document: Mapping[str, Any], now_ms: int) -> list[tuple[str, str]]:
    """Names and values, from the JSON that ``status`` gives to programs."""
    shown = [("state", _STATES[document["state"]])]
    if "name" in document:
        shown += _of_run(document, now_ms)
    if "committed_batch" in document:
        shown.append(("last batch in the outputs", f"{document['committed_batch']:,}"))
    return shown


def _of_run(document: Mapping[str, Any], now_ms: int) -> list[tuple[str, str]]:
    is_over = document["state"] in ("finished", "stopped", "failed")
    ran = shown_seconds((document["updated_ms"] - document["started_ms"]) / 1000)
    ago = f"{shown_seconds(max(now_ms - document['updated_ms'], 0) / 1000)} ago"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(document["started_ms"] / 1000))
    shown = [
        ("pipeline", f"{document['name']}, into {document['sink']}"),
        ("run", f"{document['run_id']}, process {document['pid']} on {document['host']}"),
        ("began", began),
        ("ended" if is_over else "last heard of", f"{ago}, {ran} after it began"),
        ("batches of this run", f"{document['batches']:,}"),
        ("records read", f"{document['rows_in']:,}"),
        ("rows written", f"{document['rows_out']:,}"),
        ("records not decoded", f"{document['undecoded']:,}"),
        ("rows dropped", f"{document['dropped']:,}"),
    ]
    if document["rows_per_second"] is not None:
        shown.append(("speed", f"{document['rows_per_second']:,.0f} records/s"))
    if document["lag_by_partition"]:
        behind = shown_lag(document["lag"])
        seconds = document["seconds_to_catch_up"]
        if seconds and not is_over:
            behind += f", caught up in {shown_seconds(seconds)}"
        shown.append(("lag" if not is_over else "lag at its end", behind))
    if document["error"]:
        shown.append(("error", document["error"]))
    return shown
