"""What a share fetch reads from the log of a partition, and which part of it goes into the answer (KIP-932).

A read brings whole batches; the answer has those that overlap what the member acquired. Batches of aborted
transactions are named, so that a group that reads committed records never gets them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

from kadence.records import iter_batches
from kadence.records.batch import HEADER_SIZE, AbortedTransactions
from kadence_broker.scatter import Chunks
from kadence_broker.share.acquiring import Acquired, LogBatch
from kadence_broker.storage import Isolation, Partition

__all__ = ["LogRead", "budgets", "isolation_of", "read_log"]


class LogRead(NamedTuple):
    """Batches in their order, each with its bytes; and those of aborted transactions."""

    batches: list[LogBatch]
    views: list[memoryview]
    aborted: list[LogBatch]

    @property
    def size(self) -> int:
        return sum(map(len, self.views))

    def chunks(self, acquired: Sequence[Acquired]) -> Chunks:
        """The bytes from the batch with the first offset in ``acquired`` to the one with the last."""
        first, last = acquired[0].first, acquired[-1].last
        begin = 0
        while begin + 1 < len(self.batches) and self.batches[begin + 1].first <= first:
            begin += 1
        end = begin + 1
        while end < len(self.batches) and self.batches[end].first <= last:
            end += 1
        return Chunks(self.views[begin:end])


def isolation_of(*, read_committed: bool) -> Isolation:
    """The end up to which a group reads."""
    return Isolation.COMMITTED if read_committed else Isolation.UNCOMMITTED


def read_log(
    partition: Partition, offset: int, max_bytes: int, isolation: Isolation, *, at_least_one: bool
) -> LogRead:
    """Whole batches from ``offset`` on, about ``max_bytes`` of them."""
    views = partition.read(offset, max_bytes, isolation, at_least_one=at_least_one)
    found = list(chain.from_iterable(map(iter_batches, views)))
    aborted: list[LogBatch] = []
    if isolation is Isolation.COMMITTED and found:
        transactions = AbortedTransactions(
            (each.producer_id, each.first_offset) for each in partition.aborted(offset)
        )
        for header, batch in found:
            transactions.enter(header.last_offset)
            if header.is_control:
                transactions.marker(header.producer_id, batch[HEADER_SIZE:])
            elif header.is_transactional and transactions.covers(header.producer_id):
                aborted.append(LogBatch(header.base_offset, header.last_offset))
    return LogRead(
        [LogBatch(header.base_offset, header.last_offset) for header, _ in found],
        [batch for _, batch in found],
        aborted,
    )


def budgets(max_bytes: int, partitions: int) -> list[int]:
    """The bytes that each partition may give: as many each, and the first what is left over."""
    share, rest = divmod(max_bytes, partitions)
    return [share + rest if number == 0 else share for number in range(partitions)]
