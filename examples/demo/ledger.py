"""Counts the processed records: which ones, by which member, how often; and partitions without an owner. Pure.

A record counts as processed when a member has reported it after its work, so a record that a killed member had only
fetched does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Ledger", "RebalanceRow"]


@dataclass(slots=True)
class RebalanceRow:
    """One generation of the group, as its members saw it. Times are monotonic ms."""

    generation: int
    started_at: int
    ended_at: int
    causes: list[str] = field(default_factory=list)
    members: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """By member: how many partitions it has, got and gave up."""


class Ledger:
    """The accounts of one run.

    Args:
        sizes: records produced, by partition.
    """

    def __init__(self, sizes: Mapping[int, int]) -> None:
        self._times = {partition: bytearray(size) for partition, size in sizes.items()}
        self._left = dict(sizes)
        self.total = sum(sizes.values())
        self.distinct = 0
        self.repeated = 0
        self.by_member: Counter[str] = Counter()
        self.owned: dict[str, frozenset[int]] = {}
        self.lost_by: Counter[str] = Counter()
        """How often a member's on_partitions_lost was called."""
        self.ids: dict[str, list[str]] = {}
        """The member ids of each member; more than one means that it had to rejoin."""
        self._rebalances: dict[int, RebalanceRow] = {}
        self._killed: dict[int, int] = {}
        self.waited_ms: dict[int, int] = {}
        """By partition of a killed member: how long until another one had processed a record of it."""

    # ------------------------------------------------------------ what happens

    def processed(self, member: str, partition: int, first: int, last: int, at: int) -> None:
        """``member`` has worked on the offsets ``first`` to ``last`` of ``partition``."""
        times = self._times[partition]
        part = times[first : last + 1]
        if len(part) != last + 1 - first:
            raise ValueError(f"partition {partition} has no offsets {first} to {last}, only {len(times)}")
        new = part.count(0)
        self.distinct += new
        self.repeated += len(part) - new
        self._left[partition] -= new
        self.by_member[member] += len(part)
        times[first : last + 1] = bytes(min(count + 1, 255) for count in part)
        if partition in self._killed and partition not in self.waited_ms:
            self.waited_ms[partition] = at - self._killed[partition]

    def owns(self, member: str, partitions: Iterable[int], member_id: str) -> None:
        """The member's present partitions and member id."""
        self.owned[member] = frozenset(partitions)
        ids = self.ids.setdefault(member, [])
        if member_id and (not ids or ids[-1] != member_id):
            ids.append(member_id)

    def rebalanced(self, member: str, event: Mapping[str, Any]) -> None:
        """A member's view of one rebalance."""
        generation = int(event["generation"])
        row = self._rebalances.setdefault(
            generation, RebalanceRow(generation, event["started_at"], event["ended_at"])
        )
        row.started_at = min(row.started_at, event["started_at"])
        row.ended_at = max(row.ended_at, event["ended_at"])
        if event["cause"] and event["cause"] not in row.causes:
            row.causes.append(event["cause"])
        row.members[member] = (len(event["assigned"]), len(event["added"]), len(event["removed"]))

    def killed(self, member: str, at: int) -> frozenset[int]:
        """``member`` is gone; its unfinished partitions wait from now on."""
        waiting = frozenset(p for p in self.owned.pop(member, frozenset()) if self._left[p])
        self._killed.update(dict.fromkeys(waiting, at))
        return waiting

    # ------------------------------------------------------------ what is asked

    @property
    def missing(self) -> int:
        """Records that no member has processed."""
        return self.total - self.distinct

    def left(self, partitions: Iterable[int]) -> int:
        """Records of these partitions that no member has processed."""
        return sum(self._left[partition] for partition in partitions)

    def is_shared_out(self, members: int) -> bool:
        """Whether so many members together own all partitions.

        False during a rebalance, when partitions that one member gave up have no owner yet.
        """
        return len(self.owned) == members and sum(map(len, self.owned.values())) == len(self._left)

    def busiest(self, but: Iterable[str] = ()) -> list[str]:
        """Members by the number of their unprocessed records, most first."""
        members = [member for member in self.owned if member not in set(but)]
        return sorted(members, key=lambda member: self.left(self.owned[member]), reverse=True)

    @property
    def orphaned(self) -> frozenset[int]:
        """Partitions that a killed member had not finished."""
        return frozenset(self._killed)

    def rebalances(self) -> list[RebalanceRow]:
        """By generation."""
        return [self._rebalances[generation] for generation in sorted(self._rebalances)]
