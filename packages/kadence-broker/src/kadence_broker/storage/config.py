"""The configuration of a partition's log: the topic's settings, as numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

__all__ = ["MOST_DECOMPRESSED", "LogConfig"]

MOST_DECOMPRESSED: Final = 2**31 - 9
"""The longest array of Java's, which is Kafka's default of ``max.decompressed.message.bytes``."""

_NUMBERS: Final = {
    "delete.retention.ms": "delete_retention_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "max.decompressed.message.bytes": "max_decompressed_bytes",
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.before.max.ms": "timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "timestamp_after_max_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Kafka's defaults. Sizes are bytes.

    Attributes:
        max_decompressed_bytes: the most bytes of one record of a compressed batch.
        compression: ``producer`` keeps batches as they come; a codec's name (or ``none``) compresses them again.
        append_time: whether records are dated by the broker (``LogAppendTime``).
        timestamp_before_max_ms: how far a record's date may lie in the past; timestamp_after_max_ms: in the future.
        is_compacted: every record needs a key, and the last of each key is kept. is_retained: neither age nor size
            lets records go.
        delete_retention_ms: how long the tombstone of a key is kept. min_compaction_lag_ms, max_compaction_lag_ms: how
            old records become before compaction, at least and at most.
        min_cleanable_dirty_ratio: the part of a log that is worth a pass.
        retention_bytes: the most bytes of a partition, -1 for no bound. retention_ms: the most age of its records.
        segment_bytes: how large a segment grows; segment_ms: how long it is written to.
    """

    max_message_bytes: int = 1_048_588
    max_decompressed_bytes: int = MOST_DECOMPRESSED
    compression: str = "producer"
    append_time: bool = False
    timestamp_before_max_ms: int = 2**63 - 1
    timestamp_after_max_ms: int = 3_600_000
    is_compacted: bool = False
    is_retained: bool = False
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_ms: int = 604_800_000
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = 2**63 - 1
    min_cleanable_dirty_ratio: float = 0.5

    @property
    def roll_ms(self) -> int:
        """The time for which a segment is written to; compaction leaves it alone until then."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    def changed_by(self, config: Mapping[str, str]) -> LogConfig:
        """These values, with what a topic's own configuration says in their place."""
        changes: dict[str, int | float | str | bool] = {
            field: int(config[name]) for name, field in _NUMBERS.items() if name in config
        }
        if (codec := config.get("compression.type")) is not None:
            changes["compression"] = "none" if codec == "uncompressed" else codec
        if (ratio := config.get("min.cleanable.dirty.ratio")) is not None:
            changes["min_cleanable_dirty_ratio"] = float(ratio)
        if (kind := config.get("message.timestamp.type")) is not None:
            changes["append_time"] = kind == "LogAppendTime"
        if (policy := config.get("cleanup.policy")) is not None:
            changes["is_compacted"] = "compact" in policy
            changes["is_retained"] = "delete" not in policy
        return replace(self, **changes) if changes else self  # type: ignore[arg-type]
