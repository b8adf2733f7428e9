"""A fetch goes on by itself, and one of its answers does not fit to what was asked: no record is lost for that.

An answer that is passed on is read once, by whichever thread takes it first. What does not fit nobody gets, and it is
asked for again. The network thread counts what fits only now and then, and that is not asked for again.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest
from tests.hostile.proxy import Answer, lying_proxy
from tests.patience import PATIENCE, until

from kadence import Consumer, Producer
from kadence.consumer.fetch.manager.answers import FetchAnswers
from kadence.consumer.shared_state import SessionFollow
from kadence.net import drain
from kadence.protocol.fetch import FetchResponse
from kadence.records import encode_batch, scan
from kadence_broker import Broker

pytestmark = pytest.mark.skipif(
    not drain.COMPILED or drain.drain.new_arrivals() is None,
    reason="no futexes, or threads share the interpreter",
)

TOPIC: Final = "t"


class Line:
    """A proxy that knows what it has delivered.

    Attributes:
        lies: whether the next answer with records brings old ones in their place.
    """

    def __init__(self) -> None:
        self.lies = False
        self._changed = threading.Condition()
        self._behind = 0

    def __call__(self, answer: Answer) -> bytes:
        response = answer.response
        if not isinstance(response, FetchResponse):
            return answer.encoded()
        for topic in response.responses:
            for data in topic.partitions:
                if not data.records:
                    continue
                if self.lies:
                    self.lies = False
                    data.records = encode_batch([(0, None, b"old", ())], base_offset=0, leader_epoch=0)
                    continue
                with self._changed:
                    self._behind = scan(data.records, 0)[0]
                    self._changed.notify_all()
        return answer.encoded()

    def delivered(self, offset: int) -> None:
        """Wait until all before this went to the client."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._behind >= offset, PATIENCE)


class Counted:
    """What becomes of answers that were passed on.

    Attributes:
        fitting: how many were counted at a time, in all. misfits: how many times one was refused.
    """

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        refuses: Callable[[], bool] = lambda: False,
        refuses_taken: Callable[[], bool] = lambda: False,
    ) -> None:
        self.fitting = self.misfits = 0
        self._is_counting = False
        read, asked, passed_on = SessionFollow.read, FetchAnswers._asked, FetchAnswers.passed_on

        def judge(follow: SessionFollow, parts: Any) -> Any:
            return (None, None) if refuses() else read(follow, parts)

        def find(answers: FetchAnswers, sent: Any, partition: Any) -> Any:
            return None if self._is_counting and refuses_taken() else asked(answers, sent, partition)

        def count(answers: FetchAnswers, now: int, sent: Any, arrivals: Any) -> Any:
            self._is_counting = True
            brought, fits = passed_on(answers, now, sent, arrivals)
            self._is_counting = False
            self.fitting += sum(arrival.fetches is not None for arrival in arrivals)
            self.misfits += not fits
            return brought, fits

        monkeypatch.setattr(SessionFollow, "read", judge)
        monkeypatch.setattr(FetchAnswers, "_asked", find)
        monkeypatch.setattr(FetchAnswers, "passed_on", count)

    def has_refused(self, times: int) -> bool:
        return self.misfits >= times


class Reading:
    """A producer, and a consumer behind a line. Each record is an answer of its own; its value is its offset."""

    def __init__(self, consumer: Consumer, producer: Producer, line: Line) -> None:
        self._consumer, self._producer, self._line = consumer, producer, line
        self._sent = 0
        self.read: list[int] = []

    def send(self, *, is_delivered: bool = True) -> None:
        self._producer.send(TOPIC, b"%d" % self._sent).result(PATIENCE)
        self._sent += 1
        if is_delivered:
            self._line.delivered(self._sent)

    def poll_all(self) -> None:
        """All that was sent comes, each once and in order."""

        def poll() -> bool:
            self.read += [int(record.value) for record in self._consumer.poll(0.05)]
            return len(self.read) >= self._sent

        until(poll, what=lambda: f"{self._sent} were sent, {self.read} were read", every=0)
        assert self.read == list(range(self._sent))


@contextmanager
def reading() -> Iterator[tuple[Reading, Line]]:
    line = Line()
    with (
        Broker(topics={TOPIC: 1}) as broker,
        lying_proxy(broker, line) as servers,
        Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0) as producer,
        Consumer(
            bootstrap_servers=servers, retry_backoff_ms=5, reconnect_backoff_ms=5, reconnect_backoff_max_ms=5
        ) as consumer,
    ):
        consumer.assign_topics(TOPIC, start="earliest")
        made = Reading(consumer, producer, line)
        made.send()
        made.poll_all()
        yield made, line


def test_what_was_counted_before_a_lie_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    with reading() as (made, line):
        for round_number in range(1, 4):
            for _ in range(4):
                made.send()
            line.lies = True
            # It comes with the fetch that is made again for the lie.
            made.send()
            until(partial(counted.has_refused, round_number))
            made.poll_all()
    assert counted.fitting > 0


@pytest.mark.parametrize("polls", ["never", "often", "at each"])
@pytest.mark.parametrize("who", ["whoever reads it", "the network thread"])
def test_what_is_refused_is_not_lost(monkeypatch: pytest.MonkeyPatch, who: str, polls: str) -> None:
    """For whatever reason, and though the application may have what the network thread refuses."""
    judged = itertools.count(1)
    if who == "whoever reads it":
        counted = Counted(monkeypatch, refuses=lambda: next(judged) % 5 == 0)
    else:
        counted = Counted(monkeypatch, refuses_taken=lambda: next(judged) % 3 == 0)
    with reading() as (made, _):
        for round_number in range(1, 4):
            # It says so some time after they came.
            for sent in itertools.count():
                made.send()
                if polls == "at each" or (polls == "often" and sent % 7 == 0):
                    made.poll_all()
                if counted.has_refused(round_number):
                    break
            made.poll_all()
    assert counted.fitting > 0
