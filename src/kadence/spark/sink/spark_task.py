"""What a task of the sink learns from Spark: who it is, and whether it was given all of its rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from kadence.errors import IllegalStateError

__all__ = ["NumberedBatch", "attempt", "check_input_ended", "stream_batch"]


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """Of which batch a task is: the query's id is the same in all of its runs, which count its batches."""

    query: str
    run: str
    batch: int


def attempt() -> tuple[int, int]:
    """The task's partition, and which attempt at it this is. (0, 0) outside of a task."""
    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())


def stream_batch() -> NumberedBatch:
    """Of which batch this task is.

    Raises:
        IllegalStateError: Spark does not say so.
    """
    context = TaskContext.get()
    said = [
        context and context.getLocalProperty(name)
        for name in ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
    ]
    if not all(said):
        raise IllegalStateError(
            "option transactions=true: this Spark does not tell a task its query and batch"
        )
    query, run, batch = (str(each) for each in said)
    return NumberedBatch(query, run, int(batch))


def check_input_ended() -> None:
    """Make sure that the rows have come to their end, and not only to a stop.

    When a task fails or is cancelled, Spark closes the worker's input, which Arrow takes for the end of the rows. After
    a true end there is Spark's own mark. Whoever cannot tell lets it pass: such a task's result reaches no driver.

    Raises:
        IllegalStateError: Spark has given up the task.
    """
    frame: Any = sys._getframe()
    while frame is not None:
        code = frame.f_code
        if "infile" in code.co_varnames or "infile" in code.co_cellvars:
            peek = getattr(frame.f_locals.get("infile"), "peek", None)
            if peek is not None and frame.f_globals.get("__name__", "").startswith("pyspark."):
                if not peek(1):
                    raise IllegalStateError("Spark has given up this task")
                return
        frame = frame.f_back
