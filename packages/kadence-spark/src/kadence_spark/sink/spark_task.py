"""Information from Spark for a task of the sink: its identity, and whether it received all its rows."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext

from kadence.errors import IllegalStateError

__all__ = ["NumberedBatch", "attempt", "check_input_ended", "stream_batch"]


@dataclass(frozen=True, slots=True)
class NumberedBatch:
    """The query and batch of a task. All runs of a query have the same id and continue the numbers of batches."""

    query: str
    run: str
    batch: int


def attempt() -> tuple[int, int]:
    """The task's partition and attempt number. (0, 0) outside of a task."""
    context = TaskContext.get()
    return (0, 0) if context is None else (context.partitionId(), context.attemptNumber())


def stream_batch() -> NumberedBatch:
    """The query and batch of this task.

    Raises:
        IllegalStateError: this Spark does not provide them.
    """
    context = TaskContext.get()
    said = [
        context and context.getLocalProperty(name)
        for name in ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
    ]
    if not all(said):
        raise IllegalStateError(
            "option transactions=true: this Spark does not give a task its query and batch"
        )
    query, run, batch = (str(each) for each in said)
    return NumberedBatch(query, run, int(batch))


def check_input_ended() -> None:
    """Check that all rows were received.

    When a task fails or is cancelled, Spark closes the worker's input, which Arrow considers the end of the rows. After
    the real end there is Spark's own mark. If it cannot be checked, this returns: such a task's result does not reach
    the driver.

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
