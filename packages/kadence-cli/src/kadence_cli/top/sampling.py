"""Computes rates, lag and its trend, time to catch up, and events from successive samples of a group. Pure.

A group's committed offsets move in steps, because consumers commit at intervals (every 5 s by default). So rates are
those of the last half minute, and not those between two samples.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kadence.admin import MemberDescription
from kadence.lag import lag, per_second, seconds_to_catch_up
from kadence.lazy_dataclasses import dataclass, field
from kadence.types import TopicPartition
from kadence_cli.group_types import Description
from kadence_cli.names import ranges, spelled

__all__ = ["Event", "GroupHistory", "PartitionHistory", "Progress", "Sample"]

N = TypeVar("N", int, float)

WINDOW_MS: Final = 30_000
"""The window of rates (ms)."""

STUCK_MS: Final = 60_000
"""After so long a committed offset that does not move, below done records, becomes an event."""

EVENTS: Final = 500
"""How many events of a group are kept."""

_COMMITTED_S: Final = 10.0
"""The greatest age of committed offsets in a healthy group: twice the interval of commits."""

_NAMED: Final = 5
"""The most members that one sample names in the events, which a large starting group would fill alone."""

_SETTLED: Final = frozenset({"Stable", "Empty", "Dead"})


@dataclass(frozen=True, slots=True)
class Sample:
    """A group at one moment.

    Attributes:
        committed: the committed offsets; of a share group its start offsets plus the number of records that are done
            above them. ends: the end offset of each committed or owned partition, if known.
        above: how many records are done above the committed offset, from the metadata of `process`.
    """

    description: Description
    committed: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    above: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """A change of a group between two samples. ``at``: seconds since 1970."""

    at: float
    text: str


class Progress(NamedTuple):
    """The progress of a partition, of a member's partitions, or of a group.

    Attributes:
        lag: records between the committed offset and the end. trend: the lag in earlier samples, the oldest first.
        consumed, produced: records a second. catches_up_in: seconds until the lag is 0 at these rates; for several
            partitions that of the slowest. Infinite: never. All are None while unknown.
    """

    lag: int | None
    trend: tuple[int | None, ...]
    consumed: float | None
    produced: float | None
    catches_up_in: float | None = None

    @property
    def keeps_up(self) -> bool:
        """Whether the lag is at most the records of 10 s, because committed offsets may be that old."""
        return _keeps_up(self.lag, self.consumed)


class _Track:
    """The rate of a growing number, such as a committed offset, over the last window."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()

    def add(self, now: int, value: int | None) -> None:
        seen = self._seen
        if value is None or (seen and value < seen[-1][1]):
            # The offset was moved back, or the topic was recreated: older samples do not count.
            seen.clear()
        if value is None:
            return
        seen.append((now, value))
        while len(seen) > 2 and seen[1][0] <= now - WINDOW_MS:
            seen.popleft()

    @property
    def last(self) -> int | None:
        return self._seen[-1][1] if self._seen else None

    @property
    def span_ms(self) -> int:
        """How long it has been seen."""
        return self._seen[-1][0] - self._seen[0][0] if self._seen else 0

    @property
    def rate(self) -> float | None:
        if len(self._seen) < 2:
            return None
        (began, first), (ended, last) = self._seen[0], self._seen[-1]
        return per_second(last - first, ended - began)


