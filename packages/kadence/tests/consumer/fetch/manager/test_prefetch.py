"""When enough is buffered, of a partition and of all that a broker has."""

from __future__ import annotations

import pytest
from tests.worlds.cluster import knowing
from tests.worlds.fetching import P0, P1, P2, World, asked, batch
from tests.worlds.hand import BackgroundEvents

from kadence.connection.request import ConnectionPurpose
from kadence.consumer.fetch.manager.memory import FetchChoice, Prefetch
from kadence.consumer.fetch.manager.session import Broker
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.types import TopicPartition


def fetched(world: World, **records: int) -> set[int]:
    """Answer what is on its way with these numbers of records for each partition; what is asked for then."""
    for request in world.poll(0):
        here = {
            partition: batch(records[f"p{partition.partition}"])
            for partition in request.tag.asked
            if records.get(f"p{partition.partition}")
        }
        world.reply(request, 0, here)
    return {number for request in world.poll(0) for number in _numbers(request)}


def _numbers(request: object) -> set[int]:
    return {partition.partition for partition in request.tag.asked}  # type: ignore[attr-defined]


def test_a3_bytes_are_what_counts_and_not_records() -> None:
    world = World(P0, P1, max_poll_records=1)
    assert fetched(world, p0=1_000) == {0, 1}
    (request,) = World(P0).poll(0)
    assert asked(request) == {0: 0}


def test_a3_an_idle_partition_does_not_make_the_fetches_of_the_others_smaller() -> None:
    """0 and 1 are busy, 2 has nothing. The busy ones are fetched together, when they hold one fetch on average."""
    leaders = dict.fromkeys((P0, P1, P2), 1)
    world = World(*leaders, metadata=knowing(leaders, BackgroundEvents()), max_partition_fetch_bytes=1_000)
    for start in (0, 8):
        (request,) = world.poll(0)
        world.reply(request, 0, {p: batch(8, start, size=90) for p in (P0, P1)})
    (parked,) = world.poll(0)
    assert _numbers(parked) == {2}
    world.drain(world.shared_state.completed_fetches.popleft())
    assert world.poll(100) == [], "1 holds two fetches still"
    world.drain(world.shared_state.completed_fetches.popleft())
    (side,) = world.poll(100)
    assert (side.purpose, asked(side)) == (ConnectionPurpose.SIDE, {0: 16, 1: 16})


def test_a3_what_runs_dry_is_fetched_though_others_hold_plenty() -> None:
    leaders = dict.fromkeys((P0, P1, P2), 1)
    world = World(*leaders, metadata=knowing(leaders, BackgroundEvents()), max_partition_fetch_bytes=1_000)
    (request,) = world.poll(0)
    world.reply(request, 0, {P0: batch(30, size=90), P1: batch(2, size=90)})
    (parked,) = world.poll(0)
    assert _numbers(parked) == {2}
    assert world.state(P1).shared_partition.unfetched.reason is NotFetchedReason.BUFFERED
    plenty, little = world.shared_state.completed_fetches
    assert (plenty.shared_partition.partition, little.shared_partition.partition) == (P0, P1)
    assert world.drain(little), "it is waited for"
    (side,) = world.poll(100)
    assert asked(side) == {1: 2}


def test_partitions_that_have_nothing_are_looked_at_once_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    partitions = [TopicPartition("t", number) for number in range(300)]
    leaders = dict.fromkeys(partitions, 1)
    world = World(*leaders, metadata=knowing(leaders, BackgroundEvents()))
    looked: list[int] = []
    weigh = Prefetch.weigh

    def counted(self: Prefetch, broker: Broker) -> FetchChoice:
        looked.append(len(broker.unsettled))
        return weigh(self, broker)

    monkeypatch.setattr(Prefetch, "weigh", counted)
    for _ in range(5):
        (request,) = world.poll(0)
        world.reply(request, 0, {})
    # When they are new, when the first answer has come, and when they are asked for again.
    assert looked[0] == 300
    assert looked[2:] == [0] * 3

    (request,) = world.poll(0)
    world.reply(request, 0, {partitions[7]: batch(3)})
    looked.clear()
    world.poll(0)
    assert looked == [1], "the one that has brought something"
