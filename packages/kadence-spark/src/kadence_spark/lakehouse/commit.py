"""The driver's commit of a batch to a table, once for each batch, when Spark has accepted its tasks.

A table stores the number of each writer's last batch, written by the same commit as the batch's files. Spark repeats
its last batch after a crash, with the same number, which the table then has already.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from kadence.errors import IllegalStateError
from kadence.logs import logger
from kadence_spark.stamp import Stamp

__all__ = ["ConflictError", "RefusedError", "Table", "Wait", "back_out", "commit_once", "until_unopposed"]

_log = logger("kadence.spark")

ATTEMPTS: Final = 20
"""The most attempts at a commit while other writers change the table."""


class ConflictError(Exception):
    """Another writer has changed the table since it was opened; this commit failed, or its answer was lost."""


class RefusedError(IllegalStateError):
    """The table refuses the commit, now and later. No part of it is in the table."""


class Table(Protocol):
    """A table in the version that was opened."""

    def last_batch(self, writer: str) -> int | None:
        """The number of a writer's last batch in the table; None: there is none."""

    def commit(self, files: Sequence[Any], stamp: Stamp | None, *, overwrite: bool) -> None:
        """Add files in one commit, with the stamp.

        Args:
            overwrite: the files replace all rows of the table.

        Raises:
            ConflictError: the table has changed since it was opened.
            RefusedError: the table refuses the commit.
            IllegalStateError: the commit failed, but may be in the table, or get there later.
        """

    def has(self, files: Sequence[Any]) -> bool:
        """Whether a commit of these files is in the table."""

    def remove(self, files: Sequence[Any]) -> None:
        """Delete files that are not in the table."""


Wait = Callable[[float], None]

T = TypeVar("T")


def until_unopposed(attempt: Callable[[], T], what: str, wait: Wait = time.sleep) -> T:
    """Call ``attempt`` until it succeeds while other writers change the table; returns its result.

    Args:
        attempt: opens the table again, and raises `ConflictError` if it has changed meanwhile. what: its purpose, for
            the error. wait: waits that many seconds between two attempts.

    Raises:
        IllegalStateError: others changed the table during each attempt.
    """
    for number in range(ATTEMPTS):
        try:
            return attempt()
        except ConflictError as problem:
            _log.info("another writer changed the table; trying again: %s: %s", what, problem)
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
        opened: opens the present version of the table. wait: waits that many seconds between two attempts.

    Raises:
        IllegalStateError: others changed the table during each attempt; or the commit failed with an unknown outcome,
            and its files stay.
        RefusedError: the table refuses the commit, or has a later batch; its files are deleted.
    """
    if not files and not overwrite:
        return True
    is_first = True

    def attempt() -> bool:
        nonlocal is_first
        table, was_first, is_first = opened(), is_first, False
        last = None if stamp is None else table.last_batch(stamp.writer)
        if stamp is not None and last is not None and last >= stamp.batch:
            # After a conflict these very files may be in the table: a lost answer looks like a conflict.
            if was_first:
                table.remove(files)
                # Spark repeats only its last batch. An older one would have new records, which would be lost.
                if last > stamp.batch:
                    raise RefusedError(
                        f"the table has batch {last} of {stamp.writer} already, and this one is batch {stamp.batch}: "
                        "the checkpoint, or txnVersion, is older than the table, and rows would be lost. To have them "
                        "written again, use a new checkpoint, or another txnAppId"
                    )
            _log.info("batch %d is in the table already; it is not added again", stamp.batch)
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
    """Whether the present version of the table has a commit; False if it cannot be opened."""
    try:
        table = opened()
    except IllegalStateError:
        return False
    return table.has(files) if stamp is None else table.last_batch(stamp.writer) == stamp.batch


def back_out(opened: Callable[[], Table], messages: Sequence[Sequence[Any] | None]) -> None:
    """Delete the files of a job that Spark gave up.

    Args:
        messages: the files of each task; None: it did not end. If all tasks ended, Spark has called the commit, which
            may have reached the table although it failed here, so the files stay.
    """
    if None not in messages:
        return
    files = [file for message in messages if message is not None for file in message]
    if files:
        opened().remove(files)
