"""A log's segments as files, laid out as Kafka lays them out: ``.log``, ``.index``, ``.timeindex`` and ``.txnindex``.

Batches are written to the end of the newest file, and kept in memory too until about a megabyte has come together;
from then on readers get views of the mapped file. Nothing is written through the mapping, so a full disk is an error of
a write and not a signal. A segment is *sealed* when the next one begins: its file is made durable first, and its index
is written after that, so a segment with an index is known to be whole.
A later broker that appends to it removes the index first.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Final

from kadence.own_files import FILE_MODE
from kadence_broker.storage.config import LogConfig
from kadence_broker.storage.flusher import NotTriedError
from kadence_broker.storage.indexes import encode_offsets, encode_times
from kadence_broker.storage.segment import Segment

__all__ = [
    "CLEANED",
    "DELETED",
    "SWAP",
    "FileSegment",
    "FileStore",
    "finish_swap",
    "fsync_path",
    "log_name",
    "named_files",
    "open_private",
    "write_durably",
]

DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
"""A segment that compaction is writing."""
SWAP: Final = ".swap"
"""A whole one, whose name says from which offset to which it takes the place of others."""
_SUFFIXES: Final = (".index", ".timeindex", ".txnindex", ".snapshot", ".log")
_FIRST_TAIL: Final = 16 * 1024
_LARGEST_TAIL: Final = 1024 * 1024
_NAME: Final = re.compile("[0-9]{20}")
_LARGEST_DELTA: Final = 2**31 - 1
"""Indexes hold offsets relative to the segment's first, in 32 bits."""
_LARGEST_BASE: Final = 2**63 - 1 - _LARGEST_DELTA


def log_name(base_offset: int, suffix: str = ".log") -> str:
    """Kafka's name of a segment's file."""
    return f"{base_offset:020d}{suffix}"


def named_files(folder: Path, suffix: str) -> list[Path]:
    """The files of one kind by their offsets. Names that no broker gives are left alone."""
    return sorted(
        path
        for path in folder.glob(f"*{suffix}")
        if _NAME.fullmatch(path.stem) and int(path.stem) <= _LARGEST_BASE and path.is_file()
    )


class FileSegment(Segment):
    """Batches in one file; `open_for_append` for the newest segment of a log.

    Its descriptor is closed in the background, behind every flush that was begun with it.

    Attributes:
        descriptor: of the file while batches may be appended, else -1.
        may_reopen: whether it is opened once a batch comes (the newest one of an earlier broker).
        is_moving: its file does not have its name yet.
    """

    __slots__ = (
        "_bytes",
        "_in_background",
        "_tail_capacity",
        "descriptor",
        "is_moving",
        "may_reopen",
        "path",
    )

    def __init__(
        self,
        path: Path,
        base_offset: int,
        position: int,
        most_bytes: int,
        in_background: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__(base_offset, position)
        self.path = path
        self._bytes = most_bytes
        self._in_background = in_background
        self.descriptor = -1
        self.may_reopen = self.is_moving = False
        self._tail_capacity = _FIRST_TAIL // 2

    @property
    def is_open(self) -> bool:
        """True if batches may be appended."""
        return self.descriptor >= 0

    def open_for_append(self) -> None:
        """Take further batches, of which its indexes know nothing. Raises `OSError`."""
        for suffix in (".index", ".timeindex"):
            self.path.with_suffix(suffix).unlink(missing_ok=True)
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)

    def map(self) -> None:
        """Let readers have what is in the file as views of it, and no copy in memory.

        Raises:
            OSError: it cannot be mapped (a map takes a descriptor, too); readers have what they had.
        """
        starts: list[int] = []
        views: list[memoryview] = []
        if self.size:
            if self.is_open:
                mapped = mmap.mmap(self.descriptor, self.size, access=mmap.ACCESS_READ)
            else:
                with self.path.open("rb") as file:
                    mapped = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)
            starts, views = [0], [memoryview(mapped)]
        self._starts, self._views = starts, views

    def close(self) -> None:
        """No further batches; those that were appended stay readable."""
        if self.is_open:
            descriptor, self.descriptor = self.descriptor, -1
            self._in_background(lambda: os.close(descriptor))

    def release(self) -> None:
        """Free its maps, which have a descriptor each. No reader may use it any more."""
        self._starts, views, self._views = [], self._views, []
        for view in views:
            mapped = view.obj
            view.release()
            if isinstance(mapped, mmap.mmap):
                with contextlib.suppress(BufferError):  # An answer has a part of it, and frees it in the end.
                    mapped.close()

    def has_room(self, size: int, last_offset: int) -> bool:
        fits = self.size + size <= self._bytes and last_offset - self.base_offset <= _LARGEST_DELTA
        return (self.is_open or self.may_reopen) and (fits or not self.size)

    def _room(self, size: int) -> memoryview:
        if not self.is_open:
            self.open_for_append()
        if self._starts and not self._views[-1].readonly:
            used = self.size - self._starts[-1]
            tail = self._views[-1]
            if used + size <= len(tail):
                return tail[used : used + size]
        self.map()
        self._tail_capacity = min(2 * self._tail_capacity, _LARGEST_TAIL)
        self._starts.append(self.size)
        self._views.append(memoryview(bytearray(max(self._tail_capacity, size))))
        return self._views[-1][:size]

    def _store(self, batch: memoryview) -> None:
        at = self.size
        try:
            while batch:
                written = os.pwrite(self.descriptor, batch, at)
                batch = batch[written:]
                at += written
        except OSError:
            # A part of it may be there. Readers of the file would take it for damage.
            with contextlib.suppress(OSError):
                os.ftruncate(self.descriptor, self.size)
            raise

    def cut(self, position: int) -> None:
        # Into a new file: readers may still have views of the old one, and a page beyond a file's end is a signal.
        kept = b"".join(self.views(0, position))
        super().cut(position)
        shorter = self.path.with_suffix(".cut")
        write_durably(shorter, kept)
        shorter.replace(self.path)
        self.close()
        self.open_for_append()
        self.map()


