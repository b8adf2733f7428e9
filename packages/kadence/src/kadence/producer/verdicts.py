"""The meaning of each error code for a batch, and the error of one that times out.

Remedies are in `kadence.errors.remedies`; here are their consequences for a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kadence.errors import BrokerError, KafkaError, KafkaTimeoutError, RecordTooLargeError, for_code
from kadence.errors.remedies import Remedy, remedy_of_code
from kadence.printable import plural
from kadence.producer.accumulator import Batch
from kadence.protocol import error_codes as ec
from kadence.protocol.produce import PartitionProduceResponse, ProduceResponse
from kadence.types import Node

__all__ = ["Verdict", "blamed", "endpoints_of", "out_of_time", "refused", "too_large", "verdict_of"]


class Verdict(Enum):
    """The consequence for a batch."""

    WRITTEN = "it is in the log"
    RETRY = "send it again"
    RETRY_ELSEWHERE = "send it again, after asking who leads the partition now"
    OUT_OF_SEQUENCE = "the broker lacks records before it"
    SPLIT = "send it in two pieces, or give up if it is one record"
    FAIL = "give up; it is not in the log"


_HERE: Final[dict[int, Verdict]] = {
    ec.NONE: Verdict.WRITTEN,
    # A retry of a batch that the broker wrote the first time, and whose offset it has forgotten.
    ec.DUPLICATE_SEQUENCE_NUMBER: Verdict.WRITTEN,
    ec.OUT_OF_ORDER_SEQUENCE_NUMBER: Verdict.OUT_OF_SEQUENCE,
    ec.UNKNOWN_PRODUCER_ID: Verdict.OUT_OF_SEQUENCE,
    ec.INVALID_PRODUCER_EPOCH: Verdict.OUT_OF_SEQUENCE,
}
"""Codes with a special meaning for batches."""

_BY_REMEDY: Final[dict[Remedy, Verdict]] = {
    Remedy.TIME: Verdict.RETRY,
    Remedy.COORDINATOR: Verdict.RETRY,
    Remedy.METADATA: Verdict.RETRY_ELSEWHERE,
    Remedy.FORM: Verdict.SPLIT,
}


def verdict_of(code: int) -> Verdict:
    """The verdict of a partition's error code. A batch fails if repeating does not help."""
    return _HERE.get(code) or _BY_REMEDY.get(remedy_of_code(code), Verdict.FAIL)


def blamed(batch: Batch, answer: PartitionProduceResponse) -> dict[int, KafkaError]:
    """The records that the broker names as the reason why it refused a batch (KIP-467), by index."""
    return {
        record.batch_index + batch.first: for_code(answer.error_code, record.batch_index_error_message)
        for record in answer.record_errors
    }


def refused(batch: Batch, error: BrokerError, record_errors: Mapping[int, KafkaError]) -> KafkaError:
    """The error of a refused batch: of its records that are not blamed, and in the log."""
    if not record_errors:
        return error
    reason = next(iter(record_errors.values()))
    if len(record_errors) == batch.count:
        return reason
    return for_code(
        error.code, f"{batch.tp}: not written because other records of its batch were refused ({reason})"
    )


def endpoints_of(answer: ProduceResponse) -> dict[int, Node]:
    """The addresses of the new leaders that a response names (KIP-951)."""
    return {
        each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in answer.node_endpoints
    }


def too_large(batch: Batch, refusal: KafkaError) -> RecordTooLargeError:
    """The error of one record that alone makes a batch too large."""
    error = RecordTooLargeError(
        f"a record for {batch.tp} makes a batch of {len(batch.encoded or b'')} bytes, more than the broker takes "
        "(max.message.bytes of the topic, message.max.bytes of the broker); raise that, or send a smaller record"
    )
    error.__cause__ = refusal
    return error


def out_of_time(batch: Batch, delivery_timeout_ms: int, *, has_leader: bool) -> KafkaTimeoutError:
    """The error of records that were not acknowledged in time, with the reason."""
    why = batch.last_error
    if why is not None:
        state = f"last error after {batch.attempts} attempts: {why}"
    elif not has_leader:
        state = "its partition has no leader"
    else:
        state = "no answer came" if batch.attempts else "no broker accepted it"
    error = KafkaTimeoutError(
        f"{plural(batch.count, 'record')} for {batch.tp} not acknowledged within "
        f"delivery.timeout.ms={delivery_timeout_ms}; {state}"
    )
    error.__cause__ = why
    return error
