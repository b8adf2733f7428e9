"""A disk whose power fails: what was not made durable is gone, or is there by luck in part."""

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

__all__ = ["Power", "PowerCutError"]


class PowerCutError(BaseException):
    """The power has failed: whoever is at work gets no further."""


class Power:
    """Remembers of a folder what a power cut leaves: what files, and the lists of entries, had at their last fsync.

    Files are known by their inodes, so that a renamed file is the same one. They are held open, so that no inode is
    given to another file meanwhile. In place of `os.fsync` stands `fsync`.

    Attributes:
        left: how many fsyncs there will be until the power fails; None: it does not.
        is_off: whether nothing is remembered any more.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.left: int | None = None
        self.is_off = False
        self._chance = chance
        self._bytes: dict[int, bytes] = {}
        self._entries: dict[int, dict[str, int]] = {}
        self._held: dict[int, int] = {}
        self._root = self._hold(os.open(root, os.O_RDONLY))
        for path in [root, *root.rglob("*")]:
            descriptor = os.open(path, os.O_RDONLY)
            self._remember(descriptor)
            os.close(descriptor)

    def fsync(self, descriptor: int) -> None:
        """Make a file durable, or fail with the power."""
        if self.is_off:
            return
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise PowerCutError
        self._remember(descriptor)

    def leave(self, to: Path, *, by_luck: bool) -> None:
        """Make in ``to`` the folder that is found when the power is back.

        Args:
            by_luck: some entries and ends of files that were not durable are there, too, and some ends are torn.
        """
        to.mkdir()
        self._leave(self._root, to, by_luck)

    def close(self) -> None:
        """Let go of the files."""
        self.is_off = True
        for descriptor in self._held.values():
            os.close(descriptor)

    def _hold(self, descriptor: int) -> int:
        """Keep the descriptor unless its file is held already; the inode."""
        inode = os.fstat(descriptor).st_ino
        if inode in self._held:
            os.close(descriptor)
        else:
            self._held[inode] = descriptor
        return inode

    def _remember(self, descriptor: int) -> None:
        inode = self._hold(os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._entries[inode] = self._list(inode)
        else:
            self._bytes[inode] = self._read(inode)

    def _list(self, inode: int) -> dict[str, int]:
        folder = self._held[inode]
        return {
            name: self._hold(os.open(name, os.O_RDONLY, dir_fd=folder))
            for name in os.listdir(folder)  # noqa: PTH208 - by its descriptor, wherever it is now
            if name != ".lock"
        }

    def _read(self, inode: int) -> bytes:
        return os.pread(self._held[inode], os.fstat(self._held[inode]).st_size, 0)

    def _leave(self, inode: int, to: Path, by_luck: bool) -> None:
        entries = self._entries.get(inode, {})
        if by_luck and self._chance.random() < 0.3:
            entries = self._list(inode)
        for name, child in entries.items():
            if stat.S_ISDIR(os.fstat(self._held[child]).st_mode):
                (to / name).mkdir()
                self._leave(child, to / name, by_luck)
            else:
                (to / name).write_bytes(self._left_of(child, by_luck))

    def _left_of(self, inode: int, by_luck: bool) -> bytes:
        durable, now = self._bytes.get(inode, b""), self._read(inode)
        if not by_luck or not now.startswith(durable) or self._chance.random() < 0.5:
            return durable
        tail = bytearray(now[len(durable) : self._chance.randint(len(durable), len(now))])
        if tail and self._chance.random() < 0.5:
            # A page in the middle was not written.
            tail[: self._chance.randint(0, len(tail))] = bytes(self._chance.randint(0, len(tail)))
        return durable + tail
