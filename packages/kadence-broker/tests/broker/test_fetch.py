"""Fetch: long-poll, size limits (KIP-74), sessions (KIP-227), epochs (KIP-320), new leaders (KIP-951)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.wire import Wire, at, fetch

from kadence.protocol import error_codes as codes
from kadence.protocol.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kadence.protocol.fetch import FetchRequest, FetchTopic, ForgottenTopic
from kadence.protocol.metadata import MetadataRequest
from kadence.records import scan
from kadence_broker import Broker
from kadence_broker.sessions import SessionCache
from kadence_broker.storage import Partition

LONG = 60_000


def only(response: Any) -> Any:
    """The one partition of an answer."""
    (topic,) = response.responses
    (partition,) = topic.partitions
    return partition


def count(partition: Any, offset: int = 0) -> int:
    return scan(bytes(partition.records), offset)[1]


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads_what_was_produced(wire: Wire, version: int) -> None:
    wire.produce("t", [b"a", b"b"])
    request = fetch("t", at(0))
    request.topics[0].topic_id = wire.topic_id("t")
    data = only(wire.call(request, version))
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (codes.NONE, 2, 2)
    assert count(data) == 2
    assert data.aborted_transactions is None


def test_read_committed_has_a_list_of_aborted_transactions(wire: Wire) -> None:
    assert only(wire.call(fetch("t", at(0), isolation_level=1), 12)).aborted_transactions == []


def test_at_the_end_a_fetch_waits_for_max_wait_and_comes_back_empty(wire: Wire) -> None:
    data = only(wire.call(fetch("t", at(0), max_wait_ms=30), 12))
    assert (data.error_code, data.high_watermark, len(data.records)) == (codes.NONE, 0, 0)


def test_a_produce_wakes_a_waiting_fetch(broker: Broker, wire: Wire) -> None:
    with broker.faults.observe(FetchRequest) as fetches, Wire(broker) as reader:
        reader.send(fetch("t", at(0), max_wait_ms=LONG), 12)
        fetches.wait()
        wire.produce("t", [b"a"])
        assert count(only(reader.receive())) == 1


def test_min_bytes_are_waited_for_over_all_partitions(broker: Broker, wire: Wire) -> None:
    with broker.faults.observe(FetchRequest) as fetches, Wire(broker) as reader:
        reader.send(fetch("t", at(0), at(0, 1), max_wait_ms=LONG, min_bytes=200), 12)
        fetches.wait()
        wire.produce("t", [b"x" * 60], 0)
        wire.produce("t", [b"x" * 60], 1)
        (topic,) = reader.receive().responses
        assert [len(each.records) > 0 for each in topic.partitions] == [True, True]


def test_a_produce_to_one_of_many_partitions_looks_at_that_one_before_it_wakes_a_fetch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[int] = []
    available = Partition.available

    def counted(partition: Partition, *arguments: Any) -> int:
        looks.append(partition.index)
        return available(partition, *arguments)

    with Broker(topics={"t": 50}) as broker, Wire(broker) as wire, Wire(broker) as reader:
        with broker.faults.observe(FetchRequest) as fetches:
            reader.send(fetch("t", *(at(0, number) for number in range(50)), max_wait_ms=LONG), 12)
            fetches.wait()
            wire.call(MetadataRequest(topics=[]))
        monkeypatch.setattr(Partition, "available", counted)
        wire.produce("t", [b"a"], 49)
        (topic,) = reader.receive().responses
        assert [each.partition_index for each in topic.partitions if each.records] == [49]
    assert looks == [49]


def test_a_session_reads_no_partition_of_which_its_client_knows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = Partition.read

    def counted(partition: Partition, *arguments: Any, **more: Any) -> Any:
        reads.append(partition.index)
        return read(partition, *arguments, **more)

    with Broker(topics={"t": 50}) as broker, Wire(broker) as wire:
        whole = fetch("t", *(at(0, number) for number in range(50)), session_epoch=0, min_bytes=0)
        session = wire.call(whole, 12).session_id
        monkeypatch.setattr(Partition, "read", counted)
        wire.produce("t", [b"a"], 7)
        again = FetchRequest(session_id=session, session_epoch=1, max_wait_ms=0)
        (topic,) = wire.call(again, 12).responses
        assert [each.partition_index for each in topic.partitions] == [7]
    assert reads == [7]


def test_a_client_that_goes_away_leaves_nothing_waiting(broker: Broker, wire: Wire) -> None:
    partition = broker._core.cluster.topics["t"].partitions[0]
    with broker.faults.observe(FetchRequest) as fetches:
        reader = Wire(broker)
        reader.send(fetch("t", at(0), max_wait_ms=LONG), 12)
        fetches.wait()
        wire.call(MetadataRequest(topics=[]))
        assert len(broker._on_loop(lambda: list(partition.waiting))) == 1
        reader.sock.close()
        while broker._on_loop(lambda: list(partition.waiting)):
            wire.call(MetadataRequest(topics=[]))


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_offsets_outside_the_log_are_out_of_range(wire: Wire, offset: int) -> None:
    wire.produce("t", [b"a", b"b"])
    assert only(wire.call(fetch("t", at(offset)), 12)).error_code == codes.OFFSET_OUT_OF_RANGE


def test_deleted_records_are_out_of_range_and_a_waiting_fetch_is_told(broker: Broker, wire: Wire) -> None:
    wire.produce("t", [b"a", b"b"])
    broker.delete_records("t", 0, 2)
    data = only(wire.call(fetch("t", at(1)), 12))
    assert data.error_code == codes.OFFSET_OUT_OF_RANGE
    assert only(wire.call(fetch("t", at(2)), 12)).log_start_offset == 2


def test_kip_74_a_batch_above_every_limit_comes_alone(wire: Wire) -> None:
    for partition in (0, 1):
        for _ in range(2):
            wire.produce("t", [b"x" * 1000], partition)
    (topic,) = wire.call(fetch("t", at(0, 0, 10), at(0, 1, 10), max_bytes=10), 12).responses
    assert [count(each) for each in topic.partitions] == [1, 0]
    (topic,) = wire.call(fetch("t", at(0, 0), at(0, 1), max_bytes=2_500), 12).responses
    assert [count(each) for each in topic.partitions] == [2, 0]
    (topic,) = wire.call(fetch("t", at(0, 0, 1_500), at(0, 1, 1_500)), 12).responses
    assert [count(each) for each in topic.partitions] == [1, 1]


def test_unknown_topics_partitions_and_ids(wire: Wire) -> None:
    assert only(wire.call(fetch("none", at(0)), 12)).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert only(wire.call(fetch("t", at(0, 9)), 12)).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    by_id = FetchRequest(session_epoch=-1, topics=[FetchTopic(topic_id=b"x" * 16, partitions=[at(0)])])
    assert only(wire.call(by_id, 13)).error_code == codes.UNKNOWN_TOPIC_ID
    by_id.topics[0].topic_id = bytes(16)
    assert only(wire.call(by_id, 13)).error_code == codes.UNKNOWN_TOPIC_ID


def test_kip_320_leader_epochs_are_compared(broker: Broker, wire: Wire) -> None:
    broker.move_leader("t", 0, 1)
    assert (
        only(wire.call(fetch("t", at(0, current_leader_epoch=0)), 12)).error_code == codes.FENCED_LEADER_EPOCH
    )
    assert only(wire.call(fetch("t", at(0, current_leader_epoch=1)), 12)).error_code == codes.NONE
    assert (
        only(wire.call(fetch("t", at(0, current_leader_epoch=2)), 12)).error_code
        == codes.UNKNOWN_LEADER_EPOCH
    )


def test_kip_951_a_waiting_fetch_hears_of_the_new_leader() -> None:
    with Broker(nodes=2, topics={"t": 1}) as broker, Wire(broker, 1) as reader:
        request = fetch("t", at(0), max_wait_ms=LONG)
        request.topics[0].topic_id = reader.topic_id("t")
        with broker.faults.observe(FetchRequest) as fetches:
            reader.send(request, 16)
            fetches.wait()
        broker.move_leader("t", 0, 2)
        response = reader.receive()
        data = only(response)
        assert data.error_code == codes.NOT_LEADER_OR_FOLLOWER
        assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 1)
        assert [each.node_id for each in response.node_endpoints] == [2]
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        assert response.node_endpoints[0].port == port
        for version in (4, 12):
            assert only(reader.call(fetch("t", at(0)), version)).error_code == codes.NOT_LEADER_OR_FOLLOWER


def test_a_waiting_fetch_hears_that_its_topic_is_gone(broker: Broker, wire: Wire) -> None:
    with broker.faults.observe(FetchRequest) as fetches, Wire(broker) as reader:
        reader.send(fetch("t", at(0), max_wait_ms=LONG), 12)
        fetches.wait()
        assert (
            wire.call(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])).responses[0].error_code == 0
        )
        assert only(reader.receive()).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


# Sessions


def session(wire: Wire, *partitions: Any, forget: list[int] | None = None, **options: Any) -> Any:
    request = fetch("t", *partitions, **{"session_epoch": 0, **options})
    if not partitions:
        request.topics = []
    if forget:
        request.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=forget)]
    return wire.call(request, 12)


def told(response: Any) -> list[tuple[int, int]]:
    """(partition, records) in the order of the answer."""
    return [
        (each.partition_index, count(each, 1)) for topic in response.responses for each in topic.partitions
    ]


def test_kip_227_a_session_answers_with_what_is_new(wire: Wire) -> None:
    full = session(wire, at(0), at(0, 1))
    assert full.session_id > 0
    assert [partition for partition, _ in told(full)] == [0, 1]
    idle = session(wire, session_id=full.session_id, session_epoch=1)
    assert (idle.error_code, idle.session_id, told(idle)) == (codes.NONE, full.session_id, [])
    wire.produce("t", [b"a"], 1)
    assert [p for p, _ in told(session(wire, session_id=full.session_id, session_epoch=2))] == [1]
    # The position did not move, so the same records come again; partition 1 has gone to the end of the order.
    wire.produce("t", [b"a"], 0)
    assert [p for p, _ in told(session(wire, session_id=full.session_id, session_epoch=3))] == [0, 1]
    moved = session(wire, at(1), at(1, 1), session_id=full.session_id, session_epoch=4)
    assert told(moved) == []
    forgotten = session(wire, at(0), session_id=full.session_id, session_epoch=5, forget=[1])
    assert [p for p, _ in told(forgotten)] == [0]


def test_kip_227_errors(wire: Wire) -> None:
    opened = session(wire, at(0)).session_id
    unknown = session(wire, session_id=opened + 1, session_epoch=1)
    assert (unknown.error_code, unknown.session_id) == (codes.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert session(wire, session_id=opened, session_epoch=5).error_code == codes.INVALID_FETCH_SESSION_EPOCH
    by_id = FetchRequest(session_id=opened, session_epoch=1)
    assert wire.call(by_id, 13).error_code == codes.FETCH_SESSION_TOPIC_ID_ERROR


def test_kip_227_sessions_are_closed_and_replaced(wire: Wire) -> None:
    first = session(wire, at(0)).session_id
    closed = session(wire, at(0), session_id=first, session_epoch=-1)
    assert (closed.session_id, len(told(closed))) == (0, 1)
    assert session(wire, session_id=first, session_epoch=1).error_code == codes.FETCH_SESSION_ID_NOT_FOUND
    second = session(wire, at(0)).session_id
    third = session(wire, at(0), session_id=second, session_epoch=0).session_id
    assert third not in (0, second)
    emptied = session(wire, session_id=third, session_epoch=1, forget=[0])
    assert (emptied.error_code, emptied.session_id) == (codes.NONE, 0)


def test_kip_227_a_session_is_told_of_errors_every_time(broker: Broker, wire: Wire) -> None:
    opened = session(wire, at(50)).session_id
    for epoch in (1, 2):
        again = session(wire, session_id=opened, session_epoch=epoch)
        assert only(again).error_code == codes.OFFSET_OUT_OF_RANGE


def test_kip_227_an_idle_session_makes_room_for_a_new_one() -> None:
    cache = SessionCache(slots=1)
    request = fetch("t", at(0), session_epoch=0)
    first = cache.resolve(0, request, 12)
    assert first.session_id > 0
    assert cache.resolve(60_000, request, 12).session_id == 0
    assert cache.resolve(120_001, request, 12).session_id not in (0, first.session_id)
    assert len(cache) == 1


def test_kip_227_a_larger_session_takes_the_place_of_the_smallest_old_one() -> None:
    cache = SessionCache(slots=2)
    small, large = (
        cache.resolve(0, fetch("t", *map(at, [0] * size, range(size)), session_epoch=0), 12).session_id
        for size in (2, 3)
    )
    both = fetch("t", at(0, 0), at(0, 1), session_epoch=0)
    three = fetch("t", at(0, 0), at(0, 1), at(0, 2), session_epoch=0)

    def use(now: int, epoch: int) -> None:
        for session_id in (small, large):
            cache.resolve(now, FetchRequest(session_id=session_id, session_epoch=epoch), 12)

    use(100_000, 1)
    assert cache.resolve(100_000, three, 12).session_id == 0, "none is old"
    use(130_000, 2)
    assert cache.resolve(130_000, both, 12).session_id == 0, "it is no larger than the smallest"
    taken = cache.resolve(130_000, three, 12).session_id
    assert taken not in (0, small, large)
    assert cache.topics(large)
    assert not cache.topics(small)


def test_kip_227_the_epoch_wraps_to_one() -> None:
    cache = SessionCache(slots=1)
    context = cache.resolve(0, fetch("t", at(0), session_epoch=0), 12)
    assert context.session is not None
    context.session.epoch = 2**31 - 1
    request = FetchRequest(session_id=context.session_id, session_epoch=2**31 - 1)
    assert cache.resolve(0, request, 12).session_id == context.session_id
    assert context.session.epoch == 1


def test_pipelined_requests_are_answered_in_order(broker: Broker, wire: Wire) -> None:
    """One request of a connection at a time: what follows a parked fetch waits behind it."""
    with broker.faults.observe(FetchRequest) as fetches, Wire(broker) as reader:
        reader.send(fetch("t", at(0), max_wait_ms=LONG), 12)
        reader.send(MetadataRequest(topics=[]))
        reader.send(fetch("t", at(0), max_wait_ms=LONG), 12)
        fetches.wait()
        wire.produce("t", [b"a"])
        assert count(only(reader.receive())) == 1
        assert reader.receive().brokers
        assert count(only(reader.receive())) == 1


def test_a_large_answer_reaches_a_slow_reader_whole_and_holds_up_nobody(broker: Broker, wire: Wire) -> None:
    for _ in range(20):
        wire.produce("t", [bytes(900_000)])
    with Wire(broker) as reader:
        reader.send(fetch("t", at(0, 0, 1 << 30)), 12)
        assert wire.produce("t", [b"meanwhile"], 1).error_code == codes.NONE
        assert count(only(reader.receive())) == 20


def test_kip_320_a_reader_of_records_that_were_lost_is_told_where_the_logs_part(
    broker: Broker, wire: Wire
) -> None:
    wire.produce("t", [b"a", b"b"])
    wire.produce("t", [b"c", b"d"])
    broker.elect_uncleanly("t", 0, 2)
    request = fetch("t", at(4))
    (partition,) = request.topics[0].partitions
    partition.last_fetched_epoch, partition.current_leader_epoch = 0, 1
    data = only(wire.call(request, 12))
    assert (data.error_code, len(data.records)) == (codes.NONE, 0)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    partition.fetch_offset = 2
    data = only(wire.call(request, 12))
    assert (data.error_code, data.diverging_epoch.epoch) == (codes.NONE, -1)
    partition.last_fetched_epoch = 9
    assert only(wire.call(request, 12)).error_code == codes.OFFSET_OUT_OF_RANGE


def test_kip_320_a_fetch_that_waits_hears_of_the_truncation_at_once(broker: Broker, wire: Wire) -> None:
    wire.produce("t", [b"a"])
    wire.produce("t", [b"b"])
    request = fetch("t", at(2), max_wait_ms=LONG)
    request.topics[0].partitions[0].last_fetched_epoch = 0
    with broker.faults.observe(FetchRequest) as fetches:
        wire.send(request, 12)
        fetches.wait()
    broker.elect_uncleanly("t", 0, 1)
    assert only(wire.receive()).diverging_epoch.end_offset == 1
