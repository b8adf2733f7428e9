"""One partition on disk: its folder, what makes it durable, and what is written beside the log to load it fast."""

from __future__ import annotations

import base64
import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kadence.logs import logger
from kadence.own_files import DIRECTORY_MODE
from kadence_broker.storage.clean_stop import LeftLog
from kadence_broker.storage.files import (
    FileSegment,
    FileStore,
    fsync_path,
    log_name,
    named_files,
    open_private,
    write_durably,
)
from kadence_broker.storage.flusher import Flusher, NotTriedError
from kadence_broker.storage.indexes import encode_aborted, encode_epochs, encode_producers
from kadence_broker.storage.recovery import (
    CLEANED_FILE,
    EPOCHS_FILE,
    START_FILE,
    cleaned_in,
    recover,
    refuse_losses,
)
from kadence_broker.storage.segment import Segment

if TYPE_CHECKING:
    from kadence_broker.storage.partition import Partition

__all__ = ["PartitionFolder"]

_METADATA: Final = "partition.metadata"
_log = logger("kadence.broker")


class PartitionFolder:
    """The loop's thread owns it; the flusher runs the calls that wait for the disk.

    Attributes:
        flushes: whether what is appended is made durable before it is acknowledged.
        cut_bytes: how much of a torn end was cut when it was loaded.
    """

    def __init__(
        self,
        path: Path,
        partition: Partition,
        flusher: Flusher,
        now: int,
        *,
        flushes: bool,
        was_clean: bool,
        is_new: bool,
        left: LeftLog | None,
    ) -> None:
        self.path = path
        self.flushes = flushes
        self._has_failed = False
        self._flusher = flusher
        self._partition = partition
        self._flushing_upto = 0
        self._flushing_files = self._durable_files = 0
        """The number of the store's files with durable entries, or with entries that are becoming durable."""
        self._is_dirty = False
        self._is_gone = False
        if left is not None:
            refuse_losses(path, left)
        if not (is_new or path.exists()):
            _log.warning("%s is not there: the records of this partition, if it had any, are lost", path)
        path.mkdir(DIRECTORY_MODE, exist_ok=True)
        metadata = path / _METADATA
        if not metadata.exists():
            topic_id = base64.urlsafe_b64encode(partition.topic.topic_id).decode().rstrip("=")
            with open_private(metadata) as file:
                file.write(f"version: 0\ntopic_id: {topic_id}\n".encode())
        self._store = FileStore(path, lambda: partition.config, flusher.run, self._rolled)
        cleaned_upto = cleaned_in(path)
        self._is_cleaned = cleaned_upto is not None
        log, producers, self.cut_bytes, self._aborted_upto = recover(
            path, self._store, now, was_clean=was_clean, left=left, has_gaps=self._is_cleaned
        )
        partition.load(log, producers)
        partition.cleaned_upto = cleaned_upto or 0

    # Callbacks of the partition

    def appended(self) -> None:
        """There is something new in the log."""
        self._is_dirty = True
        if self.flushes:
            self.flush()

    def flush(self) -> None:
        """Make durable what is there."""
        self._flusher.want(self)

    def flush_soon(self) -> None:
        """Make durable what is not, without anybody waiting for it."""
        if self._is_dirty:
            self.flush()

    def started_at(self, offset: int) -> None:
        """The log starts at ``offset`` now."""
        path = self.path / START_FILE
        self._flusher.run(lambda: write_durably(path, str(offset).encode()))

    def cleans(self, upto: int) -> None:
        """Compaction begins: from now on offsets may be missing. Up to ``upto`` it has been before."""
        if not self._is_cleaned:
            self.cleaned(upto)

    def cleaned(self, upto: int) -> None:
        """Compaction has seen what lies below ``upto``."""
        self._is_cleaned = True
        path = self.path / CLEANED_FILE

        def write() -> None:
            if path.parent.exists():
                write_durably(path, str(upto).encode())

        self._flusher.run(write)

    def truncated(self) -> None:
        """Files about the end of the log are outdated."""
        end = self._partition.end_offset
        self._flushing_upto = min(self._flushing_upto, end)
        self._aborted_upto = min(self._aborted_upto, end)
        for path in named_files(self.path, ".snapshot"):
            if int(path.stem) > end:
                path.unlink()
        segments = self._partition.log.segments
        if segments:
            newest = segments[-1]
            self._keep_aborted(newest)
            if isinstance(newest, FileSegment) and newest.is_open:
                # It may have been sealed; batches that are appended now would not be in its indexes.
                for suffix in (".index", ".timeindex"):
                    self._flusher.run(partial(newest.path.with_suffix(suffix).unlink, missing_ok=True))
        # A cut of whole batches may end below where the log began.
        self.started_at(self._partition.start_offset)
        self._checkpoint()

    # Flushing

    def begin_flush(self) -> list[Callable[[], None]]:
        self._flushing_upto = self._partition.end_offset
        self._flushing_files = self._store.files_made
        self._is_dirty = False
        if self._is_gone:
            return []
        calls: list[Callable[[], None]] = []
        segments = self._partition.log.segments
        newest = segments[-1] if segments else None
        if isinstance(newest, FileSegment) and newest.is_open:
            calls.append(partial(os.fsync, newest.descriptor))
        if self._durable_files < self._flushing_files:
            calls += [partial(self._sync_entries, self.path), partial(self._sync_entries, self.path.parent)]
        return calls

    def _sync_entries(self, folder: Path) -> None:
        try:
            fsync_path(folder)
        except NotTriedError:
            if not self._is_gone:  # A deleted one needs none.
                raise

    def end_flush(self, error: OSError | None) -> None:
        error = error or self._store.error
        if error is None:
            self._durable_files = self._flushing_files
        else:
            self._has_failed = True
            _log.error("%s could not be made durable, and takes no more records: %s", self.path, error)
        self._partition.durable(self._flushing_upto, error)

    # Beside the log

    def _rolled(self, base_offset: int) -> None:
        """A new segment begins: what follows from the log so far is kept, so that a restart need not read it all."""
        log = self._partition.log
        if log.end_offset == base_offset and log.segments:
            # In this order: below a snapshot, aborted transactions are read from these files alone.
            for segment in log.segments:
                if segment.next_offset > self._aborted_upto:
                    self._keep_aborted(segment)
            self._aborted_upto = base_offset
            self._checkpoint()

    def _keep_aborted(self, segment: Segment) -> None:
        """Write which transactions were aborted in a segment, or nothing if none was."""
        entries = self._partition.producers.aborted.entries
        aborted = [each for each in entries if segment.base_offset <= each.last_offset < segment.next_offset]
        path, data = self.path / log_name(segment.base_offset, ".txnindex"), encode_aborted(aborted)
        if aborted:
            self._flusher.run(lambda: write_durably(path, data))
        else:
            self._flusher.run(lambda: path.unlink(missing_ok=True))

    def _checkpoint(self) -> None:
        partition, path = self._partition, self.path
        epochs = encode_epochs(partition.log.epochs.entries)
        producers = encode_producers(list(partition.producers.known.values()))
        snapshot = path / log_name(partition.end_offset, ".snapshot")

        def write() -> None:
            if path.exists():
                # In this order: a snapshot says that the epochs below it are known.
                write_durably(path / EPOCHS_FILE, epochs)
                write_durably(snapshot, producers)

        self._flusher.run(write)

    def close(self) -> None:
        """Leave everything such that nothing needs to be read again; the flusher still runs."""
        newest = self._partition.log.segments[-1] if self._partition.log.segments else None
        if isinstance(newest, FileSegment) and newest.is_open:  # else nothing came since it was sealed
            self._rolled(self._partition.end_offset)
            self._store.seal(newest)

    def left(self) -> LeftLog:
        """The state of the log for the file of a clean stop; called after the flusher has ended."""
        log = self._partition.log
        aborted = {
            each.base_offset: self.path / log_name(each.base_offset, ".txnindex") for each in log.segments
        }
        return LeftLog(
            log.start_offset,
            log.end_offset,
            {each.base_offset: each.size for each in log.segments if each.size},
            {base: path.stat().st_size for base, path in aborted.items() if path.exists()},
        )

    @property
    def is_safe(self) -> bool:
        """True if everything that must be durable is, as far as the disk has reported."""
        return not self._has_failed and self._store.error is None

    def release(self) -> None:
        """Free the files of readers; there are none left."""
        for segment in self._partition.log.segments:
            if isinstance(segment, FileSegment):
                segment.release()

    def delete(self) -> None:
        """The partition is gone; so are its files, soon."""
        self._is_gone = True
        for segment in self._partition.log.segments:
            if isinstance(segment, FileSegment):
                segment.close()
        try:
            gone = self.path.rename(self.path.with_name(f"{self.path.name}.{id(self):x}-delete"))
        except OSError as error:
            if error.errno != errno.ENOENT:
                _log.warning("%s could not be deleted: %s", self.path, error)
            return
        self._flusher.run(lambda: _remove(gone))


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
