"""Faults on purpose, seen from a client."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.wire import Wire, at, fetch
from tests.patience import PATIENCE

from kadence.errors import ConfigError
from kadence.protocol import error_codes as codes
from kadence.protocol.api_versions import ApiVersionsRequest
from kadence.protocol.fetch import FetchRequest, FetchTopic
from kadence.protocol.find_coordinator import FindCoordinatorRequest
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.records import encode_batch
from kadence_broker import Broker
from kadence_broker.handlers import HANDLERS
from kadence_testing.clock import FakeClock


def test_an_error_is_answered_while_the_block_runs(broker: Broker, wire: Wire) -> None:
    with broker.faults.error(HeartbeatRequest, codes.NOT_COORDINATOR) as fault:
        assert wire.call(HeartbeatRequest(group_id="g")).error_code == codes.NOT_COORDINATOR
        assert wire.call(MetadataRequest(topics=[])).brokers
    assert fault.hits == 1
    assert wire.call(HeartbeatRequest(group_id="g")).error_code == codes.UNKNOWN_MEMBER_ID


def test_a_fault_may_be_for_some_requests_or_some_times_only(broker: Broker, wire: Wire) -> None:
    faults = broker.faults
    with (
        faults.error(HeartbeatRequest, 1, times=2),
        faults.error(HeartbeatRequest, 2, where=lambda call: call.message.group_id == "special"),
    ):
        answers = [
            wire.call(HeartbeatRequest(group_id=each)).error_code for each in ("g", "special", "g", "g")
        ]
    assert answers == [1, 2, 1, codes.UNKNOWN_MEMBER_ID]


def test_errors_stand_at_every_partition(broker: Broker, wire: Wire) -> None:
    with broker.faults.error(FetchRequest, codes.KAFKA_STORAGE_ERROR):
        (topic,) = wire.call(fetch("t", at(0), at(0, 1)), 12).responses
    assert [each.error_code for each in topic.partitions] == [codes.KAFKA_STORAGE_ERROR] * 2
    partition = OffsetCommitRequestPartition(partition_index=1)
    request = OffsetCommitRequest(topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])])
    with broker.faults.error(OffsetCommitRequest, codes.NOT_COORDINATOR):
        (topic,) = wire.call(request, 9).topics
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(1, 16)]


def test_a_delay_holds_the_request_back_and_then_serves_it() -> None:
    clock = FakeClock()
    with Broker(topics={"t": 2}, clock=clock) as broker, Wire(broker) as wire:
        fault = broker.faults.delay(ProduceRequest, 0.05, times=1)
        data = PartitionProduceData(index=0, records=encode_batch([(1, None, b"a", ())]))
        topics = [TopicProduceData(name="t", partition_data=[data])]
        wire.send(ProduceRequest(acks=1, topic_data=topics), 9)
        fault.wait()
        clock.advance(49)
        assert broker.offsets("t") == [(0, 0), (0, 0)]
        clock.advance(1)
        broker.offsets("t")
        assert wire.receive().responses[0].partition_responses[0].base_offset == 0
        assert wire.produce("t", [b"b"]).base_offset == 1


def test_a_delayed_request_whose_client_has_gone_is_not_served(broker: Broker) -> None:
    with broker.faults.delay(ProduceRequest, 0.01) as fault:
        with Wire(broker) as client:
            client.produce("t", [b"a"], acks=0)
            fault.wait()
        with Wire(broker) as wire:
            assert wire.produce("t", [b"b"]).base_offset in (0, 1)


def test_a_dropped_request_is_never_answered_and_its_connection_is_stuck(broker: Broker, wire: Wire) -> None:
    with broker.faults.drop(HeartbeatRequest, times=1):
        wire.send(HeartbeatRequest(group_id="g"))
        wire.send(MetadataRequest(topics=[]))
        with Wire(broker) as other:
            assert other.call(HeartbeatRequest(group_id="g")).error_code == codes.UNKNOWN_MEMBER_ID
        wire.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            wire.receive_frame()


@pytest.mark.parametrize("served", [False, True])
def test_a_disconnect_comes_before_or_after_the_request_took_effect(broker: Broker, served: bool) -> None:
    fault = broker.faults.disconnect(ProduceRequest, served=served, times=1)
    with fault, Wire(broker) as wire, pytest.raises(ConnectionError):
        wire.produce("t", [b"a"])
    assert broker.offsets("t") == [(0, int(served)), (0, 0)]


def test_an_answer_may_be_made_by_hand(broker: Broker, wire: Wire) -> None:
    def throttled(_call: Any) -> HeartbeatResponse:
        return HeartbeatResponse(throttle_time_ms=777)

    with broker.faults.respond(HeartbeatRequest, throttled):
        assert wire.call(HeartbeatRequest()).throttle_time_ms == 777


def test_observers_see_all_and_change_nothing(broker: Broker, wire: Wire) -> None:
    faults = broker.faults
    with (
        faults.observe() as everything,
        faults.error(HeartbeatRequest, 1),
        faults.observe(HeartbeatRequest) as some,
    ):
        wire.call(HeartbeatRequest(group_id="g"))
        wire.call(FindCoordinatorRequest(coordinator_keys=["g"]))
    assert [type(each) for each in everything.messages] == [HeartbeatRequest, FindCoordinatorRequest]
    assert len(some) == 1
    assert some.calls[0].client_id == "wire"
    with pytest.raises(TimeoutError, match="1 of 2 requests"):
        some.wait(2, timeout=0.01)


def test_clear_removes_everything(broker: Broker, wire: Wire) -> None:
    broker.faults.error(None, codes.UNKNOWN_SERVER_ERROR)
    broker.faults.drop(HeartbeatRequest)
    broker.faults.clear()
    assert wire.call(HeartbeatRequest(group_id="g")).error_code == codes.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("api_key", sorted(HANDLERS))
def test_every_api_can_be_refused_in_every_version(broker: Broker, wire: Wire, api_key: int) -> None:
    request = HANDLERS[api_key].request
    with broker.faults.error(None, codes.REQUEST_TIMED_OUT, where=lambda call: type(call.message) is request):
        for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
            message = request()
            if request is ProduceRequest:
                message.acks = 1
            answer = wire.call(message, version)
            if request is ApiVersionsRequest:
                assert answer.error_code == codes.REQUEST_TIMED_OUT


def test_versions_are_limited_while_the_block_runs(broker: Broker, wire: Wire) -> None:
    def offered() -> dict[int, int]:
        answer = wire.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        return {each.api_key: each.max_version for each in answer.api_keys}

    before = offered()
    with broker.faults.limit(HeartbeatRequest, 1), broker.faults.limit(FetchRequest, 99):
        with broker.faults.limit(MetadataRequest, 0):
            assert offered() == {**before, HeartbeatRequest.API_KEY: 1, MetadataRequest.API_KEY: 0}
        assert offered() == {**before, HeartbeatRequest.API_KEY: 1}
    assert offered() == before


def test_an_answer_may_be_cut_and_the_request_has_taken_effect(broker: Broker) -> None:
    with Wire(broker) as wire, broker.faults.truncate(ProduceRequest, 6) as cut:
        wire.send_produce("t", [b"v"])
        assert len(wire._exactly(6)) == 6
        assert wire.is_closed()
    assert cut.hits == 1
    assert broker.offsets("t")[0] == (0, 1)
    with Wire(broker) as wire, broker.faults.truncate(MetadataRequest):
        wire.send(MetadataRequest(topics=[]))
        assert len(wire._exactly(4)) == 4
        with pytest.raises(ConnectionError):
            wire._exactly(10_000)
    with Wire(broker) as wire, broker.faults.truncate(MetadataRequest, 0):
        wire.send(MetadataRequest(topics=[]))
        assert wire.is_closed(), "not half of it"


def test_a_frozen_node_neither_reads_nor_writes_nor_accepts_and_then_goes_on() -> None:
    with Broker(nodes=2, topics={"t": 1}) as broker, Wire(broker, 1) as one, Wire(broker, 2) as two:
        for each in (one, two):
            each.call(MetadataRequest(topics=[]))
        with broker.faults.freeze(2), broker.faults.observe(HeartbeatRequest) as seen:
            two.send(HeartbeatRequest(group_id="g"))
            late = Wire(broker, 2)  # the system connects it; nobody accepts
            late.send(HeartbeatRequest(group_id="h"))
            for _ in range(3):
                assert one.call(MetadataRequest(topics=[])).brokers
            assert len(seen) == 0
        assert two.receive().error_code
        assert late.receive().error_code
        late.sock.close()
        with broker.faults.freeze() as frozen, Wire(broker, 1) as stuck:
            stuck.send(MetadataRequest(topics=[]))
            stuck.sock.settimeout(0.1)
            with pytest.raises(TimeoutError):
                stuck.receive_frame()
            frozen.thaw()
            stuck.sock.settimeout(PATIENCE)
            assert stuck.receive_frame()
        with pytest.raises(ConfigError, match="no node 9"):
            broker.faults.freeze(9)


def test_a_broker_closes_while_it_is_frozen() -> None:
    with Broker() as broker, Wire(broker):
        broker.faults.freeze()


@pytest.mark.parametrize(
    ("only", "wanted"),
    [
        ({"group": "a"}, [True, False, False]),
        ({"client_id": "wire"}, [True, True, True]),
        ({"client_id": "other"}, [False, False, False]),
        ({"node_id": 2}, [False, False, False]),
        ({"topic": "t"}, [False, False, True]),
        ({"probability": 0.0}, [False, False, False]),
        ({"times": 1}, [True, False, False]),
    ],
)
def test_a_fault_takes_the_requests_that_it_is_for(
    broker: Broker, wire: Wire, only: Any, wanted: list[bool]
) -> None:
    with broker.faults.observe(**only) as seen:
        hits = []
        topic = FetchTopic(topic_id=wire.topic_id("t"), partitions=[at(0)]) if "topic" in only else None
        seen.calls.clear()
        seen.hits = 0
        for message in (
            HeartbeatRequest(group_id="a"),
            HeartbeatRequest(group_id="b"),
            FetchRequest(topics=[topic] if topic else [], session_epoch=-1),
        ):
            before = seen.hits
            wire.call(message)
            hits.append(seen.hits > before)
    assert hits == wanted


def test_a_fetch_session_keeps_its_topics(broker: Broker, wire: Wire) -> None:
    topic = FetchTopic(topic_id=wire.topic_id("t"), partitions=[at(0)])
    opened = wire.call(FetchRequest(topics=[topic], session_epoch=0, max_wait_ms=0))
    with broker.faults.error(FetchRequest, codes.KAFKA_STORAGE_ERROR, topic="t"):
        answer = wire.call(FetchRequest(session_id=opened.session_id, session_epoch=1, max_wait_ms=0))
        assert answer.error_code == codes.KAFKA_STORAGE_ERROR


def test_chance_is_repeatable(broker: Broker, wire: Wire) -> None:
    def run() -> list[bool]:
        with broker.faults.error(HeartbeatRequest, codes.NOT_COORDINATOR, probability=0.5, seed=7):
            return [wire.call(HeartbeatRequest()).error_code == codes.NOT_COORDINATOR for _ in range(50)]

    first = run()
    assert first == run()
    assert 10 < sum(first) < 40


def test_faults_as_text(broker: Broker, wire: Wire) -> None:
    broker.faults.parse("find_coordinator error=COORDINATOR_NOT_AVAILABLE times=1 client=wire")
    assert wire.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators[0].error_code == (
        codes.COORDINATOR_NOT_AVAILABLE
    )
    assert wire.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators[0].error_code == codes.NONE
    broker.faults.parse("any delay=50ms topic=t")
    broker.faults.parse("Heartbeat disconnect group=g probability=1 seed=3")
    wire.send(HeartbeatRequest(group_id="g"))
    assert wire.is_closed()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("fetch", "after the API comes one of"),
        ("fetsch drop", "no API 'fetsch'; did you mean fetch"),
        ("fetch explode", "'explode' is none of"),
        ("fetch delay=fast", "'fast' is no time"),
        ("fetch error=NOT_LEADER", "did you mean NOT_LEADER_OR_FOLLOWER"),
        ("fetch drop times=few", "'few' is no number"),
        ("fetch drop topics=t", "'topics=t' is none of"),
        ("fetch drop probability=7", "0 to 1"),
        ("freeze topic=t", "freeze takes node= only"),
    ],
)
def test_a_fault_that_cannot_be_read_says_which_part(broker: Broker, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        broker.faults.parse(text)


def test_a_fault_is_for_a_class_of_requests() -> None:
    """A name would end each connection, with the request that it meets."""
    named: Any = "Produce"
    with Broker() as broker, pytest.raises(TypeError, match=r"ProduceRequest, or None: not 'Produce'$"):
        broker.faults.delay(named, 1.0)
