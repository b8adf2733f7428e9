"""The process that Spark forks its Python workers from, with everything imported that a task of this source needs.

Spark starts one daemon for an executor (``python -m kadence.spark.daemon pyspark.worker``) and forks each worker from
it. Its own daemon forks first and imports afterwards, since a library may start threads when it is imported, and
threads do not survive a fork. So each new worker imports PyArrow, PySpark's worker and the source anew, and Spark ends
workers that were idle for a minute. This one imports first and then hands over to Spark's. `session` asks for it by the
setting ``spark.python.daemon.module``.

What makes that safe: after the imports the process has one thread. PyArrow starts its pools when they are first used,
jemalloc's thread is turned off here, OpenBLAS starts none because Spark sets OMP_NUM_THREADS to the cores of a task,
and Kadence starts threads with its clients only. Elsewhere than on Linux system libraries are less careful, and nothing
is imported ahead.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import IO, Final

__all__ = ["AHEAD", "import_ahead", "main"]

AHEAD: Final = (
    "pyarrow",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark_kadence",
    "kadence.spark.source.reads",
    "kadence.spark.source.clients",
    "kadence.spark.decode.batches",
    "kadence.spark.sink.options",
    "kadence.spark.sink.writers",
    "kadence.consumer.consumer",
    "kadence.records.arrow",
)
"""Beside Spark's own worker module; what a task would import at its beginning."""

STREAMS: Final = ("kadence.spark.source.stream_reader", "kadence.spark.sink.stream_writer")
"""The same for streams; older versions of PySpark lack what these lean on."""

_JEMALLOC: Final = "JE_ARROW_MALLOC_CONF"

Main = Callable[[IO[bytes], IO[bytes]], None]


def main() -> None:
    """Import, then run Spark's daemon. It reads the worker's module from the command line, as here."""
    # Nearly all that imports make stays: looking through it again and again is a sixth of their time.
    gc.disable()
    worker = import_module(sys.argv[1] if len(sys.argv) > 1 else "pyspark.worker")
    if sys.platform == "linux":
        import_ahead()
    worker.main = _until_hung_up(worker.main)  # type: ignore[attr-defined]
    from pyspark.daemon import manager

    # What is here now lives as long as the process: workers need not look through it after each of their tasks.
    gc.freeze()
    gc.enable()
    manager()


def import_ahead() -> None:
    """Import what tasks need, without a thread left behind."""
    # Arrow's jemalloc, which it does not use by default, starts a thread when it is loaded.
    chosen = os.environ.get(_JEMALLOC)
    os.environ[_JEMALLOC] = "background_thread:false"
    try:
        for name in AHEAD:
            import_module(name)
        for name in STREAMS:
            with suppress(ImportError):
                import_module(name)
    finally:
        if chosen is None:
            del os.environ[_JEMALLOC]
        else:
            os.environ[_JEMALLOC] = chosen


def _until_hung_up(run: Main) -> Main:
    """A worker whose task Spark has given up (a stopped query, a limit) ends without a word, instead of a traceback."""

    def worker(infile: IO[bytes], outfile: IO[bytes]) -> None:
        try:
            run(infile, outfile)
        finally:
            try:
                outfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                os._exit(0)

    return worker


if __name__ == "__main__":
    main()
