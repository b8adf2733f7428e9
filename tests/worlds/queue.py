"""The application side of a share consumer, its network side played by hand: it answers when it is woken, at once.

So no test waits: a call that needs an answer finds it, and polls are made with a timeout of 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from kadence import AcknowledgeType, ShareConsumer
from kadence.clock import FOREVER
from kadence.consumer import events as m
from kadence.consumer.application.shell import Shell
from kadence.errors import KafkaError
from kadence.records import encode_batch
from kadence.share import share_consumer
from kadence.share.acknowledgements import Acknowledged, Acquired, TopicIdPartition
from kadence.share.events import Acknowledge, AcknowledgementsEnded, Ended, Sending
from kadence.share.share_state import AcquiredFetch, ShareState
from kadence.types import GroupMetadata, TopicPartition
from kadence_testing import FakeClock

ACCEPT, RELEASE, REJECT, RENEW = (int(each) for each in AcknowledgeType)
LOCK_MS = 30_000


def tip(topic: str = "jobs", partition: int = 0) -> TopicIdPartition:
    return TopicIdPartition(topic.encode().ljust(16, b"\0"), topic, partition)


class Loan:
    """Memory that is given back once."""

    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


class HandNetwork:
    """Stands in for the network side, and for the engine.

    Attributes:
        state: the shared state. clock: moved by the test. said: what was acknowledged, event by event.
        errors: of partitions whose acknowledgements fail. coming: fetches that come when a poll waits.
        gathers: it looks for what polls say by itself, when the test calls `looks`; else they wake it.
        heard: the kinds of all events. meanwhile: what happens while a call waits, one each time.
    """

    has_thread = False

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.state = ShareState(self.wake, clock=self.clock)
        self.said: list[Acknowledge] = []
        self.heard: list[str] = []
        self.errors: dict[TopicPartition, KafkaError] = {}
        self.coming: list[AcquiredFetch] = []
        self.answers_at_once = True
        self.gathers = False
        self.is_over = False
        self.loans: list[Loan] = []
        self.meanwhile: list[Callable[[], object]] = []
        self._held: list[Acknowledge] = []

    # -- the engine

    def start(self) -> None:
        """It runs when it is woken."""

    def join(self, seconds: float | None = None) -> None:
        assert self.is_over, "the network side has ended by itself"

    def is_alive(self) -> bool:
        return not self.is_over

    def wait(self, deadline: int) -> None:
        """A call waits: time passes, until something that the test has planned."""
        if self.state.acquired_fetches or self.state.background_events:
            return
        if self.meanwhile:
            self.meanwhile.pop(0)()
            return
        assert deadline < FOREVER, "it would wait for ever"
        self.clock.advance(max(deadline - self.clock.now_ms(), 1))

    # -- the network

    def wake(self) -> None:
        self.looks()
        events = self.state.application_events
        while events:
            event = events.popleft()
            self.heard.append(type(event).__name__)
            if isinstance(event, Acknowledge):
                self.said.append(event)
                if self.answers_at_once:
                    self.end(event)
                else:
                    self._held.append(event)
                continue
            if isinstance(event, m.Subscribe):
                topics = event.topics or frozenset()
                self.state.assignment = frozenset(TopicPartition(topic, 0) for topic in topics)
                self.state.tell(m.IdentityChanged(GroupMetadata("q", 1, "m")))
            if event.is_answered:
                self.state.tell(m.Answer(event.id))
            if isinstance(event, m.Close):
                self.is_over = True
                self.state.refuse(None)
        if self.state.wanted and self.coming:
            self.state.put(self.coming.pop(0))

    def looks(self) -> None:
        """The network thread looks for what polls have said."""
        self.state.looks_soon = self.gathers
        while self.state.said:
            self.heard.append(Acknowledge.__name__)
            said = {fetch: tuple(ranges) for fetch, ranges in self.state.said.popleft().items()}
            event = Acknowledge(0, self.clock.now_ms() + 60_000, said, Sending.WITH_FETCH)
            self.said.append(event)
            if self.answers_at_once:
                self.end(event)
            else:
                self._held.append(event)

    def answer(self) -> None:
        """Answer what was held back."""
        held, self._held = self._held, []
        for event in held:
            self.end(event)

    def end(self, event: Acknowledge) -> None:
        """The brokers have answered."""
        ended = tuple(
            Ended(fetch.partition, fetch, said, self.errors.get(fetch.partition.topic_partition))
            for fetch, said in event.fetches.items()
        )
        told = tuple(
            each
            for each in ended
            if self.state.wants_results or each.error or any(one.type == RENEW for one in each.acknowledged)
        )
        if told:
            self.state.tell(AcknowledgementsEnded(told))
        if event.sending is Sending.SYNC:
            self.state.tell(m.Answer(event.id, {each.partition: each.error for each in ended}))

    # -- what comes

    def fetch(
        self,
        values: Sequence[bytes] | int,
        *,
        first: int = 0,
        topic: str = "jobs",
        partition: int = 0,
        acquired: Iterable[tuple[int, int, int]] | None = None,
        data: bytes | None = None,
    ) -> AcquiredFetch:
        """One batch from offset ``first`` on, all acquired for the first time unless said otherwise."""
        if isinstance(values, int):
            values = [b"v%d" % (first + number) for number in range(values)]
        rows = [(1_000 + number, b"k", value, [("h", b"x")]) for number, value in enumerate(values)]
        loan: Any = Loan()
        self.loans.append(loan)
        ranges = tuple(Acquired(*each) for each in acquired or [(first, first + len(values) - 1, 1)])
        made = encode_batch(rows, base_offset=first) if data is None else data
        return AcquiredFetch(tip(topic, partition), 1, ranges, made, loan, self.clock.now_ms() + LOCK_MS)

    def put(self, values: Sequence[bytes] | int, **more: Any) -> AcquiredFetch:
        """As `fetch`, buffered at once."""
        made = self.fetch(values, **more)
        self.state.put(made)
        return made

    # -- what was said

    def taken(self) -> list[tuple[str, int, int, int]]:
        """Everything that was acknowledged since this was called last: topic, first, last, type."""
        self.looks()
        said, self.said = self.said, []
        return [
            (fetch.partition.topic, *one)
            for event in said
            for fetch, parts in event.fetches.items()
            for one in parts
        ]


def share_consumer_of(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, Any] | None = None, **more: Any
) -> tuple[ShareConsumer[Any, Any], HandNetwork]:
    """A share consumer on such a network, subscribed to jobs."""
    network = HandNetwork()
    monkeypatch.setattr(share_consumer, "network_side", lambda config, around: (network.state, network))
    monkeypatch.setattr(Shell, "_wait", lambda shell, deadline: network.wait(deadline))
    consumer: ShareConsumer[Any, Any] = ShareConsumer(
        {"bootstrap.servers": "nowhere:1", "group.id": "q", **(settings or {})}, **more
    )
    consumer.subscribe("jobs")
    return consumer, network


__all__ = ["ACCEPT", "REJECT", "RELEASE", "RENEW", "Acknowledged", "HandNetwork", "share_consumer_of", "tip"]
