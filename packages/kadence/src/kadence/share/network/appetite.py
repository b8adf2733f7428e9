"""Whether to fetch, how much, and how long the broker may wait for it (KIP-932; Q3). Network thread, sans-IO.

    a poll waits, and nothing is buffered    fetch from every broker, with a long poll that ends with the poll
    the application works                    fetch ahead, without waiting: as many records as the measured pace can work
                                             off within half of a lock, and no more than two polls return, or what is
                                             worked off within a moment, or was worked off so far
    nothing is known of the pace             fetch nothing ahead

Each acquisition counts as a delivery, and nothing takes it back: not a release, nor the end of the session. So nothing
is fetched for an application that may not poll again:

    it holds no record                       it may be about to close: fetch nothing ahead, unless a poll that waits is
                                             about to return some
    it has released some                     others may have these: fetch nothing ahead before a poll waits
    it has records of an earlier delivery    the next ones may come for the last time: fetch nothing ahead
    it has called stop() or close()          fetch nothing

A request that waits at the broker holds up acknowledgements and renewals behind it, and what became of those in it. So
a fetch waits only a little where it has some, or records are held, and not at all when it fetches ahead. Fetches ahead
that bring nothing leave after pauses that grow, until one brings some or a poll is filled.

With record_limit nothing is fetched ahead, and one broker is asked at a time. All fetches together ask for no more
bytes than the memory has room for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kadence.clock import FOREVER
from kadence.share.keys import ShareKeys
from kadence.share.network.node import Sent, ShareNode
from kadence.share.network.offsets import count
from kadence.share.network.pace import WorkPace
from kadence.share.share_state import SHORT_MS, ShareState

__all__ = ["LOCK_MS", "Appetite", "Limits"]

LOCK_MS: Final = 30_000
"""How long a lock holds until a broker has said so: Kafka's default."""

_BESIDE_MS: Final = 100
"""How long a fetch may wait at a broker of which records are held, or that has acknowledgements."""

_EARLY: Final = 2
"""So many answers in a row may be empty before their time: the next fetches leave after a pause."""


class Limits(NamedTuple):
    """What a fetch asks for."""

    max_wait_ms: int
    max_records: int


class Appetite:
    """Decides about fetches."""

    def __init__(self, config: ShareKeys, share_state: ShareState, pace: WorkPace) -> None:
        self._config = config
        self._share_state = share_state
        self._pace = pace
        self._has_released = False

    def released(self) -> None:
        """The application has given records back."""
        self._has_released = True

    @property
    def _most(self) -> int:
        """How many records one poll returns."""
        return max(min(self._share_state.limit, self._config.max_poll_records), 1)

    @property
    def lock_ms(self) -> int:
        return self._share_state.lock_timeout_ms or LOCK_MS

    @property
    def longest_wait_ms(self) -> int:
        """For how long a broker may hold a fetch."""
        # Locks are counted from when it leaves.
        return min(self._config.fetch_max_wait_ms, self.lock_ms // 4)

    def limits(self, now: int, node: ShareNode, nodes: Iterable[ShareNode], *, carries: bool) -> Limits | int:
        """What a fetch from this broker may ask for; or when (ms) that must be looked at again.

        Args:
            carries: whether it has acknowledgements.
        """
        state = self._share_state
        if not node.wants or node.closing or state.resting:
            return FOREVER
        nodes = tuple(nodes)
        buffered = self._buffered(now, nodes)
        if not buffered and (
            state.wanted > 0 or (node.short_polls < state.short_polls and now < state.wanted_until)
        ):
            return self._hungry(now, node, nodes, carries=carries)
        if (
            self._config.limits_records
            or self._has_released
            or node.redelivers
            or not (self._is_working(nodes) or self._is_about_to(buffered))
            or (buffered and state.measures.held_bytes() >= self._config.buffer_memory)
        ):
            return FOREVER
        room = self._room(nodes, buffered)
        if room <= 0:
            return FOREVER
        if not node.quiet.ready(now):
            return node.quiet.until
        return Limits(0, min(room, max(self._most, self._pace.soon())))

    def _hungry(
        self, now: int, node: ShareNode, nodes: tuple[ShareNode, ...], *, carries: bool
    ) -> Limits | int:
        if self._config.limits_records and any(each.sent is not None and each.sent.asked for each in nodes):
            return FOREVER
        self._has_released = False
        state = self._share_state
        left_ms = state.wanted_until - now if state.wanted else 0
        node.short_polls = state.short_polls
        wait_ms = min(self.longest_wait_ms, max(left_ms, SHORT_MS))
        if node.held or carries:
            wait_ms = min(wait_ms, _BESIDE_MS)
        most = self._most
        if not self._config.limits_records:
            most = max(most, self._pace.soon())
        if not self._config.share_lock_renewal and self._pace.ms_per_record is not None:
            most = max(min(most, self._pace.fits(self.lock_ms)), 1)
        return Limits(wait_ms, most)

    def max_bytes(self, nodes: Iterable[ShareNode]) -> int:
        """How many bytes a fetch may ask for: `buffer.memory` bounds what is held, save for one larger batch."""
        asked = sum(node.sent.max_bytes for node in nodes if node.sent is not None)
        left = self._config.buffer_memory - self._share_state.measures.held_bytes() - asked
        return max(min(self._config.fetch_max_bytes, left), 1)

    def _room(self, nodes: tuple[ShareNode, ...], buffered: int) -> int:
        """How many records may be fetched ahead now; 0: it is not worth a fetch."""
        pace = self._pace
        target = min(pace.fits(self.lock_ms), max(2 * self._most, pace.soon()), pace.done)
        room = target - buffered - sum(each.sent.asked for each in nodes if each.sent is not None)
        return room if 2 * room >= min(target, self._most) else 0

    @staticmethod
    def _is_working(nodes: tuple[ShareNode, ...]) -> bool:
        """Whether the application has taken records of which it has said nothing yet."""
        return any(count(held.open) > fetch.left for node in nodes for fetch, held in node.held.items())

    def _is_about_to(self, buffered: int) -> bool:
        """Whether a poll waits for what has just come.

        The next fetch leaves before that poll returns, and so before the application holds the interpreter.
        """
        return buffered > 0 and self._share_state.wanted > 0

    @staticmethod
    def _buffered(now: int, nodes: tuple[ShareNode, ...]) -> int:
        """Acquired offsets that the application has not taken, and whose locks hold."""
        return sum(
            fetch.left for node in nodes for fetch in node.held if fetch.left > 0 and fetch.is_locked(now)
        )

    def answered(self, now: int, sent: Sent, brought: int) -> None:
        """A fetch was answered, with so many records: when is the next one worth it?"""
        node = sent.node
        if brought:
            node.early = 0
            # A fetch that waited, and brought fewer records than one poll returns, has left none at the broker. A fetch
            # ahead would bring nothing, and there would be one for each record.
            if brought >= min(sent.asked, self._most) or not sent.wait_ms:
                node.quiet.succeeded()
        elif not sent.wait_ms:
            node.quiet.failed(now)
        elif now - sent.sent_at < sent.wait_ms // 2:
            node.early += 1
            if node.early > _EARLY:
                node.backoff.failed(now)
        else:
            node.early = 0
