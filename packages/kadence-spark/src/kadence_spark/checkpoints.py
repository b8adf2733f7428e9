"""Reads and rewrites Spark's checkpoint of a streaming query without Spark: files ``offsets/N`` and ``commits/N``.

``offsets/N`` is written before batch N and ``commits/N`` after it. The former has the log's version in its first line,
Spark's settings in the second, and then a line for each source. Kadence adds entries to its line that Spark's Kafka
connector considers partitions that are gone (`kadence_spark.source.offsets`). Without them the connector continues.

Files are rewritten in place. Appending a batch with the same offsets would look safer; but a query with state looks for
the state of the last batch, and would not find it.
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
from kadence_spark.source.offsets import Point, to_shape

__all__ = ["Batch", "Checkpoint", "SourceOffset", "rewrite_for_connector"]

_VERSION: Final = "v1"

_YEAR_9999_MS: Final = 253_370_764_800_000

_NOTHING: Final = "-"
"""Spark's line of a source that has no offset yet."""


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The end of a batch in one source.

    Attributes:
        text: the line of the file. point: its offsets; None: it is another source's.
    """

    text: str
    point: Point | None

    @classmethod
    def read(cls, text: str) -> SourceOffset:
        """One line of a file in ``offsets``.

        Raises:
            ValueError: it is neither JSON, which all sources of Spark write, nor the mark of a source without offsets.
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
        """Whether Spark's connector reads it correctly. Lines of other sources do not count."""
        return self.point is None or (self.point.has_begun and not (self.point.first or self.point.ids))

    def for_connector(self, begins: Point | None = None) -> SourceOffset:
        """The same offsets in the form of Spark's connector.

        Args:
            begins: the end of the next batch, which has that batch's own starts.
        """
        if self.point is None:
            return self
        if not self.point.has_begun:
            return SourceOffset(_NOTHING, None)
        starts = {} if begins is None else begins.starts_after(self.point)
        following = dict(self.point.next) | {p: start for p, start in starts.items() if start is not None}
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
        """The content of the file."""
        return "\n".join((*self.head, *(source.text for source in self.sources)))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The end of a query's progress.

    Attributes:
        query: the query's id. last: the newest batch. before: the one before it, from whose offsets it continues.
    """

    query: str
    last: Batch
    before: Batch | None

    @classmethod
    def read(cls, directory: Path) -> Checkpoint:
        """Read a checkpoint in a local directory.

        Raises:
            IllegalStateError: it is not a checkpoint, or of an unknown version.
        """
        numbers = sorted(_numbers(directory / "offsets"))
        if not numbers:
            raise IllegalStateError(
                f"{directory} is not a checkpoint with a batch: there is no file in {directory / 'offsets'}"
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
        """Whether Spark's connector can continue from here without lost or repeated records."""
        return all(source.is_for_connector for source in self.last.sources)

    def for_connector(self) -> tuple[Batch, ...]:
        """The batches that have to be rewritten for Spark's connector, in the order of writing.

        Raises:
            IllegalStateError: the first batch was not committed, so only Kadence's entries have its starting offsets.
        """
        last, before = self.last, self.before
        begins = [
            None if last.is_committed or source.point is None else source.point for source in last.sources
        ]
        if before is None and any(point is not None and point.first for point in begins):
            raise IllegalStateError(
                f"batch {last.number} is not committed, and it is the first: let Kadence finish it, then try again"
            )
        found = []
        if before is not None:
            # A batch that the connector will repeat has to begin where Kadence began it.
            moved = zip(before.sources, _as_many(begins, before.sources), strict=True)
            found.append((before, replace(before, sources=tuple(s.for_connector(b) for s, b in moved))))
        found.append((last, replace(last, sources=tuple(source.for_connector() for source in last.sources))))
        return tuple(new for old, new in found if new != old)


def rewrite_for_connector(directory: Path) -> tuple[Batch, ...]:
    """Rewrite the batches of `Checkpoint.for_connector`; none if the connector can read the checkpoint unchanged.

    Hadoop's checksums are removed: sessions of Kadence write without them, so an older one may not match its file.
    After a crash in between Kadence can continue with the checkpoint, and it can be rewritten again.

    Raises:
        IllegalStateError: see `Checkpoint`; or a query writes to the checkpoint meanwhile.
    """
    batches = Checkpoint.read(directory).for_connector()
    known = _numbers(directory / "offsets")
    # First: after a crash no checksum of the old text may be left.
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
                f"{path} is not of version {_VERSION} of Spark's log of offsets, the only supported one; it begins "
                f"with {version[:20]!r}"
            )
        sources = tuple(map(SourceOffset.read, rest[1:]))
    except (ValueError, RecursionError) as problem:
        raise IllegalStateError(f"{path} is damaged ({problem}); restore it") from None
    return Batch(number, (version, rest[0]), sources, is_committed)


def _as_many(points: Sequence[Point | None], sources: Sequence[Any]) -> list[Point | None]:
    """A query's sources do not change while it has a checkpoint; otherwise Spark raises an error."""
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
    """Hadoop's checksum files below the checkpoint. Hadoop reads files without a checksum, too."""
    for checksum in directory.rglob(".*.crc"):
        if checksum.with_name(checksum.name[1 : -len(".crc")]).is_file():
            checksum.unlink(missing_ok=True)
