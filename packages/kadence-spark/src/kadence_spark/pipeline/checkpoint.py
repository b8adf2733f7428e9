"""The progress of a pipeline in Spark's checkpoint: files ``offsets/N`` and ``commits/N`` for each batch N.

``offsets/N`` is written before a batch, ``commits/N`` after it; the last line of the former is the source's offset.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from kadence.errors import IllegalStateError
from kadence_spark.pipeline.files import Files
from kadence_spark.source.offsets import Offsets, Point

__all__ = ["CommittedBatch", "committed", "planned", "query_id"]


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """The last batch that is committed to the outputs.

    Attributes:
        batch: its number. offsets: for each partition the next offset to read. ids: the known topic ids.
    """

    batch: int
    offsets: Offsets
    ids: Mapping[str, str]


def committed(files: Files, checkpoint: str) -> CommittedBatch | None:
    """Read the checkpoint; None: no batch has ended yet.

    Raises:
        IllegalStateError: it is not the checkpoint of a query of format kadence.
    """
    batches = [int(name) for name in files.names(f"{checkpoint}/commits") if name.isdecimal()]
    if not batches:
        return None
    text = files.read(f"{checkpoint}/offsets/{max(batches)}") or ""
    try:
        shape = json.loads(text.splitlines()[-1])
        if not isinstance(shape, dict):
            raise TypeError
    except (ValueError, IndexError, TypeError):
        raise IllegalStateError(f"{checkpoint}/offsets/{max(batches)} holds no offsets of Kafka") from None
    point = Point.from_json(shape)
    return CommittedBatch(max(batches), point.next, point.ids)


def planned(files: Files, checkpoint: str, batch: int) -> str:
    """A digest of the offset ranges of a batch: another plan under the same number has another digest.

    Raises:
        IllegalStateError: the checkpoint has no offsets of the batch, which Spark writes before it begins.
    """
    text = files.read(f"{checkpoint}/offsets/{batch}")
    if text is None:
        raise IllegalStateError(f"{checkpoint}/offsets/{batch} is missing, which says what the batch reads")
    before = files.read(f"{checkpoint}/offsets/{batch - 1}") or ""
    # The first lines are a version, and the time and the settings of the plan.
    sources = [each.splitlines()[2:] for each in (before, text)]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def query_id(files: Files, checkpoint: str) -> str | None:
    """The id that Spark gives a query in a new checkpoint; None: it has not begun."""
    text = files.read(f"{checkpoint}/metadata")
    return None if text is None else str(json.loads(text.splitlines()[-1])["id"])
