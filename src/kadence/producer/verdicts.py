"""What a broker's answer to a batch means, as a table. Codes that are not in it fail the batch."""

from __future__ import annotations

from enum import Enum
from typing import Final

from kadence.protocol import error_codes as ec

__all__ = ["Verdict", "verdict_of"]


class Verdict(Enum):
    """What happens to the batch."""

    WRITTEN = "it is in the log"
    RETRY = "send it again"
    RETRY_ELSEWHERE = "send it again, after asking who leads the partition now"
    OUT_OF_SEQUENCE = "the broker misses what came before it"
    SPLIT = "send it in two pieces, or give up if it is one record"
    FAIL = "give up; it is not in the log"


_TABLE: Final[dict[int, Verdict]] = {
    ec.NONE: Verdict.WRITTEN,
    # A retry of a batch that the broker wrote the first time and has already forgotten the offset of.
    ec.DUPLICATE_SEQUENCE_NUMBER: Verdict.WRITTEN,
    ec.UNKNOWN_TOPIC_OR_PARTITION: Verdict.RETRY_ELSEWHERE,
    ec.LEADER_NOT_AVAILABLE: Verdict.RETRY_ELSEWHERE,
    ec.NOT_LEADER_OR_FOLLOWER: Verdict.RETRY_ELSEWHERE,
    ec.REPLICA_NOT_AVAILABLE: Verdict.RETRY_ELSEWHERE,
    ec.KAFKA_STORAGE_ERROR: Verdict.RETRY_ELSEWHERE,
    ec.FENCED_LEADER_EPOCH: Verdict.RETRY_ELSEWHERE,
    ec.UNKNOWN_LEADER_EPOCH: Verdict.RETRY_ELSEWHERE,
    ec.UNKNOWN_TOPIC_ID: Verdict.RETRY_ELSEWHERE,
    ec.INCONSISTENT_TOPIC_ID: Verdict.RETRY_ELSEWHERE,
    ec.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.OUT_OF_SEQUENCE,
    ec.UNKNOWN_PRODUCER_ID: Verdict.OUT_OF_SEQUENCE,
    ec.INVALID_PRODUCER_EPOCH: Verdict.OUT_OF_SEQUENCE,
    ec.MESSAGE_TOO_LARGE: Verdict.SPLIT,
    ec.RECORD_LIST_TOO_LARGE: Verdict.SPLIT,
}


def verdict_of(code: int) -> Verdict:
    """The verdict of a partition's error code."""
    verdict = _TABLE.get(code)
    if verdict is None:
        verdict = Verdict.RETRY if code in ec.RETRIABLE else Verdict.FAIL
    return verdict
