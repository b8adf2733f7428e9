"""A KIP-848 member whose heartbeats the native thread sent: what they say, and what their answers do (G3)."""

from __future__ import annotations

import pytest
from tests.worlds.kip848 import INTERVAL, Bench, own, said

from kadence.connection.request import ConnectionPurpose, Request
from kadence.consumer.group.member_states import State
from kadence.consumer.group.membership import SENT_NATIVELY
from kadence.errors import DisconnectedError
from kadence.protocol import error_codes


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.settle(0, 1)
    return bench


def native_heartbeat(bench: Bench, times: int = 1) -> list[Request]:
    """The native thread has sent what it was left."""
    message = bench.member.native_heartbeat()
    requests = [Request(message, 7, 0, ConnectionPurpose.GROUP, SENT_NATIVELY) for _ in range(times)]
    bench.owners.update(dict.fromkeys(requests, bench.heartbeat))
    bench.now += 3 * INTERVAL
    bench.heartbeat.native_heartbeats_sent(bench.now, requests, bench.now)
    return requests


def test_it_says_everything_so_that_an_answer_nobody_read_does_no_harm(bench: Bench) -> None:
    (request,) = native_heartbeat(bench)
    assert (request.message.member_id, request.message.member_epoch) == ("m1", 1)
    assert said(request) == {"rebalance_timeout_ms": 300_000, "topics": ["t"], "owned": own(0, 1)}


def test_it_is_the_same_object_until_there_is_something_else_to_say(bench: Bench) -> None:
    message = bench.member.native_heartbeat()
    bench.answer(bench.beat(), 1)
    assert bench.member.native_heartbeat() is message
    bench.answer(bench.beat(), 2)
    assert bench.member.native_heartbeat().member_epoch == 2


def test_before_it_is_in_the_group_and_after_there_is_nothing_to_send() -> None:
    bench = Bench()
    assert bench.member.native_heartbeat() is None
    bench.subscribe("t")
    request = bench.beat()
    assert bench.member.native_heartbeat() is None
    bench.answer(request, 1, {"t": [0]})
    assert bench.member.native_heartbeat() is not None
    bench.member.poll_timed_out(bench.now)
    assert bench.member.native_heartbeat() is None


def test_what_its_answers_bring_is_taken_like_that_of_any_other(bench: Bench) -> None:
    first, second = native_heartbeat(bench, 2)
    bench.answer(first, 2, {"t": [0, 1, 2]})
    bench.answer(second, 2, {"t": [0, 1, 2]})
    assert bench.state() is State.ACKNOWLEDGING
    acknowledgement = bench.beat()
    assert acknowledgement.message.member_epoch == 2
    assert said(acknowledgement)["owned"] == own(0, 1, 2)
    assert bench.state() is State.STABLE
    assert len(bench.causes) == 2, "the first join, and one more"


def test_an_answer_that_comes_after_another_heartbeat_was_sent_is_asked_for_again(bench: Bench) -> None:
    ordinary = bench.beat()
    (request,) = native_heartbeat(bench)
    bench.answer(request, 2, {"t": [0, 1, 2]})
    assert bench.state() is State.STABLE
    bench.answer(ordinary, 1)
    assert said(bench.beat())["owned"] == own(0, 1)


def test_fenced_once_though_every_one_of_them_was_refused(bench: Bench) -> None:
    first, second = native_heartbeat(bench, 2)
    bench.answer(first, code=error_codes.FENCED_MEMBER_EPOCH)
    assert bench.state() is State.JOINING
    bench.answer(second, code=error_codes.FENCED_MEMBER_EPOCH)
    assert bench.state() is State.JOINING
    assert [name for name, _ in bench.serve()].count("LosePartitions") == 1


def test_fenced_with_an_epoch_that_is_over_it_stays_with_the_present_one(bench: Bench) -> None:
    """The native thread repeats the epoch it was left, and the broker goes on by two meanwhile."""
    first, second, third = native_heartbeat(bench, 3)
    bench.answer(first, 2, {"t": [0, 1, 2]})
    bench.answer(second, 3, {"t": [0, 1, 2, 3]})
    bench.answer(third, code=error_codes.FENCED_MEMBER_EPOCH)
    assert bench.state() is State.ACKNOWLEDGING
    assert "LosePartitions" not in [name for name, _ in bench.serve()]
    acknowledgement = bench.beat()
    assert acknowledgement.message.member_epoch == 3
    assert said(acknowledgement)["owned"] == own(0, 1, 2, 3)


def test_after_a_lost_connection_the_next_heartbeat_says_everything(bench: Bench) -> None:
    (request,) = native_heartbeat(bench)
    bench.fail(request, DisconnectedError("gone"))
    bench.find()
    assert bench.state() is State.STABLE
    assert said(bench.beat())["owned"] == own(0, 1)


def test_fenced_beside_the_native_heartbeat_it_says_everything_before_it_gives_up(bench: Bench) -> None:
    """Its own heartbeat came after a native one, whose answer nobody had read, had moved the epoch on."""
    ordinary = bench.beat()
    (request,) = native_heartbeat(bench)
    bench.answer(request, 3, {"t": [0, 1, 2]})
    bench.answer(ordinary, code=error_codes.FENCED_MEMBER_EPOCH)
    assert bench.state() is State.STABLE
    assert "LosePartitions" not in [name for name, _ in bench.serve()]

    bench.now += INTERVAL
    whole = bench.beat()
    assert (whole.message.member_epoch, said(whole)["owned"]) == (1, own(0, 1))
    bench.answer(whole, code=error_codes.FENCED_MEMBER_EPOCH)
    assert bench.state() is State.JOINING
