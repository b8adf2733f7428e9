"""From a partition's folder to its log, after a clean end or a crash.

A segment with an index was durable when the index was written, so of what lies before the last entry only the headers
are looked at: they must lead from batch to batch. Checksums are verified of what lies behind it; without an index, or
with one that lies, of the whole segment. At the first batch that is not whole and true the log is cut: nothing behind
it was ever acknowledged as durable. Producers, epochs and aborted transactions come from the newest snapshot, and from
the batches behind it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kadence.broker.storage.epochs import LeaderEpochs
from kadence.broker.storage.files import DELETED, FileSegment, FileStore, named_files
from kadence.broker.storage.indexes import decode_aborted, decode_epochs, decode_producers, load_indexes
from kadence.broker.storage.log import Log
from kadence.broker.storage.producers import Producers
from kadence.logs import logger
from kadence.records import BatchHeader, crc32c, scan
from kadence.records.batch import CRC_FROM, HEADER_SIZE, LOG_OVERHEAD, MAGIC, frame_fault

__all__ = ["EPOCHS_FILE", "START_FILE", "Recovered", "recover"]

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
START_FILE: Final = "log-start-offset"
_STAMP: Final = struct.Struct(">q4xi")
"""Base offset and leader epoch of a batch."""
_LAST: Final = struct.Struct(">q15xi")
"""Base offset of a batch, and what its last offset adds to it."""
_LEFTOVERS: Final = (DELETED, ".tmp", ".cut")
_STRAY: Final = ".stray"
_LARGEST_OFFSET: Final = 2**63 - 1

_log = logger("kadence.broker")


class Recovered(NamedTuple):
    """What a folder holds. ``cut_bytes`` lay behind the last whole batch, and are gone."""

    log: Log
    producers: Producers
    cut_bytes: int


def recover(folder: Path, store: FileStore, now: int) -> Recovered:
    """Read a partition's folder; an empty one is an empty log.

    Args:
        now: milliseconds since 1970.

    Raises:
        OSError: the disk does not give or take what is needed.
    """
    for path in folder.iterdir():
        if path.name.endswith(_LEFTOVERS) and path.is_file():
            path.unlink()
    segments, cut_bytes = _segments(folder, store)
    start = _start_offset(folder)
    if segments and segments[-1].next_offset < start:
        # Records up to the start were deleted, and then the end of the log was lost: no offset is given out again.
        _log.warning("%s: the log ends at %d, below its start at %d", folder, segments[-1].next_offset, start)
        for segment in segments:
            _put_aside(segment.path)
        segments = []
    log = Log(store, segments, start_offset=start)
    if not segments:
        log.end_offset = log.start_offset = start
    producers = _state(folder, log, now)
    if segments:
        segments[-1].open_for_append()
        for suffix in (".index", ".timeindex"):
            segments[-1].path.with_suffix(suffix).unlink(missing_ok=True)
    return Recovered(log, producers, cut_bytes)


def _segments(folder: Path, store: FileStore) -> tuple[list[FileSegment], int]:
    segments: list[FileSegment] = []
    position = cut_bytes = 0
    paths = named_files(folder, ".log")
    for number, path in enumerate(paths):
        if segments and int(path.stem) < segments[-1].next_offset:
            _put_aside(path)
            continue
        size = path.stat().st_size
        segment = store.segment(path, int(path.stem), position)
        _read(segment, size)
        if segment.size < size:
            cut_bytes += size - segment.size
            _log.warning("%s: cut %d bytes behind the last whole batch", path, size - segment.size)
            os.truncate(path, segment.size)
        segment.map()
        first = next(segment.batches(0), None)
        segment.began_at = first.max_timestamp if first is not None else 0
        segment.touched_at = int(path.stat().st_mtime * 1000)
        segments.append(segment)
        position += segment.size
        if segment.size < size and number + 1 < len(paths):
            for later in paths[number + 1 :]:
                cut_bytes += later.stat().st_size
                _log.warning("%s: dropped, for the segment before it was cut", later)
                for each in folder.glob(f"{later.stem}.*"):
                    each.unlink()
            break
    return segments, cut_bytes


def _put_aside(path: Path) -> None:
    """Keep a segment's file, which is no part of the log, for whoever wants to know."""
    aside = path.with_name(path.name + _STRAY)
    _log.warning("%s is no part of the log, and is put aside as %s", path, aside.name)
    path.rename(aside)
    for suffix in (".index", ".timeindex", ".txnindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def _read(segment: FileSegment, size: int) -> None:
    """Fill indexes, size and offsets from the file, up to its last whole batch."""
    last_offset = -1
    offsets, times = (_bytes(segment.path.with_suffix(suffix)) for suffix in (".index", ".timeindex"))
    if offsets is not None and times is not None and load_indexes(segment, offsets, times, size):
        if segment.index_offsets:
            # The batch of the last entry is read again, so that what follows it is known to follow.
            last_offset = segment.index_offsets.pop()
            segment.size = segment.index_positions.pop()
    else:
        segment.forget()
    if not size:
        return
    with segment.path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            _scan(segment, view, last_offset)
            has_indexes = offsets is not None or times is not None
            if has_indexes and (segment.size < size or not _leads_through(segment, view)):
                # The indexes are of another file, or know of more than is there: nothing they say holds.
                segment.forget()
                _scan(segment, view, -1)
        finally:
            view.release()


def _leads_through(segment: FileSegment, view: memoryview) -> bool:
    """Whether each header leads to the next one up to the end, and each entry of the index to a header."""
    for last_offset, position in zip(segment.index_offsets, segment.index_positions, strict=True):
        base_offset, delta = _LAST.unpack_from(view, position)
        if base_offset + delta != last_offset:
            return False
    with view[: segment.size] as whole:
        return scan(whole, segment.base_offset)[0] == segment.next_offset


def _scan(segment: FileSegment, view: memoryview, last_offset: int) -> None:
    """Note whole, true batches that follow each other; the first is the segment's, or ends at ``last_offset``."""
    at, size = segment.size, len(view)
    expected = segment.base_offset
    while size - at >= HEADER_SIZE:
        header = BatchHeader.parse(view, at)
        end = at + header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC or end > size or _fault(header):
            return
        if last_offset >= 0 and header.last_offset == last_offset:
            expected, last_offset = header.base_offset, -1
        if header.base_offset != expected:
            return
        with view[at + CRC_FROM : end] as covered:
            if crc32c(covered) != header.crc:
                return
        segment.note(end - at, header.last_offset, header.max_timestamp)
        at, expected = end, header.next_offset


def _fault(header: BatchHeader) -> str | None:
    return frame_fault(header.base_offset, header.batch_length, header.last_offset_delta, header.record_count)


def _state(folder: Path, log: Log, now: int) -> Producers:
    """Producers and aborted transactions; the log's epochs on the way."""
    producers = Producers()
    replay_from = log.start_offset
    entries = decode_epochs(_bytes(folder / EPOCHS_FILE) or b"")
    if entries is not None:
        log.epochs = LeaderEpochs(entries)
        log.epochs.truncate(log.end_offset)
        replay_from = _snapshot(folder, log, producers)
    elif log.segments:
        replay_from = log.segments[0].base_offset
    for path in named_files(folder, ".txnindex"):
        for aborted in decode_aborted(_bytes(path) or b"") or ():
            if log.start_offset <= aborted.last_offset < replay_from:
                producers.aborted.add(aborted)
    for _ in producers.replay(_batches(log, replay_from), now):
        pass
    producers.aborted.delete_before(log.start_offset)
    return producers


def _snapshot(folder: Path, log: Log, producers: Producers) -> int:
    """Take the newest snapshot that the log reaches; the offset from which batches are to be replayed."""
    paths = named_files(folder, ".snapshot")[::-1]
    bases = {segment.base_offset for segment in log.segments}
    for number, path in enumerate(paths):
        offset = int(path.stem)
        known = decode_producers(_bytes(path) or b"") if offset <= log.end_offset else None
        if known is None:
            path.unlink()
            continue
        producers.restore(known)
        for older in paths[number + 1 :]:
            if int(older.stem) not in bases:
                older.unlink()
        return offset
    return log.segments[0].base_offset if log.segments else log.start_offset


def _batches(log: Log, offset: int) -> Iterator[memoryview]:
    for segment, found in log.batches(offset):
        (batch,) = segment.views(found.position, found.position + found.size)
        base_offset, epoch = _STAMP.unpack_from(batch)
        log.epochs.appended(epoch, base_offset)
        yield batch


def _start_offset(folder: Path) -> int:
    with contextlib.suppress(ValueError):
        offset = int((_bytes(folder / START_FILE) or b"0").decode())
        return offset if 0 <= offset < _LARGEST_OFFSET else 0
    return 0


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
