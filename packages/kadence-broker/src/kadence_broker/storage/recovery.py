"""From a partition's folder to its log, after a clean end or a crash.

A segment with an index was durable when the index was written, so of what lies before the last entry only the headers
are looked at: they must lead from batch to batch. Checksums are verified of what lies behind it; without an index, or
with one that lies, of the whole segment.

After a crash the end of the log may be torn: segments that were never made durable, mostly the newest alone. It is cut
at the first batch that is incomplete or corrupt; nothing behind it was ever acknowledged as durable. A part that was
durable once (after a clean end, everything) is never cut: it can only be damaged. A damaged batch that leads to the
next one is kept, and its readers find the damage; where no next one can be found, the log is refused.

Producers, epochs and aborted transactions come from the newest snapshot, and from the batches behind it.

A log may also end early without a torn end: a file of it was cut or deleted. The state that a broker left that ended
in order is known (`kadence_broker.storage.clean_stop`), so the log is refused. After a crash a snapshot or a leader
epoch beyond the end is the only evidence; a warning names the offsets that are missing.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from kadence.errors import ConfigError
from kadence.logs import logger
from kadence.records import BatchHeader, crc32c, scan
from kadence.records.batch import CRC_FROM, HEADER_SIZE, LOG_OVERHEAD, MAGIC, frame_fault
from kadence_broker.storage.aborted import Aborted
from kadence_broker.storage.clean_stop import CLEAN_FILE, LeftLog
from kadence_broker.storage.epochs import LeaderEpochs
from kadence_broker.storage.files import (
    CLEANED,
    DELETED,
    SWAP,
    FileSegment,
    FileStore,
    finish_swap,
    fsync_path,
    log_name,
    named_files,
    write_durably,
)
from kadence_broker.storage.indexes import (
    decode_aborted,
    decode_epochs,
    decode_producers,
    encode_epochs,
    load_indexes,
)
from kadence_broker.storage.log import Log
from kadence_broker.storage.producers import Producers

__all__ = ["CLEANED_FILE", "EPOCHS_FILE", "START_FILE", "Recovered", "cleaned_in", "recover", "refuse_losses"]

EPOCHS_FILE: Final = "leader-epoch-checkpoint"
START_FILE: Final = "log-start-offset"
CLEANED_FILE: Final = "cleaned-offset"
"""It is there once compaction has begun: the offset below which it has seen everything."""
_STAMP: Final = struct.Struct(">q4xi")
"""Base offset and leader epoch of a batch."""
_LAST: Final = struct.Struct(">q15xi")
"""Base offset of a batch, and what its last offset adds to it."""
_LEFTOVERS: Final = (DELETED, CLEANED, ".tmp", ".cut")
_STRAY: Final = ".stray"
_LARGEST_OFFSET: Final = 2**63 - 1

_log = logger("kadence.broker")


class Recovered(NamedTuple):
    """The contents of a folder.

    Attributes:
        cut_bytes: bytes behind the last complete batch, which are not part of the log.
        replayed_from: aborted transactions from this offset on are known from the log alone.
    """

    log: Log
    producers: Producers
    cut_bytes: int
    replayed_from: int


class _Batch(NamedTuple):
    """One that is damaged."""

    position: int
    offset: int


def refuse_losses(folder: Path, left: LeftLog) -> None:
    """Raise `ConfigError` if a segment's file has gone since the broker ended in order, or is shorter."""
    for base_offset, size in left.segments.items():
        path = folder / log_name(base_offset)
        found = path.stat().st_size if path.exists() else None
        if found is None or found < size:
            is_now = "is not there" if found is None else f"has {found} bytes"
            missing_from = _end_of(path, base_offset) if found else base_offset
            missing_to = min((each for each in left.segments if each > base_offset), default=left.end) - 1
            # A file with a gap in the middle ends at the same offset.
            lost = (
                f"offsets {missing_from} to {missing_to}"
                if missing_from <= missing_to
                else "records before its end"
            )
            raise ConfigError(
                f"{path} {is_now}, and had {size} bytes when the broker was closed: {lost} are missing, and "
                f"nothing has been changed. Restore the file; or, to go on without them, delete "
                f"{folder.parent / CLEAN_FILE}"
            )


