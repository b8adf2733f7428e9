"""Each state of a KIP-848 member, each error of a heartbeat: what becomes of it. And every way of the table is gone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.consumer.group import test_kip848_member as protocol
from tests.worlds.cluster import partitions
from tests.worlds.kip848 import Bench, said

from kadence.connection.request import Request
from kadence.consumer import events as m
from kadence.consumer.group import kip848_member as kip848
from kadence.consumer.group.kip848_member import ConsumerMembership
from kadence.consumer.group.member_states import TRANSITIONS, State
from kadence.errors import BrokerError, DisconnectedError
from kadence.protocol import error_codes as ec


def joining(bench: Bench) -> Request:
    bench.subscribe("t")
    return bench.beat()


def reconciling(bench: Bench) -> Request:
    bench.settle(0, 1)
    bench.answer(bench.beat(), 1, {"t": [0]})
    return bench.beat()


def acknowledging(bench: Bench) -> Request:
    request = reconciling(bench)
    bench.serve()
    return request


def stable(bench: Bench) -> Request:
    bench.settle(0, 1)
    return bench.beat()


def prepare_leaving(bench: Bench) -> Request:
    bench.settle(0, 1)
    bench.member.leave(bench.now, reason="test")
    return bench.beat()


IN_FLIGHT: dict[State, Callable[[Bench], Request]] = {
    State.JOINING: joining,
    State.RECONCILING: reconciling,
    State.ACKNOWLEDGING: acknowledging,
    State.STABLE: stable,
    State.PREPARE_LEAVING: prepare_leaving,
}
"""Ways into each state in which a heartbeat may be answered, with one under way."""

PASSING = [ec.COORDINATOR_LOAD_IN_PROGRESS, ec.COORDINATOR_NOT_AVAILABLE, ec.NOT_COORDINATOR]
FENCED = [ec.FENCED_MEMBER_EPOCH, ec.UNKNOWN_MEMBER_ID, ec.GROUP_ID_NOT_FOUND]
REFUSED = [
    ec.GROUP_AUTHORIZATION_FAILED,
    ec.INVALID_REQUEST,
    ec.GROUP_MAX_SIZE_REACHED,
    ec.UNSUPPORTED_ASSIGNOR,
    ec.UNRELEASED_INSTANCE_ID,
    ec.UNSUPPORTED_VERSION,
    ec.INVALID_REGULAR_EXPRESSION,
    ec.UNKNOWN_SERVER_ERROR,
    999,  # of a broker that is newer than we are
]


def in_state(state: State, **config: Any) -> tuple[Bench, Request]:
    bench = Bench(**config)
    request = IN_FLIGHT[state](bench)
    assert bench.state() is state
    return bench, request


@pytest.mark.parametrize("state", IN_FLIGHT)
@pytest.mark.parametrize("code", PASSING, ids=ec.name)
def test_what_passes_changes_nothing_and_is_said_again_in_full(state: State, code: int) -> None:
    bench, request = in_state(state)
    owned = bench.owned
    bench.answer(request, code=code)
    assert (bench.state(), bench.owned, bench.of(m.Failed)) == (state, owned, [])
    assert (bench.coordinator.node_id is None) == (code != ec.COORDINATOR_LOAD_IN_PROGRESS)
    bench.find()
    again = bench.beat()
    assert again.message.member_id == request.message.member_id
    assert {"rebalance_timeout_ms", "topics"} <= set(said(again))
    assert again.message.topic_partitions is not None


@pytest.mark.parametrize("state", IN_FLIGHT)
def test_a_lost_connection_changes_nothing_and_is_said_again_in_full(state: State) -> None:
    bench, request = in_state(state)
    owned = bench.owned
    bench.fail(request, DisconnectedError("gone"))
    assert (bench.state(), bench.owned) == (state, owned)
    bench.find()
    assert {"rebalance_timeout_ms", "topics"} <= set(said(bench.beat()))


@pytest.mark.parametrize("state", IN_FLIGHT)
@pytest.mark.parametrize("code", FENCED, ids=ec.name)
def test_fenced_means_lost_and_joining_again_as_itself(state: State, code: int) -> None:
    bench, request = in_state(state)
    bench.answer(request, code=code)
    assert bench.owned == []
    if state is State.JOINING and code == ec.GROUP_ID_NOT_FOUND:
        assert bench.state() is State.FATAL, "a join makes the group, unless the broker will not"
        return
    assert bench.of(m.Failed) == []
    if state is State.PREPARE_LEAVING:
        assert [kind for kind, _ in bench.serve()] == ["LosePartitions"], "told once, and no more as its own"
        assert (bench.state(), bench.sent(), bench.member.left) == (State.UNSUBSCRIBED, [], True)
        return
    assert bench.state() is State.JOINING
    gone = {State.JOINING: [], State.ACKNOWLEDGING: partitions("t", 0)}.get(state, partitions("t", 0, 1))
    told = [("LosePartitions", gone)] if gone else []
    assert bench.serve() == told, "each once, and what had not been revoked yet is lost (B11)"
    again = bench.beat()
    assert (again.message.member_id, again.message.member_epoch) == ("m1", 0)


@pytest.mark.parametrize("state", IN_FLIGHT)
@pytest.mark.parametrize("code", REFUSED, ids=ec.name)
def test_b6_refused_means_told_and_out_until_the_next_poll(state: State, code: int) -> None:
    bench, request = in_state(state)
    bench.answer(request, code=code)
    if state is State.JOINING and code == ec.UNKNOWN_SERVER_ERROR:
        assert bench.state() is State.JOINING, "that is repeated for a while"
        return
    assert (bench.state(), bench.owned) == (State.FATAL, [])
    (failed,) = bench.of(m.Failed)
    assert isinstance(failed.error, BrokerError)
    assert (failed.error.code, failed.fatal) == (code, False)
    goodbyes = [each.message.member_epoch for each in bench.sent()]
    assert goodbyes == ([] if state is State.JOINING else [-1])
    for each in list(bench.owners):
        bench.answer(each, -1)
    assert bench.member.left
    if state is State.PREPARE_LEAVING:
        assert not bench.member.needs_polled, "it was on its way out anyway"
        return
    bench.member.polled(bench.now)
    assert bench.beat().message.member_epoch == 0


@pytest.mark.parametrize("state", IN_FLIGHT)
def test_a_topic_that_may_not_be_read_is_told_and_nothing_else(state: State) -> None:
    bench, request = in_state(state)
    owned = bench.owned
    bench.answer(request, code=ec.TOPIC_AUTHORIZATION_FAILED)
    assert (bench.state(), bench.owned, len(bench.of(m.Failed))) == (state, owned, 1)


@pytest.mark.parametrize("state", IN_FLIGHT)
def test_a_fenced_instance_is_out_and_every_call_says_so(state: State) -> None:
    bench, request = in_state(state, group_instance_id="i")
    bench.answer(request, code=ec.FENCED_INSTANCE_ID)
    assert (bench.state(), bench.owned, bench.sent()) == (State.FATAL, [], [])
    assert [event.fatal for event in bench.of(m.Failed)] == [True]


@pytest.mark.parametrize("state", IN_FLIGHT)
def test_b4_the_poll_timeout_ends_every_state(state: State) -> None:
    bench, _ = in_state(state, max_poll_interval_ms=5_000)
    bench.progress.leave_poll(bench.now)
    bench.now += 5_000
    goodbyes = [request.message.member_epoch for request in bench.sent()]
    assert -1 in goodbyes
    assert bench.owned == []
    assert bench.state() is (State.UNSUBSCRIBED if state is State.PREPARE_LEAVING else State.STALE)


@pytest.mark.parametrize("state", IN_FLIGHT)
def test_b7_leaving_is_possible_in_every_state(state: State) -> None:
    bench, _ = in_state(state)
    bench.member.leave(bench.now, reason="test", callbacks=False)
    assert [request.message.member_epoch for request in bench.sent()] == [-1]
    assert bench.state() is State.UNSUBSCRIBED


@pytest.mark.parametrize("state", IN_FLIGHT)
@pytest.mark.parametrize(
    ("code", "again"),
    [
        (ec.STALE_MEMBER_EPOCH, True),
        (ec.REBALANCE_IN_PROGRESS, True),
        (ec.UNKNOWN_MEMBER_ID, False),
        (ec.ILLEGAL_GENERATION, False),
    ],
    ids=str,
)
def test_a_refused_commit_is_sent_again_where_the_member_is_still_itself(
    state: State, code: int, again: bool
) -> None:
    bench, _ = in_state(state)
    settled = state is not State.JOINING
    assert bench.member.commit_refused(bench.now, bench.member.group, code) == (again and settled)
    if settled and not again:
        assert bench.owned == []
    else:
        assert bench.state() is state


def test_every_way_of_the_table_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """And no other: the member itself asserts that."""
    gone: set[tuple[State, State]] = set()
    go = ConsumerMembership._go

    def watched(member: ConsumerMembership, state: State) -> None:
        if member.state is not state:
            gone.add((member.state, state))
        go(member, state)

    monkeypatch.setattr(kip848.ConsumerMembership, "_go", watched)
    ways = {(before, after) for before, afters in TRANSITIONS.items() for after in afters}
    for seed in range(400):
        protocol.test_whatever_happens_the_table_holds_and_the_member_can_still_join(seed)
        if gone == ways:
            break
    for state, code in itertools.product(IN_FLIGHT, [ec.INVALID_REQUEST, ec.UNKNOWN_MEMBER_ID]):
        bench, request = in_state(state)
        bench.answer(request, code=code)
    assert ways - gone == set()
