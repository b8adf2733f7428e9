"""Reading from the nearest replica (KIP-392): where fetches go, for how long, and when back to the leader."""

from __future__ import annotations

import pytest
from tests.worlds.cluster import answer, lost, told
from tests.worlds.fetching import P0, P1, P2, World, asked, batch

from kadence.connection.request import Request
from kadence.protocol import error_codes as ec

LEADER, FOLLOWER = 1, 2
LEASE_MS = 300_000


def sent_away(*, at: int = 0) -> tuple[World, Request]:
    """The leader has named the follower, and the next fetch is on its way there."""
    world = World(P0, client_rack="b")
    (request,) = world.poll(at)
    assert request.node_id == LEADER
    world.reply(request, at, preferred={P0: FOLLOWER})
    (request,) = world.poll(at)
    assert request.node_id == FOLLOWER
    return world, request


def node_of(world: World, now: int) -> int:
    (request,) = world.poll(now)
    return request.node_id


def test_the_rack_is_told() -> None:
    world = World(P0, client_rack="eu-1b")
    assert world.poll(0)[0].message.rack_id == "eu-1b"
    assert World(P0).poll(0)[0].message.rack_id == ""


def test_the_preferred_replica_is_fetched_from_at_once_and_goes_on_being_so() -> None:
    world, request = sent_away()
    assert asked(request) == {0: 0}
    for now in range(10, 100, 10):
        world.reply(request, now, {P0: batch(1, offset=(now // 10) - 1)})
        world.drain(world.shared_state.completed_fetches.popleft())
        (request,) = world.poll(now)
        assert request.node_id == FOLLOWER
    assert asked(request) == {0: 9}


def test_other_partitions_of_the_leader_stay_there() -> None:
    world = World(P0, P1)
    (request,) = world.poll(0)
    world.reply(request, 0, preferred={P0: FOLLOWER})
    assert {request.node_id: asked(request) for request in world.poll(0)} == {
        LEADER: {},
        FOLLOWER: {0: 0},
    }, "1 is still in the leader's session, unchanged"


def test_after_five_minutes_the_leader_is_asked_again_and_may_say_the_same() -> None:
    world, request = sent_away()
    world.reply(request, LEASE_MS - 1)
    assert node_of(world, LEASE_MS - 1) == FOLLOWER
    world, request = sent_away()
    world.reply(request, LEASE_MS)
    (request,) = world.poll(LEASE_MS)
    assert request.node_id == LEADER
    world.reply(request, LEASE_MS, preferred={P0: FOLLOWER})
    (request,) = world.poll(LEASE_MS)
    assert request.node_id == FOLLOWER
    world.reply(request, 2 * LEASE_MS - 1)
    assert node_of(world, 2 * LEASE_MS - 1) == FOLLOWER


def test_the_lease_is_metadata_max_age() -> None:
    world = World(P0, metadata_max_age_ms=1_000)
    (request,) = world.poll(0)
    world.reply(request, 0, preferred={P0: FOLLOWER})
    (request,) = world.poll(999)
    assert request.node_id == FOLLOWER
    world.reply(request, 1_000)
    assert node_of(world, 1_000) == LEADER


@pytest.mark.parametrize(
    "code",
    [
        ec.NOT_LEADER_OR_FOLLOWER,
        ec.REPLICA_NOT_AVAILABLE,
        ec.KAFKA_STORAGE_ERROR,
        ec.UNKNOWN_TOPIC_OR_PARTITION,
        ec.OFFSET_OUT_OF_RANGE,
        ec.OFFSET_NOT_AVAILABLE,
        ec.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_of_the_follower_leads_back_to_the_leader(code: int) -> None:
    world, request = sent_away()
    world.reply(request, 10, codes={P0: code})
    assert world.background_events == [], "a follower's word is not the leader's"
    assert node_of(world, 5_000) == LEADER


def test_out_of_range_at_the_follower_is_asked_of_the_leader_before_it_is_believed() -> None:
    world, request = sent_away()
    fetch_epoch = world.state(P0).shared_partition.fetch_epoch
    world.reply(request, 10, codes={P0: ec.OFFSET_OUT_OF_RANGE})
    (request,) = world.poll(10)
    assert request.node_id == LEADER
    assert request.tag.asked[P0][:2] == (fetch_epoch, 0)
    assert world.state(P0).shared_partition.fetch_epoch == fetch_epoch, "the position is what it was"


def test_a_lost_connection_to_the_follower_leads_back_to_the_leader_at_once() -> None:
    world, request = sent_away()
    world.manager.on_response(10, lost(request, 10))
    assert node_of(world, 11) == LEADER


def test_a_follower_that_left_the_cluster_is_not_asked() -> None:
    world, request = sent_away()
    world.metadata.request_update(1_000)
    (update,) = world.metadata.poll(1_000).requests
    response = told({P0: LEADER, P1: LEADER, P2: LEADER})
    response.brokers = [broker for broker in response.brokers if broker.node_id == LEADER]
    world.metadata.on_response(1_000, answer(update, response, 1_000))
    world.reply(request, 1_001)
    assert node_of(world, 1_001) == LEADER


def test_a_new_leader_is_asked_what_it_prefers() -> None:
    world, request = sent_away()
    world.reply(request, 10)
    world.metadata.request_update(1_000)
    (update,) = world.metadata.poll(1_000).requests
    world.metadata.on_response(1_000, answer(update, told({P0: 3}, epoch=5), 1_000))
    world.state(P0).checked = 5
    assert node_of(world, 1_001) == 3
