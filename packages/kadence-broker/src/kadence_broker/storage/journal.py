"""A small file of changes: one line each, a checksum and JSON. A last line that a crash has torn is left out."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from zlib import crc32

from kadence.errors import ConfigError
from kadence_broker.storage.files import fsync_path, write_durably

__all__ = ["Journal", "entry_of", "line_of"]


class Journal:
    """Entries are JSON objects. `rewrite` before `append`."""

    __slots__ = ("_descriptor", "_durable", "_flushing", "_path", "_size", "_waiting")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1
        self._size = 0
        self._durable = self._flushing = 0
        """Bytes known to be durable, and those that will be when the present flush ends."""
        self._waiting: list[tuple[int, Callable[[OSError | None], None]]] = []

    def read(self, *, may_be_torn: bool) -> list[dict[str, Any]]:
        """All complete entries, oldest first. A torn end is left out: no client got a response that depends on it.

        Args:
            may_be_torn: the broker that wrote it did not end in order.

        Raises:
            ConfigError: a line is damaged that no crash has torn, or a line holds no JSON.
        """
        try:
            *lines, rest = self._path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        whole = [_is_whole(line) for line in lines]
        count = whole.index(False) if False in whole else len(lines)
        if any(whole[count:]) or (not may_be_torn and (rest or count < len(lines))):
            raise ConfigError(
                f"{self._path}: line {count + 1} is damaged; restore it, or cut the file off before it, which loses "
                "the changes of this line and all later ones"
            )
        try:
            return [json.loads(line.partition(b" ")[2]) for line in lines[:count]]
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self._path} has a line that is not JSON: {error}") from error

    def rewrite(self, entries: Iterable[dict[str, Any]]) -> None:
        """Let the file hold just these, durably."""
        data = b"".join(line_of(each) for each in entries)
        write_durably(self._path, data)
        fsync_path(self._path.parent)
        self.close()
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        self._size = self._durable = self._flushing = len(data)

    def append(self, *entries: dict[str, Any]) -> None:
        """Add entries; `begin_flush` makes them durable.

        Raises:
            OSError: there is no room for all of them; the file is as before.
        """
        data = b"".join(line_of(each) for each in entries)
        at = self._size
        try:
            while data:
                written = os.pwrite(self._descriptor, data, at)
                data = data[written:]
                at += written
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size = at

    @property
    def size(self) -> int:
        """Bytes of the file, once it was written."""
        return self._size

    def on_durable(self, callback: Callable[[OSError | None], None]) -> None:
        """Call ``callback`` once all entries so far are durable, or may not be."""
        if self._durable >= self._size:
            callback(None)
        else:
            self._waiting.append((self._size, callback))

    def begin_flush(self) -> list[Callable[[], None]]:
        """See `kadence_broker.storage.flusher.Durable`."""
        self._flushing = self._size
        if self._durable >= self._size:
            return []
        # It is closed only once nothing is flushed any more.
        return [lambda: os.fsync(self._descriptor)]

    def end_flush(self, error: OSError | None) -> None:
        """Partitions flushed with it hear of an error; it is tried again with the next."""
        if error is None:
            self._durable = self._flushing
        durable = [each for each in self._waiting if each[0] <= self._flushing]
        self._waiting = [each for each in self._waiting if each[0] > self._flushing]
        for _, callback in durable:
            callback(error)

    def sync(self) -> None:
        """Make all entries durable. Raises `OSError`."""
        if self._durable < self._size:
            os.fsync(self._descriptor)
            self._durable = self._size

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _is_whole(line: bytes) -> bool:
    crc, _, body = line.partition(b" ")
    return crc == b"%08x" % crc32(body)


def entry_of(line: bytes) -> Any:
    """The entry in a line without its end. Raises `ValueError`: the line is damaged, or holds no JSON."""
    if not _is_whole(line):
        raise ValueError("a line with a wrong checksum")
    return json.loads(line.partition(b" ")[2])


def line_of(entry: dict[str, Any]) -> bytes:
    """An entry as a line of a file: a checksum, JSON and the end of the line."""
    body = json.dumps(entry, separators=(",", ":"), sort_keys=True).encode()
    return b"%08x %s\n" % (crc32(body), body)
