"""The application's commits and the automatic ones: it sends them and handles their results. Application side.

Automatic commits happen only inside a poll, and take only records that an earlier poll returned: at least once.
Offsets that have not changed since the last commit are left out, and committed again from time to time. Callbacks
of asynchronous commits run in the order in which the commits were given, inside a later call.

Where `auto.offset.reset` had reading begin is committed with the program's first commit of whatever kind (`starts`):
without that a restart, or another member, applies the policy again, and ``latest`` passes over what came meanwhile.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from kadence.client.waits import Run, Waits
from kadence.clock import Clock, add_ms
from kadence.config import ConsumerConfig
from kadence.consumer import events as m
from kadence.consumer.application.callbacks import CommitCallback, Interceptors
from kadence.consumer.application.exchange import NOT_SENT, Exchange
from kadence.consumer.application.known_assignment import KnownAssignment
from kadence.consumer.shared_partition import Origin, SharedPartition
from kadence.consumer.shared_state import SharedState
from kadence.errors import CommitFailedError, IllegalStateError, KafkaError, WakeupError
from kadence.logs import LogLimiter, logger
from kadence.printable import plural
from kadence.records import Record
from kadence.types import OffsetAndMetadata, ReadOffset, TopicPartition

__all__ = ["Commits", "parts_of"]

log = logger("kadence.consumer")

_REFRESH_MS: Final = 60_000
"""How often offsets are committed though they have not changed, at most."""

_KEEP_MS: Final = 2_000

_LEAST_WAIT_MS: Final = 100
"""How long a poll waits, at least, before it looks again for something to commit when a commit is due already."""


_BY_PROGRAM: Mapping[TopicPartition, int] = MappingProxyType({})

_Converted = tuple[dict[TopicPartition, OffsetAndMetadata] | None, Mapping[TopicPartition, int]]
"""The offsets of a call, and ``read_under`` of `events.Commit`."""


class Commits:
    """Makes the application's commits and the automatic ones, and runs their callbacks.

    Attributes:
        completed: ended asynchronous commits whose callbacks have not run yet.
        is_automatic: whether it commits by itself. Not while `process` says what is done.
        is_for_work: `process` is under way, and says what is done: a commit of all that was returned is refused.
        told_starts: how many choices of ``auto.offset.reset`` polls have told.
        has_worked: `process` was called, so there may be metadata with what is done above a committed offset. A commit
            of the place where reading began, by which nothing is said, would remove it.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        shared_state: SharedState,
        exchange: Exchange,
        clock: Clock,
        interceptors: Interceptors | None,
        known: KnownAssignment,
    ) -> None:
        self.completed: deque[tuple[CommitCallback, m.CommitCompleted]] = deque()
        self.is_automatic = config.auto_commit
        self._config = config
        self._shared_state = shared_state
        self._exchange = exchange
        self._clock = clock
        self._interceptors = interceptors
        self._known = known
        self.is_for_work = False
        self.has_worked = False
        self.told_starts = 0
        self._known_starts = 0
        """How many choices of ``auto.offset.reset`` were looked at."""
        self._open_starts: set[TopicPartition] = set()
        self._answered_starts: dict[TopicPartition, int] = {}
        """By its number the last choice of each partition of which something was committed since."""
        self._starting: set[int] = set()
        """Commits of such places that have not ended."""
        self._callbacks: dict[int, CommitCallback | None] = {}
        self._own = 0
        self._log_limiter = LogLimiter()
        self._partings: set[int] = set()
        """Commits of what is processed of partitions that are given up, which have not ended."""
        self._next_at = add_ms(clock.now_ms(), config.auto_commit_interval_ms)
        self._refresh_at = self._next_at
        self._last: dict[TopicPartition, tuple[int, int]] = {}
        """What was committed last of each partition, and in which fetch epoch: in another nothing is known."""
        exchange.on_commit = self._on_completed

    # ------------------------------------------------------------ asked for

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        deadline: int,
        read_under: Mapping[TopicPartition, int] = _BY_PROGRAM,
    ) -> Waits[None]:
        """Commit and wait. None: everything returned (the caller says that it is processed).

        Args:
            read_under: see `events.Commit`. Empty: the program itself says what is to be committed.
        """
        self._exchange.take_background_events()
        self._exchange.raise_fatal()
        yield from self.run_callbacks()
        chosen, lost, read_under, known = self._chosen(offsets, read_under)
        began = self._clock.now_ms()
        # Wait even when there is nothing to commit: earlier asynchronous commits end first, in order.
        try:
            self._send_starts(chosen, deadline, read_under, known, lost)
            void = yield from self._carry(deadline, chosen, lost, read_under, known)
        except CommitFailedError as error:
            self._remember(_but(chosen, error))
            raise
        finally:
            self._shared_state.measures.poll_measures.commit_sync_ms += self._clock.now_ms() - began
        self._remember({p: at for p, at in chosen.items() if p not in void} if void else chosen)
        self._exchange.take_background_events()
        yield from self.run_callbacks()

    def commit_record(
        self, record: Record[Any, Any], timeout_ms: int, converted: Callable[[Record[Any, Any]], _Converted]
    ) -> Waits[None]:
        """As `commit` of the offset after a record, with what ``converted`` makes of that.

        Programs commit each record, and nearly always nothing has changed since the commit before. This looks whether
        that is so, and does as little as it can before the request is out and after the answer. `commit` does the rest.
        """
        exchange, state = self._exchange, self._shared_state
        direct = state.direct_commits
        form = None if direct is None else direct.forms.get((record.topic, record.partition))
        began = self._clock.now_ms()
        deadline = add_ms(began, timeout_ms)
        if direct is not None and form is not None and timeout_ms:
            # First: all that follows is of this wait of the network thread, or nothing is sent.
            turn = form.turn
            partition, shared_partition, known = form.partition, form.shared_partition, self._known.partitions
            decoded, offset, leader_epoch = shared_partition.decoded, record.offset + 1, record.leader_epoch
            if not (
                # `commit` sends, tells, calls or raises something first.
                state.application_events
                or state.background_events
                or state.ended
                or self.completed
                or exchange.fatal is not None
                or exchange.woken
                or exchange.is_awaited
                or self._open_starts
                or self._known_starts != state.starts
                # It may leave something out: what was lost (C12), or does not count any more (C19).
                or exchange.callbacks
                or known.get(partition) is not shared_partition
                or offset < form.least_offset
                or decoded is None
                or decoded.fetch_epoch < form.least_epoch
                # It notes something, or others do.
                or state.is_transactional is None
                or self._interceptors is not None
            ):
                call_id, under = exchange.next_id(), shared_partition.fetch_epoch
                made = partial(
                    _commit_of_one, call_id, deadline, partition, offset, leader_epoch, known, under
                )
                # As `CommitRequestManager.given` does it.
                direct.given_at[partition] = began
                ask = partial(form.ask, turn, offset, leader_epoch, made)
                try:
                    void = yield from exchange.directly(m.Commit, call_id, began, deadline, ask)
                finally:
                    state.measures.poll_measures.commit_sync_ms += self._clock.now_ms() - began
                if void is not NOT_SENT:
                    if void is None:
                        self._note(partition, offset, leader_epoch)
                    if state.background_events or self.completed:
                        exchange.take_background_events()
                        yield from self.run_callbacks()
                    return
        offsets, read_under = converted(record)
        yield from self.commit(offsets, deadline, read_under)

    def _carry(
        self,
        deadline: int,
        chosen: dict[TopicPartition, OffsetAndMetadata],
        lost: frozenset[TopicPartition],
        read_under: Mapping[TopicPartition, int],
        known: Mapping[TopicPartition, SharedPartition],
    ) -> Waits[Any]:
        """Have the offsets committed, by this thread where it can, and wait for the end."""
        exchange, direct = self._exchange, self._shared_state.direct_commits
        # Earlier calls go first, which the network thread has not seen yet.
        if direct is not None and len(chosen) == 1 and not self._shared_state.application_events:
            exchange.ready()
            exchange.raise_wakeup()
            call_id = exchange.next_id()
            call = m.Commit(call_id, deadline, chosen, True, False, lost, known, read_under)
            began = self._clock.now_ms()
            void = yield from exchange.directly(m.Commit, call_id, began, deadline, partial(direct.ask, call))
            if void is not NOT_SENT:
                return void
        return (
            yield from exchange.call(
                m.Commit, deadline, offsets=chosen, retry=True, lost=lost, read_under=read_under, known=known
            )
        )

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        callback: CommitCallback | None,
        read_under: Mapping[TopicPartition, int] = _BY_PROGRAM,
        *,
        is_parting: bool = False,
    ) -> None:
        """Commit without waiting; ``callback(offsets, error)`` runs inside a later call, in order.

        Args:
            read_under: as of `commit`. is_parting: these are about to be given up. It is repeated for as long as a
                request may take. Once it has ended the network thread gives them up.
        """
        if is_parting:
            self._exchange.take_background_events()
        else:
            self._exchange.ready()
            self._exchange.raise_fatal()
        chosen, lost, read_under, known = self._chosen(offsets, read_under)
        now, config = self._clock.now_ms(), self._config
        deadline = add_ms(now, config.default_api_timeout_ms)
        self._send_starts(chosen, deadline, read_under, known, lost)
        if is_parting:
            deadline = add_ms(now, config.request_timeout_ms)
        self._send(chosen, lost, callback, deadline, read_under, known=known, is_parting=is_parting)

    def _chosen(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata] | None,
        read_under: Mapping[TopicPartition, int],
    ) -> tuple[
        dict[TopicPartition, OffsetAndMetadata],
        frozenset[TopicPartition],
        Mapping[TopicPartition, int],
        Mapping[TopicPartition, SharedPartition],
    ]:
        """The offsets that a call commits, the lost partitions among them, and the rest as in `events.Commit`.

        None: everything returned, and all that was lost.
        """
        lost, known = self._exchange.lost, self._known.partitions
        if self._shared_state.is_transactional is None:
            self._shared_state.is_transactional = False
        if offsets is None:
            if self.is_for_work:
                raise IllegalStateError(
                    "process() commits what is done by itself; commit() without offsets would commit what is not "
                    "done, too"
                )
            assigned = self._shared_state.shared_partitions
            chosen, read_under = parts_of(_consumed(assigned))
            if not self._known.is_by_hand:
                # Lost so lately that the event is still on its way.
                lost |= {p for p, each in known.items() if assigned.get(p) is not each}
            # A poll may return records of a partition that only the next one reports as assigned.
            known = known if assigned.keys() <= known.keys() else {**assigned, **known}
            return chosen, lost, read_under, known
        return dict(offsets), lost & offsets.keys() if lost else lost, read_under, known

    def run_callbacks(self) -> Waits[None]:
        while self.completed:
            yield Run(self._run_first)

    def _run_first(self) -> Any:
        callback, event = self.completed[0]
        # Remove it right before the callback: Ctrl-C before that loses none, and Ctrl-C within runs none twice.
        del self.completed[0]
        return callback(event.offsets, event.error)

    # ------------------------------------------------------------ where reading began

    def _starts(self) -> dict[TopicPartition, ReadOffset]:
        """Where ``auto.offset.reset`` had reading begin, of each partition of which nothing was committed since."""
        shared_state = self._shared_state
        assignment = shared_state.shared_partitions
        if self._known_starts != shared_state.starts:
            # Read before the assignment is looked at: what is chosen meanwhile is seen by the next look.
            self._known_starts = shared_state.starts
            self._open_starts = {
                partition
                for partition, each in assignment.items()
                if (origin := each.origin) is not None and origin.start is not None
            }
        found: dict[TopicPartition, ReadOffset] = {}
        for partition in tuple(self._open_starts):
            each = assignment.get(partition)
            origin = None if each is None else each.origin
            if (
                each is None
                or origin is None
                or origin.start is None
                or origin.start.number <= self._answered_starts.get(partition, 0)
            ):
                self._open_starts.discard(partition)
                continue
            at = each.current()
            # What was returned may be committed in a transaction already.
            has_moved = at is None or at.offset != origin.start.offset
            if not (each.held or (has_moved and shared_state.is_transactional)):
                found[partition] = ReadOffset(origin.fetch_epoch, OffsetAndMetadata(origin.start.offset))
        return found

    def untold_starts(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where partitions stand in which reading has begun there since this was asked last."""
        shared_state = self._shared_state
        before, self.told_starts = self.told_starts, shared_state.starts
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, each in shared_state.shared_partitions.items():
            origin, at = each.origin, each.current()
            if origin is None or at is None or origin.start is None or origin.start.number <= before:
                continue
            if each.held:
                # Its assigned callback may seek.
                self.told_starts = before
            else:
                found[partition] = OffsetAndMetadata(at.offset, at.leader_epoch)
        return found

    def _send_starts(
        self,
        beside: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: int,
        read_under: Mapping[TopicPartition, int],
        known: Mapping[TopicPartition, SharedPartition],
        lost: frozenset[TopicPartition],
    ) -> None:
        """Commit where reading began, with a commit of ``beside`` that follows at once, and is the program's.

        They are no part of it: what becomes of them is not what it asked for. They go out in one request.

        Args:
            read_under, known, lost: those of the program's commit, see `events.Commit`.
        """
        state = self._shared_state
        # True from the first commits on, until reading begins somewhere else.
        is_answered = not self._open_starts and self._known_starts == state.starts
        if is_answered or state.ended:
            return
        refused: Collection[TopicPartition] = lost
        if not self._known.is_by_hand:
            assigned = state.shared_partitions
            refused = lost | {p for p in beside if assigned.get(p) is not known.get(p)}
        taken = {p: at for p, at in beside.items() if p not in refused} if refused else beside
        self._answer_starts(taken, read_under)
        if starts := self._starts():
            call_id = self._exchange.next_id()
            self._starting.add(call_id)
            offsets, read_under = parts_of(starts)
            state.send(m.Commit(call_id, deadline, offsets, retry=False, parting=True, read_under=read_under))

    def _answer_starts(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], read_under: Mapping[TopicPartition, int]
    ) -> None:
        """These are about to be committed, so where reading began would take them back.

        What no longer counts is not committed, and leaves the place to be committed.
        """
        assignment = self._shared_state.shared_partitions
        for partition, at in offsets.items():
            each = assignment.get(partition)
            origin = None if each is None else each.origin
            if each is None or origin is None or origin.start is None:
                continue
            fetch_epoch = read_under.get(partition)
            if fetch_epoch is None or each.counts(at.offset, fetch_epoch):
                self._answered_starts[partition] = origin.start.number

    # ------------------------------------------------------------ automatic

    def due(self, now: int) -> bool:
        """Whether the interval is over and no automatic commit is under way."""
        return self.is_automatic and now >= self._next_at and not self._own

    def next_wake(self, deadline: int) -> int:
        """Waiting in poll, the next thing this side has to do by itself is the automatic commit."""
        if not self.is_automatic or self._own:
            return deadline
        now = self._clock.now_ms()
        # With auto.commit.interval.ms=0 a commit is always due, and a wait until then would be none.
        return min(deadline, self._next_at if self._next_at > now else add_ms(now, _LEAST_WAIT_MS))

    def commit_due(self) -> None:
        """Commit what is processed, when the interval is over. Only ever called inside a poll."""
        now = self._clock.now_ms()
        if not self.due(now):
            return
        self._next_at = add_ms(now, self._config.auto_commit_interval_ms)
        read = self._processed()
        if now >= self._refresh_at:
            # The broker forgets offsets that nobody commits (offsets.retention.minutes), be they in use or not.
            self._refresh_at = add_ms(now, max(_REFRESH_MS, self._config.auto_commit_interval_ms))
        else:
            read = self._changed(read)
        self._send_own(now, read)

    def commit_now(self, deadline: int, *, processed_only: bool) -> Waits[None]:
        """Commit before something ends (close, assign). Failures are logged: the records come again."""
        if self.is_automatic:
            read = self._changed(
                self._processed() if processed_only else _consumed(self._shared_state.shared_partitions)
            )
            yield from self._commit_quietly(read, deadline)

    def keep(self, deadline: int) -> Waits[None]:
        """Before the group is left: what it has committed for these partitions is kept from being forgotten.

        It is not worth a long wait: a coordinator that is silent has the time of one look at most.
        """
        if self._known.is_by_hand or not self._known.partitions or self._shared_state.ended:
            return
        until = min(deadline, add_ms(self._clock.now_ms(), _KEEP_MS))
        call_id = self._exchange.start(m.KeepCommitted, until)
        try:
            yield from self._exchange.finish(m.KeepCommitted, call_id, until, heeds_wakeup=False)
        except KafkaError as error:
            log.debug("committed offsets were not committed again: %s", error)

    def commit_soon(self) -> None:
        """Commit what is processed, without waiting: a manual assignment ends, and there is no group to tell of it."""
        if self.is_automatic:
            self._send_own(self._clock.now_ms(), self._changed(self._processed()))

    def commit_parting(self, partitions: tuple[TopicPartition, ...], deadline: int) -> None:
        """Commit what is processed of these, which are about to be given up, without waiting.

        The network thread gives them up, with the `CallbackDone` that follows, once this commit has ended.
        """
        read = self._changed(self._processed(partitions)) if self.is_automatic else {}
        if read and not self._shared_state.ended:
            offsets, read_under = parts_of(read)
            self._answer_starts(offsets, read_under)
            call_id = self._exchange.next_id()
            self._partings.add(call_id)
            deadline = min(deadline, add_ms(self._clock.now_ms(), self._config.request_timeout_ms))
            self._shared_state.send(
                m.Commit(call_id, deadline, offsets, retry=False, parting=True, read_under=read_under)
            )

    # ------------------------------------------------------------ within

    def _processed(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReadOffset]:
        assignment = self._shared_state.shared_partitions
        shared_partitions = (
            assignment.values()
            if partitions is None
            else [assignment[p] for p in partitions if p in assignment]
        )
        return _read(shared_partitions, SharedPartition.processed_position)

    def _send_own(self, now: int, read: Mapping[TopicPartition, ReadOffset]) -> None:
        """Commit these automatically, if there are any."""
        if read:
            offsets, read_under = parts_of(read)
            self._answer_starts(offsets, read_under)
            deadline = add_ms(now, self._config.default_api_timeout_ms)
            self._own = self._send(offsets, frozenset(), None, deadline, read_under)

    def _send(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        lost: frozenset[TopicPartition],
        callback: CommitCallback | None,
        deadline: int,
        read_under: Mapping[TopicPartition, int] = _BY_PROGRAM,
        *,
        known: Mapping[TopicPartition, SharedPartition] | None = None,
        is_parting: bool = False,
    ) -> int:
        call_id = self._exchange.next_id()
        self._callbacks[call_id] = callback
        is_repeated = False
        # By their places: names would cost as much as the object does.
        event = m.Commit(call_id, deadline, offsets, is_repeated, is_parting, lost, known, read_under)
        self._shared_state.send(event)
        return call_id

    def _commit_quietly(self, read: Mapping[TopicPartition, ReadOffset], deadline: int) -> Waits[None]:
        if not read:
            return
        offsets, read_under = parts_of(read)
        self._answer_starts(offsets, read_under)
        try:
            # A wakeup that came before ends the wait, not the commit.
            self._exchange.take_background_events()
            call_id = self._exchange.start(
                m.Commit, deadline, offsets=offsets, retry=True, parting=True, read_under=read_under
            )
            void = yield from self._exchange.finish(m.Commit, call_id, deadline)
            self._remember({p: at for p, at in offsets.items() if p not in void} if void else offsets)
        except WakeupError:
            self._exchange.woken = True
        except KafkaError as error:
            _warn(offsets, error)

    def _on_completed(self, event: m.CommitCompleted) -> None:
        """An asynchronous commit ended. Done again after an interruption it does nothing twice."""
        callback = self._callbacks.get(event.id)
        if event.id == self._own:
            self._own = 0
            if event.error is not None:
                self._next_at = add_ms(self._clock.now_ms(), self._config.retry_backoff_ms)
        committed = event.offsets if event.error is None else _but(event.offsets, event.error)
        self.note(committed)
        if event.error is None:
            self._log_limiter.over("commit")
        elif event.id in self._starting:
            log.debug("where reading began is committed with the next commit: %s", event.error)
        elif event.id in self._partings:
            _warn(event.offsets, event.error)
        elif callback is None and self._log_limiter.is_new(self._clock.now_ms(), "commit", str(event.error)):
            log.warning("commit of %d partitions failed: %s", len(event.offsets), event.error)
        ends: list[tuple[CommitCallback, m.CommitCompleted]] = []
        if self._interceptors is not None and committed:
            ends.append((self._interceptors.on_commit, m.CommitCompleted(event.id, committed, None)))
        if callback is not None:
            ends.append((callback, event))
        if not self.completed or self.completed[-1][1].id != event.id:
            self.completed.extend(ends)
        self._callbacks.pop(event.id, None)
        self._partings.discard(event.id)
        self._starting.discard(event.id)

    def _changed(self, read: Mapping[TopicPartition, ReadOffset]) -> dict[TopicPartition, ReadOffset]:
        """What is not committed already, as far as this assignment of the partition knows."""
        assignment, last = self._shared_state.shared_partitions, self._last
        return {
            partition: each
            for partition, each in read.items()
            if (shared_partition := assignment.get(partition)) is None
            or (
                last.get(partition) != (shared_partition.fetch_epoch, each.at.offset)
                and not (self.has_worked and _is_where_it_began(shared_partition, each.at.offset))
            )
        }

    def _remember(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed by a call that waited for it."""
        if self._interceptors is not None and offsets:
            self.completed.append((self._interceptors.on_commit, m.CommitCompleted(0, offsets, None)))
        self.note(offsets)

    def note(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are committed. What the application committed by itself is processed, or we would take it back."""
        for partition, offset in offsets.items():
            self._note(partition, offset.offset, offset.leader_epoch)

    def _note(self, partition: TopicPartition, offset: int, leader_epoch: int | None) -> None:
        """See `note`."""
        shared_partition = self._shared_state.shared_partitions.get(partition)
        if shared_partition is None:
            self._last.pop(partition, None)
            return
        origin = shared_partition.origin
        start = None if origin is None else origin.start
        if start is not None and start.offset <= offset:
            # Another one may have been chosen while this commit was under way.
            self._answered_starts[partition] = start.number
        self._last[partition] = (shared_partition.fetch_epoch, offset)
        shared_partition.mark_processed(offset, leader_epoch)


def _commit_of_one(
    call_id: int,
    deadline: int,
    partition: TopicPartition,
    offset: int,
    leader_epoch: int | None,
    known: Mapping[TopicPartition, SharedPartition],
    fetch_epoch: int,
) -> m.Commit:
    """A commit that is waited for, of one offset that follows from what was read under this fetch epoch."""
    offsets = {partition: OffsetAndMetadata(offset, leader_epoch)}
    read_under = {partition: fetch_epoch}
    return m.Commit(call_id, deadline, offsets, retry=True, known=known, read_under=read_under)


def parts_of(
    read: Mapping[TopicPartition, ReadOffset],
) -> tuple[dict[TopicPartition, OffsetAndMetadata], dict[TopicPartition, int]]:
    """The offsets, and the fetch epochs under which they count."""
    return {p: each.at for p, each in read.items()}, {p: each.fetch_epoch for p, each in read.items()}


def _consumed(assigned: Mapping[TopicPartition, SharedPartition]) -> dict[TopicPartition, ReadOffset]:
    """The position of every assigned partition that has one: what commit() without offsets means."""
    return _read(assigned.values(), SharedPartition.current)


def _is_where_it_began(shared_partition: SharedPartition, offset: int) -> bool:
    origin = shared_partition.origin
    return origin is not None and origin.offset == offset


def _but(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception
) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """What was committed though the commit failed: all but the partitions that moved."""
    if not isinstance(error, CommitFailedError) or not error.partitions:
        return {}
    return {partition: at for partition, at in offsets.items() if partition not in error.partitions}


def _warn(offsets: Mapping[TopicPartition, OffsetAndMetadata], error: Exception) -> None:
    log.warning(
        "auto-commit of %s failed; their records may be processed again: %s",
        plural(len(offsets), "partition"),
        error,
    )


def _read(
    shared_partitions: Iterable[SharedPartition], position: Callable[[SharedPartition], Origin | None]
) -> dict[TopicPartition, ReadOffset]:
    """These positions, each with the fetch epoch that it had at one moment."""
    return {
        each.partition: ReadOffset(at.fetch_epoch, OffsetAndMetadata(at.offset, at.leader_epoch))
        for each in shared_partitions
        if (at := position(each)) is not None
    }
