"""Why Spark failed, in one line."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError

from kadence.errors import IllegalStateError
from kadence_spark.pipeline.failures import Thrown, reason, reason_of

SPARK = "org.apache.spark.SparkException"
ABORTED = Thrown(SPARK, "Job aborted due to stage failure: Task 0 in stage 5.0\n\nDriver stacktrace:")
STREAM = Thrown("StreamingQueryException", "[STREAM_FAILED] Query [id = 1] …", "STREAM_FAILED", "XXKST")
TRACE = 'Traceback (most recent call last):\n  File "/x.py", line 1, in f\n    g()\n    ^^^\n'


def python(*errors: str) -> Thrown:
    text = f"[PYTHON_EXCEPTION] An exception was thrown: {'and then: '.join(TRACE + each for each in errors)}"
    return Thrown("PythonException", f"{text}\n SQLSTATE: 38000", "PYTHON_EXCEPTION", "38000")


@pytest.mark.parametrize(
    ("links", "told"),
    [
        ([STREAM, Thrown(SPARK, "[X] no disk SQLSTATE: XX000", "X", "XX000")], "[X] no disk"),
        ([STREAM, python("kadence.errors.DataLossError: gone: at 5\nand more")], "gone: at 5"),
        (
            [ABORTED, python("KeyError: 'a'", "decimal.InvalidOperation: [<x>]")],
            "decimal.InvalidOperation: [<x>]",
        ),
        ([python("KeyboardInterrupt")], "KeyboardInterrupt"),
        (
            [
                ABORTED,
                Thrown(
                    SPARK, "[USER_RAISED_EXCEPTION] no: x SQLSTATE: P0001", "USER_RAISED_EXCEPTION", "P0001"
                ),
            ],
            "no: x",
        ),
        (
            [
                Thrown(
                    "P", "\n[E] Syntax at 'a'. SQLSTATE: 42601 (line 1, pos 0)\n\n== SQL ==\na", "E", "42601"
                )
            ],
            "[E] Syntax at 'a'. (line 1, pos 0)",
        ),
        (
            [Thrown("A", "[U] no `x`. SQLSTATE: 42703; line 1 pos 7;\n'Project", "U", "42703")],
            "[U] no `x`. (line 1 pos 7)",
        ),
        # A class that is missing says less than the condition around it.
        (
            [Thrown("S", "[D] no source: nix. SQLSTATE: 4", "D", "4"), Thrown("java.C", "nix.D")],
            "[D] no source: nix.",
        ),
        (
            [
                Thrown(SPARK, "[TASK_WRITE_FAILED] … SQLSTATE: 5", "TASK_WRITE_FAILED", "5"),
                Thrown("java.io.E", "full"),
            ],
            "java.io.E: full",
        ),
        ([ABORTED], f"{SPARK}: Job aborted due to stage failure: Task 0 in stage 5.0"),
        (
            [
                Thrown(
                    SPARK,
                    "\nError from python worker:\n  /bin/python3: No module named kadence\nPYTHONPATH was:\n  /x",
                )
            ],
            "a Python worker of Spark did not start: /bin/python3: No module named kadence",
        ),
    ],
)
def test_what_java_has_thrown(links: list[Thrown], told: str) -> None:
    assert reason_of(links) == told


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (IllegalStateError("the table is not ours"), "the table is not ours"),
        (ValueError("no: really"), "ValueError: no: really"),
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            "its Java process ended at once; its output is above",
        ),
        *(
            (gone, "Spark's Java process has ended: it was killed, or ran out of memory")
            for gone in (
                Py4JNetworkError("Answer from Java side is empty"),
                ConnectionRefusedError(111, "refused"),
            )
        ),
    ],
)
def test_what_python_has_raised(problem: Exception, told: str) -> None:
    assert reason(problem) == told