class FileStore:
    """The segments of one partition's folder.

    Args:
        in_background: runs a call on the thread that may wait for the disk, in order.
        on_roll: called with the base offset of each new segment, before anything is in it.
    """

    __slots__ = ("_cleaned", "_config", "_folder", "_in_background", "_on_roll", "error", "files_made")

    def __init__(
        self,
        folder: Path,
        config: Callable[[], LogConfig],
        in_background: Callable[[Callable[[], None]], None],
        on_roll: Callable[[int], None],
    ) -> None:
        self._folder = folder
        self._config = config
        self._in_background = in_background
        self._on_roll = on_roll
        self._cleaned = 0
        self.files_made = 1
        """Counts segments, and the folder itself as the first: entries that are to be made durable."""
        self.error: OSError | None = None
        """Why a sealed segment is not durable."""

    @property
    def segment_ms(self) -> int:
        return self._config().roll_ms

    def segment(self, path: Path, base_offset: int, position: int) -> FileSegment:
        """A segment of this folder, which is not open for append."""
        return FileSegment(path, base_offset, position, self._config().segment_bytes, self._in_background)

    def new_segment(self, base_offset: int, position: int, size: int) -> FileSegment:
        del size
        segment = self.segment(self._folder / log_name(base_offset), base_offset, position)
        segment.open_for_append()
        self.files_made += 1
        self._on_roll(base_offset)
        return segment

    def seal(self, segment: Segment) -> None:
        """The segment is complete: make it durable, then write its indexes. In the background."""
        assert isinstance(segment, FileSegment)
        if not segment.is_open:
            return
        segment.note_time()
        with contextlib.suppress(OSError):  # Its end stays in memory, then.
            segment.map()
        descriptor, segment.descriptor = segment.descriptor, -1
        offsets, times, path = encode_offsets(segment), encode_times(segment), segment.path

        def finish() -> None:
            try:
                os.fsync(descriptor)
            except OSError as error:
                self.error = error
                raise
            finally:
                os.close(descriptor)
            if path.exists():
                write_durably(path.with_suffix(".timeindex"), times)
                write_durably(path.with_suffix(".index"), offsets)

        self._in_background(finish)

    def drop(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            assert isinstance(segment, FileSegment)
            segment.close()
            paths = [segment.path.with_suffix(suffix) for suffix in _SUFFIXES]
            if segment.is_moving:
                self._in_background(partial(_unlink, paths))
                continue
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    gone = path.rename(path.with_name(path.name + DELETED))
                    self._in_background(partial(_unlink, [gone]))

    # Compaction

    def new_cleaned(self, base_offset: int, size: int) -> FileSegment:
        del size
        self._cleaned += 1  # One that was made before may still wait for the disk.
        segment = self.segment(
            self._folder / f"{log_name(base_offset)}.{self._cleaned}{CLEANED}", base_offset, 0
        )
        segment.open_for_append()
        return segment

    def drop_cleaned(self, segment: Segment) -> None:
        assert isinstance(segment, FileSegment)
        segment.close()
        segment.path.unlink(missing_ok=True)

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """In the background: make it durable, say by a name which files it replaces, and then replace them."""
        assert isinstance(new, FileSegment)
        new.note_time()
        with contextlib.suppress(OSError):  # It stays in memory, then.
            new.map()
        descriptor, new.descriptor = new.descriptor, -1
        made = new.path
        new.path = self._folder / log_name(new.base_offset)
        swap = self._folder / f"{log_name(new.base_offset, '')}-{old[-1].next_offset:020d}{SWAP}"
        offsets, times = encode_offsets(new), encode_times(new)
        new.is_moving = True

        def finish() -> None:
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if made.exists():  # else the topic has gone
                made.rename(swap)
                finish_swap(swap)
                write_durably(new.path.with_suffix(".timeindex"), times)
                write_durably(new.path.with_suffix(".index"), offsets)
            new.is_moving = False

        self._in_background(finish)


def finish_swap(swap: Path) -> None:
    """Let a segment that compaction has made take the place of the files that its name says. It may be done again."""
    first, end = (int(part) for part in swap.stem.split("-"))
    fsync_path(swap.parent)
    old = [path for path in named_files(swap.parent, ".log") if first <= int(path.stem) < end]
    _unlink(
        [path.with_suffix(suffix) for path in old for suffix in (".index", ".timeindex", ".txnindex", ".log")]
    )
    swap.rename(swap.with_name(log_name(first)))
    fsync_path(swap.parent)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def write_durably(path: Path, data: bytes) -> None:
    """Write a whole file such that after a crash either the old or the new one is there."""
    part = path.with_name(path.name + ".tmp")
    with open_private(part) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def open_private(path: Path, *, appends: bool = False) -> IO[bytes]:
    """Open a file to overwrite it, or to append. If it is created, no other user may read it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if appends else os.O_TRUNC)
    return os.fdopen(os.open(path, flags, FILE_MODE), "ab" if appends else "wb")


def fsync_path(path: Path) -> None:
    """Make a file, or a folder's entries, durable.

    Raises:
        NotTriedError: it could not be opened. OSError: they may be lost.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise NotTriedError(error.errno, error.strerror, str(path)) from error
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
