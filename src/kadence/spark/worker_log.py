"""What Kadence logs in Spark's Python processes, on lines as Spark's own: time, level, name.

Nobody sets logging up there, so Python would print bare messages on stderr, between the lines of Spark's log. Where
somebody has set it up (``spark.sql.pyspark.worker.logging.enabled`` does for tasks), their handlers get everything, and
this changes nothing.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["log_as_spark_does"]

_BARE: Final = logging.Formatter()
_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
"""Spark's words, where they are not Python's."""


class _AsSpark(logging.Formatter):
    """Spark's default pattern for Kadence's records; those of others stay as they are."""

    def format(self, record: logging.LogRecord) -> str:
        text = _BARE.format(record)
        if record.name.partition(".")[0] != "kadence":
            return text
        time, level = self.formatTime(record, "%y/%m/%d %H:%M:%S"), record.levelname
        return f"{time} {_LEVELS.get(level, level)} {record.name}: {text}"


def log_as_spark_does() -> None:
    """For this process, which is one of Spark's. What is called again does nothing more."""
    handler = logging.lastResort
    if handler is not None and not isinstance(handler.formatter, _AsSpark):
        handler.setFormatter(_AsSpark())