class _Lags:
    """The lag in the samples of the window of the rates, so that a growing lag means that it never catches up."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int | None]] = deque()

    def add(self, now: int, value: int | None) -> None:
        self._seen.append((now, value))
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW_MS:
            self._seen.popleft()

    @property
    def last(self) -> int | None:
        return self._seen[-1][1] if self._seen else None

    @property
    def values(self) -> tuple[int | None, ...]:
        return tuple(value for _, value in self._seen)


class PartitionHistory:
    """The samples of one partition of a group.

    Attributes:
        above: how many records are done above the committed offset. last_end: the end that was known last, which is
            old while `end` has none, because its leader does not answer.
    """

    __slots__ = ("_lags", "_progress", "above", "committed", "end", "is_told", "last_end", "stands_since")

    def __init__(self) -> None:
        self.above = 0
        self.last_end: int | None = None
        self.stands_since: int | None = None
        self.is_told = False
        self.committed = _Track()
        self.end = _Track()
        self._lags = _Lags()
        self._progress: Progress | None = None

    def add(self, now: int, committed: int | None, end: int | None, above: int) -> None:
        """Take in one sample."""
        self.committed.add(now, committed)
        self.end.add(now, end)
        if end is not None:
            self.last_end = end
        self.above = above
        self._lags.add(now, lag(self.end.last, self.committed.last))
        self._progress = None

    @property
    def lag(self) -> int | None:
        """Records between the committed offset and the end."""
        return self._lags.last

    @property
    def trend(self) -> tuple[int | None, ...]:
        """The lag in the samples of the window, the oldest first."""
        return self._lags.values

    @property
    def progress(self) -> Progress:
        """Its progress."""
        if self._progress is None:
            consumed, produced = self.committed.rate, self.end.rate
            wait = _wait(self.lag, consumed, produced)
            self._progress = Progress(self.lag, self.trend, consumed, produced, wait)
        return self._progress


class GroupHistory:
    """The samples of one group.

    Attributes:
        description: the latest. rebalances: how many were noticed since the first sample. events: the
            oldest first. has_had_members: in any sample.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.description: Description | None = None
        self.rebalances = 0
        self.has_had_members = False
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self._partitions: dict[TopicPartition, PartitionHistory] = {}
        self._owners: dict[TopicPartition, MemberDescription] = {}
        self._totals = _Lags()
        self._total: Progress | None = None
        self._silent: list[str] | None = None

    # ------------------------------------------------------------ taking samples

    def add(self, sample: Sample, now: int, wall: float) -> None:
        """Take in a sample.

        Args:
            now: monotonic ms. wall: seconds since 1970, for the events.
        """
        before, self.description = self.description, sample.description
        self._total = self._silent = None
        self.has_had_members |= bool(sample.description.members)
        self._owners = {tp: member for member in sample.description.members for tp in member.assignment}
        shown = sample.committed.keys() | self._owners.keys()
        for gone in self._partitions.keys() - shown:
            del self._partitions[gone]
        for tp in shown:
            partition = self._partitions.setdefault(tp, PartitionHistory())
            committed = sample.committed.get(tp)
            last = partition.committed.last
            if committed is not None and last is not None and committed < last:
                self._tell(
                    wall, f"committed offset of {spelled(tp)} moved back from {last:,} to {committed:,}"
                )
            if tp in sample.above or partition.stands_since is not None:
                self._look_at_frontier(tp, sample, now, wall)
            partition.add(now, committed, sample.ends.get(tp), sample.above.get(tp, 0))
        self._totals.add(now, self._lag_of(self._partitions))
        if before is not None:
            self._compare(before, sample.description, wall)

    def _look_at_frontier(self, tp: TopicPartition, sample: Sample, now: int, wall: float) -> None:
        """Add an event for a record that is not done for long, below done ones. Only `process` commits these."""
        partition = self._partitions[tp]
        committed, above = sample.committed.get(tp), sample.above.get(tp, 0)
        if not above or committed != partition.committed.last:
            partition.stands_since, partition.is_told = (now if above else None), False
        elif partition.stands_since is None:
            partition.stands_since = now
        elif not partition.is_told and now - partition.stands_since >= STUCK_MS:
            partition.is_told = True
            self._tell(
                wall,
                f"the record of {spelled(tp)} at offset {committed} holds up the committed offset: "
                f"{above:,} records above it are done",
            )

    def gone(self, why: str, wall: float) -> None:
        """The group does not exist any more, or cannot be described."""
        if self.description is not None:
            self._tell(wall, why)
        self.description = self._total = self._silent = None
        self._partitions.clear()
        self._owners.clear()

    def _tell(self, wall: float, text: str) -> None:
        self.events.append(Event(wall, text))

    def _compare(self, before: Description, after: Description, wall: float) -> None:
        if before.group_type != after.group_type:
            self._tell(wall, f"protocol changed: {before.group_type} → {after.group_type}")
        if before.state != after.state:
            self._tell(wall, f"state {before.state} → {after.state}")
        if before.epoch is not None and after.epoch is not None and before.epoch != after.epoch:
            self._tell(wall, f"epoch {before.epoch} → {after.epoch}")
        old = {member.member_id: member for member in before.members}
        new = {member.member_id: member for member in after.members}
        self._count(before, after, has_moved=_owned(before) != _owned(after))
        self._name(wall, [f"{_named(new[key])} joined" for key in new.keys() - old.keys()], "joined")
        self._name(wall, [f"{_named(old[key])} left" for key in old.keys() - new.keys()], "left")
        moves = []
        for key, member in new.items():
            had = old[key].assignment if key in old else frozenset()
            if got := member.assignment - had:
                moves.append(f"{_named(member)} got {ranges(got)}")
            if lost := had - member.assignment:
                moves.append(f"{_named(member)} gave up {ranges(lost)}")
        self._name(wall, moves, "have other partitions")

    def _count(self, before: Description, after: Description, *, has_moved: bool) -> None:
        """Count rebalances: in KIP-848 groups by the epoch, in classic ones by the state or moved partitions."""
        started, ended = before.epoch, after.epoch
        if started is not None and ended is not None:
            if ended != started:
                self.rebalances += max(1, ended - started)
            return
        begins = before.state in _SETTLED and after.state not in _SETTLED
        was_missed = before.state in _SETTLED and after.state in _SETTLED and has_moved
        if begins or was_missed:
            self.rebalances += 1

    def _name(self, wall: float, texts: list[str], of_all: str) -> None:
        for text in sorted(texts)[:_NAMED]:
            self._tell(wall, text)
        if len(texts) > _NAMED:
            self._tell(wall, f"{len(texts) - _NAMED} more members {of_all}")

    # ------------------------------------------------------------ what is known

    @property
    def is_used(self) -> bool:
        """Whether there were members, or signs of members: rebalances, or moving offsets.

        Members whose consumers crash at once may live for less than a round.
        """
        return self.has_had_members or bool(self.rebalances) or bool(self.total.consumed)

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        """All committed or owned partitions."""
        return self._partitions.keys()

    def partition(self, partition: TopicPartition) -> PartitionHistory:
        """The samples of one partition."""
        return self._partitions[partition]

    def owner(self, partition: TopicPartition) -> MemberDescription | None:
        """The member that owns a partition."""
        return self._owners.get(partition)

    def offsets(self, partition: TopicPartition) -> tuple[int | None, int | None]:
        """The committed offset of a partition, and its end."""
        found = self._partitions[partition]
        return found.committed.last, found.end.last

    def above(self, partitions: Iterable[TopicPartition]) -> int:
        """How many records of these are done above the committed offset, from the metadata of `process`."""
        return sum(self._partitions[tp].above for tp in partitions if tp in self._partitions)

    def progress(self, partition: TopicPartition) -> Progress:
        """The progress of one partition."""
        return self._partitions[partition].progress

    def progress_of(self, partitions: Iterable[TopicPartition]) -> Progress:
        """The progress of several partitions: the sum of the known ones."""
        known = [self._partitions[tp].progress for tp in partitions if tp in self._partitions]
        length = max((len(each.trend) for each in known), default=0)
        trend = tuple(
            _sum(each.trend[-back] if len(each.trend) >= back else None for each in known)
            for back in range(length, 0, -1)
        )
        return _together(known, trend)

    @property
    def total(self) -> Progress:
        """The progress of the whole group. It never catches up while a member reads nothing."""
        if self._total is None:
            # Cached for each sample: a list of 500 groups needs all of them each time that it is drawn.
            progress = [each.progress for each in self._partitions.values()]
            total = _together(progress, self._totals.values)
            self._total = total._replace(catches_up_in=math.inf) if self.silent else total
        return self._total

    @property
    def silent(self) -> list[str]:
        """Names of the members that have had something to read for 10 seconds, and committed nothing in the window."""
        if self._silent is None:
            members = self.description.members if self.description else ()
            self._silent = [_named(each) for each in members if self._is_silent(each)]
        return self._silent

    def _is_silent(self, member: MemberDescription) -> bool:
        owned = [self._partitions[tp] for tp in member.assignment]
        waits = [
            each for each in owned if each.lag or (each.committed.last is None and each.progress.produced)
        ]
        return any(each.end.span_ms >= _COMMITTED_S * 1000 for each in waits) and not any(
            each.progress.consumed for each in owned
        )

    def _lag_of(self, partitions: Mapping[TopicPartition, PartitionHistory]) -> int | None:
        return _sum(each.lag for each in partitions.values())


