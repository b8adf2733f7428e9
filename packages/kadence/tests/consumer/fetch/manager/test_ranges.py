"""Ranges of partitions (C11): nothing is fetched that an end does not need, and little beyond it."""

from __future__ import annotations

from tests.worlds.fetching import P0, P1, P2, World, asked, batch

from kadence.connection.request import Request
from kadence.consumer.shared_partition import NotFetchedReason


def limits(request: Request) -> dict[int, int]:
    """Partition number to partition_max_bytes."""
    return {
        part.partition: part.partition_max_bytes
        for topic in request.message.topics
        for part in topic.partitions
    }


def test_c11_a_range_is_fetched_up_to_its_end_and_no_further() -> None:
    world = World(P0, P1)
    world.subscription.limit(P0, 0, 10)
    (request,) = world.poll(0)
    assert asked(request) == {0: 0, 1: 0}
    world.reply(request, 5, {P0: batch(10)})
    (request,) = world.poll(5)
    assert [part for topic in request.message.forgotten_topics_data for part in topic.partitions] == [0]
    assert world.state(P0).shared_partition.unfetched.reason is NotFetchedReason.RANGE_FETCHED
    assert world.state(P0).shared_partition.unfetched.reason.is_expected


def test_c11_when_all_ranges_are_fetched_nothing_is_sent() -> None:
    world = World(P0, P2)
    for partition in (P0, P2):
        world.subscription.limit(partition, 0, 2)
    for request in world.poll(0):
        world.reply(request, 5, {partition: batch(2) for partition in request.tag.asked})
    assert world.poll(5) == []
    assert world.poll(10_000) == []


def test_c11_the_last_fetches_ask_for_what_is_left_by_the_sizes_seen_so_far() -> None:
    world = World(P0, P1)
    world.subscription.limit(P0, 0, 100)
    world.subscription.limit(P1, 0, 1_000_000)
    (request,) = world.poll(0)
    assert limits(request) == {0: 100 * 64 + 16_384, 1: 2_097_152}, "nothing is known yet"
    raw = batch(10, size=1_000)
    world.reply(request, 5, {P0: raw})
    (request,) = world.poll(5)
    each, left = len(raw) / 10, 90
    assert limits(request) == {0: int(each * left) + len(raw)}, "1 is in the session as it was"
    assert request.message.max_bytes == int(each * left) + len(raw) + 2_097_152
    world.reply(request, 10, {P0: batch(80, offset=10, size=1_000)})
    (request,) = world.poll(10)
    assert limits(request)[0] < 10 * each + 2 * 80 * each, "ten records, and a batch of those that came"


def test_c11_a_range_that_begins_where_the_last_one_ended_keeps_what_is_buffered() -> None:
    world = World(P0)
    world.subscription.limit(P0, 0, 5)
    (request,) = world.poll(0)
    world.reply(request, 5, {P0: batch(8)})
    shared_partition = world.state(P0).shared_partition
    fetch_epoch = shared_partition.fetch_epoch
    shared_partition.position = shared_partition.origin._replace(offset=5)
    assert shared_partition.is_finished
    assert world.subscription.continues(P0, 5)
    assert not world.subscription.continues(P0, 4)
    world.subscription.limit(P0, 0, 20)
    assert not shared_partition.is_finished
    (request,) = world.poll(10)
    assert asked(request) == {0: 8}, "5 to 7 are there"
    assert shared_partition.fetch_epoch == fetch_epoch


def test_c11_a_range_gets_another_end_while_its_fetch_is_parked() -> None:
    world = World(P0, P1)
    world.subscription.limit(P0, 0, 0)
    (parked,) = world.poll(0)
    assert asked(parked) == {1: 0}
    world.subscription.limit(P0, 0, 7)
    (side,) = world.poll(100)
    assert asked(side) == {0: 0}
