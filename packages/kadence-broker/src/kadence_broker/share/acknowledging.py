"""Takes the answers of a member about records that it has (KIP-932, KIP-1222). All of a partition's, or none of them.

The form is checked first (`malformed`); then `acknowledge` changes the states, or finds out why it must not. What lies
wholly below the start offset is done, and anything that anybody says of it is accepted and ignored. After Apache Kafka
4.4's KafkaApis.validateAcknowledgementBatches and SharePartition.acknowledge.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kadence.protocol import error_codes as codes
from kadence_broker.share.changes import Changes
from kadence_broker.share.delivery import Delivery, InFlightBatch, RecordState
from kadence_broker.share.interface import ShareSettings
from kadence_broker.share.partition import SharePartition

__all__ = ["AckType", "Acknowledgement", "acknowledge", "malformed"]


class AckType(IntEnum):
    """As on the wire. GAP: the offset has no record."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


_STATES: Final = {AckType.ACCEPT: RecordState.ACKNOWLEDGED, AckType.GAP: RecordState.ARCHIVED}


class Acknowledgement(NamedTuple):
    """What a member says of neighbouring offsets: one type for all, or one for each."""

    first: int
    last: int
    types: list[int]

    def joined(self) -> Acknowledgement:
        """With one type instead of many that are alike: clients send them, and one is done at once."""
        kind = self.types[0]
        # What is released one by one stays apart, as in Kafka.
        if len(self.types) == 1 or kind == AckType.RELEASE or self.types.count(kind) != len(self.types):
            return self
        return self._replace(types=[kind])

    def type_at(self, offset: int) -> AckType:
        return AckType(self.types[offset - self.first if len(self.types) > 1 else 0])


def malformed(said: Sequence[Acknowledgement], *, knows_renewal: bool, is_renewal: bool) -> bool:
    """True if a partition's acknowledgements are no such thing, whatever its state.

    Args:
        knows_renewal: the version of the request has RENEW. is_renewal: the request said that it has some.
    """
    before = -1
    highest = AckType.RENEW if knows_renewal else AckType.REJECT
    for each in said:
        if not before <= each.first <= each.last or not each.types:
            return True
        if len(each.types) > 1 and len(each.types) != each.last - each.first + 1:
            return True
        if not all(AckType.GAP <= kind <= highest for kind in each.types):
            return True
        if AckType.RENEW in each.types and not is_renewal:
            return True
        before = each.last
    return False


def acknowledge(
    partition: SharePartition,
    now: int,
    member: str,
    said: Sequence[Acknowledgement],
    settings: ShareSettings,
) -> tuple[Changes, int]:
    """Change the states as ``member`` says.

    Returns:
        the changes, which are to be stored, or undone if they cannot be; and an error code: then there are none.
    """
    taking = _Taking(partition, now, member, settings)
    for each in said:
        if each.last >= partition.start_offset:
            code = taking.take(each.joined())
            if code != codes.NONE:
                partition.undo(taking.changes)
                return Changes(), code
    return taking.changes, codes.NONE


class _Taking:
    """The acknowledgements of one request for one partition."""

    __slots__ = ("changes", "member", "now", "partition", "settings")

    def __init__(self, partition: SharePartition, now: int, member: str, settings: ShareSettings) -> None:
        self.partition = partition
        self.now = now
        self.member = member
        self.settings = settings
        self.changes = Changes()

    def take(self, said: Acknowledgement) -> int:
        start = self.partition.start_offset
        floor = self.partition.in_flight.floor(said.first)
        if floor is None and said.first < start <= said.last:
            floor = self.partition.in_flight.floor(start)
        if floor is None:
            return codes.INVALID_RECORD_STATE
        batches = self.partition.in_flight.between(floor.first, said.last)
        if batches[-1].last < said.last:
            return codes.INVALID_REQUEST  # Beyond everything that was ever given out.
        for batch in batches:
            if batch.last >= start:
                code = self._take_from(batch, said)
                if code != codes.NONE:
                    return code
        return codes.NONE

    def _take_from(self, batch: InFlightBatch, said: Acknowledgement) -> int:
        whole, start = batch.whole, self.partition.start_offset
        if whole is not None:
            if not whole.is_held_by(self.member):
                return codes.INVALID_RECORD_STATE
            is_one = batch.lies_within(said.first, said.last) and len(said.types) == 1
            if is_one and not batch.straddles(start):
                return self._apply(batch, batch.first, batch.last, whole, said.type_at(said.first))
            batch.split()
        for offset, delivery in batch.within(max(said.first, start), said.last):
            if not delivery.is_held_by(self.member):
                return codes.INVALID_RECORD_STATE
            code = self._apply(batch, offset, offset, delivery, said.type_at(offset))
            if code != codes.NONE:
                return code
        return codes.NONE

    def _apply(self, batch: InFlightBatch, first: int, last: int, delivery: Delivery, kind: AckType) -> int:
        partition, settings = self.partition, self.settings
        if kind is AckType.RENEW:
            if not settings.renew_enabled:
                return codes.INVALID_RECORD_STATE
            self.changes.add(delivery, first, last, is_stored=False)
            partition.lock(self.now, batch, [delivery], settings)
        elif kind is AckType.RELEASE:
            partition.release(delivery, first, last, settings, self.changes)
        elif kind is AckType.REJECT:
            state = RecordState.ARCHIVING if settings.dead_letter_topic else RecordState.ARCHIVED
            partition.change(delivery, first, last, state, self.changes)
            self.changes.rejected.add(first)
        else:
            partition.change(delivery, first, last, _STATES[kind], self.changes)
        return codes.NONE
