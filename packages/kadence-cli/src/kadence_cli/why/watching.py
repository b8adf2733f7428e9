"""Combines several looks at a group: unmoved offsets, joined and left members, rates. Pure."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from kadence.admin import MemberDescription
from kadence.types import TopicPartition
from kadence_cli.group_types import Description
from kadence_cli.top.sampling import GroupHistory, Sample
from kadence_cli.why.looks import Look, PartitionLook

__all__ = ["PATIENCE_MS", "SETTLED", "Move", "Watch", "named"]

PATIENCE_MS: Final = 12_000
"""Consumers commit every 5 s by default, so moving offsets have moved twice by then."""

RECENT_MS: Final = 300_000
"""How long a rebalance counts as recent, at least: in a longer look as long as that."""

SETTLED: Final = frozenset({"Stable", "Empty", "Dead"})
"""States without a rebalance."""

_REPEATED: Final = 3
"""So many recent rebalances are a loop, unless members only joined, or only left."""


class Move(NamedTuple):
    """A member that has joined or left. ``at``: the look that saw it, monotonic ms. ``what``: "joined" or "left"."""

    at: int
    what: str
    name: str


def named(member: MemberDescription) -> str:
    """The name of a member in messages."""
    return member.group_instance_id or member.client_id or member.member_id


class Watch:
    """A group since the first look.

    Args:
        patience_ms: how long offsets must not have moved, and rates must be known, for a reason; None: 12 s.

    Attributes:
        latest: the last look. history: its rates.
    """

    def __init__(self, group: str, *, patience_ms: int | None = None) -> None:
        self.group = group
        self.latest: Look | None = None
        self.history = GroupHistory(group)
        self._patience_ms = PATIENCE_MS if patience_ms is None else patience_ms
        # A member that works longer than max.poll.interval.ms, 5 minutes by default, comes and goes that rarely.
        self._recent_ms = max(RECENT_MS, self._patience_ms)
        self._now = 0
        self._partitions: Mapping[TopicPartition, PartitionLook] = {}
        self._moves: deque[Move] = deque()
        self._met: deque[tuple[int, bool]] = deque()
        self._rebalances: deque[int] = deque()
        self._stands: dict[TopicPartition, tuple[int, PartitionLook]] = {}
        self._changes: dict[TopicPartition, int] = {}
        self._last: dict[TopicPartition, int | None] = {}
        self._stable: dict[TopicPartition, tuple[int, int | None]] = {}
        self._uncommitted: dict[TopicPartition, tuple[int, int]] = {}
        self._unsettled_since: int | None = None
        self._behind_since: dict[str, int] = {}
        self._member_since: dict[str, int] = {}
        self._began: int | None = None
        self._began_unsettled = False

    def add(self, look: Look, now: int, wall: float) -> None:
        """Take in a look.

        Args:
            now: monotonic ms. wall: seconds since 1970.
        """
        before, self.latest, self._now = self.latest, look, now
        self._began = now if self._began is None else self._began
        ends = {tp: each.end for tp, each in look.partitions.items() if each.end is not None}
        committed = {tp: each.done for tp, each in look.partitions.items() if each.done is not None}
        above = {tp: each.above for tp, each in look.partitions.items() if each.waiting is None}
        rebalances = self.history.rebalances
        self.history.add(Sample(look.description, committed, ends, above), now, wall)
        self._rebalances.extend([now] * (self.history.rebalances - rebalances))
        if before is None and look.description.state not in SETTLED:
            # It began before the first look, so it is not seen between two looks.
            self._rebalances.append(now)
            self._began_unsettled = True
        self._met.append((now, bool(look.description.members)))
        self._partitions = dict(sorted(look.partitions.items()))
        self._look_at_partitions(look, now)
        self._look_at_members(before, look, now)

    def glance(self, description: Description, now: int, wall: float) -> None:
        """Take in the group's members alone, if they changed since the last look.

        Args:
            now, wall: as of `add`.
        """
        latest = self.latest
        if latest is not None and description != latest.description:
            self.add(Look(description, latest.partitions), now, wall)

    def _look_at_partitions(self, look: Look, now: int) -> None:
        stands: dict[TopicPartition, tuple[int, PartitionLook]] = {}
        stable: dict[TopicPartition, tuple[int, int | None]] = {}
        changes: dict[TopicPartition, int] = {}
        for tp, each in look.partitions.items():
            since = self._stands.get(tp)
            # Without lag an offset need not move: count from the arrival of a record.
            is_same = since is not None and since[1].committed == each.committed and bool(since[1].lag)
            stands[tp] = since if since is not None and is_same else (now, each)
            was = self._last.get(tp)
            changes[tp] = 0 if was is None or not is_same else self._changes.get(tp, 0) + (was != each.done)
            kept = self._stable.get(tp)
            stable[tp] = kept if kept is not None and kept[1] == each.stable else (now, each.stable)
        self._stands, self._stable, self._changes = stands, stable, changes
        self._last = {tp: each.done for tp, each in look.partitions.items()}
        self._uncommitted = {
            tp: self._uncommitted.get(tp, (now, each.end))
            for tp, each in look.partitions.items()
            if each.committed is None and each.end is not None and each.end > (each.first or 0)
        }

    def _look_at_members(self, before: Look | None, look: Look, now: int) -> None:
        group = look.description
        if group.state in SETTLED:
            self._unsettled_since = None
        elif self._unsettled_since is None:
            self._unsettled_since = now
        behind = {
            each.member_id
            for each in group.members
            if group.epoch is not None and each.member_epoch is not None and each.member_epoch < group.epoch
        }
        self._behind_since = {key: self._behind_since.get(key, now) for key in behind}
        self._member_since = {
            each.member_id: self._member_since.get(each.member_id, now) for each in group.members
        }
        if before is not None:
            old = {each.member_id: each for each in before.description.members}
            new = {each.member_id: each for each in group.members}
            self._moves.extend(Move(now, "left", named(old[key])) for key in old.keys() - new.keys())
            self._moves.extend(Move(now, "joined", named(new[key])) for key in new.keys() - old.keys())
        recent = now - self._recent_ms
        while self._moves and self._moves[0].at < recent:
            self._moves.popleft()
        while self._rebalances and self._rebalances[0] < recent:
            self._rebalances.popleft()
        while self._met[0][0] < recent:
            self._met.popleft()

    # ------------------------------------------------------------ what is known

    @property
    def description(self) -> Description:
        """The group at the last look, which there must be."""
        assert self.latest is not None
        return self.latest.description

    @property
    def partitions(self) -> Mapping[TopicPartition, PartitionLook]:
        """At the last look, sorted."""
        return self._partitions

    def lag_of(self, tp: TopicPartition) -> int:
        """The lag of a partition; 0 if unknown."""
        each = self._partitions.get(tp)
        return (each.lag or 0) if each else 0

    @property
    def lagging(self) -> list[TopicPartition]:
        """Partitions with lag."""
        return [tp for tp, each in self._partitions.items() if each.lag]

    @property
    def lag(self) -> int:
        """Of the whole group."""
        return sum(each.lag or 0 for each in self._partitions.values())

    @property
    def span_ms(self) -> int:
        """The time between the first look and the last."""
        return self._now - (self._now if self._began is None else self._began)

    @property
    def missing_ms(self) -> int:
        """How much longer the looks must last until all reasons are known."""
        return max(0, self._patience_ms - self.span_ms)

    @property
    def recent_ms(self) -> int:
        """The time that `joined`, `left`, `rebalances` and `looks` cover (ms)."""
        return min(self.span_ms, self._recent_ms)

    @property
    def rebalances(self) -> int:
        """The number of recent rebalances."""
        return len(self._rebalances)

    @property
    def is_loop(self) -> bool:
        """Whether rebalances repeat: members come and go, or the rebalances alone are seen."""
        return self.rebalances >= _REPEATED and bool(self.joined) == bool(self.left)

    @property
    def moves(self) -> list[Move]:
        """Members that have joined and left recently, the oldest first."""
        return list(self._moves)

    @property
    def looks(self) -> int:
        """The number of recent looks."""
        return len(self._met)

    @property
    def looks_without_members(self) -> int:
        """How many of these saw no member."""
        return sum(not met for _, met in self._met)

    def works_off(self, tp: TopicPartition) -> bool:
        """Whether records of a partition were done within the last half minute."""
        return bool(self.history.progress(tp).consumed)

    @property
    def is_read(self) -> bool:
        """Whether a committed offset has moved recently."""
        return any(self.history.progress(tp).consumed for tp in self.history.partitions)

    @property
    def joined(self) -> Counter[str]:
        """How often members have joined recently, by name."""
        return Counter(move.name for move in self._moves if move.what == "joined")

    @property
    def left(self) -> Counter[str]:
        """How often members have left recently, by name."""
        return Counter(move.name for move in self._moves if move.what == "left")

    @property
    def is_left(self) -> bool:
        """Whether the last look saw no member, and records wait."""
        return self.latest is not None and not self.description.members and bool(self.lag)

    @property
    def is_unsettled(self) -> bool:
        """Whether a rebalance goes on without an end."""
        return self._has_lasted(self._unsettled_since)

    def seconds_since(self, at: int) -> float:
        """Seconds since a time of the looks' clock."""
        return (self._now - at) / 1000

    @property
    def began_unsettled(self) -> bool:
        """Whether the first look saw a rebalance that had begun before."""
        return self._began_unsettled and self.span_ms <= self._recent_ms

    def stands_for(self, tp: TopicPartition) -> int:
        """How long the committed offset has not moved, since the first look (ms)."""
        return self._now - self._stands[tp][0]

    def has_always_stood(self, tp: TopicPartition) -> bool:
        """Whether it has not moved since the first look, and for an unknown time before."""
        return self._stands[tp][0] == self._began

    def was_passed_over(self, tp: TopicPartition) -> bool:
        """Whether records of a share group were done twice while its start offset stood.

        Brokers store the start offset as it was before a change: after the second one it is known that the first one
        did not end the record there.
        """
        return self._changes.get(tp, 0) >= 2

    def has_no_place(self, tp: TopicPartition) -> bool:
        """Whether a share group has had no start offset there all the time, although the partition has records."""
        since = self._uncommitted.get(tp)
        return since is not None and self._has_lasted(since[0])

    def begins_open(self, tp: TopicPartition) -> bool:
        """Whether an open transaction begins at the first record, and a share group has had no place, all the time."""
        each = self._partitions[tp]
        return (
            self.has_no_place(tp)
            and each.stable is not None
            and each.stable <= (each.first or 0)
            and self._has_lasted(self._stable[tp][0])
        )

    def has_stood(self, tp: TopicPartition) -> bool:
        """Whether the committed offset has not moved, although a record behind it existed all the time."""
        since, seen = self._stands[tp]
        return self._has_lasted(since) and bool(seen.lag)

    def held_at(self, tp: TopicPartition) -> int | None:
        """The last stable offset, if it holds up the committed one."""
        each = self._partitions[tp]
        if each.stable is None or each.end is None or each.stable >= each.end or each.done != each.stable:
            return None
        is_old = self._has_lasted(self._stands[tp][0]) and self._has_lasted(self._stable[tp][0])
        return each.stable if is_old else None

    def is_behind(self, member: MemberDescription) -> bool:
        """Whether a member of a KIP-848 group does not reach the group's epoch."""
        return self._has_lasted(self._behind_since.get(member.member_id))

    def has_stayed(self, member: MemberDescription) -> bool:
        """Whether it has been a member long enough to be judged."""
        return self._has_lasted(self._member_since.get(member.member_id))

    @property
    def is_rebalancing(self) -> bool:
        """Whether a rebalance does not end: then members need not move."""
        return self.is_unsettled or any(self.is_behind(each) for each in self.description.members)

    def _has_lasted(self, since: int | None) -> bool:
        return since is not None and self._now - since >= self._patience_ms

    # ------------------------------------------------------------ what else to look up

    @property
    def held_by_transactions(self) -> list[TopicPartition]:
        """Partitions whose open transaction is to be looked up."""
        return [tp for tp in self._partitions if self.held_at(tp) is not None]

    @property
    def held_by_records(self) -> dict[TopicPartition, int]:
        """Offsets of records that are to be looked up: the unmoved positions."""
        latest = self._partitions
        return {
            tp: committed
            for tp in self._partitions
            if self.history.owner(tp) is not None
            and not latest[tp].trouble
            and self.has_stood(tp)
            and self.held_at(tp) is None
            and (committed := latest[tp].committed) is not None
            and committed >= (latest[tp].first or 0)
        }

    @property
    def left_unread(self) -> dict[TopicPartition, int]:
        """Committed offsets of partitions with lag and without an owner, where records are to be looked up."""
        return {
            tp: each.committed
            for tp, each in self._partitions.items()
            if each.lag and each.committed is not None and not each.trouble and self.history.owner(tp) is None
        }

    @property
    def never_committed(self) -> dict[TopicPartition, int]:
        """Partitions that members have had for long without a commit, and the number of offsets written meanwhile."""
        return {
            tp: (self._partitions[tp].end or 0) - since[1]
            for tp, since in self._uncommitted.items()
            if self._has_lasted(since[0])
        }
