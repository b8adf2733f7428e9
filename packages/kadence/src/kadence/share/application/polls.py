"""Polls of one share consumer, as generators of waits: events and acknowledgements first, then records (KIP-932).

Application side. What is said of records leaves with the next fetch, or by itself when there is none to be. A poll that
waits wakes the network thread for it; one that finds records leaves it to be found there (`ShareState.said`).
"""

from __future__ import annotations

from collections.abc import Collection
from threading import current_thread
from typing import Any, Never, TypeVar

from kadence.client.waits import Waits
from kadence.clock import Clock, add_ms
from kadence.config import ShareConsumerConfig
from kadence.consumer import events as m
from kadence.consumer.application.client_core import Chosen
from kadence.consumer.application.exchange import Exchange
from kadence.consumer.application.processing import Stalls
from kadence.errors import ClosedError, IllegalStateError
from kadence.records import Record
from kadence.share.application._marks import Chunk
from kadence.share.application.buffer import Buffer
from kadence.share.application.holding import Holding
from kadence.share.application.results import Results
from kadence.share.application.stepping import Stepping
from kadence.share.events import Acknowledge, Sending
from kadence.share.share_state import ShareState
from kadence.types import TopicPartition

__all__ = ["SharePolls"]

R = TypeVar("R")


class SharePolls:
    """The polls of one share consumer.

    Attributes:
        begun: how many have begun. steps: those of an iteration.
        is_working: whether `process` takes the records, and says what becomes of them.
    """

    def __init__(
        self,
        config: ShareConsumerConfig,
        shared_state: ShareState,
        clock: Clock,
        chosen: Chosen,
        exchange: Exchange,
        holding: Holding,
        buffer: Buffer,
        results: Results,
        stalls: Stalls,
        stepping: Stepping,
    ) -> None:
        self.begun = 0
        self.is_working = False
        self._config = config
        self._shared_state = shared_state
        self._clock = clock
        self._chosen = chosen
        self._exchange = exchange
        self._holding = holding
        self._buffer = buffer
        self._results = results
        self._stalls = stalls
        self.steps = stepping.steps
        self._stepping = stepping
        self._takes = False
        self._has_begun = False
        """The poll under way began on the fast path, which had nothing for it."""
        self._left_behind = 0
        """Of how many offsets something was said since the network thread was woken for it."""
        self._given: list[Chunk] = []
        self._renewed: list[Chunk] = []
        """What the last poll returned, and what of it was returned before."""

    @property
    def is_taking(self) -> bool:
        """Whether a poll, or a step, takes records just now."""
        return self._takes or self.steps.is_taking

    # ------------------------------------------------------------ polls

    def poll_buffered(self, limit: int) -> list[tuple[TopicPartition, list[Record[Any, Any]]]] | None:
        """Records from the buffer, without a wait or an event (C6). None: the ordinary path has something to do.

        One that returns a single record arms the steps.
        """
        if self.is_taking:
            _refuse_inside_taking()
        shared_state, exchange, attention = self._shared_state, self._exchange, self._shared_state.attention
        # Those of another thread are refused from here on.
        self.steps.take_over()
        # First: what changes after this look is seen by the next one.
        attention.up = False
        if (
            shared_state.background_events
            or shared_state.wants_polled
            or exchange.failures
            or exchange.fatal is not None
            or exchange.stalled is not None
            or exchange.woken
            or exchange.stopping
            or exchange.identity is not exchange.group
            or shared_state.ended
            or self._results.has_some
            or self._holding.renews
            or self._buffer.is_empty
            or not self._chosen.is_anything
        ):
            attention.up = True
            return None
        self._begin()
        shared_state.progress.polled(self._clock.now_ms())
        self._leave_said()
        chunks = self._take(limit, decodes=True)
        self._has_begun = not chunks
        # First: a chunk that steps follow gets what they may return, too.
        found = as_pairs(chunks)
        if limit == 1 and not self.is_working:
            self._arm()
        return found or None

    def poll(
        self, deadline: int, limit: int, *, decodes: bool = True, columns: Collection[str] | None = None
    ) -> Waits[list[Chunk]]:
        """Records as soon as there are any.

        Args:
            decodes: whether deserialisers are called.
            columns: make these where that is possible, instead of records.
        """
        if not self._chosen.is_anything:
            raise IllegalStateError("nothing to poll: call subscribe() first")
        if self.is_taking:
            _refuse_inside_taking()
        if not self._has_begun:
            self._begin()
        self._has_begun = False
        shared_state, exchange = self._shared_state, self._exchange
        # The group may let the member in meanwhile, for this poll has it try again.
        refused = exchange.fatal
        shared_state.progress.enter_poll(self._clock.now_ms())
        if (decoding := self._buffer.decoding) is not None:
            decoding.until = deadline
        chunks: list[Chunk] = []
        try:
            while (yield from self._serve(refused)):
                if self._holding.renews:
                    self.send_said()
                if self._holding.renews:
                    chunks = self._take_renewed(limit, decodes=decodes)
                if not self._holding.renews and not chunks:
                    if not self._buffer.is_empty:
                        self._leave_said()
                    chunks = self._take(limit, decodes=decodes, columns=columns)
                if chunks:
                    break
                # What is said goes with the fetch for which this poll waits.
                now = self._clock.now_ms()
                shared_state.want(limit, now, deadline, wakes=not self._holding.has_said)
                self.send_said()
                if self._clock.now_ms() >= deadline or exchange.nudged:
                    exchange.raise_fatal()
                    break
                yield deadline
        finally:
            exchange.nudged = False
            now = self._clock.now_ms()
            shared_state.unwant(now, found=bool(chunks))
            shared_state.progress.leave_poll(now)
            shared_state.measures.poll_measures.waited(now)
            if exchange.closed:
                # By another thread, which could not wait for what ran inside.
                self._buffer.drop_all()
        return chunks

    def _begin(self) -> None:
        """The application polls again: in implicit mode what it was given is processed."""
        self._has_begun = False
        self.end_steps()
        self._holding.check_said()
        self._shared_state.measures.poll_measures.polled(self._clock.now_ms())
        self._given, self._renewed = [], []
        self._buffer.returned()
        self.begun += 1
        self._stalls.thread = current_thread()
        self._holding.accept_returned()
        if self._holding.marks.says_renew:
            # This poll may return these, once they are renewed.
            self.send_said()

    def _serve(self, refused: Exception | None) -> Waits[bool]:
        """What a poll has to do before it takes records. False: it returns none, after `stop`.

        Args:
            refused: what the group has refused the member for before this poll.
        """
        shared_state, exchange = self._shared_state, self._exchange
        wants_polled = shared_state.wants_polled
        exchange.take_background_events()
        if exchange.stalled is not None:
            self._stalls.over(self._clock.now_ms(), exchange.stalled)
            exchange.stalled = None
        # Also before an error is raised: the member that was refused tries again with each poll.
        if wants_polled and not exchange.owes_a_reason:
            shared_state.wants_polled = False
            shared_state.send(m.Polled(0, 0))
        exchange.adopt_identity()
        yield from self._results.run()
        if exchange.stopping:
            # A poll that began to wait at that moment has ended the rest.
            shared_state.rest()
            self.send_said()
            exchange.polled_after_stop()
            return False
        exchange.raise_failure(known=refused)
        exchange.raise_wakeup()
        return self._chosen.is_anything

    def _take(self, limit: int, *, decodes: bool, columns: Collection[str] | None = None) -> list[Chunk]:
        """What the buffer has. A deserialiser or a signal handler may have closed the consumer in the midst of it."""
        progress = self._shared_state.progress
        calls = decodes and self._buffer.decoding is not None
        self._takes = True
        self._holding.marks.close()
        try:
            if calls:
                # A deserialiser that hangs is processing that hangs (B4), though it runs inside poll().
                progress.enter_callback(self._clock.now_ms())
            chunks = self._buffer.take(limit, decodes=decodes, columns=columns)
            self._given = chunks
            if not self.is_working:
                self._holding.give(chunks)
        finally:
            self._takes = False
            if self._holding.marks.gives_back:
                # Other members may have what is bad here at once.
                self._leave(wakes=False, settled_only=True)
            if calls:
                progress.leave_callback(self._clock.now_ms())
        if self._exchange.closed:
            self._buffer.drop_all()
            raise ClosedError("this consumer is closed")
        return chunks

    def _take_renewed(self, limit: int, *, decodes: bool) -> list[Chunk]:
        decoded = decodes and self._buffer.decoding is not None
        self._renewed = []
        self._holding.take_renewed(self._clock.now_ms(), limit, self._renewed, decoded=decoded)
        return self._renewed

    def _arm(self) -> None:
        """Steps may follow the poll of one that returns now."""
        reading = self._buffer.only_one()
        if reading is not None and self._config.share_lock_renewal:
            [chunk] = self._given
            self._holding.stepped = self._stepping.arm(
                reading.fetch, reading.partition, reading.ahead, chunk if self._holding.is_explicit else None
            )

    def end_steps(self) -> None:
        """Another call goes on where the steps, and words on single records, have stopped."""
        latest = self._stepping.end()
        self._holding.marks.close()
        self._holding.end_steps(latest)

    def put_back(self, begun: int | None) -> None:
        """The poll that began after ``begun`` was read did not return: what it took comes with the next one (C7).

        None: it had not come so far, and took nothing. What a second Ctrl-C ends is done when this is called again.
        """
        self._takes = self._has_begun = False
        if begun is None or begun == self.begun:
            return
        self.end_steps()
        self._holding.take_back(self._given)
        self._holding.put_renewed_back(self._renewed)
        self._buffer.put_back()
        self._given, self._renewed = [], []

    # ------------------------------------------------------------ what is said

    def send_said(self, sending: Sending = Sending.WITH_FETCH, deadline: int | None = None) -> None:
        """Hand over what is said, and wake the network thread; nobody waits for the end of it."""
        self.end_steps()
        holding = self._holding
        if not holding.has_said:
            return
        self._left_behind = 0
        if sending is Sending.WITH_FETCH and not holding.marks.says_renew:
            self._leave(wakes=True)
            return
        until = (
            add_ms(self._clock.now_ms(), self._config.default_api_timeout_ms)
            if deadline is None
            else deadline
        )
        self.send(0, until, sending)

    def send(self, call_id: int, until: int, sending: Sending) -> None:
        """Hand over what is said, as an event: nothing is lost between the two."""
        self._shared_state.send_by(
            lambda to: self._holding.hand_over(
                to, lambda fetches: Acknowledge(call_id, until, fetches, sending)
            )
        )

    def _leave(self, *, wakes: bool, settled_only: bool = False) -> None:
        """Hand over what is said, as `ShareState.said`."""
        state = self._shared_state
        try:
            self._holding.hand_over(state.said, settled_only=settled_only)
        finally:
            state.look(wakes=wakes)

    def _leave_said(self) -> None:
        """Leave what is said to the network thread, by a poll that finds records."""
        holding = self._holding
        if not holding.has_said:
            return
        self._left_behind += holding.said_count()
        if not self._config.share_lock_renewal or self._left_behind >= self._config.max_poll_records:
            self.send_said()
        else:
            self._leave(wakes=False)


def _refuse_inside_taking() -> Never:
    raise IllegalStateError(
        "poll() is not possible while another poll of this consumer takes records: a deserialiser, or a signal "
        "handler, called it in the midst of that"
    )


def as_pairs(chunks: list[Chunk]) -> list[tuple[TopicPartition, list[Record[Any, Any]]]]:
    """What `Records` is made of."""
    return [(each.partition, each.records) for each in chunks]
