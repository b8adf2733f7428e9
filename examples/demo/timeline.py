"""The owners of each partition over time, the processed records, and members' stalls and kills. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Span", "Timeline", "Work"]


@dataclass(slots=True)
class Span:
    """A time from ``start`` to ``end`` (monotonic ms) that belongs to ``member``."""

    member: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Work:
    """``member`` reported at ``at`` (monotonic ms) that it had processed ``count`` records of ``partition``."""

    member: str
    partition: int
    count: int
    at: int


@dataclass(slots=True)
class Timeline:
    """One run of a group, as reported by its members and the parent. Call `end` before reading the spans.

    Attributes:
        sizes: records produced, by partition.
        session_ms: the session timeout of the members.
        owned: spans of ownership by partition, in order.
        waited: by partition, how long it had no owner because a member was killed; the span names that member.
        stalls: when members stopped polling.
        kills: members that were killed, and when.
    """

    sizes: dict[int, int]
    session_ms: int
    owned: dict[int, list[Span]] = field(default_factory=dict)
    waited: dict[int, Span] = field(default_factory=dict)
    work: list[Work] = field(default_factory=list)
    stalls: list[Span] = field(default_factory=list)
    kills: list[tuple[str, int]] = field(default_factory=list)
    began: int = 0
    ended: int = 0
    _open: dict[int, Span] = field(default_factory=dict)
    _waiting: dict[int, Span] = field(default_factory=dict)

    def owns(self, member: str, partitions: Iterable[int], at: int) -> None:
        """``member`` has exactly these partitions from ``at`` on."""
        self.began = min(self.began or at, at)
        now = set(partitions)
        for partition in [p for p, span in self._open.items() if span.member == member and p not in now]:
            self._close(partition, at)
        for partition in sorted(now):
            before = self._open.get(partition)
            if before is not None and before.member == member:
                continue
            if before is not None:
                self._close(partition, at)
            self._open[partition] = Span(member, at, at)
            if (waiting := self._waiting.pop(partition, None)) is not None:
                waiting.end = at
                self.waited[partition] = waiting

    def worked(self, member: str, partition: int, count: int, at: int) -> None:
        """``member`` has processed ``count`` records."""
        self.work.append(Work(member, partition, count, at))

    def stalls_at(self, member: str, at: int) -> None:
        """``member`` stops polling."""
        self.stalls.append(Span(member, at, at))

    def polls_again(self, member: str, at: int) -> None:
        """The stall of ``member`` is over."""
        for span in self.stalls:
            if span.member == member and span.end == span.start:
                span.end = at

    def killed(self, member: str, at: int) -> None:
        """``member`` is gone, and its partitions wait for another owner."""
        self.kills.append((member, at))
        for partition in [p for p, span in self._open.items() if span.member == member]:
            self._close(partition, at)
            self._waiting[partition] = Span(member, at, at)

    def end(self, at: int) -> None:
        """The run ends at ``at``."""
        self.ended = at
        for partition in list(self._open):
            self._close(partition, at)

    @property
    def members(self) -> list[str]:
        """By name."""
        return sorted({span.member for spans in self.owned.values() for span in spans})

    def _close(self, partition: int, at: int) -> None:
        span = self._open.pop(partition)
        span.end = at
        self.owned.setdefault(partition, []).append(span)
