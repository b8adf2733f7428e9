"""What the driver does when Spark has accepted the tasks of a batch: one commit of the table, once for each batch.

A table keeps for each writer the number of its last batch, written by the same commit as the batch's files. Spark
repeats its last batch after a crash, with the same number; the table then has that number already.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from kadence.errors import IllegalStateError
from kadence.logs import logger
from kadence.spark.stamp import Stamp

__all__ = ["ConflictError", "RefusedError", "Table", "Wait", "back_out", "commit_once", "until_unopposed"]

_log = logger("kadence.spark")

ATTEMPTS: Final = 20
"""How often a commit is tried while others change the table."""


class ConflictError(Exception):
    """Another writer has changed the table since it was opened; this commit is not in it, or its answer was lost."""


class RefusedError(IllegalStateError):
    """The table does not take the commit, and will not take it later. Nothing of it is in the table."""


class Table(Protocol):
    """A table as it was when it was opened."""

    def last_batch(self, writer: str) -> int | None:
        """The number of the last batch of a writer that is in the table; None: there is none."""

    def commit(self, files: Sequence[Any], stamp: Stamp | None, *, overwrite: bool) -> None:
        """Add files in one commit, which holds the stamp.

        Args:
            overwrite: the files replace all that the table has.

        Raises:
            ConflictError: the table has changed since it was opened.
            RefusedError: it has not, and will not have the commit.
            IllegalStateError: the commit failed, and may be in the table all the same, or get there later.
        """

    def has(self, files: Sequence[Any]) -> bool:
        """Whether a commit of these files is in the table."""

    def remove(self, files: Sequence[Any]) -> None:
        """Delete files that are not in the table."""


Wait = Callable[[float], None]

T = TypeVar("T")


def until_unopposed(attempt: Callable[[], T], what: str, wait: Wait = time.sleep) -> T:
    """What ``attempt`` returns; while others change the table it is made again, each time with the table as it is.

    Args:
        attempt: raises `ConflictError` where the table has changed meanwhile. what: what it is to do, for the error.
        wait: waits that many seconds between two tries.

    Raises:
        IllegalStateError: others changed the table during each of the tries.
    """
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except ConflictError as problem:
            _log.info("another writer changed the table, so this is tried again: %s: %s", what, problem)
            wait(random.uniform(0.5, 1.0) * min(0.05 * 2**number, 5.0))
    raise IllegalStateError(f"others changed the table during each of {ATTEMPTS} tries to {what}")


def commit_once(
    opened: Callable[[], Table],
    files: Sequence[Any],
    stamp: Stamp | None,
    *,
    overwrite: bool = False,
    wait: Wait = time.sleep,
) -> bool:
    """Add the files of a batch to the table; False: the table has the batch already, and nothing was added.

    Args:
        opened: opens the table as it is now. wait: waits that many seconds between two tries.

    Raises:
        IllegalStateError: others changed the table during each of the tries; or the commit failed, and it is not known
            whether it will be in the table: its files stay.
        RefusedError: the table does not take the commit; its files are deleted.
    """
    if not files and not overwrite:
        return True
    is_first = True

    def attempt() -> bool:
        nonlocal is_first
        table, was_first, is_first = opened(), is_first, False
        last = None if stamp is None else table.last_batch(stamp.writer)
        if stamp is not None and last is not None and last >= stamp.batch:
            _log.info("batch %d is in the table already; it is not added again", stamp.batch)
            # After a conflict the batch may be there by these very files: a lost answer looks like a conflict.
            if was_first:
                table.remove(files)
            return False
        if stamp is None and not was_first and table.has(files):
            return True
        try:
            table.commit(files, stamp, overwrite=overwrite)
        except RefusedError:
            table.remove(files)
            raise
        except IllegalStateError as problem:
            if not _is_in(opened, files, stamp):
                raise
            _log.warning("the commit failed, but it is in the table: %s", problem)
        return True

    return until_unopposed(attempt, "commit a batch", wait)


def _is_in(opened: Callable[[], Table], files: Sequence[Any], stamp: Stamp | None) -> bool:
    """Whether the table as it is now has a commit; False, too, where it cannot be asked."""
    try:
        table = opened()
    except IllegalStateError:
        return False
    return table.has(files) if stamp is None else table.last_batch(stamp.writer) == stamp.batch


def back_out(opened: Callable[[], Table], messages: Sequence[Sequence[Any] | None]) -> None:
    """Delete the files of a job that Spark gave up.

    Args:
        messages: what each task wrote; None: it did not end. With all of them Spark has asked for the commit, which may
            have reached the table although it failed here, so the files stay.
    """
    if None not in messages:
        return
    files = [file for message in messages if message is not None for file in message]
    if files:
        opened().remove(files)
