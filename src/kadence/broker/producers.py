"""Idempotent producers (KIP-98): what each one appended last to a partition, so that a retry is not appended twice.

The last five batches of a producer are remembered, because it may have five requests in flight.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kadence.broker.incoming import BatchError
from kadence.protocol import error_codes as codes
from kadence.records import BatchHeader

__all__ = ["ProducerStates"]

_REMEMBERED_BATCHES: Final = 5
_LAST_SEQUENCE: Final = 2**31 - 1


class _Appended(NamedTuple):
    first_sequence: int
    last_sequence: int
    base_offset: int


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[_Appended] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class ProducerStates:
    """One partition's producers."""

    __slots__ = ("_producers",)

    def __init__(self) -> None:
        self._producers: dict[int, _Producer] = {}

    def check(self, header: BatchHeader) -> int | None:
        """Whether ``header``'s batch may be appended.

        Returns:
            None to append it; the base offset of its first appearance if it is a repetition.

        Raises:
            BatchError: its epoch is old, or a batch before it is missing.
        """
        if header.producer_id < 0:
            return None
        known = self._producers.get(header.producer_id)
        if known is None:
            return None
        if header.producer_epoch < known.epoch:
            raise BatchError(
                codes.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {known.epoch}; the batch has {header.producer_epoch}",
            )
        if header.producer_epoch > known.epoch:
            expected = 0
        else:
            for each in known.batches:
                if each[:2] == (header.base_sequence, header.last_sequence):
                    return each.base_offset
            last = known.batches[-1].last_sequence
            expected = 0 if last == _LAST_SEQUENCE else last + 1
        if header.base_sequence != expected:
            raise BatchError(
                codes.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} should send sequence {expected} next, not {header.base_sequence}",
            )
        return None

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        """Remember that the batch has been appended at ``base_offset``."""
        if header.producer_id < 0:
            return
        known = self._producers.get(header.producer_id)
        if known is None or known.epoch != header.producer_epoch:
            known = self._producers[header.producer_id] = _Producer(header.producer_epoch)
        known.batches.append(_Appended(header.base_sequence, header.last_sequence, base_offset))