def _sum(values: Iterable[N | None]) -> N | None:
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known else None


def _together(each: Sequence[Progress], trend: tuple[int | None, ...]) -> Progress:
    """The sum of known values; the time to catch up is that of the slowest."""
    return Progress(
        _sum(one.lag for one in each),
        trend,
        _sum(one.consumed for one in each),
        _sum(one.produced for one in each),
        _slowest(each),
    )


def _slowest(each: Iterable[Progress]) -> float | None:
    """Seconds until all have caught up; None while unknown for one."""
    waits = [one.catches_up_in for one in each if one.lag is not None]
    known = [wait for wait in waits if wait is not None]
    slowest = max(known, default=None)
    return slowest if slowest == math.inf or len(known) == len(waits) else None


def _wait(lag: int | None, consumed: float | None, produced: float | None) -> float | None:
    wait = seconds_to_catch_up(lag, consumed, produced)
    if wait is None or not _keeps_up(lag, consumed):
        return wait
    # The lag has only grown because the last commit is some seconds old.
    return min(wait, _COMMITTED_S)


def _keeps_up(lag: int | None, consumed: float | None) -> bool:
    return lag is not None and lag <= (consumed or 0) * _COMMITTED_S


def _owned(group: Description) -> dict[TopicPartition, str]:
    return {tp: member.member_id for member in group.members for tp in member.assignment}


def _named(member: MemberDescription) -> str:
    return member.group_instance_id or member.client_id or member.member_id