def _end_of(path: Path, base_offset: int) -> int:
    """The end of the complete batches of a file that is not empty."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return scan(mapped, base_offset)[0]


def cleaned_in(folder: Path) -> int | None:
    """The offset below which compaction has seen everything; None: it has never begun here. 0 if that is not known."""
    data = _bytes(folder / CLEANED_FILE)
    if data is None:
        return None
    return int(data) if data.isdigit() and int(data) < _LARGEST_OFFSET else 0


def recover(
    folder: Path,
    store: FileStore,
    now: int,
    *,
    was_clean: bool,
    left: LeftLog | None = None,
    has_gaps: bool = False,
) -> Recovered:
    """Read a partition's folder; an empty one is an empty log.

    Args:
        now: milliseconds since 1970.
        was_clean: whether everything was made durable at the last end.
        left: the log at the last end, if known; `refuse_losses` has checked it.
        has_gaps: compaction has begun, so that offsets may be missing.

    Raises:
        OSError: the disk does not give or take what is needed.
        ConfigError: batches that were durable once cannot be found. Nothing has been changed.
    """
    for path in folder.iterdir():
        if path.name.endswith(_LEFTOVERS) and path.is_file():
            path.unlink()
    for path in folder.glob(f"*{SWAP}"):
        finish_swap(path)
    segments, cut_bytes = _segments(folder, store, was_clean=was_clean, has_gaps=has_gaps)
    start = _start_offset(folder, left)
    if segments and segments[-1].next_offset < start:
        # Records up to the start were deleted, and then the end of the log was lost: no offset is given out again.
        _log.warning("%s: the log ends at %d, below its start at %d", folder, segments[-1].next_offset, start)
        for segment in segments:
            _put_aside(segment.path)
        segments = []
    if segments and segments[0].base_offset > start:
        # Retention deletes files first, and says then from where on records count.
        _log.warning(
            "%s: the log begins at %d, and not at %d as %s says: the records between are missing, unless a crash came "
            "while they were deleted",
            folder,
            segments[0].base_offset,
            start,
            START_FILE,
        )
        write_durably(folder / START_FILE, str(segments[0].base_offset).encode())
    log = Log(store, segments, start_offset=start)
    if not segments:
        log.end_offset = log.start_offset = start
    producers, replayed_from = _state(folder, log, now, left)
    return Recovered(log, producers, cut_bytes, replayed_from)


def _segments(
    folder: Path, store: FileStore, *, was_clean: bool, has_gaps: bool
) -> tuple[list[FileSegment], int]:
    paths = named_files(folder, ".log")
    durable = len(paths) if was_clean else _known_durable(paths)
    segments: list[FileSegment] = []
    overlapping: list[Path] = []
    position = 0
    for number, path in enumerate(paths):
        if segments and int(path.stem) < segments[-1].next_offset:
            overlapping.append(path)
            continue
        size = path.stat().st_size
        segment = store.segment(path, int(path.stem), position)
        damaged = _read(segment, size, was_durable=number < durable, has_gaps=has_gaps)
        if number < durable:
            _accept(segment, size, damaged, paths[number + 1 :], was_clean=was_clean)
            # After a crash, batches behind a damaged one would be taken for a torn end.
            segment.may_reopen = number == len(paths) - 1 and not damaged
        segments.append(segment)
        position += segment.size
        if segment.size < size:
            break
    # Until here nothing was changed, so that a log that is refused is left as it is.
    for path in overlapping:
        _put_aside(path)
    cut_bytes = _cut(segments[-1], paths) if segments else 0
    for before, segment in () if has_gaps else pairwise(segments):
        _warn_of_missing(folder, before.next_offset, segment.base_offset)
    for segment in segments:
        segment.map()
        first = next(segment.batches(0), None)
        segment.began_at = first.max_timestamp if first is not None else 0
        segment.touched_at = int(segment.path.stat().st_mtime * 1000)
    if segments and durable < len(paths):
        _secure(folder, segments, paths[durable:])
    return segments, cut_bytes


def _known_durable(paths: list[Path]) -> int:
    """The number of segments that were durable before a crash: up to the last one with an index, without the newest.

    The newest may have an index that was valid before something was appended to it.
    """
    return next(
        (
            number
            for number in range(len(paths) - 1, 0, -1)
            if paths[number - 1].with_suffix(".index").exists()
        ),
        0,
    )


def _accept(
    segment: FileSegment, size: int, damaged: list[_Batch], later: list[Path], *, was_clean: bool
) -> None:
    """Take a segment that was durable once, if all of its batches can be found.

    Raises:
        ConfigError: they cannot be; who runs the broker must decide what becomes of them.
    """
    overlaps = damaged and later and int(later[0].stem) < segment.next_offset
    if segment.size == size and not overlaps:
        for each in damaged:
            _log.error(
                "%s: the batch at offset %d (byte %d) is damaged; its readers get a checksum error",
                segment.path,
                each.offset,
                each.position,
            )
        return
    at = damaged[0] if damaged else _Batch(segment.size, segment.next_offset)
    leave = f"cut it to {at.position} bytes"
    if later:
        leave += f" and move {later[0].name} and the later .log files of its folder away"
    if was_clean:
        leave += f", and delete {segment.path.parent.parent / CLEAN_FILE}"
    raise ConfigError(
        f"{segment.path} is damaged at byte {at.position}, offset {at.offset}; it was whole when it was stored, and "
        f"nothing has been changed. Restore the file; or, to give up all records from offset {at.offset} on, {leave}"
    )


def _cut(last: FileSegment, paths: list[Path]) -> int:
    """Cut the torn end of a log, whose last segment this is; return the number of bytes cut."""
    size = last.path.stat().st_size
    if last.size == size:
        return 0
    cut_bytes = size - last.size
    _log.warning("%s: cut %d bytes behind the last whole batch", last.path, cut_bytes)
    later = [path for path in paths if int(path.stem) > last.base_offset and path.exists()]
    if not later:
        os.truncate(last.path, last.size)
        return cut_bytes
    # More than the end of the log cannot be read: a copy is kept for inspection.
    kept = last.path.read_bytes()[: last.size]
    _put_aside(last.path)
    write_durably(last.path, kept)
    for path in later:
        cut_bytes += path.stat().st_size
        _put_aside(path)
    return cut_bytes


def _secure(folder: Path, segments: list[FileSegment], unsure: list[Path]) -> None:
    """Make durable what may not have been: a producer that tries again hears that it is there already."""
    for segment in segments:
        if segment.path in unsure:
            fsync_path(segment.path)
    fsync_path(folder)
    fsync_path(folder.parent)
    # It was not sealed; the end of this broker makes up for that.
    segments[-1].open_for_append()


def _put_aside(path: Path) -> None:
    """Keep a segment's file, which is not part of the log, for inspection."""
    aside = path.with_name(path.name + _STRAY)
    while aside.exists():
        aside = aside.with_name(aside.name + _STRAY)
    _log.warning("%s is not part of the log, and is renamed to %s", path, aside.name)
    path.rename(aside)
    for suffix in (".index", ".timeindex", ".txnindex"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def _read(segment: FileSegment, size: int, *, was_durable: bool, has_gaps: bool) -> list[_Batch]:
    """Fill indexes, size and offsets from the file, up to its last batch; damaged batches of what was durable."""
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
        return []
    with segment.path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as mapped:
        view = memoryview(mapped)
        try:
            damaged = _scan(segment, view, last_offset, was_durable=was_durable, has_gaps=has_gaps)
            has_indexes = offsets is not None or times is not None
            if has_indexes and (segment.size < size or not _leads_through(segment, view)):
                # The indexes are of another file, or know of more than is there: nothing they say holds.
                segment.forget()
                damaged = _scan(segment, view, -1, was_durable=was_durable, has_gaps=has_gaps)
        finally:
            view.release()
    return damaged


def _leads_through(segment: FileSegment, view: memoryview) -> bool:
    """True if each header leads to the next one up to the end, and each entry of the index to a header."""
    for last_offset, position in zip(segment.index_offsets, segment.index_positions, strict=True):
        base_offset, delta = _LAST.unpack_from(view, position)
        if base_offset + delta != last_offset:
            return False
    with view[: segment.size] as whole:
        return scan(whole, segment.base_offset)[0] == segment.next_offset


def _scan(
    segment: FileSegment, view: memoryview, last_offset: int, *, was_durable: bool, has_gaps: bool
) -> list[_Batch]:
    """Note whole batches that follow each other; the first is the segment's, or ends at ``last_offset``.

    The first one with a wrong checksum is the end, unless they all were durable once; then it is returned.
    """
    damaged: list[_Batch] = []
    at, size = segment.size, len(view)
    expected = segment.base_offset
    while size - at >= HEADER_SIZE:
        header = BatchHeader.parse(view, at)
        end = at + header.batch_length + LOG_OVERHEAD
        if header.magic != MAGIC or end > size or _fault(header):
            break
        if last_offset >= 0 and header.last_offset == last_offset:
            expected, last_offset = header.base_offset, -1
        if header.base_offset < expected or (header.base_offset > expected and not has_gaps):
            break
        with view[at + CRC_FROM : end] as covered:
            is_true = crc32c(covered) == header.crc
        if not is_true:
            if not was_durable:
                break
            damaged.append(_Batch(at, header.base_offset))
        segment.note(end - at, header.last_offset, header.max_timestamp)
        at, expected = end, header.next_offset
    return damaged


def _fault(header: BatchHeader) -> str | None:
    return frame_fault(header.base_offset, header.batch_length, header.last_offset_delta, header.record_count)


def _warn_of_missing(folder: Path, first: int, end: int) -> None:
    """Say which offsets are missing, if any are: those from ``first`` on, below ``end``."""
    if first < end:
        _log.warning("%s: the records of offsets %d to %d are missing", folder, first, end - 1)


def _state(folder: Path, log: Log, now: int, left: LeftLog | None) -> tuple[Producers, int]:
    """Producers and aborted transactions, and from where the log was read for them; the log's epochs on the way."""
    producers = Producers()
    entries = decode_epochs(_bytes(folder / EPOCHS_FILE) or b"")
    reached = _reached(folder, entries or [])
    _warn_of_missing(folder, log.end_offset, reached)
    if entries is not None:
        log.epochs = LeaderEpochs(entries)
        log.epochs.truncate(log.end_offset)
        if reached > log.end_offset:
            # It is said once.
            write_durably(folder / EPOCHS_FILE, encode_epochs(log.epochs.entries))
    else:
        for _ in _batches(log, _first(log)):
            pass
    replay_from = _snapshot(folder, log, producers)
    if left is not None and replay_from < left.end and log.start_offset:
        _log.warning(
            "%s: a snapshot is lost, and with it the producers whose records are all deleted: a batch that one of them "
            "sends again is stored twice",
            folder,
        )
    for aborted in _aborted(folder, log, now, left):
        if log.start_offset <= aborted.last_offset < replay_from:
            producers.aborted.add(aborted)
    for _ in producers.replay(_batches(log, replay_from), now):
        pass
    producers.aborted.delete_before(log.start_offset)
    return producers, replay_from


def _reached(folder: Path, epochs: list[tuple[int, int]]) -> int:
    """The largest end of the log so far, from snapshots and leader epochs."""
    snapshots = [int(path.stem) for path in named_files(folder, ".snapshot")]
    return max([0, *snapshots[-1:], *(offset + 1 for _, offset in epochs[-1:])])


def _aborted(folder: Path, log: Log, now: int, left: LeftLog | None) -> list[Aborted]:
    """The aborted transactions of which the indexes know; of all of the log, if one of its indexes is lost."""
    found: list[Aborted] = []
    expected = {} if left is None else dict(left.aborted)
    is_whole = True
    for path in named_files(folder, ".txnindex"):
        data = path.read_bytes()
        entries = decode_aborted(data)
        is_whole = is_whole and entries is not None and len(data) == expected.pop(int(path.stem), len(data))
        found += entries or ()
    if is_whole and not expected:
        return found
    _log.warning("%s: an index of aborted transactions is lost, and is rebuilt from the log", folder)
    producers = Producers()
    for _ in producers.replay(_batches(log, _first(log)), now):
        pass
    return producers.aborted.entries


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
    return _first(log)


def _first(log: Log) -> int:
    """The start of the oldest segment."""
    return log.segments[0].base_offset if log.segments else log.start_offset


def _batches(log: Log, offset: int) -> Iterator[memoryview]:
    for segment, found in log.batches(offset):
        (batch,) = segment.views(found.position, found.position + found.size)
        base_offset, epoch = _STAMP.unpack_from(batch)
        log.epochs.appended(epoch, base_offset)
        yield batch


def _start_offset(folder: Path, left: LeftLog | None) -> int:
    path = folder / START_FILE
    data = _bytes(path)
    found = 0 if data is None else -1
    with contextlib.suppress(ValueError):
        if data is not None and 0 <= (offset := int(data.decode())) < _LARGEST_OFFSET:
            found = offset
    known = max(found, 0) if left is None else left.start
    if found != known:
        _log.warning(
            "%s is not as it was; this partition begins at offset %d, or where its log begins", path, known
        )
        write_durably(path, str(known).encode())
    return known


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
