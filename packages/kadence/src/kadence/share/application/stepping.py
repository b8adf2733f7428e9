"""Steps of an iteration over a queue (KIP-932). Application side.

A whole poll of one has much to check, which costs fifty times what a record of a large poll costs. So such a poll arms
the steps of a consumer (`kadence.consumer.fetch._steps`), which return the records that were read with its own, until
there is something to check, or time passes.

Each step accepts the record before it, or stands for what was said of it in explicit mode, and waits for no poll to say
so: that lies in `ShareState.said` as it grows (`Stepped`), where the network thread looks soon. With
``share.lock.renewal=false`` each poll sends what is said, so there are no steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kadence.clock import Clock, SystemClock
from kadence.consumer.decoded_records import Attention, DecodedRecords, Decoder, DeliveryState
from kadence.consumer.fetch._steps import ReaderState, Steps
from kadence.records import Record
from kadence.share.acknowledgements import Acknowledged, AcknowledgeType, runs
from kadence.share.application._marks import GONE, Chunk, Marks
from kadence.share.share_state import AcquiredFetch, ShareState
from kadence.types import TopicPartition

__all__ = ["Stepped", "Stepping"]


class Stepped:
    """Records that a poll of one, and steps behind it, have returned, and what is said by these.

    Who takes it up first says what was said until then: the network thread, or the application's next call. The other
    one says nothing of that.

    Args:
        ahead: the records, of which the poll has returned one. chunk: in explicit mode, see `Marks.follow`.

    Attributes:
        fetch, partition: whose they are. at: when (ms), for steps end when time passes.
    """

    __slots__ = (
        "_ahead",
        "_attention",
        "_chunk",
        "_first",
        "_first_one",
        "_said",
        "at",
        "fetch",
        "partition",
    )

    def __init__(
        self,
        fetch: AcquiredFetch,
        partition: TopicPartition,
        ahead: DecodedRecords,
        attention: Attention,
        at: int,
        chunk: Chunk | None,
    ) -> None:
        self.fetch = fetch
        self.partition = partition
        self.at = at
        self._chunk = chunk
        self._ahead = ahead
        self._attention = attention
        self._first = self._said = ahead.index - 1
        # Whoever comes first writes who that was.
        self._first_one: dict[str, str] = {}

    @property
    def count(self) -> int:
        """How many records steps have returned."""
        return self._ahead.index - 1 - self._first

    def items(self) -> Iterable[tuple[AcquiredFetch, Sequence[Acknowledged]]]:
        """What was said until now. Network thread."""
        # First: the next step is a whole poll, which says what is said from here on.
        self._attention.up = True
        said = self._ahead.began
        states = b"" if self._chunk is None else bytes(self._chunk.states)
        if self._first_one:
            return
        self._said = said
        if self._is_first("network") and said > self._first:
            if self._chunk is None:
                yield self.fetch, runs(self._ahead.records[self._first : said], AcknowledgeType.ACCEPT)
            else:
                yield self.fetch, self._chunk.said_of(states[: said - self._first])

    def sent(self) -> int:
        """Below which place the network thread has said what was said. Steps have ended."""
        return self._first if self._is_first("application") else self._said

    def take_up(self) -> tuple[int, list[Acknowledged]]:
        """In implicit mode: what was accepted and is not said, with how many records that are. Steps have ended."""
        accepted = self._ahead.records[self.sent() : self._ahead.index - 1]
        return len(accepted), runs(accepted, AcknowledgeType.ACCEPT)

    def unsaid(self) -> list[Record[Any, Any]]:
        """The record that the last step has returned, if nothing is said of it. Any thread."""
        count, chunk = self.count, self._chunk
        is_said = chunk is not None and chunk.states[count : count + 1] != bytes((GONE,))
        return self.current() if count and not is_said else []

    def current(self) -> list[Record[Any, Any]]:
        """The record that was returned last."""
        index = self._ahead.index
        return self._ahead.records[index - 1 : index]

    def _is_first(self, who: str) -> bool:
        return self._first_one.setdefault("", who) == who


class Stepping:
    """Arms the steps of one share consumer, and ends them.

    Args:
        decoder: runs the deserialisers; None: there are none. marks: of what is said in explicit mode.

    Attributes:
        steps: they themselves.
    """

    def __init__(self, shared_state: ShareState, clock: Clock, decoder: Decoder | None, marks: Marks) -> None:
        self.steps = Steps(
            shared_state.attention,
            clock.now_ms,
            shared_state.measures.poll_measures.polls,
            is_system=isinstance(clock, SystemClock),
        )
        self.steps.decoder = decoder
        self._shared_state = shared_state
        self._clock = clock
        self._marks = marks
        # Steps use no more of what is a `SharedPartition` in consumers.
        self._state: Any = DeliveryState(0)
        # Kept until other steps are armed: Ctrl-C may end what asks for it.
        self._latest: Record[Any, Any] | None = None

    def arm(
        self, fetch: AcquiredFetch, partition: TopicPartition, ahead: DecodedRecords, chunk: Chunk | None
    ) -> Stepped | None:
        """A poll of one returns the record before the present place in these. None: no steps follow it.

        Args:
            chunk: in explicit mode that record's.
        """
        shared_state, state, steps = self._shared_state, self._state, self.steps
        # Otherwise this would wake the network thread for nothing: the next poll does so for what it accepts.
        if not shared_state.looks_soon or ahead.count - ahead.index <= ahead.is_last:
            return None
        records = shared_state.measures.poll_measures.topic(partition.topic).records
        place = ReaderState(state, partition, records)
        ahead.began, ahead.counted = ahead.index - 1, ahead.index
        if chunk is not None:
            self._marks.follow(chunk, ahead)
        state.decoded, self._latest = ahead, None
        steps.touched.append(place)
        now = self._clock.now_ms()
        stepped = Stepped(fetch, partition, ahead, shared_state.attention, now, chunk)
        shared_state.say(stepped, wakes=False)
        steps.arm(now, [place])
        return stepped

    def end(self) -> Record[Any, Any] | None:
        """Steps return no more. Returns the record that one of them has decoded last."""
        if self.steps.latest is not None:
            self._latest = self.steps.latest
        self.steps.disarm()
        self.steps.touched.clear()
        return self._latest
