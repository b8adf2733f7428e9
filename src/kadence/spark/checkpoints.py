"""Spark's checkpoint of a streaming query, read and rewritten without Spark: files ``offsets/N`` and ``commits/N``.

``offsets/N`` is written before batch N and ``commits/N`` after it. The former has the log's version in its first line,
Spark's settings in the second, and then a line for each source. Kadence adds entries to its line that Spark's Kafka
connector takes for partitions that are gone (`kadence.spark.source.offsets`). Without them the connector goes on.

Files are rewritten where they are. A batch more, appended with the same offsets, would look safer; but a query with
state looks for the state of the last batch, and would not find it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kadence.errors import IllegalStateError
from kadence.spark.source.offsets import Point, to_shape

__all__ = ["Batch", "Checkpoint", "SourceOffset", "rewrite_for_connector"]

_VERSION: Final = "v1"

_YEAR_9999_MS: Final = 253_370_764_800_000

_NOTHING: Final = "-"
"""Spark's line of a source that has no offset yet."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of a batch in one source.

    Attributes:
        text: the line as it stands in the file. point: what it says of Kafka; None: it is another source's.
    """

    text: str
    point: Point | None

    @classmethod
    def read(cls, text: str) -> SourceOffset:
        """One line of a file in ``offsets``.

        Raises:
            ValueError: it is no JSON, which all sources of Spark write, and not the mark of a source without offsets.
        """
        if text == _NOTHING:
            return cls(text, None)
        try:
            shape = json.loads(text)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        try:
            return cls(text, Point.from_json(shape) if isinstance(shape, dict) else None)
        except IllegalStateError:
            return cls(text, None)

    @property
    def is_for_connector(self) -> bool:
        """Whether Spark's connector reads it as it is meant. Other sources' lines are not its business."""
        return self.point is None or (self.point.has_begun and not (self.point.first or self.point.ids))

    def for_connector(self, begins: Point | None = None) -> SourceOffset:
        """The same offsets as Spark's connector writes them.

        Args:
            begins: the end of the batch that follows, where its own starts are taken over from.
        """
        if self.point is None:
            return self
        if not self.point.has_begun:
            return SourceOffset(_NOTHING, None)
        following = dict(self.point.next) | ({} if begins is None else dict(begins.first))
        if self.is_for_connector and following == self.point.next:
            return self
        return SourceOffset(json.dumps(to_shape(following), separators=(",", ":")), Point(following))


@dataclass(frozen=True, slots=True)
class Batch:
    """One file of ``offsets``.

    Attributes:
        number: of the batch. head: the version and Spark's settings. began_ms: when it was planned, in ms since 1970.
        is_committed: whether it is in the sink.
    """

    number: int
    head: tuple[str, str]
    sources: tuple[SourceOffset, ...]
    is_committed: bool

    @property
    def began_ms(self) -> int | None:
        try:
            began = json.loads(self.head[1])["batchTimestampMs"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return began if isinstance(began, int) and 0 <= began < _YEAR_9999_MS else None

    def text(self) -> str:
        """What the file holds."""
        return "\n".join((*self.head, *(source.text for source in self.sources)))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The end of a query's progress.

    Attributes:
        query: the query's id. last: the newest batch. before: the one before it, which its offsets go on from.
    """

    query: str
    last: Batch
    before: Batch | None

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """Of a directory of this machine.

        Raises:
            IllegalStateError: it is no checkpoint, or none that this code knows.
        """
        numbers = sorted(_numbers(directory / "offsets"))
        if not numbers:
            raise IllegalStateError(
                f"{directory} is no checkpoint with a batch: there is no file in {directory / 'offsets'}"
            )
        committed = _numbers(directory / "commits")
        batches = [_batch(directory, number, is_committed=number in committed) for number in numbers[-2:]]
        try:
            query = str(json.loads((directory / "metadata").read_text(encoding="utf-8"))["id"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            query = ""
        return cls(query, batches[-1], batches[0] if len(batches) > 1 else None)

    @property
    def is_for_connector(self) -> bool:
        """Whether Spark's connector goes on from here without a record lost or twice."""
        return all(source.is_for_connector for source in self.last.sources)

    def for_connector(self) -> tuple[Batch, ...]:
        """The batches that have to be written anew for Spark's connector, in the order of writing.

        Raises:
            IllegalStateError: the first batch was not committed, so where it begins stands in Kadence's entries alone.
        """
        last, before = self.last, self.before
        begins = [
            None if last.is_committed or source.point is None else source.point for source in last.sources
        ]
        if before is None and any(point is not None and point.first for point in begins):
            raise IllegalStateError(
                f"batch {last.number} is not committed, and it is the first: let Kadence end it once, and try again"
            )
        found = []
        if before is not None:
            # A batch that the connector will repeat has to begin where Kadence began it.
            moved = zip(before.sources, _as_many(begins, before.sources), strict=True)
            found.append((before, replace(before, sources=tuple(s.for_connector(b) for s, b in moved))))
        found.append((last, replace(last, sources=tuple(source.for_connector() for source in last.sources))))
        return tuple(new for old, new in found if new != old)


def rewrite_for_connector(directory: Path) -> tuple[Batch, ...]:
    """Rewrite what `Checkpoint.for_connector` names; nothing if the connector reads the checkpoint as it is.

    Hadoop's checksums are removed: sessions of Kadence write without them, so one from before may be of another text.
    A crash in between leaves a checkpoint with which Kadence goes on, and that can be rewritten again.

    Raises:
        IllegalStateError: see `Checkpoint`; or a query writes to the checkpoint meanwhile.
    """
    batches = Checkpoint.read(directory).for_connector()
    known = _numbers(directory / "offsets")
    # First: a crash behind it leaves no checksum of another text.
    _remove_checksums(directory)
    for batch in batches:
        path = directory / "offsets" / str(batch.number)
        _replace(path, batch.text())
    if _numbers(directory / "offsets") != known:
        raise IllegalStateError(
            f"a query runs on {directory} and has begun a batch meanwhile: stop it, and try again"
        )
    return batches


def _numbers(directory: Path) -> set[int]:
    try:
        return {int(path.name) for path in directory.iterdir() if path.name.isdecimal()}
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _batch(directory: Path, number: int, *, is_committed: bool) -> Batch:
    path = directory / "offsets" / str(number)
    try:
        version, *rest = path.read_text(encoding="utf-8").split("\n")
        if version != _VERSION or len(rest) < 2:
            raise IllegalStateError(
                f"{path} is not of version {_VERSION} of Spark's log of offsets, and no other is known here; it begins "
                f"with {version[:20]!r}"
            )
        sources = tuple(map(SourceOffset.read, rest[1:]))
    except (ValueError, RecursionError) as problem:
        raise IllegalStateError(f"{path} is damaged ({problem}); put it back as it was") from None
    return Batch(number, (version, rest[0]), sources, is_committed)


def _as_many(points: Sequence[Point | None], sources: Sequence[Any]) -> list[Point | None]:
    """A query's sources do not change while it has a checkpoint; where they do, Spark tells."""
    return [points[place] if place < len(points) else None for place in range(len(sources))]


def _replace(path: Path, text: str) -> None:
    half = path.with_name(f".{path.name}.kadence")
    with half.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    shutil.copymode(path, half)
    half.replace(path)


def _remove_checksums(directory: Path) -> None:
    """Hadoop's, of each file below the checkpoint. Hadoop reads a file that has none as it is."""
    for checksum in directory.rglob(".*.crc"):
        if checksum.with_name(checksum.name[1 : -len(".crc")]).is_file():
            checksum.unlink(missing_ok=True)
