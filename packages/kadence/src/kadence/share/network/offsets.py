"""Sets of offsets as ranges, and acknowledgements as the protocol has them (KIP-932). Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kadence.protocol import share_acknowledge, share_fetch
from kadence.share.acknowledgements import Acknowledged, Acquired, joined

__all__ = ["Range", "acknowledge_batches", "count", "fetch_batches", "without"]

Range = tuple[int, int]
"""Neighbouring offsets, the last included."""

_RUN: Final = 10
"""So many equal types in a row, and more, become a batch of their own: it has one type for all of its offsets."""


def count(ranges: Iterable[Range | Acknowledged | Acquired]) -> int:
    """How many offsets they have."""
    return sum(each[1] - each[0] + 1 for each in ranges)


def without(ranges: Sequence[Range], gone: Iterable[Range | Acknowledged]) -> list[Range]:
    """The offsets of the first that are not in the second; both ascend."""
    left: list[Range] = []
    going = iter(gone)
    hole = next(going, None)
    for first, last in ranges:
        at = first
        while hole is not None and hole[0] <= last:
            if hole[1] >= at:
                if hole[0] > at:
                    left.append((at, hole[0] - 1))
                at = hole[1] + 1
                if at > last:
                    break
            hole = next(going, None)
        if at <= last:
            left.append((at, last))
    return left


def _batches(ranges: Iterable[Acknowledged]) -> list[tuple[int, int, list[int]]]:
    """First and last offset, and the types: one for all offsets, or one for each."""
    batches: list[tuple[int, int, list[int]]] = []
    # Of neighbours with different types, which go into one batch.
    begun: list[Acknowledged] = []

    def end() -> None:
        if len(begun) == 1:
            batches.append((begun[0].first, begun[0].last, [begun[0].type]))
        elif begun:
            types = [each.type for each in begun for _ in range(each.first, each.last + 1)]
            batches.append((begun[0].first, begun[-1].last, types))
        begun.clear()

    for each in joined(ranges):
        if each.last - each.first >= _RUN:
            end()
            batches.append((each.first, each.last, [each.type]))
            continue
        if begun and begun[-1].last + 1 != each.first:
            end()
        begun.append(each)
    end()
    return batches


def fetch_batches(ranges: Iterable[Acknowledged]) -> list[share_fetch.AcknowledgementBatch]:
    """For a ShareFetch."""
    return [
        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in _batches(ranges)
    ]


def acknowledge_batches(ranges: Iterable[Acknowledged]) -> list[share_acknowledge.AcknowledgementBatch]:
    """For a ShareAcknowledge."""
    return [
        share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
        for first, last, types in _batches(ranges)
    ]
