"""Commits of a stream's progress to its group, for those who watch lag. Spark's checkpoint stays the truth.

So a failing commit never fails the query: it is told once, counted, and tried again later. A commit is one round trip
before a micro-batch that takes a hundred times as long; waiting for it is simpler than a thread of its
own, and the last one of an availableNow query must be waited for anyway, since the process is killed next.
"""

from __future__ import annotations

import logging
from typing import Final

from kadence.clock import Clock
from kadence.errors import IllegalStateError, KafkaError
from kadence.spark.source.offsets import Offsets
from kadence.spark.source.ports import OffsetClient

__all__ = ["Commits", "GroupInUseError"]

_log = logging.getLogger("kadence.spark")

REPEAT_MS: Final = 3_600_000
"""An unchanged commit is repeated so often, so that an idle query's offsets do not expire on the broker."""

PAUSE_MS: Final = 30_000
"""No commit for so long after one that failed: a coordinator that is away must not delay every batch."""


class GroupInUseError(IllegalStateError):
    """The query's group has live members, so that it cannot hold the query's offsets."""


class Commits:
    """What was committed last, and when the next commit is due."""

    def __init__(self, group_id: str, client: OffsetClient, clock: Clock) -> None:
        self._group_id = group_id
        self._client = client
        self._clock = clock
        self._committed: Offsets = {}
        self._committed_at = 0
        self._failed_at: int | None = None
        self.failures = 0

    def check_free(self) -> None:
        """Refuse a group that consumers use, before the query reads anything.

        Raises:
            GroupInUseError: it has live members.
        """
        try:
            members = self._client.live_members()
        except KafkaError as problem:  # e.g. no right to describe groups; the commits will show
            _log.warning("cannot see whether group %s has members: %s", self._group_id, problem)
            return
        if members:
            raise GroupInUseError(
                f"group.id {self._group_id!r} is in use by a live consumer group ({members} member"
                f"{'s' * (members > 1)}), which owns its committed offsets. Give the query a kafka.group.id of its "
                "own, stop those consumers, or set commitOffsets=false"
            )

    def offer(self, offsets: Offsets, *, is_last: bool = False) -> None:
        """Commit ``offsets`` if that is due. ``is_last``: nobody will ask again, so do not put it off."""
        if not offsets:
            return
        now = self._clock.now_ms()
        if offsets == self._committed and now - self._committed_at < REPEAT_MS:
            return
        if self._failed_at is not None and now - self._failed_at < PAUSE_MS and not is_last:
            return
        try:
            self._client.commit(offsets)
        except KafkaError as problem:
            self.failures += 1
            if self._failed_at is None:
                _log.warning(
                    "committing offsets to group %s failed; the query goes on: %s",
                    self._group_id,
                    problem,
                )
            self._failed_at = self._clock.now_ms()
            return
        if self._failed_at is not None:
            _log.info("committing offsets to group %s works again", self._group_id)
            self._failed_at = None
        self._committed, self._committed_at = dict(offsets), now
