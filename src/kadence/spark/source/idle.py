"""How long a stream that sees nothing new waits before it says so to Spark.

Spark asks the sources of a query one after the other, and runs no batch until all have answered. So a quiet source that
waits holds up the others, of which it knows nothing: each lives in a process of its own. What it can see is time. Spark
asks again within milliseconds where no source had news, and a batch takes longer than that.

So an empty look behind a batch is reported at once, whoever had the news. While nothing happens, each one waits twice
as long as the one before it, up to idlePollMs. Of several idle sources the first one then waits for all.
"""

from __future__ import annotations

from typing import Final

__all__ = ["BATCH_MS", "FIRST_MS", "IdleWait"]

BATCH_MS: Final = 40
"""The least time that a batch takes. Spark writes a file before and after each."""

FIRST_MS: Final = 25
"""The first wait while nothing happens."""


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
        """Spark asks for news: how long to wait for some, in ms."""
        if self._answered_ms is None or now_ms - self._answered_ms >= BATCH_MS:
            self._wait_ms = 0
        else:
            self._wait_ms = min(self._most_ms, max(FIRST_MS, 2 * self._wait_ms))
        return self._wait_ms

    def answered(self, now_ms: int, *, has_news: bool) -> None:
        """Spark has its answer. A batch follows if there is news, however short it is."""
        self._answered_ms = None if has_news else now_ms
