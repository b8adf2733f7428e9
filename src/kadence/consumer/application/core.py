"""One consumer's application side, without a way to wait: polls, callbacks, the end. Application side.

Each call is a generator of waits (`client.waits`), one text for every shell (G1): it yields what must be
waited for or run, and its shell (`shell.py` for threads, `async_shell.py` for asyncio) does so and resumes it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from threading import current_thread
from typing import TYPE_CHECKING, TypeVar

from kadence.client.engine import Engine
from kadence.client.waits import Waits
from kadence.clock import Clock
from kadence.config import ConsumerConfig
from kadence.config.table import AUTO
from kadence.consumer import events as m
from kadence.consumer.application.callbacks import (
    AsyncRebalanceListener,
    Interceptors,
    Rebalancing,
)
from kadence.consumer.application.commits import Commits
from kadence.consumer.application.exchange import Exchange, KnownAssignment
from kadence.consumer.application.processing import Pace, Stalls
from kadence.consumer.decoded_records import Attention
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.fetch._steps import Steps
from kadence.consumer.shared_state import SharedState
from kadence.errors import (
    ClosedError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
)
from kadence.forked import in_children
from kadence.loading import load
from kadence.logs import logger
from kadence.records import Columns, Record
from kadence.types import GroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kadence.client.aside import Aside
    from kadence.consumer.fetch.dead_letters import DeadLetters, LetterProducers
    from kadence.consumer.fetch.decoding import Decoding
    from kadence.work.meters import Meters
    from kadence.work.tracing import Tracing

__all__ = ["Core"]

log = logger("kadence.consumer")

R = TypeVar("R")
T = TypeVar("T")


def _raise(attention: Attention) -> None:
    attention.up = True


class Core:
    """One consumer's application side."""

    def __init__(
        self,
        config: ConsumerConfig,
        shared_state: SharedState,
        engine: Engine,
        clock: Clock,
        letter_producers: LetterProducers,
        aside: Callable[[], Aside],
    ) -> None:
        self.config = config
        self.clock = clock
        self.closed = False
        self.subscribed: frozenset[str] | None = None
        self.pattern: str | None = None
        self.patterns: tuple[str | None, str | None] = (None, None)
        self.manual = False
        self.is_working = False
        self.followed: frozenset[str] = frozenset()
        self.choices = 0
        """How often the application has said what to read."""
        self._shared_state = shared_state
        # Steps, which do not enter a shell, are refused in a child: see `fetch._steps`.
        in_children(shared_state.attention, _raise)
        self._engine = engine
        self.exchange = Exchange(
            shared_state,
            clock,
            GroupMetadata(config.group_id or "", group_instance_id=config.group_instance_id),
        )
        self.interceptors = Interceptors(config.interceptors, shared_state) if config.interceptors else None
        self.known = KnownAssignment(shared_state, lambda: self.manual)
        self.commits = Commits(config, shared_state, self.exchange, clock, self.interceptors, self.known)
        self._rebalancing = Rebalancing(shared_state, self.exchange, self.commits, clock, self.known)
        self._collector = FetchCollector(
            shared_state,
            check_crcs=config.check_crcs,
            max_batch_bytes=config.max_batch_bytes,
            buffer_memory=config.buffer_memory,
            unpack_bytes=config.unpack_bytes,
            decoded_bytes=config.decoded_bytes,
            clock=clock,
        )
        self.steps: Steps = self._collector.steps
        """Polls that need nothing but the next record."""
        if self.interceptors is not None and self.interceptors.consuming:
            self.steps.intercept_with(self.interceptors, self.interceptors.consuming, self.put_back)
        self.exchange.has_records = self._collector.holds
        self._dead_letters: DeadLetters | None = None
        self.decoding: Decoding | None = None
        self._take = self._collector.take_records
        if config.key_deserializer is not None or config.value_deserializer is not None:
            # Most consumers take bytes, and load neither of them.
            load("kadence.consumer.fetch.decoding")
        if config.dead_letter_topic is not None:
            from kadence.consumer.fetch.dead_letters import DeadLetters

            self._dead_letters = DeadLetters(
                config.dead_letter_topic,
                config.group_id,
                lambda: letter_producers(config),
                shared_state.signal.set,
                aside(),
            )
        self.decode()
        self.stalls = Stalls(
            config.group_id,
            lambda: (self._collector.given(), self._collector.in_hand()),
            config.stall_report_callback,
            shared_state.wall_offset_ms,
        )
        # The network thread keeps it: held by that, a consumer that nobody closed would never be collected.
        noticed = weakref.WeakMethod(self.stalls.noticed)
        shared_state.on_stall = lambda event: None if (notice := noticed()) is None else notice(event)
        self.work: Meters | None = None
        """From the first call of `process` on."""
        self.tracing: Tracing | None = None
        """Who makes spans of what `process` does."""
        self.pace: Pace | None = None
        if config.max_poll_records == AUTO:
            self.pace = Pace(int(config.max_poll_interval_ms * config.max_poll_records_ratio))
        else:
            self.steps.usual = config.max_poll_records
        self._poll_measures = shared_state.measures.poll_measures
        self.counted_at = -1
        """When the poll under way was counted on the fast path, which had nothing for it; -1: it was not."""
        self.call = self.exchange.call
        self.hand_over = self.exchange.hand_over
        self.wakeup = self.exchange.wakeup
        self.nudge = self.exchange.nudge
        self.stop = self.exchange.stop
        self.is_in_callback = self._rebalancing.is_inside
        if config.group_id is not None and config.processing_timeout_ms > config.max_poll_interval_ms:
            log.warning(
                "max.poll.interval.ms (%d) is below session.timeout.ms (%d) and is treated as %d: the group waits "
                "that long for a lost member in any case",
                config.max_poll_interval_ms,
                config.session_timeout_ms,
                config.processing_timeout_ms,
            )
        engine.start()

    def take_bytes(self) -> None:
        """Polls call no deserialiser."""
        self._take = self._collector.take_records
        self.decoding = None
        self.steps.decoder = None

    def decode(self) -> None:
        """Polls call the deserialisers, where there are any."""
        config = self.config
        if config.key_deserializer is not None or config.value_deserializer is not None:
            # Most consumers take bytes.
            from kadence.consumer.fetch.decoding import Decoding

            self.decoding = Decoding(config, self._collector, self._dead_letters, self.look_again, self.clock)
            self._take = self.decoding.take

    def look_again(self) -> None:
        """Any thread: what a poll waits for may be there."""
        self._shared_state.attention.up = True
        self._shared_state.signal.set()

    @property
    def listener(self) -> AsyncRebalanceListener | None:
        """Told of partitions that come and go."""
        return self._rebalancing.listener

    @listener.setter
    def listener(self, listener: AsyncRebalanceListener | None) -> None:
        self._rebalancing.listener = listener

    @property
    def stopping(self) -> bool:
        """`stop` was called: polls return nothing."""
        return self.exchange.stopping

    @property
    def closing(self) -> bool:
        """It is closed, or a call of close() is under way."""
        return self.closed or self._rebalancing.closing

    def reads_anything(self) -> bool:
        """Whether there is a subscription, or an assignment by hand."""
        return self.manual or self.subscribed is not None or self.pattern is not None

    @property
    def group(self) -> GroupMetadata:
        """This member's identity, as last told."""
        return self.exchange.group

    @property
    def identity(self) -> GroupMetadata:
        """The identity that goes with the records that polls have returned."""
        return self.exchange.identity

    @property
    def lost(self) -> frozenset[TopicPartition]:
        """What the group has taken from this member, of which no poll has told yet."""
        return frozenset() if self.manual else self.exchange.lost

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """What is assigned, whether the program was told of it or not. Any thread."""
        return frozenset(self._shared_state.assignment)

    @property
    def rebalances(self) -> list[m.Rebalance]:
        """The last rebalances, oldest first."""
        return self.exchange.rebalances

    # ------------------------------------------------------------ reading

    def poll_buffered(self, limit: int) -> list[tuple[TopicPartition, list[Record]]] | None:
        """The fast path of a poll: records from the buffer, without a wait, a hop or a wake (C6).

        None when the ordinary path has something to do: a background event to look at, a commit that is due, a wakeup.
        A poll that finds nothing of the kind arms the steps (`fetch._steps`) for those that follow it.
        """
        if self.steps.is_taking:
            self._refuse_inside_taking()
        shared_state, exchange = self._shared_state, self.exchange
        attention = shared_state.attention
        # The steps of the thread that polled before are refused by the attention that is lowered now.
        self._collector.steps.take_over()
        # Of a poll that did not come to its end.
        self.counted_at = -1
        # First: what changes after this look is seen by the next one.
        attention.up = False
        if (
            shared_state.background_events
            or shared_state.wants_polled
            or exchange.callbacks
            or exchange.failures
            or exchange.fatal is not None
            or self.commits.completed
            or exchange.woken
            or exchange.stopping
            or exchange.identity is not exchange.group
            or shared_state.ended
        ):
            attention.up = True
            return None
        now = self.clock.now_ms()
        if self.commits.due(now):
            attention.up = True
            return None
        shared_state.progress.polled(now)
        self.stalls.thread = current_thread()
        self._poll_measures.polled(now)
        self._collector.mark_processed()
        # A position that moved without a record ends a poll too; None would go on waiting for one.
        chunks = (
            None
            if self._collector.takes_nothing()
            else self._taken(partial(self._take, limit)) or ([] if self._collector.advanced else None)
        )
        self.counted_at = now if chunks is None else -1
        if self.pace is not None:
            self.pace.returns(now, self._collector.returned)
        # While `process` runs nobody else is to take records: a step does not know whose it is among tasks.
        if chunks and not self.is_working:
            self._collector.arm(now, limit, () if self.decoding is None else self.decoding.held_up())
        return chunks

    def poll(
        self, deadline: int, limit: int, made: Callable[[list[tuple[TopicPartition, list[Record]]]], R]
    ) -> Waits[R]:
        """Records as soon as there are any, serving the group's callbacks meanwhile.

        Args:
            made: makes of them what is returned, once the poll is over.
        """
        take = self._take
        if self.decoding is not None:
            self.decoding.until = deadline
            take = self._take_decoded
        return self._poll(deadline, partial(take, limit), made)

    def poll_bytes(self, deadline: int, limit: int) -> Waits[list[tuple[TopicPartition, list[Record]]]]:
        """As `poll`, and no deserialiser or interceptor sees the records."""
        return self._poll(deadline, partial(self._collector.take_records, limit), list)

    def poll_columns(
        self, deadline: int, limit: int, *, columns: tuple[str, ...], max_bytes: int | None
    ) -> Waits[list[tuple[TopicPartition, list[Columns]]]]:
        """As `poll`, as columns of bytes; see `FetchCollector.take_columns`."""
        return self._poll(
            deadline, partial(self._collector.take_columns, limit, columns=columns, max_bytes=max_bytes), list
        )

    def _poll(self, deadline: int, take: Callable[[], list[T]], made: Callable[[list[T]], R]) -> Waits[R]:
        if not self.reads_anything():
            raise IllegalStateError("nothing to poll: call subscribe() or assign() first")
        if self.steps.is_taking:
            self._refuse_inside_taking()
        shared_state, exchange = self._shared_state, self.exchange
        attention, now = shared_state.attention, self.counted_at
        # What `poll_buffered` has looked at without finding anything needs no other look while nothing changes.
        has_looked = now >= 0
        if not has_looked:
            now = self.clock.now_ms()
        self.counted_at = -1
        shared_state.progress.enter_poll(now)
        arrivals = shared_state.arrivals
        chunks: list[T] = []
        returned = 0
        try:
            # The end of a dead letter sets the signal without raising attention.
            is_calm = has_looked and not attention.up and self._dead_letters is None
            if not has_looked:
                self._poll_measures.polled(now)
            if not is_calm:
                self.stalls.thread = current_thread()
                self._collector.mark_processed()
            while True:
                if not is_calm and not (yield from self._serve()):
                    break
                if not (is_calm and has_looked) or (arrivals is not None and arrivals.has_some()):
                    chunks = self._taken(take)
                    returned = self._collector.returned
                    if chunks or self._collector.advanced:
                        break
                    now = self.clock.now_ms()
                # `process` knows by itself when there is nothing more to read, and waits for what is in work.
                is_over = self.manual and not self.is_working and self.is_finished
                if now >= deadline or is_over or exchange.nudged:
                    break
                yield self.commits.next_wake(deadline)
                now, has_looked = self.clock.now_ms(), False
                is_calm = is_calm and not attention.up and not self.commits.due(now)
        finally:
            exchange.nudged = False
            now = self.clock.now_ms()
            shared_state.progress.leave_poll(now)
            self._poll_measures.waited(now)
            if self.pace is not None:
                self.pace.returns(now, returned)
            if self.closed:
                # By another thread, which could not wait for what ran inside.
                self._collector.drop_all()
        return made(chunks)

    def _serve(self) -> Waits[bool]:
        """What a poll has to do before it takes records. False: it returns none, after `stop` or an unsubscribe()."""
        shared_state, exchange = self._shared_state, self.exchange
        # Looked at first: a member that gives up tells why before it waits for a poll.
        wants_polled = shared_state.wants_polled
        exchange.take_background_events()
        if exchange.stalled is not None:
            self.stalls.over(self.clock.now_ms(), exchange.stalled)
            exchange.stalled = None
        if exchange.stopping:
            exchange.polled_after_stop()
            return False
        # A member that gave up comes back when the application was told why, and polls on: not by the poll that tells.
        if wants_polled and not exchange.owes_a_reason:
            shared_state.wants_polled = False
            shared_state.send(m.Polled(0, 0))
        self.commits.commit_due()
        exchange.adopt_identity()
        try:
            yield from self._rebalancing.serve()
        finally:
            exchange.adopt_identity()
        exchange.raise_failure()
        exchange.raise_wakeup()
        return self.reads_anything()

    def _refuse_inside_taking(self) -> None:
        raise IllegalStateError(
            "poll() is not possible while another poll of this consumer takes records: a deserialiser, or a signal "
            "handler, called it in the midst of that"
        )

    def _taken(self, take: Callable[[], list[T]]) -> list[T]:
        """What ``take`` takes. A deserialiser or a signal handler may have closed the consumer in the midst of it."""
        # An interruption between this and the return is followed by `put_back`.
        steps = self.steps
        steps.is_taking = True
        try:
            taken = take()
        except Exception as error:
            if self.closed and not isinstance(error, KafkaError):
                # It met what close() has emptied.
                raise ClosedError("this consumer is closed") from None
            raise
        finally:
            steps.is_taking = False
        if self.closed:
            self._collector.drop_all()
            raise ClosedError("this consumer is closed")
        return taken

    def _take_decoded(self, limit: int) -> list[tuple[TopicPartition, list[Record]]]:
        """Deserialisers are user code: one that hangs is processing that hangs (B4), though it runs inside poll()."""
        progress = self._shared_state.progress
        progress.enter_callback(self.clock.now_ms())
        try:
            return self._take(limit)
        finally:
            progress.leave_callback(self.clock.now_ms())

    @property
    def is_finished(self) -> bool:
        """Whether all that is assigned are ranges, and all of each was returned: no poll will return anything."""
        shared_partitions = self._shared_state.assignment.values()
        for shared_partition in shared_partitions:
            if shared_partition.end is None or not shared_partition.is_finished:
                return False
        return self.manual and bool(shared_partitions)

    @property
    def proofs(self) -> int:
        """How many polls have begun; see `put_back`."""
        return self._collector.steps.calls

    def put_back(self, proofs: int | None) -> None:
        """The poll that began after ``proofs`` was read did not return: what it took comes with the next one (C7).

        None: it had not come so far, and took nothing.
        """
        self.steps.is_taking = False
        if proofs is None:
            return
        has_polled = self._collector.steps.calls != proofs
        if self.interceptors is not None:
            self.interceptors.surplus.put_back(polled=has_polled)
        if has_polled:
            self._collector.put_back()
            if self.pace is not None:
                self.pace.returns(self.clock.now_ms(), 0)

    def moved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where partitions stand of which the poll has passed over more than the records that it returns.

        Also where ``auto.offset.reset`` has reading begin, once: a transaction commits that, too.
        """
        passed = self._collector.moved()
        if self.commits.told_starts == self._shared_state.starts:
            return passed
        return {**self.commits.untold_starts(), **passed}

    def note_raised(self, partitions: Iterable[TopicPartition], error: KafkaError) -> None:
        """The poll under way has put back what it took, and raises for what comes next of these."""
        for partition in partitions:
            if (shared_partition := self._shared_state.assignment.get(partition)) is not None:
                shared_partition.note_raised(error, self.clock.now_ms())

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """The poll under way returns rows before this offset only."""
        self._collector.cut(partition, offset)

    # ------------------------------------------------------------ subscription

    def subscribe(
        self,
        topics: frozenset[str] | None,
        pattern: str | None,
        regex: str | None,
        listener: AsyncRebalanceListener | None,
        deadline: int,
    ) -> Waits[None]:
        """Replace the subscription. Once this returns no record of a topic that left it is returned by a poll."""
        self.forgive()
        self.choices += 1
        self.subscribed, self.pattern, self.listener = topics, pattern or regex, listener
        self.patterns = pattern, regex
        self._shared_state.wants_polled = True
        self._shared_state.attention.up = True
        yield from self.hand_over(
            m.Subscribe,
            deadline,
            topics=topics,
            pattern=pattern,
            has_listener=listener is not None,
            regex=regex,
        )

    # ------------------------------------------------------------ commits

    def auto_commit_now(self, deadline: int, *, processed_only: bool) -> Waits[None]:
        """Commit before something ends (close, assign), if there is anything to read at all."""
        if self.reads_anything():
            yield from self.commits.commit_now(deadline, processed_only=processed_only)

    # ------------------------------------------------------------ the end

    def unsubscribe(self, deadline: int) -> Waits[None]:
        """Leave, serving revocation callbacks; what the group answers is not waited for beyond the deadline.

        What was sent takes effect even when the wait is interrupted. The listener stays then: callbacks may be to come,
        which the next call runs that serves them.
        """
        error: Exception | None = None
        choices = self.choices
        if self.manual:
            self.commits.commit_soon()
        try:
            yield from self.commits.keep(self._half_way(deadline))
            yield from self.exchange.leave(m.Unsubscribe, deadline, self._serving_until(deadline))
        except Exception as raised:  # noqa: BLE001 - raised below: whatever a callback raised, the group is left
            error = raised
        finally:
            # Another task may have said meanwhile what to read next.
            if choices == self.choices:
                self.subscribed = self.pattern = None
                self.manual = False
                self.followed = frozenset()
        if choices == self.choices:
            self.listener = None
            self.known.forget()
        self.exchange.adopt_identity()
        if error is not None:
            raise error

    def close(self, deadline: int, *, processed_only: bool, leave: bool | None) -> Waits[None]:
        """Commit, leave, stop: each within the deadline, none of them able to hang (B7)."""
        if self.closed or self._rebalancing.closing:
            return
        self._rebalancing.closing = True
        self.exchange.woken = False
        self.exchange.grace.end()
        error: Exception | None = None
        try:
            try:
                if not self._shared_state.ended:
                    yield from self.auto_commit_now(self._half_way(deadline), processed_only=processed_only)
                    yield from self.commits.keep(self._half_way(deadline))
                    yield from self.exchange.leave(
                        m.Close, deadline, self._serving_until(deadline), leave=leave
                    )
            except Exception as raised:  # noqa: BLE001 - raised below, once everything is stopped
                error = raised
            self.exchange.take_background_events()
            try:
                yield from self.commits.run_callbacks()
            except Exception as raised:  # noqa: BLE001 - as above
                error = error or raised
            if self._dead_letters is not None:
                closing = self._dead_letters.close(max(deadline - self.clock.now_ms(), 100) / 1000)
                while not closing.done and self.clock.now_ms() < deadline:
                    yield deadline
            self._engine.join(max(deadline - self.clock.now_ms(), 100) / 1000)
        except BaseException:
            # Ctrl-C, or a cancelled task: the consumer is not closed, so close() may be called again.
            self._rebalancing.closing = False
            raise
        self.closed = True
        self._shared_state.attention.up = True
        self._shared_state.assignment = {}
        self.known.forget()
        self._collector.drop_all()
        if self.interceptors is not None:
            self.interceptors.close()
        if error is not None:
            raise error

    def abandon(self, deadline: int) -> None:
        """From another thread, while the one inside does not come back: leave the group, and be closed."""
        self._shared_state.begin_close(deadline)
        self._engine.join(max(deadline - self.clock.now_ms(), 100) / 1000)
        self.closed = True
        self._shared_state.attention.up = True

    def _half_way(self, deadline: int) -> int:
        """Half of the time that is left is for a commit: the other half is for leaving the group.

        A coordinator that is silent is waited for no longer than one request is, with both.
        """
        now = self.clock.now_ms()
        return now + min(max(deadline - now, 0), self.config.request_timeout_ms) // 2

    def _serving_until(self, deadline: int) -> Callable[[], Waits[None]]:
        return partial(self._rebalancing.leave, self._half_way(deadline))

    # ------------------------------------------------------------ refusals

    def forgive(self) -> None:
        """A new subscription begins anew: what ended the old membership for good is no longer raised."""
        self.exchange.fatal = None

    def need_group(self, what: str) -> None:
        if self.config.group_id is None:
            more = "; without a group assign_topics() reads all of a topic" if what == "subscribe()" else ""
            raise InvalidGroupIdError(f"{what} needs group.id{more}")

    def check(self) -> None:
        """Called during a wait: raise the error, or the wakeup, that must end it."""
        self.exchange.take_background_events()
        self.exchange.raise_failure()
        self.exchange.raise_wakeup()
