"""What a client sees of the partitions of a broker: leaders that are missing, dates after a deletion, old producers."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.wire import Wire, at, fetch
from tests.patience import until

from kadence.protocol import error_codes as codes
from kadence.protocol.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kadence.protocol.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kadence.protocol.metadata import MetadataRequest
from kadence_broker import Broker
from kadence_testing import FakeClock


def look_up(wire: Wire, timestamp: int) -> tuple[int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    answer = wire.call(request, 7).topics[0].partitions[0]
    return answer.offset, answer.timestamp


@pytest.mark.parametrize("version", [9, 10, 13])
def test_a_partition_without_leader_takes_no_records_and_says_so(
    broker: Broker, wire: Wire, version: int
) -> None:
    broker.move_leader("t", 0, -1)
    answer = wire.produce("t", [b"v"], version=version)
    assert answer.error_code == codes.NOT_LEADER_OR_FOLLOWER
    assert wire.produce("t", [b"v"], 1).error_code == codes.NONE, "the connection lives on"


def test_metadata_tells_that_a_partition_has_no_leader(broker: Broker, wire: Wire) -> None:
    broker.move_leader("t", 0, -1)
    first, second = wire.call(MetadataRequest(topics=None)).topics[0].partitions
    assert (first.error_code, first.leader_id) == (codes.LEADER_NOT_AVAILABLE, -1)
    assert first.replica_nodes == first.isr_nodes == first.offline_replicas == [1]
    assert (second.error_code, second.leader_id, second.offline_replicas) == (codes.NONE, 1, [])
    described = wire.call(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]))
    first, second = described.topics[0].partitions
    assert (first.error_code, second.error_code) == (codes.LEADER_NOT_AVAILABLE, codes.NONE)


def test_dates_are_found_after_the_first_records_of_a_batch_were_deleted(broker: Broker, wire: Wire) -> None:
    wire.produce_bytes("t", _dated(100, 900, 200))
    wire.produce_bytes("t", _dated(300, 400))
    broker.delete_records("t", 0, 2)
    assert look_up(wire, 150) == (2, 200)
    assert look_up(wire, 250) == (3, 300)
    assert look_up(wire, -3) == (4, 400)


def _dated(*timestamps: int) -> bytes:
    from kadence.records import encode_batch

    return encode_batch([(each, None, b"v", ()) for each in timestamps])


def _idempotent(wire: Wire, sequence: int) -> Any:
    return wire.produce("t", [b"v"], producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_an_unclean_election_does_not_forget_producers(broker: Broker, wire: Wire) -> None:
    for sequence in range(3):
        _idempotent(wire, sequence)
    broker.elect_uncleanly("t", 0, 2)
    assert _idempotent(wire, 1).base_offset == 1
    assert _idempotent(wire, 5).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert _idempotent(wire, 2).base_offset == 2
    assert broker.offsets("t")[0] == (0, 3), "what was lost is appended again, not taken for a repetition"


def test_a_producer_that_went_away_is_forgotten() -> None:
    clock = FakeClock()
    config = {"producer.id.expiration.ms": 60_000, "producer.id.expiration.check.interval.ms": 1_000}
    with Broker(topics={"t": 1}, config=config, clock=clock) as broker, Wire(broker) as wire:
        _idempotent(wire, 0)
        clock.advance(59_000)
        wire.call(MetadataRequest(topics=None))
        assert _idempotent(wire, 5).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
        clock.advance(3_000)
        # The broker sees the new time at its next event; a late timer fires only once nothing is left to read.
        wire.call(MetadataRequest(topics=None))
        until(lambda: _idempotent(wire, 5).error_code == codes.NONE)


def test_each_waiting_fetch_gets_one_answer(wire: Wire, broker: Broker) -> None:
    """One of the readers produces behind its fetch, so that its answer brings news in its turn."""
    with Wire(broker) as other, Wire(broker) as third:
        for each in (other, third):
            each.send(fetch("t", at(0), max_wait_ms=10_000), 12)
        other.send_produce("t", [b"second"])
        wire.produce("t", [b"first"])
        records = [len(each.receive().responses[0].partitions[0].records) for each in (other, third)]
        assert all(records)
        assert other.receive().responses[0].partition_responses[0].base_offset == 1
        assert third.call(MetadataRequest(topics=None)).topics
