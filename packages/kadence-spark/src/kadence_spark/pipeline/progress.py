"""The progress of a run: one value, written as JSON beside the checkpoint's own files, where `status` reads it.

Pure: the run reports events and times to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kadence.errors import IllegalStateError
from kadence.types import TopicPartition

__all__ = ["Batch", "Progress", "progress_file", "shown_lag", "shown_seconds"]

_SMOOTHING: Final = 0.3
"""The weight of a new measurement of a rate against the earlier ones."""


def progress_file(checkpoint: str) -> str:
    """The file of a pipeline's progress."""
    return f"{checkpoint.rstrip('/')}/kadence/progress.json"


@dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch.

    Attributes:
        number: Spark's. rows_out: rows in the sink. undecoded: records that could not be decoded. dropped: rows.
        expectations: for each, the number of rows that fail it. seconds: from its begin to its end in the outputs.
    """

    number: int
    rows_in: int
    rows_out: int
    undecoded: int
    dropped: int
    expectations: Mapping[str, int]
    seconds: float


@dataclass(frozen=True, slots=True)
class Progress:
    """A run so far.

    Attributes:
        state: starting, running, finished (available-now has read all), stopped (on request) or failed.
        started_ms, updated_ms: since 1970. batch: the last one that is in the outputs; None: none yet.
        rows_per_second: records read, smoothed over the batches. growth_per_second: records that arrive, smoothed.
        lag: for each partition, as ``topic-0``, its lag in offsets; None while a required broker does not answer.
        error: the reason of a failure.
        others: counted since the run began.
    """

    name: str
    run_id: str
    state: str
    host: str
    pid: int
    started_ms: int
    updated_ms: int
    sink: str
    batch: int | None = None
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    undecoded: int = 0
    dropped: int = 0
    expectations: Mapping[str, int] = field(default_factory=dict)
    rows_per_second: float | None = None
    growth_per_second: float | None = None
    lag: Mapping[str, int | None] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)
    ends_ms: int = 0
    error: str | None = None

    def begun(self, now_ms: int) -> Progress:
        """The query runs, with or without records to read."""
        return replace(self, state="running", updated_ms=now_ms)

    def after_batch(self, batch: Batch, now_ms: int) -> Progress:
        """A batch is in the outputs."""
        counted = {name: self.expectations.get(name, 0) + count for name, count in batch.expectations.items()}
        rate = batch.rows_in / batch.seconds if batch.seconds > 0 else None
        return replace(
            self,
            state="running",
            updated_ms=now_ms,
            batch=batch.number,
            batches=self.batches + 1,
            rows_in=self.rows_in + batch.rows_in,
            rows_out=self.rows_out + batch.rows_out,
            undecoded=self.undecoded + batch.undecoded,
            dropped=self.dropped + batch.dropped,
            expectations={**self.expectations, **counted},
            rows_per_second=_smoothed(self.rows_per_second, rate if batch.rows_in else None),
        )

    def after_report(
        self, lag: Mapping[TopicPartition, int | None], ends: Mapping[TopicPartition, int], now_ms: int
    ) -> Progress:
        """Spark has reported the query's position and the log ends."""
        grown = sum(max(end - self.ends.get(str(p), end), 0) for p, end in ends.items())
        seconds = (now_ms - self.ends_ms) / 1000
        growth = grown / seconds if self.ends_ms and seconds > 0 else None
        return replace(
            self,
            updated_ms=now_ms,
            lag={str(p): behind for p, behind in sorted(lag.items())},
            ends={str(p): end for p, end in sorted(ends.items())},
            ends_ms=now_ms,
            growth_per_second=_smoothed(self.growth_per_second, growth),
        )

    def ended(self, state: str, now_ms: int, error: str | None = None) -> Progress:
        """The run is over."""
        return replace(self, state=state, updated_ms=now_ms, error=error)

    @property
    def total_lag(self) -> int | None:
        """Offsets that are not in the sink, over all partitions; None: unknown for a partition."""
        known = [behind for behind in self.lag.values() if behind is not None]
        return sum(known) if len(known) == len(self.lag) else None

    @property
    def seconds_to_catch_up(self) -> float | None:
        """Seconds until the lag is 0 at the present rates; None: never, or unknown."""
        behind = self.total_lag
        if not self.lag or behind is None:
            return None
        if behind == 0:
            return 0.0
        gain = (self.rows_per_second or 0.0) - (self.growth_per_second or 0.0)
        return behind / gain if gain > 0 else None

    def to_json(self) -> str:
        """As a document with a line for each key."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Progress:
        """Parse the output of `to_json`.

        Raises:
            IllegalStateError: it is something else.
        """
        try:
            document: dict[str, Any] = json.loads(text)
            return cls(**document)
        except (ValueError, TypeError):
            raise IllegalStateError(
                "the progress in the checkpoint was written by another version of kadence"
            ) from None


def shown_lag(lag: int | None) -> str:
    """A lag for people."""
    # All brokers may be silent, or the leader of some partitions: the log names it.
    return "lag unknown, a broker does not answer" if lag is None else f"{lag:,} behind"


def shown_seconds(seconds: float) -> str:
    """A time for people: 45 s, 3 min, 2.5 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"


def _smoothed(before: float | None, now: float | None) -> float | None:
    if now is None or before is None:
        return before if now is None else now
    return before + _SMOOTHING * (now - before)
