"""The sender's rules, one by one, under virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.worlds.producer import TOPIC_ID, TP, World, batches_of, header_of, values_of

from kadence.connection.request import Request
from kadence.errors import (
    AuthenticationError,
    BrokerError,
    CorruptRecordError,
    DisconnectedError,
    KafkaTimeoutError,
    LocalError,
    MalformedMessageError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from kadence.producer.identity import Identity
from kadence.producer.partitioner import Shares
from kadence.producer.transactions import Transactions
from kadence.protocol import error_codes as ec
from kadence.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProduceRequest,
    ProduceResponse,
)
from kadence.types import Node, TopicPartition

LOST = DisconnectedError("gone")


def identity_of(batch: bytes) -> tuple[int, int, int]:
    header = header_of(batch)
    return header.producer_id, header.producer_epoch, header.base_sequence


def test_asks_for_an_id_and_the_topic_before_anything_else() -> None:
    world = World()
    future = world.append()
    identity, metadata = world.turn()
    assert isinstance(identity.message, InitProducerIdRequest)
    assert identity.message.transactional_id is None
    assert isinstance(metadata.message, MetadataRequest)
    assert [topic.name for topic in metadata.message.topics or []] == ["t"]
    assert world.turn() == []
    world.answer_housekeeping(identity)
    world.answer_housekeeping(metadata)
    (request,) = world.turn()
    assert request.node_id == 1
    assert request.message.acks == -1
    assert request.message.topic_data[0].topic_id == TOPIC_ID
    assert request.max_version is None
    (batch,) = batches_of(request).values()
    assert identity_of(batch) == (9, 0, 0)
    world.acknowledge(request, 40)
    assert future.result(0).offset == 40
    assert world.sender.is_idle


def test_without_topic_ids_produce_stays_below_13() -> None:
    world = World()
    world.append()
    world.ready()
    topic = world.topics.cluster.topics["t"]
    object.__setattr__(topic, "topic_id", bytes(16))
    (request,) = world.turn()
    assert request.max_version == 12


def test_lingers_then_sends() -> None:
    world = World(linger_ms=5)
    world.append()
    world.ready()
    assert world.wake_at() == world.now + 5
    world.advance(5)
    assert len(world.turn()) == 1


def test_one_batch_of_each_partition_and_one_request_per_broker() -> None:
    world = World(batch_size=100)
    other, third = TopicPartition("t", 1), TopicPartition("t", 2)
    world.leaders = {TP: 1, other: 2, third: 1}
    world.warm_up(TP, other, third)
    for tp in (TP, other, third):
        for n in range(2):
            world.append(b"%d" % n * 50, tp=tp)
    first = {request.node_id: request for request in world.turn()}
    assert set(batches_of(first[1])) == {TP, third}
    assert set(batches_of(first[2])) == {other}
    second = {request.node_id: request for request in world.turn()}
    assert identity_of(batches_of(second[1])[TP]) == (9, 0, 2)


def test_a_request_is_no_larger_than_allowed_and_a_turn_makes_as_many_as_may_be_in_flight() -> None:
    world = World(max_request_size=1000, batch_size=900, max_in_flight_requests_per_connection=2)
    tps = [TopicPartition("t", number) for number in range(3)]
    world.leaders = dict.fromkeys(tps, 1)
    world.warm_up(*tps)
    for tp in tps:
        world.append(b"x" * 700, tp=tp)
    world.ready()
    first, second = world.turn()
    assert [len(batches_of(request)) for request in (first, second)] == [1, 1]
    assert world.turn() == []
    world.acknowledge(first)
    (third,) = world.turn()
    assert {*batches_of(first), *batches_of(second), *batches_of(third)} == {*tps}


def test_five_in_flight_then_waits() -> None:
    world = World(batch_size=60)
    world.warm_up()
    for n in range(7):
        world.append(b"%d" % n * 60)
    requests = [request for _ in range(9) for request in world.turn()]
    assert [identity_of(batches_of(request)[TP])[2] for request in requests] == [1, 2, 3, 4, 5]
    world.acknowledge(requests[0], 0)
    assert len(world.turn()) == 1


def test_until_the_broker_knows_the_producer_one_batch_is_in_flight() -> None:
    """It takes any number that an unknown producer begins with: the second batch, too, after it refused the first."""
    world = World(batch_size=60)
    futures = [world.append(b"%d" % n * 60) for n in range(3)]
    world.ready()
    (one,) = world.turn()
    assert world.turn() == []
    world.acknowledge(one, code=ec.NOT_ENOUGH_REPLICAS)
    world.advance(150)
    (again,) = (r for r in world.turn() if isinstance(r.message, ProduceRequest))
    assert batches_of(again) == batches_of(one)
    assert world.turn() == []
    world.acknowledge(again, 0)
    two, three = world.turn() + world.turn()
    world.acknowledge(two, 1)
    world.acknowledge(three, 2)
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


def shares(world: World) -> Shares | None:
    """What the partitioner for records without a key was told."""
    return world.topics.sticky("t").shares


def test_records_without_a_key_go_where_less_waits() -> None:
    world = World(batch_size=60)
    other = TopicPartition("t", 1)
    world.leaders = {TP: 1, other: 2}
    world.topics.sticky("t")
    world.warm_up(TP, other)
    assert shares(world) is None
    for n in range(9):
        world.append(b"%d" % n * 60)
    world.append(tp=other)
    sent = [request for _ in range(9) for request in world.turn()]
    assert sum(request.node_id == 1 for request in sent) == 5
    # The last of four is not behind: it may still fill.
    assert shares(world) == ([0, 1], [1, 5])
    for request in sent:
        world.acknowledge(request)
    for _ in range(9):
        for request in world.turn():
            world.acknowledge(request)
    assert shares(world) is None


def test_with_adaptive_partitioning_off_all_partitions_are_equal() -> None:
    world = World(batch_size=60, partitioner_adaptive_partitioning_enable=False)
    other = TopicPartition("t", 1)
    world.leaders = {TP: 1, other: 2}
    world.topics.sticky("t")
    world.warm_up(TP, other)
    for n in range(9):
        world.append(b"%d" % n * 60)
    assert len([request for _ in range(9) for request in world.turn()]) == 5
    assert shares(world) is None


def test_a_broker_that_takes_nothing_gets_no_more_records_without_a_key() -> None:
    world = World(partitioner_availability_timeout_ms=500)
    other = TopicPartition("t", 1)
    world.leaders = {TP: 1, other: 2}
    world.topics.sticky("t")
    world.warm_up(TP, other)
    world.reachable = lambda node: node == 2
    world.append()
    world.turn()
    world.turn(later=500)
    assert shares(world) is None
    world.turn(later=1)
    assert shares(world) == ([1], [1])
    world.reachable = lambda node: True
    assert [request.node_id for request in world.turn()] == [1]
    assert shares(world) is None


def test_a_broker_that_answers_nothing_gets_no_more_records_without_a_key() -> None:
    """Its connection takes more, but the partition may not have more on the way."""
    world = World(partitioner_availability_timeout_ms=500, batch_size=60)
    other = TopicPartition("t", 1)
    world.leaders = {TP: 1, other: 2}
    world.topics.sticky("t")
    world.warm_up(TP, other)
    for _ in range(7):
        world.append(b"x" * 60)
    sent = [request for _ in range(9) for request in world.turn()]
    assert len(sent) == 5
    world.turn(later=501)
    assert shares(world) == ([1], [1])
    world.acknowledge(sent[0])
    world.turn()
    assert shares(world) != ([1], [1])


def test_kip1123_other_racks_get_records_only_while_no_broker_of_ours_takes_any() -> None:
    world = World(
        partitioner_availability_timeout_ms=500, partitioner_rack_aware=True, client_rack="a", batch_size=60
    )
    one, two, far = TP, TopicPartition("t", 1), TopicPartition("t", 2)
    world.racks = {1: "a", 2: "a", 3: "b"}
    world.leaders = {one: 1, two: 2, far: 3}
    world.topics.sticky("t")
    world.warm_up(one, two, far)
    world.reachable = lambda node: node != 1
    for _ in range(3):
        world.append(b"x" * 60, tp=one)
    world.turn()
    world.turn(later=501)
    assert shares(world) == ([1], [1]), "the other one of our rack"
    world.reachable = lambda node: node == 3
    world.append(tp=two)
    world.turn()
    world.turn(later=501)
    assert shares(world) == ([2], [1]), "nobody of our rack takes anything"
    world.reachable = lambda node: True
    world.turn()
    found = shares(world)
    assert found is None or found[0] == [0, 1]


def test_kip1123_what_waits_in_other_racks_does_not_matter() -> None:
    world = World(partitioner_rack_aware=True, client_rack="a", batch_size=60)
    near, far = TP, TopicPartition("t", 1)
    world.racks = {1: "a", 2: "b"}
    world.leaders = {near: 1, far: 2}
    world.topics.sticky("t")
    world.warm_up(near, far)
    world.reachable = lambda node: False
    for _ in range(3):
        world.append(b"x" * 60, tp=near)
    world.turn()
    assert shares(world) is None, "there is no other of our rack"


def test_a_broker_in_backoff_is_left_alone() -> None:
    world = World()
    world.append()
    world.ready()
    world.reachable = lambda node: False
    assert world.wake_at() == world.now + 50


def test_waits_for_a_leader() -> None:
    world = World()
    world.leaders[TP] = -1
    world.append()
    world.ready()
    world.leaders[TP] = 2
    world.advance(1000)
    (request,) = world.turn()
    world.answer_housekeeping(request)
    (request,) = world.turn()
    assert request.node_id == 2


def test_a_lost_request_is_repeated_byte_for_byte_and_later_ones_wait() -> None:
    world = World(batch_size=60)
    world.warm_up()
    futures = [world.append(b"%d" % n * 60) for n in range(3)]
    one, two = world.turn() + world.turn()
    world.fail(one, LOST)
    # The third was never sent; the second is on its way; neither may overtake the first.
    assert all(isinstance(request.message, MetadataRequest) for request in world.turn())
    world.acknowledge(two, code=ec.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.advance(150)
    (again,) = (r for r in world.turn() if isinstance(r.message, ProduceRequest))
    assert batches_of(again) == batches_of(one)
    assert world.turn() == []
    world.acknowledge(again, 0)
    world.advance(150)
    (again,) = world.turn()
    assert batches_of(again) == batches_of(two)
    world.acknowledge(again, 1)
    (third,) = world.turn()
    assert identity_of(batches_of(third)[TP]) == (9, 0, 3)
    world.acknowledge(third, 2)
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


def test_retries_back_off_exponentially() -> None:
    world = World()
    world.append()
    world.ready()
    (request,) = world.turn()
    waits = []
    for _ in range(6):
        world.acknowledge(request, code=ec.NOT_ENOUGH_REPLICAS)
        start = world.now
        while not (requests := world.turn()):
            world.now = world.wake_at()
        (request,) = requests
        waits.append(world.now - start)
    assert all(
        0.75 * ideal <= wait <= 1.25 * ideal
        for wait, ideal in zip(waits, (100, 200, 400, 800, 1000, 1000), strict=True)
    )


@pytest.mark.parametrize(
    "code", [ec.NOT_LEADER_OR_FOLLOWER, ec.UNKNOWN_TOPIC_OR_PARTITION, ec.UNKNOWN_TOPIC_ID]
)
def test_a_moved_leader_is_looked_up(code: int) -> None:
    world = World()
    world.append()
    world.ready()
    (request,) = world.turn()
    world.leaders[TP] = 2
    world.acknowledge(request, code=code)
    (metadata,) = world.turn()
    world.answer_housekeeping(metadata)
    world.advance(150)
    (again,) = world.turn()
    assert again.node_id == 2
    assert batches_of(again) == batches_of(request)


def test_a_leader_that_an_answer_names_is_followed_at_once() -> None:
    """KIP-951: without a question for metadata, or a backoff, before the record goes there."""
    world = World()
    world.warm_up()
    future = world.append()
    (request,) = world.turn()
    moved: Any = {
        "current_leader": LeaderIdAndEpoch(leader_id=7, leader_epoch=3),
        "node_endpoints": [NodeEndpoint(node_id=7, host="new", port=9)],
    }
    world.acknowledge(request, code=ec.NOT_LEADER_OR_FOLLOWER, **moved)
    assert world.topics.cluster.nodes[7] == Node(7, "new", 9, None)
    again = next(each for each in world.turn() if isinstance(each.message, ProduceRequest))
    assert again.node_id == 7
    # That one has moved, too, and knows only what is old already.
    world.acknowledge(again, code=ec.NOT_LEADER_OR_FOLLOWER, **moved)
    assert not any(isinstance(each.message, ProduceRequest) for each in world.turn())
    world.advance(300)
    (third,) = (each for each in world.turn() if isinstance(each.message, ProduceRequest))
    world.acknowledge(third)
    assert future.exception(0) is None


def test_duplicate_sequence_is_success_without_an_offset() -> None:
    world = World()
    future = world.append()
    world.ready()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.DUPLICATE_SEQUENCE_NUMBER)
    assert future.result(0).offset == -1


@pytest.mark.parametrize(
    "code", [ec.OUT_OF_ORDER_SEQUENCE_NUMBER, ec.UNKNOWN_PRODUCER_ID, ec.INVALID_PRODUCER_EPOCH]
)
def test_a_broker_that_lost_our_past_gets_a_new_epoch(code: int) -> None:
    world = World(batch_size=60)
    futures = [world.append(b"%d" % n * 60) for n in range(3)]
    world.ready()
    (first,) = world.turn()
    world.acknowledge(first, 0)
    second, third = world.turn() + world.turn()
    assert identity_of(batches_of(second)[TP]) == (9, 0, 1)
    world.acknowledge(second, code=code)
    world.advance(150)
    assert world.turn() == [], "not before the third is answered too"
    world.acknowledge(third, code=code)
    world.advance(300)
    (again,) = world.turn()
    assert identity_of(batches_of(again)[TP]) == (9, 1, 0)
    assert values_of(batches_of(again)[TP]) == values_of(batches_of(second)[TP])
    world.acknowledge(again, 1)
    (again,) = world.turn()
    assert identity_of(batches_of(again)[TP]) == (9, 1, 1)
    world.acknowledge(again, 2)
    assert [future.result(0).offset for future in futures] == [0, 1, 2]


def test_the_last_epoch_is_followed_by_a_new_id() -> None:
    world = World()
    future = world.append()
    world.ready()
    assert isinstance(world.sender._identity, Identity)
    world.sender._identity.known = (9, 32767)
    (request,) = world.turn()
    world.acknowledge(request, code=ec.INVALID_PRODUCER_EPOCH)
    world.advance(150)
    (identity,) = world.turn()
    world.answer(identity, InitProducerIdResponse(producer_id=10, producer_epoch=0))
    (again,) = world.turn()
    assert identity_of(batches_of(again)[TP]) == (10, 0, 0)
    world.acknowledge(again, 3)
    assert future.result(0).offset == 3


def test_a_refused_batch_fails_alone() -> None:
    world = World(batch_size=60)
    world.warm_up()
    futures = [world.append(b"%d" % n * 60) for n in range(2)]
    one, two = world.turn() + world.turn()
    world.acknowledge(one, code=ec.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(TopicAuthorizationError):
        futures[0].result(0)
    world.acknowledge(two, code=ec.OUT_OF_ORDER_SEQUENCE_NUMBER)
    world.advance(150)
    (again,) = world.turn()
    assert identity_of(batches_of(again)[TP]) == (9, 1, 0), (
        "the numbers of the refused batch are not used again"
    )
    world.acknowledge(again, 0)
    assert futures[1].result(0).offset == 0
    assert world.accumulator.used_bytes == 0


def test_single_records_are_blamed() -> None:
    world = World()
    futures = [world.append(), world.append()]
    world.ready()
    (request,) = world.turn()
    blamed = [BatchIndexAndErrorMessage(1, "no key on a compacted topic")]
    world.acknowledge(request, code=ec.INVALID_RECORD, record_errors=blamed)
    with pytest.raises(
        BrokerError, match=r"other records of its batch were refused .*no key on a compacted topic"
    ):
        futures[0].result(0)
    with pytest.raises(BrokerError, match="no key on a compacted topic"):
        futures[1].result(0)


def test_the_log_has_the_reason_if_all_records_are_blamed(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.append()
    world.ready()
    (request,) = world.turn()
    blamed = [BatchIndexAndErrorMessage(0, "no key on a compacted topic")]
    world.acknowledge(request, code=ec.INVALID_RECORD, record_errors=blamed)
    assert "1 record of t-0 not written: INVALID_RECORD (87): no key on a compacted topic" in caplog.text


def test_a_batch_that_is_too_large_is_split_until_it_fits() -> None:
    world = World()
    futures = [world.append(b"%d" % n) for n in range(4)]
    world.ready()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.MESSAGE_TOO_LARGE)
    (left,) = world.turn()
    assert values_of(batches_of(left)[TP]) == [b"0", b"1"]
    assert identity_of(batches_of(left)[TP]) == (9, 0, 0)
    world.acknowledge(left, 10)
    assert not futures[0].done(), "the futures of one batch are decided together"
    (right,) = world.turn()
    assert identity_of(batches_of(right)[TP]) == (9, 0, 2)
    world.acknowledge(right, code=ec.MESSAGE_TOO_LARGE)
    (third,) = world.turn()
    world.acknowledge(third, 12)
    (fourth,) = world.turn()
    world.acknowledge(fourth, code=ec.MESSAGE_TOO_LARGE)
    assert [future.result(0).offset for future in futures[:3]] == [10, 11, 12]
    with pytest.raises(RecordTooLargeError, match=r"t-0 makes a batch of \d+ bytes.*max.message.bytes"):
        futures[3].result(0)
    assert world.accumulator.used_bytes == 0


def test_time_runs_out_before_it_is_sent() -> None:
    world = World(delivery_timeout_ms=1000, enable_idempotence=False)
    world.leaders[TP] = -1
    future = world.append()
    world.ready()
    world.advance(1000)
    world.turn()
    with pytest.raises(KafkaTimeoutError, match=r"delivery.timeout.ms=1000; its partition has no leader"):
        future.result(0)


def test_time_runs_out_in_flight_and_the_late_answer_changes_nothing() -> None:
    world = World(delivery_timeout_ms=1000, batch_size=60)
    world.warm_up()
    first = world.append(b"0" * 60)
    (request,) = world.turn()
    world.advance(500)
    second = world.append(b"1" * 60)
    (later,) = world.turn()
    world.advance(500)
    assert world.turn() == []
    with pytest.raises(KafkaTimeoutError, match=r"^1 record for t-0 .*no answer came"):
        first.result(0)
    assert not second.done()
    world.acknowledge(request, 0)
    world.acknowledge(later, 1)
    assert second.result(0).offset == 1
    assert first.exception(0) is not None
    assert world.accumulator.used_bytes == 0


def test_time_runs_out_between_attempts() -> None:
    world = World(delivery_timeout_ms=1000)
    future = world.append()
    world.ready()
    (request,) = world.turn()
    world.advance(990)
    world.fail(request, LOST)
    world.advance(10)
    world.turn()
    with pytest.raises(KafkaTimeoutError, match="last error after 1 attempts: gone") as caught:
        future.result(0)
    assert isinstance(caught.value.__cause__, DisconnectedError)
    # What comes next is numbered after the gap; if the broker never saw it, that ends in a new epoch.
    world.append()
    world.advance(1000)
    for request in world.turn():
        if isinstance(request.message, ProduceRequest):
            assert identity_of(batches_of(request)[TP]) == (9, 0, 1)


def test_wakes_for_the_first_deadline() -> None:
    world = World(delivery_timeout_ms=1000)
    world.append()
    world.ready()
    world.turn()
    assert world.wake_at() == world.now + 1000


def test_one_undecided_batch_without_idempotence() -> None:
    world = World(enable_idempotence=False, batch_size=60)
    for n in range(2):
        world.append(b"%d" % n * 60)
    world.ready()
    (request,) = world.turn()
    assert identity_of(batches_of(request)[TP]) == (-1, -1, -1)
    assert world.turn() == []
    world.acknowledge(request, 0)
    assert len(world.turn()) == 1


def test_out_of_sequence_without_idempotence_is_final() -> None:
    world = World(enable_idempotence=False)
    future = world.append()
    world.ready()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.OUT_OF_ORDER_SEQUENCE_NUMBER)
    assert future.exception(0) is not None


def test_acks_0_has_no_answer() -> None:
    world = World(acks="0", batch_size=60)
    futures = [world.append(b"%d" % n * 60) for n in range(2)]
    world.ready()
    one, two = world.turn() + world.turn()
    assert one.message.acks == 0
    world.answer(one, None)
    world.fail(two, LOST)
    assert futures[0].result(0).offset == -1
    assert not futures[1].done()


def test_an_answer_that_lacks_a_partition() -> None:
    world = World()
    future = world.append()
    world.ready()
    (request,) = world.turn()
    world.answer(request, ProduceResponse())
    with pytest.raises(MalformedMessageError, match="lacks t-0"):
        future.result(0)


def test_a_transport_error_that_time_does_not_mend() -> None:
    world = World()
    future = world.append()
    world.ready()
    (request,) = world.turn()
    world.fail(request, AuthenticationError("no"))
    with pytest.raises(AuthenticationError):
        future.result(0)


def test_no_id_for_us() -> None:
    world = World()
    future = world.append()
    identity = world.turn()[0]
    world.answer(identity, InitProducerIdResponse(error_code=ec.COORDINATOR_LOAD_IN_PROGRESS))
    assert not future.done()
    world.advance(150)
    identity = world.turn()[0]
    world.answer(identity, InitProducerIdResponse(error_code=ec.CLUSTER_AUTHORIZATION_FAILED))
    with pytest.raises(BrokerError, match="gave no producer id") as caught:
        future.result(0)
    assert "enable.idempotence=false" in caught.value.__notes__[0]


def test_a_batch_that_cannot_be_split_fails_alone() -> None:
    """Its timestamps are further apart than any reader takes, so its records cannot be read back."""
    world = World()
    with world.gate:
        futures = [
            world.accumulator.append(TP, timestamp, None, b"x", (), 22, world.now)[0]
            for timestamp in (-(2**62), 2**62, 2**63 - 1)
        ]
    world.topics.want("t", world.now)
    world.ready()
    (request,) = world.turn()
    world.acknowledge(request, code=ec.MESSAGE_TOO_LARGE)
    for future in futures:
        with pytest.raises(CorruptRecordError, match="does not fit 64 bits"):
            future.result(0)
    assert world.accumulator.used_bytes == 0
    other = world.append()
    (request,) = world.turn()
    world.acknowledge(request, 0)
    assert other.result(0).offset == 0


def test_records_that_cannot_be_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    future = world.append()
    world.ready()

    def explode(*args: object, **kwargs: object) -> bytes:
        raise RuntimeError("codec")

    with monkeypatch.context() as patch:
        patch.setattr("kadence.records.BatchBuilder.build_in_place", explode)
        assert world.turn() == []
    with pytest.raises(LocalError, match="codec"):
        future.result(0)
    world.append()
    (request,) = world.turn()
    assert identity_of(batches_of(request)[TP]) == (9, 0, 0)


def test_fail_all() -> None:
    world = World(batch_size=60)
    world.warm_up()
    futures = [world.append(b"%d" % n * 60) for n in range(3)]
    one, two = world.turn() + world.turn()
    world.fail(two, LOST)
    world.sender.fail_all(LocalError("over"))
    assert all(isinstance(future.exception(0), LocalError) for future in futures)
    world.acknowledge(one, 0)
    assert world.sender.is_idle
    assert "0 requests in flight, 0 partitions undecided" in repr(world.sender)


def test_busy_partitions_take_turns() -> None:
    """A request has room for the batches of two; the others must not wait until those two have nothing more to send."""
    world = World(batch_size=100, max_request_size=300)
    tps = [TopicPartition("t", number) for number in range(4)]
    world.leaders = dict.fromkeys(tps, 1)
    world.warm_up(*tps)
    for tp in tps:
        for _ in range(12):
            world.append(b"x" * 100, tp=tp)
    served: list[TopicPartition] = []
    requests: list[Request] = []
    for _ in range(16):
        requests += world.turn()
        while len(requests) < 5 and (more := world.turn()):
            requests += more
        request = requests.pop(0)
        served += batches_of(request)
        world.acknowledge(request)
    counts = [served[:24].count(tp) for tp in tps]
    assert max(counts) - min(counts) <= 1, counts


@pytest.mark.parametrize("is_refused", [True, False])
def test_a_broker_that_lost_what_it_acknowledged_is_told_of(
    is_refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A gap of our own, after records that were refused, is no news."""
    world = World()
    for code in (ec.TOPIC_AUTHORIZATION_FAILED if is_refused else ec.NONE, ec.OUT_OF_ORDER_SEQUENCE_NUMBER):
        world.append()
        world.ready()
        (request,) = world.turn()
        world.acknowledge(request, code=code)
    assert ("lacks records that it has acknowledged" in caplog.text) is not is_refused


