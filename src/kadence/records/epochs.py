"""Leader epochs of fetched batches: the fields of their headers that tell of a truncation (KIP-320).

A leader writes its epoch into every batch it appends, and epochs never go back along a log. So when the first batch
of a fetch is of the newest epoch there is, all are, and nobody needs to look at the others.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kadence.records.batch import HEADER_SIZE, LOG_OVERHEAD

__all__ = ["first_epoch", "leader_epochs"]

_EPOCH: Final = Struct(">i")
_FRAME: Final = Struct(">qii")


def first_epoch(data: memoryview) -> int:
    """Leader epoch of the first batch; -1 when it tells none. ``data`` holds a whole batch."""
    epoch: int = _EPOCH.unpack_from(data, LOG_OVERHEAD)[0]
    return max(epoch, -1)


def leader_epochs(data: memoryview) -> list[tuple[int, int]]:
    """Each epoch with the base offset of its first batch, in the order of the log.

    ``data`` is what `scan` called complete; where a header cannot be true the walk ends, as it does there.
    """
    found: list[tuple[int, int]] = []
    at, end = 0, data.nbytes
    while end - at >= HEADER_SIZE:
        base, length, epoch = _FRAME.unpack_from(data, at)
        if length < HEADER_SIZE - LOG_OVERHEAD:
            break
        if epoch >= 0 and (not found or epoch > found[-1][0]):
            found.append((epoch, base))
        at += length + LOG_OVERHEAD
    return found
