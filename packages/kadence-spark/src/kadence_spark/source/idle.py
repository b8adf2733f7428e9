"""Decides how long a stream without new records waits before it returns to Spark.

Spark calls the sources of a query one after the other, and starts a batch only when all have returned. So an idle
source that waits delays the others, which it cannot see: each has a process of its own. It can only measure time: Spark
calls again within milliseconds if no source had new records, and a batch takes longer than that.

So the first idle call after a batch of any source returns at once. While no batch runs, each call waits twice as long
as the one before it, up to idlePollMs. Of several idle sources the first one then waits for all.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BATCH_MS", "FIRST_MS", "IdleWait"]

BATCH_MS: Final = 40
"""The least time that a batch takes. Spark writes a file before and after each."""

FIRST_MS: Final = 25
"""The first wait while no batch runs."""


class IdleWait:
    """The waits of one source.

    Args:
        most_ms: the option idlePollMs.
    """

    def __init__(self, most_ms: int) -> None:
        self._most_ms = most_ms
        self._wait_ms = 0
        self._answered_ms: int | None = None

    def asked(self, now_ms: int) -> int:
        """A call by Spark: how long to wait for new records, in ms."""
        if self._answered_ms is None or now_ms - self._answered_ms >= BATCH_MS:
            self._wait_ms = 0
        else:
            self._wait_ms = min(self._most_ms, max(FIRST_MS, 2 * self._wait_ms))
        return self._wait_ms

    def answered(self, now_ms: int, *, has_news: bool) -> None:
        """The call returns. With new records a batch follows, however short it is."""
        self._answered_ms = None if has_news else now_ms
