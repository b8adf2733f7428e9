"""The transaction coordinator under virtual time: KIP-98, KIP-360, KIP-588, KIP-890."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.worlds.transactions import TIMEOUT, WALL, World

from kadence.clock import FOREVER
from kadence.protocol import error_codes as codes
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.list_transactions import ListTransactionsRequest
from kadence.types import TopicPartition
from kadence_broker.coordinator import Caller
from kadence_broker.coordinator.records import Record
from kadence_broker.coordinator.transactions import State
from kadence_broker.coordinator.transactions.transaction import MAX_EPOCH, NEXT


def test_an_idempotent_producer_gets_an_id_and_leaves_no_record() -> None:
    world = World()
    first, second = world.init(None), world.init(None)
    assert (first.error_code, first.producer_epoch, second.producer_epoch) == (0, 0, 0)
    assert first.producer_id != second.producer_id
    assert world.records == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"name": ""}, codes.INVALID_REQUEST),
        ({"timeout": 0}, codes.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout": 900_001}, codes.INVALID_TRANSACTION_TIMEOUT),
        ({"producer": (-1, 3)}, codes.INVALID_REQUEST),
        ({"producer": (3, -1)}, codes.INVALID_REQUEST),
    ],
)
def test_requests_for_an_id_that_make_no_sense_are_refused(request_: dict[str, Any], code: int) -> None:
    response = World().init(**request_)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


def test_a_new_producer_of_the_same_id_fences_the_one_before() -> None:
    world = World()
    old = world.begin()
    new = world.begin()
    assert new == (old[0], old[1] + 1)
    assert world.add(old, 0) == [codes.PRODUCER_FENCED]
    assert world.add(old, 0, version=1) == [codes.INVALID_PRODUCER_EPOCH]
    assert world.end(old, committed=True).error_code == codes.PRODUCER_FENCED
    assert world.end(old, committed=True, version=1).error_code == codes.INVALID_PRODUCER_EPOCH
    assert world.add(new, 0) == [0]


def test_a_producer_that_names_itself_goes_on_with_the_next_epoch_and_may_say_it_twice() -> None:
    world = World()
    producer = world.begin()
    raised = world.begin(producer=producer)
    assert raised == (producer[0], producer[1] + 1)
    assert world.begin(producer=producer) == raised, "the first answer was lost"
    world.begin()
    assert world.init(producer=raised).error_code == codes.PRODUCER_FENCED
    assert world.init(producer=raised, version=3).error_code == codes.INVALID_PRODUCER_EPOCH
    assert world.init(producer=(raised[0] + 99, 0)).error_code == codes.PRODUCER_FENCED


def test_a_transaction_is_committed_in_every_partition_that_was_added() -> None:
    world = World()
    producer = world.begin()
    assert world.add(producer, 0, 2) == [0, 0]
    assert world.add_offsets(producer) == 0
    assert world.of().state is State.ONGOING
    assert world.end(producer, committed=True).error_code == 0
    (ending,) = world.endings
    assert ending.committed
    assert (ending.producer_id, ending.producer_epoch) == producer
    assert ending.partitions == (
        TopicPartition("__consumer_offsets", 7),
        TopicPartition("t", 0),
        TopicPartition("t", 2),
    )
    assert world.of().state is State.COMPLETE_COMMIT
    assert world.of().partitions == frozenset()
    assert world.end(producer, committed=True).error_code == 0, "a retry"
    assert world.end(producer, committed=False).error_code == codes.INVALID_TXN_STATE


def test_while_the_markers_are_written_nothing_else_happens() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 0)
    world.holds_markers = True
    assert world.end(producer, committed=False).error_code == 0
    assert world.of().state is State.PREPARE_ABORT
    assert world.add(producer, 1) == [codes.CONCURRENT_TRANSACTIONS]
    assert world.end(producer, committed=False).error_code == codes.CONCURRENT_TRANSACTIONS
    assert world.end(producer, committed=True).error_code == codes.INVALID_TXN_STATE
    assert world.init().error_code == codes.CONCURRENT_TRANSACTIONS
    world.mark()
    assert world.of().state is State.COMPLETE_ABORT
    assert world.add(producer, 1) == [0]


def test_a_partition_that_does_not_exist_keeps_the_others_out() -> None:
    world = World()
    producer = world.begin()
    assert world.add(producer, 0, 9) == [codes.OPERATION_NOT_ATTEMPTED, codes.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.of().state is State.EMPTY


def test_who_is_not_known_adds_and_ends_nothing() -> None:
    world = World()
    producer = world.begin()
    assert world.add(producer, 0, name="y") == [codes.INVALID_PRODUCER_ID_MAPPING]
    assert world.add(producer, 0, name="") == [codes.INVALID_REQUEST]
    assert world.add((producer[0] + 1, 0), 0) == [codes.INVALID_PRODUCER_ID_MAPPING]
    for name, code in {"y": codes.INVALID_PRODUCER_ID_MAPPING, "": codes.INVALID_REQUEST}.items():
        assert world.end(producer, committed=True, name=name).error_code == code
    assert world.end((producer[0] + 1, 0), committed=True).error_code == codes.INVALID_PRODUCER_ID_MAPPING
    assert world.end(producer, committed=True).error_code == codes.INVALID_TXN_STATE, "nothing was begun"


def test_a_restarted_producer_aborts_what_it_left_open_and_asks_again() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 0)
    assert world.init().error_code == codes.CONCURRENT_TRANSACTIONS
    (ending,) = world.endings
    assert not ending.committed
    assert ending.producer_epoch > producer[1], "what the old producer still sends is refused"
    assert world.begin()[1] > ending.producer_epoch


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_names_itself_aborts_what_it_left_open_and_goes_on(version: int) -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 0)
    assert world.init(producer=producer, version=version).error_code == codes.CONCURRENT_TRANSACTIONS
    assert [each.committed for each in world.endings] == [False]
    raised = world.init(producer=producer, version=version)
    assert (raised.error_code, raised.producer_epoch) == (codes.NONE, producer[1] + 1)


def test_a_producer_may_name_the_epoch_that_an_end_has_raised() -> None:
    """It has not heard the answer to EndTxn."""
    world = World()
    producer = world.begin()
    world.add(producer, 0)
    assert world.end(producer, committed=True, version=5).error_code == codes.NONE
    world.mark()
    again = world.init(producer=producer)
    assert (again.error_code, again.producer_epoch) == (codes.NONE, producer[1] + 1)


def test_a_transaction_that_is_open_for_too_long_is_aborted_and_its_producer_fenced() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 0)
    world.advance(TIMEOUT - 1)
    world.add(producer, 1)
    assert world.endings == [], "a later partition gives no more time"
    world.advance(1)
    assert [each.committed for each in world.endings] == [False]
    assert world.of().state is State.COMPLETE_ABORT
    assert world.end(producer, committed=True).error_code == codes.PRODUCER_FENCED


def test_a_transaction_that_ended_in_time_is_left_alone() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 0)
    world.end(producer, committed=True)
    world.advance(10 * TIMEOUT)
    assert len(world.endings) == 1


def _at_its_last_epoch(world: World) -> Record:
    """What is known of the id, with the last epoch that a client may have."""
    transaction = replace(world.of(), producer_epoch=MAX_EPOCH - 1)
    return Record(transaction.key(), transaction.value())


# Transactions v2 (KIP-890)


def test_each_end_raises_the_epoch_and_a_retry_is_told_the_same() -> None:
    world = World()
    producer = world.begin()
    assert world.add_v2(producer, 0) == 0
    response = world.end(producer, committed=True, version=5)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (
        0,
        producer[0],
        producer[1] + 1,
    )
    assert world.endings[-1].producer_epoch == producer[1] + 1
    again = world.end(producer, committed=True, version=5)
    assert (again.error_code, again.producer_epoch) == (0, producer[1] + 1)
    assert world.end(producer, committed=False, version=5).error_code == codes.INVALID_TXN_STATE
    assert world.add_v2(producer, 0) == codes.PRODUCER_FENCED, "a late write of the transaction that is over"
    assert world.add_v2((producer[0], producer[1] + 1), 0) == 0


def test_an_old_answer_asked_for_again_ends_no_transaction_of_the_next_epoch() -> None:
    world = World()
    old = world.begin()
    world.add(old, 0)
    answer = world.end(old, committed=True, version=5)
    now = answer.producer_id, answer.producer_epoch
    world.add(now, 0)
    assert world.end(old, committed=True, version=5).error_code == codes.PRODUCER_FENCED
    assert world.of().state is State.ONGOING
    assert world.end(now, committed=True, version=5).error_code == 0
    world.begin()
    assert world.end(now, committed=True, version=5).error_code == codes.PRODUCER_FENCED


def test_an_abort_of_nothing_raises_the_epoch_too_and_a_commit_of_nothing_is_refused() -> None:
    world = World()
    producer = world.begin()
    assert world.end(producer, committed=True, version=5).error_code == codes.INVALID_TXN_STATE
    first = world.end(producer, committed=False, version=5)
    assert (first.error_code, first.producer_epoch) == (0, producer[1] + 1)
    second = world.end((first.producer_id, first.producer_epoch), committed=False, version=5)
    assert (second.error_code, second.producer_epoch) == (0, producer[1] + 2)


def test_the_last_epoch_of_an_id_is_followed_by_another_id() -> None:
    world = World()
    producer = world.begin()
    world.coordinator.replay(_at_its_last_epoch(world))
    last = (producer[0], MAX_EPOCH - 1)
    assert world.add_v2(last, 0) == 0
    response = world.end(last, committed=True, version=5)
    assert response.producer_id != producer[0]
    assert response.producer_epoch == 0
    assert world.endings[-1].producer_id == producer[0], "the markers end what the old id began"
    assert world.endings[-1].producer_epoch == MAX_EPOCH
    again = world.end(last, committed=True, version=5)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, response.producer_id, 0)
    assert world.add_v2((response.producer_id, 0), 0) == 0


def test_a_producer_whose_epochs_are_used_up_is_given_another_id() -> None:
    world = World()
    producer = world.begin()
    world.coordinator.replay(_at_its_last_epoch(world))
    new = world.begin(producer=(producer[0], MAX_EPOCH - 1))
    assert new[0] != producer[0]
    assert new[1] == 0
    assert world.begin(producer=(producer[0], MAX_EPOCH - 1)) == new, "the first answer was lost"


def test_a_leader_verifies_that_an_older_producer_added_its_partition() -> None:
    world = World()
    producer = world.begin()
    verify = world.coordinator.verify
    assert verify("x", *producer, TopicPartition("t", 0)) == codes.TRANSACTION_ABORTABLE
    world.add(producer, 0)
    assert verify("x", *producer, TopicPartition("t", 0)) == 0
    assert verify("x", *producer, TopicPartition("t", 1)) == codes.TRANSACTION_ABORTABLE
    assert verify("x", producer[0], 9, TopicPartition("t", 0)) == codes.PRODUCER_FENCED
    assert verify("y", *producer, TopicPartition("t", 0)) == codes.INVALID_PRODUCER_ID_MAPPING
    world.add_offsets(producer, "g")
    assert verify("x", *producer, TopicPartition("__consumer_offsets", 7)) == 0


# What an administrator sees


def test_ids_are_listed_by_state_producer_age_and_pattern() -> None:
    world = World()
    open_, done = world.begin("open"), world.begin("done")
    world.add(open_, 1, name="open")
    world.add(done, 0, name="done")
    world.end(done, committed=True, name="done")
    world.advance(5_000)

    def listed(**filters: Any) -> list[str]:
        response = world.send(ListTransactionsRequest(**filters), 2)
        assert response.error_code == 0
        return sorted(each.transactional_id for each in response.transaction_states)

    assert listed() == ["done", "open"]
    assert listed(state_filters=["Ongoing"]) == ["open"]
    assert listed(state_filters=["CompleteCommit"]) == ["done"]
    assert listed(producer_id_filters=[done[0]]) == ["done"]
    assert listed(transactional_id_pattern="o.*") == ["open"]
    assert listed(duration_filter=4_999) == ["done", "open"]
    assert listed(duration_filter=5_000) == []
    strange = world.send(ListTransactionsRequest(state_filters=["Sleepy"]), 0)
    assert (strange.unknown_state_filters, strange.transaction_states) == (["Sleepy"], [])
    for bad in ("(", "(?=o)open"):  # Python's own engine knows the second, and can be kept busy for hours
        response = world.send(ListTransactionsRequest(transactional_id_pattern=bad), 2)
        assert response.error_code == codes.INVALID_REGULAR_EXPRESSION


def test_an_id_is_described_with_its_partitions() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 2, 0)
    response = world.send(DescribeTransactionsRequest(["x", "nobody", ""]), 0)
    found, missing, empty = response.transaction_states
    assert (found.error_code, found.transaction_state, found.producer_id) == (0, "Ongoing", producer[0])
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (TIMEOUT, world.now + WALL)
    assert [(each.topic, each.partitions) for each in found.topics] == [("t", [0, 2])]
    assert (missing.error_code, empty.error_code) == (codes.TRANSACTIONAL_ID_NOT_FOUND, codes.INVALID_REQUEST)


def test_an_id_that_nobody_uses_is_forgotten_but_never_with_an_open_transaction() -> None:
    world = World(expiration_ms=10_000, expiration_interval_ms=1_000, max_timeout_ms=10**8)
    world.begin("gone")
    world.add(world.begin("open", timeout=10**8), 0, name="open")
    world.advance(11_000)
    assert world.coordinator.get("gone") is None
    assert world.of("open").state is State.ONGOING
    world.restart()
    assert world.coordinator.get("gone") is None


def test_a_request_of_another_room_is_a_bug() -> None:
    with pytest.raises(TypeError, match="HeartbeatRequest"):
        World().coordinator.handle(0, Caller(None, 0), HeartbeatRequest())


# Loading


def test_a_decision_that_was_stored_is_carried_out_after_a_restart() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 1)
    world.holds_markers = True
    world.end(producer, committed=True)
    world.endings.clear()
    world.holds_markers = False
    world.restart()
    assert [(each.committed, each.partitions) for each in world.endings] == [
        (True, (TopicPartition("t", 1),))
    ]
    assert world.of().state is State.COMPLETE_COMMIT


def test_an_open_transaction_has_the_rest_of_its_time_after_a_restart() -> None:
    world = World()
    producer = world.begin()
    world.add(producer, 0)
    world.advance(TIMEOUT - 10)
    world.restart()
    world.advance(9)
    assert world.endings == []
    world.advance(1)
    assert [each.committed for each in world.endings] == [False]


def test_an_id_that_moved_away_leaves_nothing_behind() -> None:
    world = World()
    world.add(world.begin("x"), 0)
    world.add(world.begin("y"), 0, name="y")
    world.coordinator.unload(world.now, lambda name: name == "x")
    assert world.coordinator.get("x") is None
    world.advance(TIMEOUT)
    assert [each.transactional_id for each in world.endings] == ["y"]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["init", "again", "add", "add v2", "offsets", "commit", "abort", "commit v2", "abort v2", "time"]
        ),
        st.integers(0, 2),
    ),
    max_size=40,
)


@pytest.mark.chance
@examples(30)
@given(steps=STEPS, holds_markers=st.booleans())
def test_replaying_what_was_stored_gives_the_same_state(
    steps: list[tuple[str, int]], *, holds_markers: bool
) -> None:
    world = World()
    world.holds_markers = holds_markers
    producer = world.begin()
    for step, number in steps:
        before = world.of().state
        match step:
            case "init":
                response = world.init()
            case "again":
                response = world.init(producer=producer)
            case "commit" | "abort":
                response = world.end(producer, committed=step == "commit")
            case "commit v2" | "abort v2":
                response = world.end(producer, committed=step == "commit v2", version=5)
            case _:
                response = None
                if step == "add":
                    world.add(producer, number)
                elif step == "add v2":
                    world.add_v2(producer, number)
                elif step == "offsets":
                    world.add_offsets(producer)
                else:
                    world.advance(number * TIMEOUT // 2)
                    world.mark()
        if response is not None and response.error_code == 0 and getattr(response, "producer_id", -1) >= 0:
            producer = response.producer_id, response.producer_epoch
        assert world.of().state in _within(before), (step, before)
        assert world.of().producer_epoch >= producer[1] or world.of().producer_id != producer[0]
    now = list(world.coordinator.snapshot(lambda _name: True))
    world.holds_markers = True
    world.restart()
    assert list(world.coordinator.snapshot(lambda _name: True)) == now
    world.holds_markers = False
    world.mark()
    world.advance(TIMEOUT)
    assert world.of().state.is_at_rest
    world.coordinator.unload(world.now, lambda _name: True)
    assert world.coordinator.next_deadline() < FOREVER, "only the look for unused ids is left"


def _within(state: State) -> set[State]:
    """The states that one request may lead to: a decision and its completion are two moves."""
    reached = {state}
    for _ in range(3):
        reached |= {after for each in reached for after in NEXT[each]}
    return reached
