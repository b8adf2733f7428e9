"""``--stats`` of ``kadence consume``: position and lag of each partition at intervals, on stderr."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kadence.lag import per_second
from kadence_cli.common import print_table
from kadence_cli.names import spelled

if TYPE_CHECKING:
    from kadence import Consumer, NotFetched, TopicPartition

__all__ = ["Glance"]

_COLUMNS = ("partition", "position", "lag", "fetching")
_MIB = 1 << 20


class Glance:
    """Prints a table every ``seconds``, and one at the end, without requests to brokers."""

    def __init__(self, consumer: Consumer, seconds: float) -> None:
        self._consumer = consumer
        self._seconds = seconds
        self._shown_at = time.monotonic()
        self._count = 0

    def look(self, count: int) -> None:
        """Between two polls; ``count``: records so far."""
        now = time.monotonic()
        if now - self._shown_at >= self._seconds:
            self._show(count, now)

    def end(self, count: int) -> None:
        """After the last poll: a short reading has a table, too."""
        self._show(count, time.monotonic())

    def _show(self, count: int, now: float) -> None:
        metrics = self._consumer.metrics()
        buffered = next(value for name, value in metrics.items() if name.name == "buffer-held-bytes")
        rate = per_second(count - self._count, (now - self._shown_at) * 1000) or 0
        self._shown_at, self._count = now, count
        title = f"{count:,} records, {rate:,.0f} per second, {buffered / _MIB:,.1f} MiB buffered"
        print_table(self._rows(), _COLUMNS, sys.stderr, title=title, wrap=True)
        sys.stderr.flush()

    def _rows(self) -> list[dict[str, object]]:
        consumer = self._consumer
        held = consumer.not_fetched()
        rows: list[dict[str, object]] = []
        for partition in sorted(consumer.assignment()):
            why = held.get(partition)
            rows.append(
                {
                    "partition": spelled(partition),
                    "position": self._position(partition),
                    "lag": consumer.current_lag(partition),
                    "fetching": "yes" if why is None else _briefly(why),
                }
            )
        return rows

    def _position(self, partition: TopicPartition) -> int | None:
        from kadence.errors import KafkaTimeoutError

        try:
            return self._consumer.position(partition, timeout=0)
        except KafkaTimeoutError:
            return None


def _briefly(why: NotFetched) -> str:
    words = why.reason.name.lower().replace("_", " ")
    if why.reason.is_expected:
        return words
    detail = f" ({why.detail})" if why.detail else ""
    return f"no: {words}{detail}, for {why.since:.0f} s"
