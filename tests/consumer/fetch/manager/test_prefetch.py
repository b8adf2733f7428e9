"""KIP-41's two heuristics of prefetching, and what the KIP says of each."""

from __future__ import annotations

import pytest
from tests.worlds.cluster import config, knowing
from tests.worlds.fetching import P0, P1, P2, World, asked, batch
from tests.worlds.hand import BackgroundEvents

from kadence.connection.request import ConnectionPurpose
from kadence.consumer.shared_partition import NotFetchedReason
from kadence.errors import ConfigError
from kadence.types import TopicPartition


def drain(world: World, partition: TopicPartition, records: int) -> None:
    """The application was given so many records of a partition."""
    shared_partition = world.state(partition).shared_partition
    shared_partition.drained_records += records
    world.shared_state.drained_records += records
    world.shared_state.made_room(shared_partition)


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


def test_a3_total_fetches_while_the_next_poll_could_not_be_full() -> None:
    world = World(P0, P1, prefetch_heuristic="total", max_poll_records=10)
    assert fetched(world, p0=5, p1=4) == {0, 1}, "nine of ten: fetched again, whatever each has"
    world = World(P0, P1, prefetch_heuristic="total", max_poll_records=10)
    assert fetched(world, p0=5, p1=5) == set()
    assert world.state(P0).shared_partition.unfetched.reason is NotFetchedReason.BUFFERED
    drain(world, P0, 1)
    assert world.shared_state.drained_records >= world.shared_state.wake_records, (
        "so the application wakes the network thread"
    )
    assert {n for request in world.poll(1) for n in _numbers(request)} == {0, 1}


def test_a3_total_lets_one_partition_stand_in_the_way_of_all_others() -> None:
    """The KIP's own objection: with an imbalance, polls go back and forth between the partition and the rest."""
    world = World(P0, P1, P2, prefetch_heuristic="total", max_poll_records=10)
    assert fetched(world, p0=1_000) == set(), "1 and 2 wait for 991 records of 0"
    drain(world, P0, 990)
    assert world.poll(1) == []
    drain(world, P0, 1)
    assert {n for request in world.poll(2) for n in _numbers(request)} == {0, 1, 2}


def test_a3_total_does_not_count_what_a_paused_partition_holds() -> None:
    """Nobody drains it: all others would stand still until it is resumed."""
    world = World(P0, P1, P2, prefetch_heuristic="total", max_poll_records=10)
    assert fetched(world, p0=1_000) == set()
    shared_partition, wakes = world.state(P0).shared_partition, world.shared_state.wakes
    shared_partition.paused = True
    world.shared_state.look_at(shared_partition)
    assert world.shared_state.wakes == wakes + 1
    world.state(P0).mark()
    assert {n for request in world.poll(1) for n in _numbers(request)} == {1, 2}


def test_a3_share_keeps_the_others_going_whatever_one_has() -> None:
    world = World(P0, P1, P2, prefetch_heuristic="partition", max_poll_records=12)
    assert fetched(world, p0=1_000) == {1, 2}
    assert world.state(P0).shared_partition.unfetched.reason is NotFetchedReason.BUFFERED
    drain(world, P0, 996)
    shared_partition = world.state(P0).shared_partition
    assert shared_partition.drained_records < shared_partition.wake_records, "four are its share of twelve"
    drain(world, P0, 1)
    assert shared_partition.drained_records >= shared_partition.wake_records
    world = World(P0, P1, P2, prefetch_heuristic="partition", max_poll_records=12)
    assert fetched(world, p0=3, p1=4, p2=5) == {0}


def test_a3_with_more_partitions_than_records_a_share_is_one() -> None:
    world = World(P0, P1, P2, prefetch_heuristic="partition", max_poll_records=2)
    assert fetched(world, p0=1) == {1, 2}
    drain(world, P0, 1)
    world = World(P0, P1, P2, prefetch_heuristic="partition", max_poll_records=2)
    assert fetched(world) == {0, 1, 2}


def test_a3_bytes_counts_no_records() -> None:
    world = World(P0, P1, max_poll_records=1)
    assert fetched(world, p0=1_000) == {0, 1}
    (request,) = World(P0).poll(0)
    assert asked(request) == {0: 0}


def test_a3_what_is_dropped_is_no_longer_buffered() -> None:
    world = World(P0, prefetch_heuristic="partition", max_poll_records=10)
    assert fetched(world, p0=100) == set()
    world.subscription.position(P0, 7, None)
    item = world.shared_state.completed_fetches.popleft()
    drain(world, P0, item.records)
    (request,) = world.poll(1)
    assert asked(request) == {0: 7}


@pytest.mark.parametrize("heuristic", ["total", "partition"])
@pytest.mark.parametrize("cap", [-1, "auto"])
def test_what_counts_records_needs_a_number_of_them(heuristic: str, cap: object) -> None:
    with pytest.raises(ConfigError, match=r"prefetch\.heuristic=.* needs max\.poll\.records as a number"):
        config(prefetch_heuristic=heuristic, max_poll_records=cap)


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
