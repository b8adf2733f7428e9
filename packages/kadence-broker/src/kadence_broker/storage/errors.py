"""The refusals of a partition, in Kafka's words."""

from __future__ import annotations

__all__ = ["BatchError"]


class BatchError(Exception):
    """A batch that was not appended.

    Attributes:
        code: Kafka's error code for it. message: a sentence for people.
        records: errors of single records of the batch, as (index, sentence).
        at_log: whether the partition judged it by what it has, so that the answer says where its log begins.
    """

    def __init__(
        self, code: int, message: str, records: tuple[tuple[int, str], ...] = (), *, at_log: bool = True
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.records = records
        self.at_log = at_log
