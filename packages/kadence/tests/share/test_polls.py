"""Polls of a share consumer in implicit mode: what they return, accept, drop and raise (KIP-932)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.worlds.queue import ACCEPT, LOCK_MS, RELEASE, HandNetwork

from kadence import ShareConsumer, TopicPartition
from kadence.consumer import events as m
from kadence.errors import (
    ClosedError,
    ConfigError,
    GroupAuthorizationError,
    IllegalStateError,
    InvalidRecordStateError,
    InvalidTopicError,
    WakeupError,
)
from kadence.share.events import Sending
from kadence.types import GroupMetadata

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_a_poll_returns_records_with_their_delivery_count_and_the_next_one_accepts_them(made: Made) -> None:
    consumer, network = made
    network.put(4, acquired=[(0, 1, 1), (2, 3, 3)])
    records = consumer.poll()
    assert [(each.offset, each.value, each.delivery_count) for each in records] == [
        (0, b"v0", 1),
        (1, b"v1", 1),
        (2, b"v2", 3),
        (3, b"v3", 3),
    ]
    assert network.taken() == []
    assert not consumer.poll()
    assert network.taken() == [("jobs", 0, 3, ACCEPT)]
    assert not consumer.poll()
    assert network.taken() == []


def test_a_poll_returns_at_most_max_records_and_the_rest_stays(made: Made) -> None:
    consumer, network = made
    network.put(5)
    assert offsets(consumer.poll(max_records=2)) == [0, 1]
    assert offsets(consumer.poll(max_records=2)) == [2, 3]
    assert offsets(consumer.poll(max_records=2)) == [4]
    assert not consumer.poll()
    assert [(first, last) for _, first, last, _ in network.taken()] == [(0, 1), (2, 3), (4, 4)]
    assert [loan.released for loan in network.loans] == [1]


def test_a_poll_takes_of_several_fetches(made: Made) -> None:
    consumer, network = made
    network.put(2)
    network.put(2, first=7, partition=1)
    records = consumer.poll()
    assert records.by_partition().keys() == {TopicPartition("jobs", 0), TopicPartition("jobs", 1)}
    consumer.poll()
    assert network.taken() == [("jobs", 0, 1, ACCEPT), ("jobs", 7, 8, ACCEPT)]


def test_small_polls_wake_nobody_for_what_they_accept_and_it_waits_for_no_other_poll(made: Made) -> None:
    consumer, network = made
    network.gathers = True
    network.put(100)
    consumer.poll(max_records=1)
    consumer.poll(max_records=1)
    wakes = network.state.wakes
    for _ in range(50):
        consumer.poll(max_records=1)
    # The first one woke the network thread, which looks again by itself.
    assert network.state.wakes == wakes
    assert network.state.looks_soon
    assert network.taken() == [("jobs", offset, offset, ACCEPT) for offset in range(51)]


@pytest.mark.parametrize("policy", ["release", "reject"])
def test_what_a_poll_finds_to_be_bad_waits_for_no_other_poll(make: Callable[..., Made], policy: str) -> None:
    consumer, network = make({"deserialization.errors": policy, "value.deserializer": "json"})
    network.put([b"1", b"{", b"2"])
    assert [record.value for record in consumer.poll()] == [1, 2]
    assert [(first, last) for _, first, last, _ in network.taken()] == [(1, 1)]


def test_without_renewal_each_poll_sends_what_it_accepts(make: Callable[..., Made]) -> None:
    consumer, network = make({"share.lock.renewal": False})
    network.put(4)
    for _ in range(3):
        consumer.poll(max_records=1)
    assert [last for _, _, last, _ in network.taken()] == [0, 1]


def test_gaps_are_acknowledged_with_the_rest(made: Made) -> None:
    consumer, network = made
    # Offsets 3 and 4 are acquired and have no record: the batch ends before them.
    network.put(3, acquired=[(0, 4, 1)])
    assert offsets(consumer.poll()) == [0, 1, 2]
    consumer.poll()
    assert network.taken() == [("jobs", 0, 2, ACCEPT), ("jobs", 3, 4, 0)]


def test_gaps_alone_are_acknowledged_by_the_poll_that_finds_nothing_else(made: Made) -> None:
    consumer, network = made
    network.put(3, acquired=[(7, 9, 1)])
    assert not consumer.poll()
    assert network.taken() == [("jobs", 7, 9, 0)]


def test_a_buffered_record_whose_lock_has_ended_is_dropped(made: Made) -> None:
    consumer, network = made
    network.put(3)
    network.clock.advance(LOCK_MS)
    network.put(1, first=10)
    assert offsets(consumer.poll()) == [10]
    consumer.poll()
    assert network.taken() == [("jobs", 10, 10, ACCEPT)]
    assert network.state.measures.dropped == 3
    assert network.loans[0].released == 1


def test_a_buffered_record_of_a_void_fetch_is_dropped(made: Made) -> None:
    consumer, network = made
    network.put(5)
    assert offsets(consumer.poll(max_records=2)) == [0, 1]
    network.state.measures.dropped = 0
    consumer._core.buffer._readings[0].fetch.void = InvalidRecordStateError("the connection was lost")
    assert not consumer.poll()
    assert network.state.measures.dropped == 3


def test_a_poll_that_waits_wants_records_and_gets_them(made: Made) -> None:
    consumer, network = made
    network.coming.append(network.fetch(2))
    assert offsets(consumer.poll(5)) == [0, 1]
    assert network.state.wanted == 0


def test_every_poll_raises_what_the_group_refuses_and_sends_that_it_polls_until_it_is_let_in(
    made: Made,
) -> None:
    consumer, network = made
    consumer.poll()
    network.state.tell(m.Failed(GroupAuthorizationError("not allowed"), fatal=True))
    network.heard.clear()
    for _ in range(3):
        network.state.wants_polled = True
        with pytest.raises(GroupAuthorizationError, match="not allowed"):
            consumer.poll()
    assert network.heard == ["Polled"] * 3
    assert consumer.health().why == ("the group refuses it: GROUP_AUTHORIZATION_FAILED (30): not allowed",)
    consumer.subscribe(["jobs", "more"])
    network.put(1)
    assert offsets(consumer.poll()) == [0]


def test_a_poll_waits_whether_the_group_lets_it_in_now(made: Made) -> None:
    """A loop that goes on after the error neither spins nor hears what was true before."""
    consumer, network = made
    consumer.poll()
    network.state.tell(m.Failed(GroupAuthorizationError("first"), fatal=True))
    with pytest.raises(GroupAuthorizationError, match="first"):
        consumer.poll(5)
    began = network.clock.now_ms()
    with pytest.raises(GroupAuthorizationError, match="first"):
        consumer.poll(5)
    assert network.clock.now_ms() - began == 5_000, "nobody has answered"
    again = m.Failed(GroupAuthorizationError("second"), fatal=True)
    network.meanwhile.append(lambda: network.state.tell(again))
    with pytest.raises(GroupAuthorizationError, match="second"):
        consumer.poll(5)

    def let_in() -> None:
        network.state.tell(m.IdentityChanged(GroupMetadata("q", 2, "m")))
        network.put(1)

    network.meanwhile.append(let_in)
    assert offsets(consumer.poll(5)) == [0]


def test_a_close_on_another_thread_ends_a_poll_with_closed_error(made: Made) -> None:
    consumer, network = made
    closer = threading.Thread(target=consumer.close)
    inside: Any = consumer._core.exchange

    def closes() -> None:
        closer.start()
        while not inside.woken:
            time.sleep(0.001)

    network.meanwhile.append(closes)
    with pytest.raises(ClosedError):
        consumer.poll(60)
    closer.join()
    with pytest.raises(ClosedError):
        consumer.poll()


def test_commit_accepts_what_the_last_poll_returned_and_tells_the_error_of_each_partition(made: Made) -> None:
    consumer, network = made
    assert consumer.commit() == {}
    network.put(2)
    network.put(2, partition=1)
    network.errors[TopicPartition("jobs", 1)] = InvalidRecordStateError("its lock is gone")
    consumer.poll()
    outcome = consumer.commit()
    assert outcome[TopicPartition("jobs", 0)] is None
    assert isinstance(outcome[TopicPartition("jobs", 1)], InvalidRecordStateError)
    assert [event.sending for event in network.said if event.fetches] == [Sending.SYNC]
    assert consumer.commit() == {}


def test_a_wakeup_ends_a_commit_that_waits_and_loses_no_acknowledgement(made: Made) -> None:
    consumer, network = made
    network.put(2)
    consumer.poll()
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.commit()
    assert network.taken() == [("jobs", 0, 1, ACCEPT)]
    network.answers_at_once = False
    network.put(1, first=2)
    consumer.poll()
    network.meanwhile.append(consumer.wakeup)
    with pytest.raises(WakeupError):
        consumer.commit()
    assert network.taken() == [("jobs", 2, 2, ACCEPT)]


def test_commit_async_does_not_wait(made: Made) -> None:
    consumer, network = made
    network.answers_at_once = False
    network.put(2)
    consumer.poll()
    consumer.commit_async()
    assert [event.sending for event in network.said] == [Sending.ASYNC]
    assert network.taken() == [("jobs", 0, 1, ACCEPT)]


def test_closing_accepts_nothing_of_the_last_poll(made: Made) -> None:
    consumer, network = made
    network.put(3)
    consumer.poll(max_records=1)
    consumer.poll(max_records=1)
    network.said.clear()
    with pytest.raises(RuntimeError), consumer:
        raise RuntimeError("a handler")
    assert network.taken() == []
    assert network.heard[-1] == "Close"
    assert [loan.released for loan in network.loans] == [1]
    with pytest.raises(ClosedError):
        consumer.poll()


def test_what_was_accepted_and_not_sent_leaves_before_the_end(made: Made) -> None:
    consumer, network = made
    network.put(5)
    network.gathers = True
    for _ in range(4):
        consumer.poll(max_records=1)
    network.said.clear()
    consumer.close()
    assert network.taken() == [("jobs", offset, offset, ACCEPT) for offset in range(3)]
    assert network.heard[-2:] == ["Acknowledge", "Close"]


def test_a_new_subscription_and_its_end_release_what_was_not_returned(made: Made) -> None:
    consumer, network = made
    network.put(4)
    network.put(2, topic="more")
    assert offsets(consumer.poll(max_records=1)) == [0]
    consumer.subscribe("more")
    assert ("jobs", 1, 3, RELEASE) in network.taken()
    consumer.unsubscribe()
    assert network.taken() == [("more", 0, 1, RELEASE)]
    assert consumer.subscription() == frozenset()
    with pytest.raises(IllegalStateError, match="call subscribe"):
        consumer.poll()
    # What was returned is still held.
    assert consumer.commit() == {TopicPartition("jobs", 0): None}


def test_wakeup_ends_a_poll_and_takes_no_record(made: Made) -> None:
    consumer, network = made
    network.put(1)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(5)
    assert offsets(consumer.poll()) == [0]


def test_after_stop_polls_return_nothing_and_send_what_was_accepted(made: Made) -> None:
    consumer, network = made
    network.put(2)
    consumer.poll(max_records=1)
    consumer.stop()
    assert consumer.stopping
    assert not consumer.poll(5)
    assert network.taken() == [("jobs", 0, 0, ACCEPT)]


def test_what_a_fetch_under_way_brings_of_topics_of_the_last_subscription_is_released(made: Made) -> None:
    consumer, network = made
    consumer.subscribe("more")
    network.put(3)
    network.put(2, topic="more")
    assert [(each.topic, each.offset) for each in consumer.poll()] == [("more", 0), ("more", 1)]
    assert network.taken() == [("jobs", 0, 2, RELEASE)]


@pytest.mark.parametrize("number", [0, 1, 199])
@pytest.mark.parametrize("ends", ["subscribe", "unsubscribe", "close"])
def test_a_deserialiser_that_ends_the_subscription_in_the_midst_of_a_poll_gets_nothing_returned(
    make: Callable[..., Made], ends: str, number: int
) -> None:
    """As a signal handler may. What the poll had read was released, and nothing of it is taken for a gap."""

    def deserialise(data: bytes) -> bytes:
        if data == b"v%d" % number:
            consumer.subscribe("more") if ends == "subscribe" else getattr(consumer, ends)()
        return data

    consumer, network = make(value_deserializer=deserialise)
    network.put(200)
    if ends == "close":
        with pytest.raises(ClosedError):
            consumer.poll()
    else:
        assert not consumer.poll()
    assert network.taken() == ([] if ends == "close" else [("jobs", 0, 199, RELEASE)])


def test_a_deserialiser_cannot_poll(make: Callable[..., Made]) -> None:
    refused: list[IllegalStateError] = []

    def deserialise(data: bytes) -> bytes:
        with pytest.raises(IllegalStateError, match="while another poll") as caught:
            consumer.poll()
        refused.append(caught.value)
        return data

    consumer, network = make(value_deserializer=deserialise)
    network.put(3)
    assert offsets(consumer.poll()) == [0, 1, 2]
    assert len(refused) == 3


def test_names_alone_are_subscribed_to(make: Callable[..., Made], made: Made) -> None:
    consumer, _ = made
    assert consumer.subscription() == {"jobs"}
    assert consumer.assignment() == {TopicPartition("jobs", 0)}
    with pytest.raises(InvalidTopicError):
        consumer.subscribe("no good")
    other, _ = make(
        {"value.deserializer": "json", "deserialization.errors": "dead-letter", "dead.letter.topic": "bad"},
    )
    with pytest.raises(ConfigError, match=r"dead\.letter\.topic='bad' is among these topics"):
        other.subscribe(["jobs", "bad"])


def test_a_poll_that_does_not_return_gives_its_records_to_the_next_one(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, network = made
    network.put(5)
    assert offsets(consumer.poll(max_records=1)) == [0]

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("kadence.share.application.calls.Records", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(max_records=2)
    assert offsets(consumer.poll(max_records=3)) == [1, 2, 3]
    network.clock.advance(20)
    assert offsets(consumer.poll()) == [4]
    assert ("jobs", 1, 3, ACCEPT) in network.taken()


@pytest.mark.parametrize(
    "settings", [{}, {"share.acknowledgement.mode": "explicit"}], ids=["implicit", "explicit"]
)
def test_a_commit_that_wakeup_ends_has_sent_what_was_said(
    make: Callable[..., Made], settings: dict[str, Any]
) -> None:
    consumer, network = make(settings)
    network.put(3)
    records = consumer.poll()
    if settings:
        consumer.acknowledge(records)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.commit()
    assert network.taken() == [("jobs", 0, 2, ACCEPT)]


def test_the_last_outcomes_of_process_are_sent_by_the_commit_that_waits_for_them(made: Made) -> None:
    consumer, network = made
    fetch = network.put(3)
    nothing: Any = None
    core = consumer._core
    inside: Any = core.inside(consumer._shell.run, nothing, nothing)
    core.polls.is_working = True
    inside.poll(0, 3)
    assert len(inside.taken) == 1
    inside.settle({fetch: [(0, ACCEPT), (1, ACCEPT)]})
    inside.commit({})
    inside.settle({fetch: [(2, RELEASE)]})
    inside.end(None, {}, is_put_back=True)
    assert [each.sending for each in network.said] == [Sending.SYNC, Sending.WITH_FETCH]
    assert network.taken() == [("jobs", 0, 1, ACCEPT), ("jobs", 2, 2, RELEASE)]


def test_ctrl_c_in_a_poll_of_process_leaves_nothing_that_nobody_knows_of(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer, network = made
    network.put(2)
    nothing: Any = None
    core = consumer._core
    inside: Any = core.inside(consumer._shell.run, nothing, nothing)
    core.polls.is_working = True

    def interrupted(now: int, *, found: bool) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(network.state, "unwant", interrupted)
        with pytest.raises(KeyboardInterrupt):
            inside.poll(0, 2)
    inside.poll(0, 2)
    [(_, _, records)] = inside.taken
    assert offsets(records) == [0, 1]
