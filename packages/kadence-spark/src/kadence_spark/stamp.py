"""The writer and number of a batch, by which a sink recognises a batch that Spark repeats.

The options' names are those of Delta's jar (idempotent writes in ``foreachBatch``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from kadence.errors import ConfigError
from kadence_spark.numbers import whole_number

__all__ = ["Stamp"]


@dataclass(frozen=True, slots=True)
class Stamp:
    """A batch: the writer, which for a stream is the id of its query in the checkpoint, and the number."""

    writer: str
    batch: int

    @classmethod
    def of_options(cls, values: Mapping[str, str], *, streaming: bool) -> Self | None:
        """Parse the options txnAppId and txnVersion; None: neither is given.

        Args:
            values: options by their lower-case names. streaming: whether a stream is written.

        Raises:
            ConfigError: one without the other, an invalid number, or given for a stream, which has its own.
        """
        writer, version = values.get("txnappid"), values.get("txnversion")
        if writer is None and version is None:
            return None
        if streaming:
            raise ConfigError(
                "options txnAppId and txnVersion are for batches: a stream has its query's id and its batch's number",
                key="txnAppId",
            )
        if not writer or version is None:
            raise ConfigError(
                "options txnAppId and txnVersion go together: who writes, and the number of the write",
                key="txnAppId",
            )
        batch = whole_number(version)
        if batch is None:
            raise ConfigError(f"option txnVersion: {version!r} is not a number", key="txnVersion")
        return cls(writer, batch)
