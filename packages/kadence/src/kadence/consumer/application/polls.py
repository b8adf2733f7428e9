"""Polls of one consumer, as generators of waits: events and callbacks first, then records. Application side."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from threading import current_thread
from typing import TYPE_CHECKING, TypeVar

from kadence.client.waits import Waits
from kadence.clock import Clock
from kadence.config import ConsumerConfig
from kadence.config.table import AUTO
from kadence.consumer import events as m
from kadence.consumer.application.callbacks import Interceptors, Rebalancing
from kadence.consumer.application.client_core import Chosen
from kadence.consumer.application.commits import Commits
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.known_assignment import KnownAssignment
from kadence.consumer.application.processing import Pace, Stalls
from kadence.consumer.fetch._fetch_collector import FetchCollector
from kadence.consumer.fetch._steps import Steps
from kadence.consumer.shared_state import SharedState
from kadence.errors import ClosedError, IllegalStateError, KafkaError
from kadence.records import Columns, Record
from kadence.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kadence.consumer.fetch.dead_letters import DeadLetters
    from kadence.consumer.fetch.decoding import Decoding

__all__ = ["Polls"]

R = TypeVar("R")
T = TypeVar("T")


class Polls:
    """The polls of one consumer.

    Attributes:
        collector: where they take what was fetched. steps: polls that only take the next record.
        decoding: calls the deserialisers; None: polls return bytes.
        pace: says how many records one poll returns, with max.poll.records=auto.
        is_working: whether `process` takes the records.
        counted_at: when the fast path, which had nothing for it, counted the current poll; -1: it did not.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        shared_state: SharedState,
        clock: Clock,
        chosen: Chosen,
        exchange: Exchange,
        known: KnownAssignment,
        commits: Commits,
        rebalancing: Rebalancing,
        collector: FetchCollector,
        stalls: Stalls,
        interceptors: Interceptors | None,
        dead_letters: DeadLetters | None,
    ) -> None:
        self.is_working = False
        self.collector = collector
        self.steps: Steps = collector.steps
        self.decoding: Decoding | None = None
        self.pace: Pace | None = None
        self.counted_at = -1
        self._config = config
        self._shared_state = shared_state
        self._clock = clock
        self._chosen = chosen
        self._exchange = exchange
        self._known = known
        self._commits = commits
        self._rebalancing = rebalancing
        self._stalls = stalls
        self._interceptors = interceptors
        self._dead_letters = dead_letters
        self._poll_measures = shared_state.measures.poll_measures
        self._take = collector.take_records
        exchange.has_records = collector.holds
        if interceptors is not None and interceptors.consuming:
            self.steps.intercept_with(interceptors, interceptors.consuming, self.put_back)
        if config.max_poll_records == AUTO:
            self.pace = Pace(int(config.max_poll_interval_ms * config.max_poll_records_ratio))
        else:
            self.steps.usual = config.max_poll_records
        self.decode()

    def take_bytes(self) -> None:
        """Polls stop calling deserialisers."""
        self._take = self.collector.take_records
        self.decoding = None
        self.steps.decoder = None

    def decode(self) -> None:
        """Polls call the deserialisers again, if there are any."""
        config = self._config
        if config.key_deserializer is not None or config.value_deserializer is not None:
            # Most consumers take bytes.
            from kadence.consumer.fetch.decoding import Decoding

            self.decoding = Decoding(config, self.collector, self._dead_letters, self.look_again, self._clock)
            self._take = self.decoding.take

    def look_again(self) -> None:
        """Any thread: wake a poll, whose condition may have been met."""
        self._shared_state.attention.up = True
        self._shared_state.signal.set()

    # ------------------------------------------------------------ polls

    def poll_buffered(self, limit: int) -> list[tuple[TopicPartition, list[Record]]] | None:
        """The fast path of a poll: records from the buffer, without a wait, a hop or a wake (C6).

        None when the ordinary path has work: a background event to handle, a commit that is due, a wakeup. A poll that
        finds none arms the steps (`fetch._steps`) for those that follow it.
        """
        if self.steps.is_taking:
            self._refuse_inside_taking()
        shared_state, exchange = self._shared_state, self._exchange
        attention = shared_state.attention
        # The steps of the thread that polled before are refused by the attention that is lowered here.
        self.collector.steps.take_over()
        # Left over from a poll that was interrupted.
        self.counted_at = -1
        # First: a later change is then seen by the next poll.
        attention.up = False
        if (
            shared_state.background_events
            or shared_state.wants_polled
            or exchange.callbacks
            or exchange.failures
            or exchange.fatal is not None
            or self._commits.completed
            or exchange.woken
            or exchange.stopping
            or exchange.identity is not exchange.group
            or (self._chosen.by_hand and self._known.partitions is not shared_state.shared_partitions)
            or shared_state.ended
        ):
            attention.up = True
            return None
        now = self._clock.now_ms()
        if self._commits.due(now):
            attention.up = True
            return None
        shared_state.progress.polled(now)
        self._stalls.thread = current_thread()
        self._poll_measures.polled(now)
        self.collector.mark_processed()
        # A position that moved without a record ends a poll too; None would go on waiting for one.
        chunks = (
            None
            if self.collector.takes_nothing()
            else self._taken(partial(self._take, limit)) or ([] if self.collector.advanced else None)
        )
        self.counted_at = now if chunks is None else -1
        if self.pace is not None:
            self.pace.returns(now, self.collector.returned)
        # While `process` runs, only it may take records: among tasks a step does not know its caller.
        if chunks and not self.is_working:
            self.collector.arm(now, limit, () if self.decoding is None else self.decoding.held_up())
        return chunks

    def poll(
        self, deadline: int, limit: int, made: Callable[[list[tuple[TopicPartition, list[Record]]]], R]
    ) -> Waits[R]:
        """Records as soon as there are any, serving the group's callbacks meanwhile.

        Args:
            made: turns them into the result, once the poll is over.
        """
        take = self._take
        if self.decoding is not None:
            self.decoding.until = deadline
            take = self._take_decoded
        return self._poll(deadline, partial(take, limit), made)

    def poll_bytes(self, deadline: int, limit: int) -> Waits[list[tuple[TopicPartition, list[Record]]]]:
        """As `poll`, but no deserialiser or interceptor sees the records."""
        return self._poll(deadline, partial(self.collector.take_records, limit), list)

    def poll_columns(
        self, deadline: int, limit: int, *, columns: tuple[str, ...], max_bytes: int | None
    ) -> Waits[list[tuple[TopicPartition, list[Columns]]]]:
        """As `poll`, as columns of bytes; see `FetchCollector.take_columns`."""
        return self._poll(
            deadline, partial(self.collector.take_columns, limit, columns=columns, max_bytes=max_bytes), list
        )

    def _poll(self, deadline: int, take: Callable[[], list[T]], made: Callable[[list[T]], R]) -> Waits[R]:
        if not self._chosen.is_anything:
            raise IllegalStateError("nothing to poll: call subscribe() or assign() first")
        if self.steps.is_taking:
            self._refuse_inside_taking()
        shared_state, exchange = self._shared_state, self._exchange
        attention, now = shared_state.attention, self.counted_at
        # If `poll_buffered` found nothing, there is no need to look again until something changes.
        has_looked = now >= 0
        if not has_looked:
            now = self._clock.now_ms()
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
                self._stalls.thread = current_thread()
                self.collector.mark_processed()
            while True:
                if not is_calm and not (yield from self._serve()):
                    break
                if not (is_calm and has_looked) or (arrivals is not None and arrivals.has_some()):
                    chunks = self._taken(take)
                    returned = self.collector.returned
                    if chunks or self.collector.advanced:
                        break
                    now = self._clock.now_ms()
                # `process` notices by itself that there is nothing more to read, and waits for running handlers.
                is_over = self._chosen.by_hand and not self.is_working and self.is_finished
                if now >= deadline or is_over or exchange.nudged:
                    break
                yield self._commits.next_wake(deadline)
                now, has_looked = self._clock.now_ms(), False
                is_calm = is_calm and not attention.up and not self._commits.due(now)
        finally:
            exchange.nudged = False
            now = self._clock.now_ms()
            shared_state.progress.leave_poll(now)
            self._poll_measures.waited(now)
            if self.pace is not None:
                self.pace.returns(now, returned)
            if self._exchange.closed:
                # By another thread, which could not wait for the code that ran inside.
                self.collector.drop_all()
        return made(chunks)

    def _serve(self) -> Waits[bool]:
        """Do the work due before a poll takes records. False: it returns none, after `stop` or an unsubscribe()."""
        shared_state, exchange = self._shared_state, self._exchange
        # Checked first: a member that gives up reports the reason before it waits for a poll.
        wants_polled = shared_state.wants_polled
        exchange.take_background_events()
        if exchange.stalled is not None:
            self._stalls.over(self._clock.now_ms(), exchange.stalled)
            exchange.stalled = None
        if exchange.stopping:
            exchange.polled_after_stop()
            return False
        # A member that gave up rejoins when the application polls again after the poll that raised the reason.
        if wants_polled and not exchange.owes_a_reason:
            shared_state.wants_polled = False
            shared_state.send(m.Polled(0, 0))
        self._commits.commit_due()
        exchange.adopt_identity()
        self._known.look()
        try:
            yield from self._rebalancing.serve()
        finally:
            exchange.adopt_identity()
        exchange.raise_failure()
        exchange.raise_wakeup()
        return self._chosen.is_anything

    def _refuse_inside_taking(self) -> None:
        raise IllegalStateError(
            "poll() cannot be called while another poll of this consumer takes records: a deserialiser, or a signal "
            "handler, called it from inside that poll"
        )

    def _taken(self, take: Callable[[], list[T]]) -> list[T]:
        """The result of ``take``, during which a deserialiser or a signal handler may have closed the consumer."""
        # An interruption between this and the return is followed by `put_back`.
        steps = self.steps
        steps.is_taking = True
        try:
            taken = take()
        except Exception as error:
            if self._exchange.closed and not isinstance(error, KafkaError):
                # It ran into state that close() had cleared.
                raise ClosedError("this consumer is closed") from None
            raise
        finally:
            steps.is_taking = False
        if self._exchange.closed:
            self.collector.drop_all()
            raise ClosedError("this consumer is closed")
        return taken

    def _take_decoded(self, limit: int) -> list[tuple[TopicPartition, list[Record]]]:
        """Deserialisers are user code: one that hangs is processing that hangs (B4), though it runs inside poll()."""
        progress = self._shared_state.progress
        progress.enter_callback(self._clock.now_ms())
        try:
            return self._take(limit)
        finally:
            progress.leave_callback(self._clock.now_ms())

    @property
    def is_finished(self) -> bool:
        """Whether only ranges are assigned, and all of each was returned: no poll will return anything."""
        shared_partitions = self._shared_state.shared_partitions.values()
        for shared_partition in shared_partitions:
            if shared_partition.end is None or not shared_partition.is_finished:
                return False
        return self._chosen.by_hand and bool(shared_partitions)

    @property
    def begun(self) -> int:
        """How many polls have begun; see `put_back`."""
        return self.collector.steps.calls

    def put_back(self, begun: int | None) -> None:
        """The poll that began after ``begun`` was read did not return: the next one returns its records (C7).

        None: it was interrupted before it took any.
        """
        self.steps.is_taking = False
        if begun is None:
            return
        has_polled = self.collector.steps.calls != begun
        if self._interceptors is not None:
            self._interceptors.surplus.put_back(polled=has_polled)
        if has_polled:
            self.collector.put_back()
            if self.pace is not None:
                self.pace.returns(self._clock.now_ms(), 0)

    def moved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions of partitions in which the poll has skipped batches beyond the records that it returns.

        Also, once, the offset at which ``auto.offset.reset`` started reading: a transaction commits that, too.
        """
        passed = self.collector.moved()
        if self._commits.told_starts == self._shared_state.starts:
            return passed
        return {**self._commits.untold_starts(), **passed}

    def note_raised(self, partitions: Iterable[TopicPartition], error: KafkaError) -> None:
        """The current poll has put its records back, and raises for the next record of these."""
        for partition in partitions:
            if (shared_partition := self._shared_state.shared_partitions.get(partition)) is not None:
                shared_partition.note_raised(error, self._clock.now_ms())

    def cut(self, partition: TopicPartition, offset: int) -> None:
        """The current poll returns only rows before this offset."""
        self.collector.cut(partition, offset)
