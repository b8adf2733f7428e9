"""Deserialisers that take long: decoding ends with the poll's deadline, and gives what it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.fetch.test_decoding_model import COUNT, PARTITIONS, World

from kadence import Consumer, Producer
from kadence.clock import FOREVER
from kadence.config import ConsumerConfig
from kadence.consumer.fetch.decoding import Decoding
from kadence_broker import Broker
from kadence_testing import FakeClock


class Slow:
    """A world whose deserialiser takes so long (ms) for each record; those of ``is_bad`` it refuses."""

    def __init__(self, takes_ms: int, is_bad: Callable[[int], bool] = lambda number: False) -> None:
        self.clock = FakeClock()
        self.world = World("skip", set(), COUNT)

        def decode(data: bytes) -> bytes:
            self.clock.advance(takes_ms)
            if is_bad(int(data)):
                raise ValueError
            return data

        config = ConsumerConfig.parse(
            bootstrap_servers="localhost:1", value_deserializer=decode, deserialization_errors="skip"
        )
        self.decoding = Decoding(config, self.world.collector, None, lambda: None, self.clock)

    def poll(self, timeout_ms: int, limit: int = 500) -> list[tuple[int, int]]:
        """Partition and offset of what came."""
        self.world.collector.mark_processed()
        self.decoding.until = FOREVER if timeout_ms < 0 else self.clock.now_ms() + timeout_ms
        taken = self.decoding.take(limit)
        return [(record.partition, record.offset) for _, records in taken for record in records]


EVERYTHING = [(partition, offset) for partition in range(PARTITIONS) for offset in range(COUNT)]


def everything(subject: Slow, timeout_ms: int) -> tuple[list[tuple[int, int]], int]:
    """All that polls give, and how long the longest one took (ms)."""
    found: list[tuple[int, int]] = []
    longest = 0
    for _ in range(10 * len(EVERYTHING)):
        before = subject.clock.now_ms()
        found += subject.poll(timeout_ms)
        longest = max(longest, subject.clock.now_ms() - before)
    return sorted(found), longest


@pytest.mark.parametrize("timeout_ms", [0, 1_000, 5_000])
def test_decoding_ends_with_the_deadline(timeout_ms: int) -> None:
    subject = Slow(takes_ms=300)
    found, longest = everything(subject, timeout_ms)
    assert found == EVERYTHING
    # A few records are decoded between two looks at the clock.
    assert longest <= timeout_ms + 4 * 300


@pytest.mark.parametrize("timeout_ms", [0, 1_000, 5_000])
def test_so_it_does_among_bad_records(timeout_ms: int) -> None:
    subject = Slow(takes_ms=1_000, is_bad=lambda number: number != 20)
    found, longest = everything(subject, timeout_ms)
    assert found == [(partition, 20) for partition in range(PARTITIONS)]
    assert longest <= timeout_ms + 4 * 1_000
    assert subject.decoding.skipped == len(EVERYTHING) - PARTITIONS


def test_quick_ones_fill_a_poll_that_does_not_wait() -> None:
    assert sorted(Slow(takes_ms=0).poll(0)) == EVERYTHING
    assert sorted(Slow(takes_ms=1_000).poll(-1)) == EVERYTHING


def test_a_consumer_gives_its_timeout_to_the_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    deadlines: list[int] = []
    take = Decoding.take

    def taken(self: Decoding, limit: int) -> Any:
        deadlines.append(self.until - self._clock.now_ms())
        return take(self, limit)

    monkeypatch.setattr(Decoding, "take", taken)
    with Broker(topics={"t": 1}) as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("t", b"1")
        with Consumer(bootstrap_servers=broker.bootstrap_servers, value_deserializer=int) as consumer:
            consumer.assign_topics("t", start="earliest")
            assert [record.value for record in consumer.poll(3_000)] == [1]
    assert deadlines
    assert all(2_000_000 < each <= 3_000_000 for each in deadlines)
