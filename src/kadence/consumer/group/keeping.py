"""Keeps the committed offsets of quiet partitions from being forgotten. Network thread, sans-IO.

A coordinator forgets offsets that nobody has committed for `offsets.retention.minutes` (a week by default) once nobody
is in the group. The classic protocol counts from when the group became empty, KIP-848 from the commit itself. So under
KIP-848 the offset of a partition that was quiet for a week is gone a second after the last member's `close`, and its
next reader begins where ``auto.offset.reset`` says.

So a member commits what the group has committed for its partitions again, unchanged: before it leaves, and, for members
that are killed, about once a day where a partition has stood still. It asks what that is first, for others commit, too:
earlier members, and transactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from kadence.client.request_manager import NOTHING, Poll
from kadence.clock import FOREVER, add_ms
from kadence.connection.request import Completed
from kadence.consumer.events import Commit
from kadence.consumer.group.commit import CommitRequestManager
from kadence.consumer.group.membership import Membership
from kadence.consumer.subscription import PartitionState, Subscription
from kadence.types import OffsetAndMetadata, TopicPartition

__all__ = ["OffsetKeeper"]

_EVERY_MS: Final = 12 * 3_600_000
"""How often it looks. What has not moved between two looks is committed again, so once in a day."""

_FRESH_MS: Final = 60_000
"""An offset that this member has committed so lately needs nothing."""


class OffsetKeeper:
    """Commits again what is committed for the partitions of this member.

    Args:
        timeout_ms: how long a commit may take that nobody waits for.
    """

    def __init__(
        self,
        commits: CommitRequestManager,
        membership: Membership,
        subscription: Subscription,
        timeout_ms: int,
    ) -> None:
        self._commits = commits
        self._membership = membership
        self._subscription = subscription
        self._timeout_ms = timeout_ms
        self._look_at = FOREVER
        self._stood: dict[TopicPartition, tuple[PartitionState, int]] = {}
        """Where each partition stood at the last look."""
        self._leaving: list[Callable[[int], None]] = []
        """Who waits for the end of it."""

    def poll(self, now: int) -> Poll:
        if self._leaving and self._commits.is_stranded:
            self._ended(now, *self._leaving)
        if self._look_at == FOREVER:
            self._look_at = add_ms(now, _EVERY_MS)
        elif now >= self._look_at:
            self._look_at = add_ms(now, _EVERY_MS)
            stands = {p: (state, state.offset) for p, state in self._subscription.partitions.items()}
            quiet = [p for p, place in stands.items() if self._stood.get(p) == place]
            self._stood = stands
            self._keep(now, quiet, add_ms(now, self._timeout_ms), lambda now: None)
        # Heartbeats wake the thread often enough.
        return NOTHING

    def on_response(self, now: int, completed: Completed) -> None:
        """It sends nothing itself."""

    def keep(self, now: int, deadline: int, done: Callable[[int], None]) -> None:
        """Commit all of them again; ``done`` is called at the end, be it with success or without."""
        self._leaving.append(done)
        self._keep(now, self._subscription.partitions, deadline, lambda now: self._ended(now, done))

    def _ended(self, now: int, *those: Callable[[int], None]) -> None:
        """These are told, if they were not told before that nobody is there to answer."""
        for done in those:
            if done in self._leaving:
                self._leaving.remove(done)
                done(now)

    def _keep(
        self, now: int, partitions: Iterable[TopicPartition], deadline: int, done: Callable[[int], None]
    ) -> None:
        commits, subscription = self._commits, self._subscription
        since = now - _FRESH_MS
        asked = {
            p: state
            for p in partitions
            if not commits.was_given(p, since)
            and (state := subscription.partitions[p]) is self._membership.tenure(p)
        }
        # The classic protocol tells when a membership ends without heartbeats.
        is_in_danger = self._membership.managed and self._membership.known_session_ms is None
        if not (asked and is_in_danger) or commits.is_stranded:
            done(now)
            return

        def found(when: int, result: dict[TopicPartition, OffsetAndMetadata | None] | Exception) -> None:
            offsets = {
                p: at
                for p, at in ({} if isinstance(result, Exception) else result).items()
                # What was given meanwhile is newer.
                if at is not None and not commits.was_given(p, now) and self._membership.tenure(p) is asked[p]
            }
            if not offsets:
                done(when)
                return
            commits.commit(when, Commit(0, deadline, offsets, retry=False, parting=True))
            commits.after(when, offsets, done, patient=False)

        commits.lookup(now, frozenset(asked), found)
