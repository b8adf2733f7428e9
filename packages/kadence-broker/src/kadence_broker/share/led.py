"""A share-partition in the memory of its leader: its state machine with a timer for locks, its store and its readers.

A step changes the state, and the changes are stored at once; if that fails, the step is undone. An answer that depends
on it is sent when the store is durable (`ShareStore.when_durable`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kadence.clock import FOREVER
from kadence.logs import logger
from kadence.protocol import error_codes as codes
from kadence_broker.share.acknowledging import Acknowledgement, acknowledge
from kadence_broker.share.acquiring import Acquired, LogBatch, Wish, acquire
from kadence_broker.share.changes import Changes, DeadLetter
from kadence_broker.share.interface import ShareSettings
from kadence_broker.share.partition import SharePartition
from kadence_broker.share.store import ShareStore
from kadence_broker.share.stored import ShareKey

if TYPE_CHECKING:
    from kadence_broker.server.loop import Loop, Timer
    from kadence_broker.storage import Partition

__all__ = ["Led", "Reader", "SendLetter"]

_log = logger("kadence.broker")


class Reader(Protocol):
    """A fetch that waits for records of a share-partition."""

    def look_again(self) -> None: ...


SendLetter = Callable[["Led", DeadLetter], None]
"""Has a dead letter written, and calls `Led.letter_written` when that is over."""


class Led:
    """One share-partition at its leader. The broker's thread owns it.

    Attributes:
        log: the partition whose records these are.
        waiting: fetches that look again when something changes, the longest waiting first.
        is_void: what is stored is not this state any more: nobody will load it again.
    """

    __slots__ = (
        "_letters",
        "_loop",
        "_on_letters_written",
        "_on_the_way",
        "_send_letter",
        "_settings_of",
        "_store",
        "_timer",
        "_timer_at",
        "_will_wake",
        "is_void",
        "key",
        "log",
        "state",
        "waiting",
    )

    def __init__(
        self,
        key: ShareKey,
        log: Partition,
        state: SharePartition,
        store: ShareStore,
        loop: Loop,
        settings_of: Callable[[str], ShareSettings],
        send_letter: SendLetter,
    ) -> None:
        self.key = key
        self.log = log
        self.state = state
        self.waiting: dict[Reader, None] = {}
        self._store = store
        self._loop = loop
        self._settings_of = settings_of
        self._send_letter = send_letter
        self._timer: Timer | None = None
        self._timer_at = FOREVER
        self._will_wake = False
        self._letters = self._on_the_way = 0
        self._on_letters_written: Callable[[], None] | None = None
        self.is_void = False
        for letter in state.letters_owed(self.settings):
            self._send(letter)

    def __repr__(self) -> str:
        return f"<{self.state!r} of {self.log.topic.name}-{self.log.index} for {self.key.group_id}>"

    @property
    def settings(self) -> ShareSettings:
        return self._settings_of(self.key.group_id)

    # Members

    def acquire(
        self, now: int, wish: Wish, log: Sequence[LogBatch], aborted: Sequence[LogBatch]
    ) -> tuple[list[Acquired], int]:
        """See `kadence_broker.share.acquiring.acquire`."""
        acquired = acquire(self.state, now, wish, log, self.settings, aborted)
        self._watch_locks()
        return acquired

    def acknowledge(
        self, now: int, member: str, said: Sequence[Acknowledgement], *, is_on_the_way: bool = False
    ) -> int:
        """Take a member's acknowledgements, all or none. Returns an error code.

        Args:
            is_on_the_way: they came with a fetch, which is served first, as in Kafka, where storing takes longer: the
                member does not get back at once what it has just released.
        """
        if self.state.is_fenced:
            return codes.NOT_LEADER_OR_FOLLOWER
        changes, code = acknowledge(self.state, now, member, said, self.settings)
        if code != codes.NONE:
            return code
        code = self._store_or_undo(changes)
        if code == codes.NONE and is_on_the_way:
            for each in changes.made:
                each.delivery.is_settling = True
            self._on_the_way += 1
            self._loop.soon(lambda: self._arrived(changes))
        elif code == codes.NONE:
            self._changed(changes)
        return code

    def release_member(self, member: str) -> None:
        """The member's session has ended: others may have what it has."""
        if self.state.is_fenced:
            return
        changes = self.state.release_member(member, self.settings)
        if self._store_or_undo(changes) == codes.NONE:
            self._changed(changes)

    def _store_or_undo(self, changes: Changes) -> int:
        """Store what a step has changed, or undo it. Returns an error code."""
        batches = changes.stored
        if not batches:
            return codes.NONE
        code = self._store.write(self.key, self.state.start_offset, self.state.done_count, batches)
        if code != codes.NONE:
            self.state.undo(changes)
        return code

    def _arrived(self, changes: Changes) -> None:
        self._on_the_way -= 1
        self._changed(changes)
        self._look_for_letters()

    def _changed(self, changes: Changes) -> None:
        if not changes.made:
            return
        if not self.state.is_fenced:
            self.state.settle(changes)
            self._watch_locks()
            self.wake_soon()
        elif not self.is_void:
            return  # Who loads what is stored sends the letters.
        for letter in changes.dead_letters():
            self._send(letter)

    # Dead letters

    def _send(self, letter: DeadLetter) -> None:
        self._letters += 1
        self._send_letter(self, letter)

    def when_letters_are_written(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once no dead letter is on its way; it takes the place of an earlier one."""
        self._on_letters_written = callback
        self._look_for_letters()

    def _look_for_letters(self) -> None:
        callback = self._on_letters_written
        if callback is not None and not self._letters and not self._on_the_way:
            self._on_letters_written = None
            callback()

    def letter_written(self, letter: DeadLetter) -> None:
        """A dead letter is written, or given up: its records are archived."""
        self._letters -= 1
        if self.state.is_fenced:
            return
        changes = self.state.letter_written(letter)
        if batches := changes.stored:
            code = self._store.write(self.key, self.state.start_offset, self.state.done_count, batches)
            if code != codes.NONE:
                _log.error("archived records of %r could not be stored: %s", self, codes.name(code))
        self._changed(changes)
        self._look_for_letters()

    # Locks

    def _watch_locks(self) -> None:
        if self.state.is_fenced:
            return  # Its locks are void, and their ends would be stored over the state that is valid now.
        ends = self.state.next_lock_end()
        if ends >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = ends
        self._timer = self._loop.at(ends, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, FOREVER
        changes = self.state.expire(self._loop.clock.now_ms(), self.settings)
        if batches := changes.stored:
            code = self._store.write(self.key, self.state.start_offset, self.state.done_count, batches)
            if code != codes.NONE:
                # As in Kafka: the locks have ended all the same. The counts of a restart may be lower.
                _log.warning("ended locks of %r could not be stored: %s", self, codes.name(code))
        self._changed(changes)
        self._watch_locks()

    # Changes from elsewhere

    def log_started_at(self, offset: int) -> None:
        """Records were deleted from the beginning of the log."""
        self.state.log_starts_at(offset)

    def fence(self, *, is_void: bool = False) -> None:
        """Nobody may change this state any more: it has moved, or its group has left, and what is stored of it goes on.

        Args:
            is_void: it was altered or deleted, so nothing of it goes on. Dead letters that wait are still written: the
                records were taken from their members.
        """
        self.state.is_fenced = True
        self.is_void |= is_void
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, FOREVER
        self.wake_soon()

    # Readers

    def wake_soon(self) -> None:
        """Let waiting fetches look again, when what runs now has returned."""
        if self.waiting and not self._will_wake:
            self._will_wake = True
            self._loop.soon(self._wake)

    def _wake(self) -> None:
        self._will_wake = False
        for reader in list(self.waiting):
            if reader in self.waiting:
                reader.look_again()
