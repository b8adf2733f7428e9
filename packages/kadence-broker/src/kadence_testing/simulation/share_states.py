"""The state of share-partitions as a simulated broker has it in memory and on its disk, read offset by offset."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kadence_broker.share.delivery import RecordState
from kadence_testing.simulation.share_rules import FRESH, Slot

if TYPE_CHECKING:
    from kadence_broker.share.partition import SharePartition
    from kadence_broker.share.stored import StoredState

__all__ = ["Part", "Stored", "parts_of", "slots_of", "stored_of"]

Part = tuple[int, int, RecordState, int, str, int]
"""Neighbouring offsets with one state: first, last, and the fields of `Slot`."""

Stored = dict[int, tuple[RecordState, int]]
"""State and count of offsets on the disk."""


class Parts(NamedTuple):
    """A share-partition in memory. Equal ones have equal states."""

    start: int
    parts: tuple[Part, ...]


def parts_of(state: SharePartition) -> Parts:
    """What the memory has."""
    return Parts(
        state.start_offset,
        tuple(
            (first, last, each.state, each.count, each.member, each.lock_ends)
            for batch in state.in_flight
            for first, last, each in batch.parts()
        ),
    )


def slots_of(parts: Parts) -> dict[int, Slot]:
    """The same by offset, from the start on, without what is as if it had never been read."""
    found: dict[int, Slot] = {}
    for first, last, state, deliveries, member, ends in parts.parts:
        slot = Slot(state, deliveries, member, ends)
        if slot != FRESH:
            for offset in range(max(first, parts.start), last + 1):
                found[offset] = slot
    return found


def stored_of(state: StoredState) -> Stored:
    """What the disk has, from the stored start on."""
    return {
        offset: (each.state, each.deliveries)
        for each in state.batches
        for offset in range(max(each.first, state.start_offset), each.last + 1)
        if (each.state, each.deliveries) != (RecordState.AVAILABLE, 0)
    }
