"""Formats Kadence's log in Spark's Python processes as Spark's own lines: time, level, name.

Logging is not configured there, so Python would print bare messages on stderr, between the lines of Spark's log. If it
is configured (``spark.sql.pyspark.worker.logging.enabled`` does so for tasks), the configured handlers get all records,
and this has no effect.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["log_as_spark_does"]

_BARE: Final = logging.Formatter()
_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
"""Spark's level names that differ from Python's."""


class _AsSpark(logging.Formatter):
    """Spark's default pattern for Kadence's records; other records are unchanged."""

    def format(self, record: logging.LogRecord) -> str:
        text = _BARE.format(record)
        if record.name.partition(".")[0] != "kadence":
            return text
        time, level = self.formatTime(record, "%y/%m/%d %H:%M:%S"), record.levelname
        return f"{time} {_LEVELS.get(level, level)} {record.name}: {text}"


def log_as_spark_does() -> None:
    """Set up logging in this process of Spark's. Later calls have no effect."""
    handler = logging.lastResort
    if handler is not None and not isinstance(handler.formatter, _AsSpark):
        handler.setFormatter(_AsSpark())
