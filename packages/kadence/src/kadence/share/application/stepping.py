"""Steps of an iteration over a queue (KIP-932). Application side.

A whole poll of one has much to check, which costs fifty times what a record of a large poll costs. So such a poll arms
the steps of a consumer (`kadence.consumer.fetch._steps`), which return the records that were read with its own, until
there is something to check, or time passes.

Each step accepts the record before it, and waits for no poll to say so: what steps accept lies in `ShareState.said` as
it grows (`Stepped`), where the network thread looks soon. With ``share.lock.renewal=false`` each poll sends what it
accepts, so there are no steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kadence.clock import Clock, SystemClock
from kadence.consumer.decoded_records import Attention, DecodedRecords, Decoder, DeliveryState
from kadence.consumer.fetch._steps import ReaderState, Steps
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, runs
from kadence.share.share_state import AcquiredFetch, ShareState
from kadence.types import TopicPartition

__all__ = ["Stepped", "Stepping"]


class Stepped:
    """Records that a poll of one, and steps behind it, have returned, and what these accept.

    Who takes it up first says what was accepted until then: the network thread, or the application's next call. The
    other one says nothing of that.

    Args:
        ahead: the records, of which the poll has returned one.

    Attributes:
        fetch, partition: whose they are. at: when (ms), for steps end when time passes.
    """

    __slots__ = ("_ahead", "_attention", "_first", "_said", "_takes_up", "at", "fetch", "partition")

    def __init__(
        self,
        fetch: AcquiredFetch,
        partition: TopicPartition,
        ahead: DecodedRecords,
        attention: Attention,
        at: int,
    ) -> None:
        self.fetch = fetch
        self.partition = partition
        self.at = at
        self._ahead = ahead
        self._attention = attention
        self._first = self._said = ahead.index - 1
        # Emptied by the first.
        self._takes_up = [True]

    @property
    def count(self) -> int:
        """How many records steps have returned."""
        return self._ahead.index - 1 - self._first

    def items(self) -> Iterable[tuple[AcquiredFetch, Sequence[Acknowledged]]]:
        """What was accepted until now. Network thread."""
        if not self._takes_up:
            return
        # First: the next step is a whole poll, which says what is accepted from here on.
        self._attention.up = True
        self._said = said = self._ahead.began
        if self._is_first() and said > self._first:
            yield self.fetch, runs(self._ahead.records[self._first : said], AcknowledgeType.ACCEPT)

    def take_up(self) -> tuple[int, list[Acknowledged]]:
        """What was accepted and is not said, with how many records that are. Steps have ended."""
        first = self._first if self._is_first() else self._said
        accepted = self._ahead.records[first : self._ahead.index - 1]
        return len(accepted), runs(accepted, AcknowledgeType.ACCEPT)

    def current(self) -> list[Record[Any, Any]]:
        """The record that was returned last."""
        index = self._ahead.index
        return self._ahead.records[index - 1 : index]

    def _is_first(self) -> bool:
        try:
            # Only one of both threads finds something in it.
            return self._takes_up.pop()
        except IndexError:
            return False


class Stepping:
    """Arms the steps of one share consumer, and ends them.

    Args:
        decoder: runs the deserialisers; None: there are none.

    Attributes:
        steps: they themselves.
    """

    def __init__(self, shared_state: ShareState, clock: Clock, decoder: Decoder | None) -> None:
        self.steps = Steps(
            shared_state.attention,
            clock.now_ms,
            shared_state.measures.poll_measures.polls,
            is_system=isinstance(clock, SystemClock),
        )
        self.steps.decoder = decoder
        self._shared_state = shared_state
        self._clock = clock
        # Steps use no more of what is a `SharedPartition` in consumers.
        self._state: Any = DeliveryState(0)

    def arm(self, fetch: AcquiredFetch, partition: TopicPartition, ahead: DecodedRecords) -> Stepped | None:
        """A poll of one returns the record before the present place in these. None: no steps follow it."""
        shared_state, state, steps = self._shared_state, self._state, self.steps
        # Otherwise this would wake the network thread for nothing: the next poll does so for what it accepts.
        if not shared_state.looks_soon or ahead.count - ahead.index <= ahead.is_last:
            return None
        records = shared_state.measures.poll_measures.topic(partition.topic).records
        place = ReaderState(state, partition, records)
        ahead.began, ahead.counted = ahead.index - 1, ahead.index
        state.decoded = ahead
        steps.touched.append(place)
        now = self._clock.now_ms()
        stepped = Stepped(fetch, partition, ahead, shared_state.attention, now)
        shared_state.say(stepped, wakes=False)
        steps.arm(now, [place])
        return stepped

    def end(self) -> None:
        """Steps return no more."""
        self.steps.disarm()
        self.steps.touched.clear()
