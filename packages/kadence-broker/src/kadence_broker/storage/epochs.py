"""The leader epochs of a partition, with their first offsets (KIP-101, KIP-320)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

__all__ = ["LeaderEpochs"]


class LeaderEpochs:
    """Pairs of (epoch, first offset of it), both ascending."""

    __slots__ = ("entries",)

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries = list(entries)

    def appended(self, epoch: int, offset: int) -> bool:
        """A batch of ``epoch`` begins at ``offset``; True if that is the first of its epoch."""
        if self.entries and self.entries[-1][0] >= epoch:
            return False
        self.entries.append((epoch, offset))
        return True

    def end_of(self, epoch: int, end_offset: int) -> tuple[int, int]:
        """The largest epoch not above ``epoch`` and the offset where it ends.

        An epoch from before the log begins ended where the log's first one began; of -1, and in a log without epochs,
        it is (-1, -1).

        Args:
            end_offset: where the log ends, and with it the newest epoch.
        """
        number = bisect_right(self.entries, epoch, key=lambda entry: entry[0]) - 1
        if epoch == -1 or not self.entries:
            return -1, -1
        if number < 0:
            return epoch, self.entries[0][1]
        following = number + 1
        end = self.entries[following][1] if following < len(self.entries) else end_offset
        return self.entries[number][0], end

    def at_end(self) -> int:
        """Epoch of the newest batch; -1 if nothing was ever appended."""
        return self.entries[-1][0] if self.entries else -1

    def of(self, offset: int) -> int:
        """Epoch of the batch that holds ``offset``; -1 if it is not known."""
        number = bisect_right(self.entries, offset, key=lambda entry: entry[1]) - 1
        return self.entries[number][0] if number >= 0 else -1

    def truncate(self, end_offset: int) -> None:
        """Forget the epochs that began at ``end_offset`` or later."""
        self.entries = [entry for entry in self.entries if entry[1] < end_offset]