def test_a_partition_that_was_forgotten_begins_with_a_higher_epoch() -> None:
    """Under its old numbers a broker would take new records for repeated ones, and they would be lost."""
    world = World(metadata_max_age_ms=60_000, metadata_max_idle_ms=60_000)
    other = TopicPartition("u", 0)
    world.leaders = {TP: 1, other: 1}

    def send(tp: TopicPartition) -> tuple[int, int, int]:
        future = world.append(tp=tp)
        while not future.done():
            for request in world.turn():
                if isinstance(request.message, ProduceRequest):
                    (batch,) = batches_of(request).values()
                    world.acknowledge(request)
                else:
                    world.answer_housekeeping(request)
        return identity_of(batch)

    assert [send(TP), send(TP), send(other)] == [(9, 0, 0), (9, 0, 1), (9, 0, 0)]
    world.advance(60_000)
    assert send(other) == (9, 0, 1)
    world.turn()
    assert TP not in world.sender._outcomes.partitions
    assert send(TP) == (9, 1, 0)
    assert send(other) == (9, 0, 2), "what was in use goes on"
    assert isinstance(world.sender._identity, Identity)
    world.sender._outcomes.partitions[TP].identify(9, 32767)
    world.advance(60_000)
    assert send(other) == (9, 0, 3)
    assert send(TP) == (9, 0, 0), "the next id; this one is of the world"


def test_a_transaction_keeps_the_numbers_that_go_on() -> None:
    identity = (9, 4)
    transactions = Transactions.__new__(Transactions)
    transactions._id = identity
    assert not transactions.may_forget(*identity)
    assert transactions.may_forget(9, 3)
