"""A share-partition without a broker, with a log of batches that the test names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kadence_broker.share.acknowledging import Acknowledgement, acknowledge
from kadence_broker.share.acquiring import LogBatch, Wish, acquire
from kadence_broker.share.changes import StateBatch
from kadence_broker.share.delivery import RecordState
from kadence_broker.share.interface import ShareSettings
from kadence_broker.share.partition import SharePartition

__all__ = ["ACCEPT", "GAP", "REJECT", "RELEASE", "RENEW", "Queue"]

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Queue:
    """One share-partition, whose time is ``now``. Changes are taken as stored.

    Args:
        log: the batches of the log, as pairs of offsets.
        stored: the state with which it is loaded.
    """

    def __init__(
        self,
        *log: tuple[int, int],
        start: int = 0,
        stored: Sequence[tuple[int, int, RecordState, int]] = (),
        **settings: object,
    ) -> None:
        self.log = [LogBatch(*each) for each in log]
        self.log_start = 0
        self.now = 1_000
        self.settings = replace(ShareSettings(), **settings)  # type: ignore[arg-type]
        self.state = SharePartition(start, 0, [StateBatch(*each) for each in stored])
        self.stored: list[StateBatch] = []

    def change_settings(self, **settings: object) -> None:
        self.settings = replace(self.settings, **settings)  # type: ignore[arg-type]

    def take(
        self,
        member: str = "m",
        max_records: int = 500,
        *,
        batch_size: int = 500,
        limit: bool = False,
        upto: int | None = None,
        aborted: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[int, int, int]]:
        """Fetch: read from the next offset on (up to ``upto``) and acquire. First, last offset and count of each."""
        if not self.state.may_read(self.settings):
            return []
        offset = self.state.next_offset
        read = [each for each in self.log if each.last >= offset and (upto is None or each.first <= upto)]
        wish = Wish(member, max_records, offset, batch_size, limit)
        got, taken = acquire(
            self.state, self.now, wish, read, self.settings, [LogBatch(*each) for each in aborted]
        )
        assert limit or taken == sum(each.size for each in got)
        return [(each.first, each.last, each.deliveries) for each in got]

    def say(self, *said: tuple[int, int, Sequence[int] | int], member: str = "m") -> int:
        """Acknowledge; an error code."""
        changes, code = acknowledge(
            self.state,
            self.now,
            member,
            [
                Acknowledgement(first, last, [types] if isinstance(types, int) else list(types))
                for first, last, types in said
            ],
            self.settings,
        )
        if code == 0:
            self.stored += changes.stored
            self.state.advance()
        else:
            assert not changes.made
        return code

    def wait(self, ms: int) -> None:
        """Let time pass; locks end."""
        self.now += ms
        self.stored += self.state.expire(self.now, self.settings).stored
        self.state.advance()

    def leave(self, member: str = "m") -> None:
        self.stored += self.state.release_member(member, self.settings).stored
        self.state.advance()

    def delete_before(self, offset: int) -> None:
        self.log = [each for each in self.log if each.last >= offset]
        self.state.log_starts_at(offset)

    @property
    def states(self) -> list[tuple[int, int, str, int]]:
        """Everything in flight: first, last, state and count, neighbours that are alike joined."""
        joined: list[tuple[int, int, str, int]] = []
        for batch in self.state.in_flight:
            for first, last, delivery in batch.parts():
                new = (first, last, delivery.state.name, delivery.count)
                before = joined[-1] if joined else None
                if before is not None and before[1] + 1 == first and before[2:] == new[2:]:
                    joined[-1] = (before[0], last, *new[2:])
                else:
                    joined.append(new)
        return joined
