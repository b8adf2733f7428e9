"""Acknowledgements under virtual time, the brokers played by hand (KIP-932; reference §6, §11 and §13)."""

from __future__ import annotations

import pytest
from tests.worlds.share import (
    ACCEPT,
    LOCK_MS,
    REJECT,
    RELEASE,
    RENEW,
    Requests,
    batches_of,
    tip,
)

from kadence.consumer import events as m
from kadence.errors import InvalidRecordStateError, KafkaTimeoutError
from kadence.protocol import error_codes as ec
from kadence.protocol.share_acknowledge import ShareAcknowledgeRequest
from kadence.protocol.share_fetch import PartitionData, ShareFetchRequest
from kadence.share.acknowledgements import GAP, Acknowledged
from kadence.share.events import Sending


@pytest.fixture
def world() -> Requests:
    return Requests()


def test_what_polls_acknowledge_travels_with_the_next_fetch(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.waits()
    world.acknowledge(fetch)
    request = world.fetch()
    assert batches_of(request) == {0: [(0, 9, [ACCEPT])]}
    world.bring(request, (10, 19, 1))
    assert world.ended() == [], "nobody wants to hear of a success"


def test_where_nothing_is_to_be_fetched_it_goes_alone(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.assign()
    world.acknowledge(fetch)
    assert batches_of(world.said()) == {0: [(0, 9, [ACCEPT])]}


def test_a_commit_goes_at_once_and_is_answered_for_each_partition(world: Requests) -> None:
    world.waits()
    world.bring(world.fetch(), (0, 9, 1))
    fetch = world.take()
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    request = world.said()
    assert request.message.share_session_epoch == 1
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}


def test_what_polls_say_is_found_in_time_whether_or_not_another_poll_follows(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    wakes = world.wakes
    world.state.say({fetch: (Acknowledged(0, 0, ACCEPT),)}, wakes=False)
    assert world.wakes == wakes + 1, "nobody looks yet"
    request = world.fetch()
    assert batches_of(request) == {0: [(0, 0, [ACCEPT])]}
    world.answer(request)
    assert world.sent() == []
    assert world.hand.wake_at() <= world.now + 20
    for offset in range(1, 4):
        world.state.say({fetch: (Acknowledged(offset, offset, ACCEPT),)}, wakes=False)
    assert world.wakes == wakes + 1
    world.hand.advance(20)
    [request] = [each for each in world.sent() if batches_of(each)]
    assert batches_of(request) == {0: [(1, 3, [ACCEPT])]}
    world.answer(request)
    world.hand.advance(20)
    world.sent()
    assert not world.state.looks_soon, "nothing came, so the next one wakes it"
    world.state.say({fetch: (Acknowledged(4, 4, ACCEPT),)}, wakes=False)
    assert world.wakes == wakes + 2


def test_what_polls_have_said_goes_before_what_is_said_now(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.state.say({fetch: (Acknowledged(0, 4, ACCEPT),)}, wakes=False)
    world.manager.take_said(world.now)
    call = world.acknowledge(fetch, 5, 9, sending=Sending.SYNC)
    request = world.said()
    assert batches_of(request) == {0: [(0, 9, [ACCEPT])]}
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}


def test_a_commit_waits_for_what_is_under_way_already(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.acknowledge(fetch, 0, 4, sending=Sending.ASYNC)
    first = world.said()
    empty = world.say({})
    call = world.acknowledge(fetch, 5, 9, sending=Sending.SYNC)
    world.answer(first, p0=ec.INVALID_RECORD_STATE)
    assert isinstance(world.answer_to(empty)[tip()], InvalidRecordStateError)
    world.answer(world.said())
    assert isinstance(world.answer_to(call)[tip()], InvalidRecordStateError), "of what was said before"


def test_what_waits_for_a_fetch_leaves_at_once_when_a_commit_waits_for_it(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.waits()
    world.acknowledge(fetch)
    call = world.say({})
    request = world.said()
    assert batches_of(request) == {0: [(0, 9, [ACCEPT])]}
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}


def test_a_commit_that_gives_up_ends_nothing_that_others_have_said(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.state.wants_results = True
    world.acknowledge(fetch, sending=Sending.ASYNC)
    request = world.said()
    call = world.say({}, timeout=100)
    world.hand.advance(100)
    world.sent()
    assert isinstance(world.answer_to(call)[tip()], KafkaTimeoutError)
    assert world.ended() == []
    world.answer(request)
    [ended] = world.ended()
    assert ended.error is None


def test_a_fetch_with_acknowledgements_waits_only_a_little(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.waits()
    world.acknowledge(fetch)
    assert world.fetch().message.max_wait_ms == 100, "its answer says what became of them"


def test_a_commit_of_nothing_is_answered_at_once(world: Requests) -> None:
    assert world.answer_to(world.say({})) == {}


def test_an_asynchronous_commit_is_told_of_and_not_answered(world: Requests) -> None:
    world.state.wants_results = True
    fetch = world.acquired((0, 9, 1))
    world.acknowledge(fetch, sending=Sending.ASYNC)
    world.answer(world.said())
    (ended,) = world.ended()
    assert (ended.partition, ended.fetch, ended.error) == (tip(), fetch, None)
    assert ended.acknowledged == (Acknowledged(0, 9, ACCEPT),)
    assert world.told.of(m.Answer) == []


def test_gaps_go_as_ranges_and_neighbours_join(world: Requests) -> None:
    """§11.19: 3 records and 497 gaps are no list of 500 types."""
    fetch = world.acquired((0, 499, 1))
    world.say(
        {
            fetch: (
                Acknowledged(0, 0, ACCEPT),
                Acknowledged(1, 250, GAP),
                Acknowledged(251, 251, ACCEPT),
                Acknowledged(252, 252, ACCEPT),
                Acknowledged(253, 499, GAP),
            )
        }
    )
    assert batches_of(world.said()) == {
        0: [(0, 0, [ACCEPT]), (1, 250, [GAP]), (251, 252, [ACCEPT]), (253, 499, [GAP])]
    }


def test_short_runs_share_a_batch_with_a_type_for_each(world: Requests) -> None:
    fetch = world.acquired((0, 5, 1))
    world.say({fetch: tuple(Acknowledged(n, n, ACCEPT if n % 2 else RELEASE) for n in range(6))})
    assert batches_of(world.said()) == {0: [(0, 5, [RELEASE, ACCEPT] * 3)]}


def test_errors_of_partitions_are_apart() -> None:
    world = Requests({0: 1, 1: 1})
    first, second = world.acquired((0, 4, 1), number=0), world.acquired((0, 4, 1), number=1)
    call = world.say({first: (Acknowledged(0, 4, ACCEPT),), second: (Acknowledged(0, 4, REJECT),)})
    world.answer(world.said(), p1=ec.INVALID_RECORD_STATE)
    results = world.answer_to(call)
    assert results[tip(0)] is None
    assert isinstance(results[tip(1)], InvalidRecordStateError)
    (ended,) = world.ended()
    assert ended.partition == tip(1), "failures are told though nobody asked for results"


def test_11_15_errors_of_a_fetch_and_of_its_acknowledgements_are_apart(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.waits()
    world.acknowledge(fetch)
    request = world.fetch()
    world.bring(request, (5, 9, 1), acknowledge_code=ec.INVALID_RECORD_STATE)
    (ended,) = world.ended()
    assert isinstance(ended.error, InvalidRecordStateError)
    assert world.take().acquired[0].first == 5


def test_a_retriable_error_is_repeated_until_it_succeeds(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    for _ in range(4):
        world.answer(world.said(), p0=ec.COORDINATOR_NOT_AVAILABLE)
        assert all(not isinstance(each.message, ShareAcknowledgeRequest) for each in world.sent())
        world.hand.advance(1_500)
        world.state.unwant(world.now, found=True)
        for manager_request in tuple(world.hand._managers.owners):
            world.answer(manager_request)
    world.answer(world.said())
    assert world.answer_to(call) == {tip(): None}


def test_a_call_whose_time_is_over_is_answered_with_what_is_known() -> None:
    world = Requests({0: 1, 1: 1})
    first, second = world.acquired((0, 4, 1), number=0), world.acquired((0, 4, 1), number=1)
    said = {first: (Acknowledged(0, 4, ACCEPT),), second: (Acknowledged(0, 4, ACCEPT),)}
    call = world.say(said, timeout=1_000)
    world.answer(world.said(), p1=ec.COORDINATOR_NOT_AVAILABLE)
    world.hand.advance(1_000)
    world.sent()
    results = world.answer_to(call)
    assert results[tip(0)] is None
    assert isinstance(results[tip(1)], KafkaTimeoutError)


def test_what_is_past_its_lock_is_dropped_before_it_spoils_others() -> None:
    world = Requests(share_lock_renewal=False)
    old = world.acquired((0, 4, 1))
    world.hand.advance(20_000)
    new = world.acquired((5, 9, 1))
    world.hand.advance(LOCK_MS - 20_000)
    call = world.say({old: (Acknowledged(0, 4, ACCEPT),), new: (Acknowledged(5, 9, ACCEPT),)})
    assert batches_of(world.said()) == {0: [(5, 9, [ACCEPT])]}
    (ended,) = world.ended()
    assert (ended.fetch, type(ended.error)) == (old, InvalidRecordStateError)
    assert world.told.of(m.Answer) == [], f"{call} waits for the good one"


def test_what_waits_past_its_lock_is_dropped_too() -> None:
    world = Requests(share_lock_renewal=False)
    fetch = world.acquired((0, 4, 1))
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    world.answer(world.said(), p0=ec.COORDINATOR_NOT_AVAILABLE)
    world.hand.now = fetch.lock_ends
    assert all(not batches_of(each) for each in world.sent())
    assert isinstance(world.answer_to(call)[tip()], InvalidRecordStateError)


def test_who_was_refused_together_is_said_again_alone(world: Requests) -> None:
    """One lost lock has all of a partition refused: the others' locks hold, and the broker rolled them back."""
    bad, good = world.acquired((0, 4, 1)), world.acquired((5, 9, 1))
    call = world.say({bad: (Acknowledged(0, 4, ACCEPT),), good: (Acknowledged(5, 9, ACCEPT),)})
    request = world.said()
    assert batches_of(request) == {0: [(0, 9, [ACCEPT])]}
    world.answer(request, p0=ec.INVALID_RECORD_STATE)
    request = world.said()
    assert batches_of(request) == {0: [(0, 4, [ACCEPT])]}
    world.answer(request, p0=ec.INVALID_RECORD_STATE)
    request = world.said()
    assert batches_of(request) == {0: [(5, 9, [ACCEPT])]}
    world.answer(request)
    assert isinstance(world.answer_to(call)[tip()], InvalidRecordStateError)
    (ended,) = world.ended()
    assert ended.fetch is bad


def test_two_things_said_of_one_fetch_fail_apart(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    bad = world.acknowledge(fetch, 0, 4, sending=Sending.SYNC)
    world.state.wants_results = True
    good = world.acknowledge(fetch, 5, 9, sending=Sending.ASYNC)
    assert good != bad
    request = world.said()
    assert batches_of(request) == {0: [(0, 9, [ACCEPT])]}
    world.answer(request, p0=ec.INVALID_RECORD_STATE)
    for batch in ((0, 4, [ACCEPT]), (5, 9, [ACCEPT])):
        request = world.said()
        assert batches_of(request) == {0: [batch]}
        world.answer(request, p0=ec.INVALID_RECORD_STATE if batch[0] == 0 else ec.NONE)
    assert [type(each.error) for each in world.ended()] == [InvalidRecordStateError, type(None)]


def test_a_renewal_that_was_refused_with_ours_goes_without_them(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.hand.advance(LOCK_MS // 2)
    call = world.say({fetch: (Acknowledged(0, 1, RENEW),)})
    request = world.said()
    assert batches_of(request) == {0: [(0, 9, [RENEW])]}
    world.answer(request, p0=ec.INVALID_RECORD_STATE)
    request = world.said()
    assert batches_of(request) == {0: [(0, 1, [RENEW])]}
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}


def test_an_acknowledgement_that_the_answer_leaves_out_does_not_count(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.waits()
    world.acknowledge(fetch)
    world.answer_fetch(world.fetch())
    (ended,) = world.ended()
    assert isinstance(ended.error, InvalidRecordStateError)


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each for each in caplog.messages if "could not be acknowledged" in each]


def test_a_failure_of_which_nobody_hears_is_logged_for_each_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As in `process`: its polls send what is said, and no call waits for the answers."""
    world = Requests({0: 1, 1: 1})
    first, second = world.acquired((0, 4, 1)), world.acquired((0, 4, 1), number=1)
    world.assign()
    world.acknowledge(first)
    world.acknowledge(second, 0, 1, REJECT)
    world.acknowledge(second, 2, 2)
    world.acknowledge(second, 3, 4, RELEASE)
    world.answer(world.said(), p0=ec.INVALID_RECORD_STATE, p1=ec.NOT_LEADER_OR_FOLLOWER)
    why = "could not be acknowledged, and may be delivered again"
    assert [each.partition(" (")[0] for each in failures(caplog)] == [
        f"5 records of t-0 {why}: INVALID_RECORD_STATE",
        f"3 records of t-1 {why}: NOT_LEADER_OR_FOLLOWER",
    ], "what is released is delivered again all the same"


def test_a_failure_of_which_nobody_hears_is_logged_once_a_minute(
    world: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    counts = []
    for wait in (10_000, 50_000, 0):
        world.acknowledge(world.acquired((0, 0, 1)), sending=Sending.ASYNC)
        world.answer(world.said(), p0=ec.INVALID_RECORD_STATE)
        counts.append(len(failures(caplog)))
        world.hand.advance(wait)
    assert counts == [1, 1, 2]


def test_a_failure_that_somebody_hears_of_is_not_logged(
    world: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    fetch = world.acquired((0, 9, 1))
    world.acknowledge(fetch, 0, 2, sending=Sending.ASYNC)
    world.acknowledge(fetch, 3, 4, sending=Sending.SYNC)
    world.state.wants_results = True
    world.acknowledge(fetch, 5, 9, sending=Sending.ASYNC)
    world.answer(world.said(), p0=ec.NOT_LEADER_OR_FOLLOWER)
    assert len(world.ended()) == 3
    assert failures(caplog) == []


def test_records_may_be_acknowledged_one_by_one(world: Requests) -> None:
    fetch = world.acquired((0, 2, 1))
    for offset in range(3):
        world.acknowledge(fetch, offset, offset)
    world.waits()
    assert batches_of(world.fetch()) == {0: [(0, 2, [ACCEPT])]}


def test_a_partition_that_went_may_still_be_acknowledged(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.assign()
    call = world.acknowledge(fetch, sending=Sending.SYNC)
    world.answer(world.said())
    assert world.answer_to(call) == {tip(): None}


def test_a_deleted_topic_voids_its_locks(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    call = world.acknowledge(fetch, 0, 1, sending=Sending.SYNC)
    world.answer(world.said(), p0=ec.UNKNOWN_TOPIC_ID)
    assert world.answer_to(call)[tip()] is not None
    assert fetch.void is not None


def test_renewals_of_the_application_go_apart_from_acknowledgements(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.waits()
    call = world.say({fetch: (Acknowledged(0, 1, ACCEPT), Acknowledged(2, 4, RENEW))})
    request = world.said()
    assert (request.message.is_renew_ack, batches_of(request)) == (False, {0: [(0, 1, [ACCEPT])]})
    world.answer(request)
    before, renewed_at = fetch.lock_ends, world.now
    request = world.said()
    assert (request.message.is_renew_ack, batches_of(request)) == (True, {0: [(2, 4, [RENEW])]})
    assert request.min_version == 2
    world.answer(request)
    assert world.answer_to(call) == {tip(): None}
    (ended,) = world.ended()
    assert ended.acknowledged == (Acknowledged(2, 4, RENEW),), "renewals are told, for the records come again"
    assert fetch.lock_ends == renewed_at + LOCK_MS >= before


def test_a_renewal_of_some_offsets_leaves_the_others_as_they_were() -> None:
    world = Requests(share_lock_renewal=False)
    fetch = world.acquired((0, 4, 1))
    world.hand.advance(20_000)
    world.say({fetch: (Acknowledged(2, 4, RENEW),)})
    world.answer(next(each for each in world.sent() if batches_of(each)))
    world.hand.now = fetch.lock_ends
    world.sent()
    late = world.acknowledge(fetch, 0, 1, sending=Sending.SYNC)
    assert isinstance(world.answer_to(late)[tip()], InvalidRecordStateError)
    world.acknowledge(fetch, 2, 4, sending=Sending.SYNC)
    for request in tuple(world.hand._managers.owners):
        world.answer(request)
    assert {0: [(2, 4, [ACCEPT])]} in [batches_of(each) for each in world.sent()]


def test_a_second_renewal_of_some_offsets_brings_no_ended_lock_back() -> None:
    """What lies in the buffer has lost its lock meanwhile, and is nobody's any more: no poll may return it."""
    world = Requests(share_lock_renewal=False)
    fetch = world.acquired((0, 4, 1))
    world.hand.advance(20_000)
    world.say({fetch: (Acknowledged(2, 4, RENEW),)})
    world.answer(next(each for each in world.sent() if batches_of(each)))
    world.hand.now = first_end = fetch.lock_ends
    world.sent()
    world.say({fetch: (Acknowledged(2, 4, RENEW),)})
    for request in (*world.hand._managers.owners, *world.sent()):
        world.answer(request)
    assert not fetch.is_locked(world.now)
    assert fetch.lock_ends == first_end
    world.hand.advance(LOCK_MS - 1)
    world.acknowledge(fetch, 2, 4, sending=Sending.SYNC)
    assert {0: [(2, 4, [ACCEPT])]} in [batches_of(each) for each in world.sent()], (
        "the renewed ones are still held"
    )


def test_acknowledging_measures(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    world.acknowledge(fetch, 0, 3, sending=Sending.ASYNC)
    world.answer(world.said())
    measures = world.state.measures
    assert (measures.acknowledged.total, measures.failed.total, measures.held()) == (4, 0, 6)
    world.acknowledge(fetch, 4, 9, sending=Sending.ASYNC)
    world.hand.lose(world.said())
    assert (measures.failed.total, measures.void.total, measures.held()) == (6, 6, 0)


def test_fetches_with_errors_still_end_acknowledgements(world: Requests) -> None:
    fetch = world.acquired((0, 4, 1))
    world.waits()
    world.acknowledge(fetch)
    request = world.fetch()
    assert isinstance(request.message, ShareFetchRequest)
    world.answer_fetch(
        request,
        [
            PartitionData(
                partition_index=0, error_code=ec.UNKNOWN_SERVER_ERROR, acknowledge_error_code=0, records=b""
            )
        ],
    )
    assert world.ended() == []
    assert world.state.measures.acknowledged.total == 5


def test_a_call_without_any_time_gets_one_attempt(world: Requests) -> None:
    fetch = world.acquired((0, 9, 1))
    call = world.acknowledge(fetch, sending=Sending.SYNC, timeout=0)
    request = world.said()
    assert batches_of(request) == {0: [(0, 9, [ACCEPT])]}
    [error] = world.answer_to(call).values()
    assert isinstance(error, KafkaTimeoutError)
    world.answer(request)
    world.hand.advance(LOCK_MS)
    assert not any(isinstance(each.message, ShareAcknowledgeRequest) for each in world.sent())
