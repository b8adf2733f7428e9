"""Deletes old records by age and by size: whole segments, oldest first, as in Kafka's log.

The active segment is deleted by age, too, once every record in it is old enough, but never by size.
"""

from __future__ import annotations

from kadence_broker.storage.config import LogConfig
from kadence_broker.storage.log import Log

__all__ = ["retained_by_size", "retained_from"]


def retained_from(log: Log, config: LogConfig, now: int, high_watermark: int) -> int:
    """The offset below which everything may go.

    Args:
        now: milliseconds since 1970. high_watermark: nothing at or above it goes.
    """
    if config.is_retained:
        return log.start_offset
    offset = max(_by_age(log, config, now), retained_by_size(log, config))
    return min(offset, high_watermark) if offset > log.start_offset else log.start_offset


def _by_age(log: Log, config: LogConfig, now: int) -> int:
    offset = log.start_offset
    if config.retention_ms < 0:
        return offset
    for segment in log.segments:
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.touched_at
        if not segment.size or now - newest <= config.retention_ms:
            break
        offset = segment.next_offset
    return offset


def retained_by_size(log: Log, config: LogConfig) -> int:
    """As `retained_from`, by size alone."""
    offset = log.start_offset
    if config.retention_bytes < 0 or config.is_retained:
        return offset
    left = log.size_bytes
    for segment in log.segments[:-1]:
        left -= segment.size
        if left < config.retention_bytes:
            break
        offset = segment.next_offset
    return offset
