"""Produce: what is appended, what is refused, and retries that are not appended twice (KIP-98)."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from tests.broker.stage import Nobody, Stage
from tests.broker.wire import Wire, at, fetch

from kadence.protocol import error_codes as codes
from kadence.protocol.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.init_producer_id import InitProducerIdRequest
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.registry import encode_request
from kadence.records import FetchedRecords, encode_batch
from kadence_broker import Broker
from kadence_broker.handlers import k00_produce


def values(wire: Wire, topic: str = "t", offset: int = 0) -> list[bytes]:
    data = wire.call(fetch(topic, at(offset)), 12).responses[0].partitions[0]
    return [each.value for each in FetchedRecords(bytes(data.records), topic, 0, offset).take()]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_records_are_appended_in_order(wire: Wire, version: int, acks: int) -> None:
    assert wire.produce("t", [b"a", b"b"], version=version, acks=acks).base_offset == 0
    answer = wire.produce("t", [b"c"], version=version, acks=acks)
    assert (answer.error_code, answer.base_offset) == (codes.NONE, 2)
    assert values(wire) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_kept_as_they_came(wire: Wire, compression: str) -> None:
    wire.produce("t", [b"x" * 100] * 50, compression=compression)
    assert values(wire) == [b"x" * 100] * 50


def test_without_acks_there_is_no_answer_and_the_next_request_is_served(wire: Wire) -> None:
    wire.produce("t", [b"a"], acks=0)
    assert wire.produce("t", [b"b"]).base_offset == 1


def test_without_acks_an_error_ends_the_connection(wire: Wire) -> None:
    wire.produce("none", [b"a"], acks=0)
    assert wire.is_closed()


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(wire: Wire, acks: int) -> None:
    assert wire.produce("t", [b"a"], acks=acks).error_code == codes.INVALID_REQUIRED_ACKS


def test_topics_and_partitions_that_do_not_exist(wire: Wire) -> None:
    assert wire.produce("none", [b"a"]).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce("t", [b"a"], partition=2).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.produce("t", [b"a"], partition=-1).error_code == codes.UNKNOWN_TOPIC_OR_PARTITION


def damaged(at_byte: int, layout: str, value: int) -> bytes:
    data = bytearray(encode_batch([(0, None, b"a", ()), (0, None, b"b", ())]))
    struct.pack_into(layout, data, at_byte, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, codes.INVALID_RECORD),
        (b"", codes.INVALID_RECORD),
        (b"junk", codes.INVALID_RECORD),
        (damaged(8, ">i", 2**31 - 1), codes.INVALID_RECORD),
        (damaged(8, ">i", -5), codes.CORRUPT_MESSAGE),
        (damaged(16, ">b", 1), codes.INVALID_RECORD),
        (damaged(17, ">i", 1), codes.CORRUPT_MESSAGE),
        (encode_batch([(0, None, b"a", ())]) * 2, codes.INVALID_RECORD),
        (encode_batch([(0, None, b"a", ())]) + bytes(20), codes.CORRUPT_MESSAGE),
    ],
)
def test_what_is_no_single_whole_batch_is_refused(wire: Wire, records: bytes | None, code: int) -> None:
    answer = wire.produce_bytes("t", records)
    assert codes.name(answer.error_code) == codes.name(code)
    assert answer.error_message
    assert wire.produce("t", [b"fine"]).base_offset == 0


@pytest.mark.parametrize("where", ["topic", "broker"])
@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_record_above_max_decompressed_message_bytes_is_refused(where: str, compression: str) -> None:
    """Kafka 4.4: each record of a compressed batch, without its length field; not one of an uncompressed batch."""
    key = "max.decompressed.message.bytes"
    with Broker(config={key: 107} if where == "broker" else {}) as broker, Wire(broker) as wire:
        config = [CreatableTopicConfig(name=key, value="107")] if where == "topic" else []
        request = CreateTopicsRequest(topics=[CreatableTopic("t", 1, 1, configs=config)])
        assert wire.call(request).topics[0].error_code == codes.NONE
        # A record has 7 bytes beside a value of 100: attributes, deltas, three lengths of which one has two bytes.
        assert wire.produce("t", [b"x" * 100] * 3, compression=compression).error_code == codes.NONE
        answer = wire.produce("t", [b"", b"x" * 101], compression=compression)
        assert answer.error_code == codes.INVALID_RECORD
        assert answer.error_message == "a record has 108 bytes; max.decompressed.message.bytes is 107"
        assert wire.produce("t", [b"x" * 1_000]).error_code == codes.NONE


def test_a_batch_above_max_message_bytes_is_too_large(wire: Wire) -> None:
    config = [CreatableTopicConfig(name="max.message.bytes", value="200")]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="small", num_partitions=1, replication_factor=1, configs=config)]
    )
    assert wire.call(request).topics[0].error_code == codes.NONE
    assert wire.produce("small", [b"x" * 200]).error_code == codes.MESSAGE_TOO_LARGE
    assert wire.produce("small", [b"x" * 100]).error_code == codes.NONE


def test_log_append_time_replaces_the_producers(wire: Wire) -> None:
    config = [CreatableTopicConfig(name="message.timestamp.type", value="LogAppendTime")]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="late", num_partitions=1, replication_factor=1, configs=config)]
    )
    wire.call(request)
    answer = wire.produce("late", [b"a", b"b"], timestamp=5)
    assert answer.log_append_time_ms > 1_700_000_000_000
    data = wire.call(fetch("late", at(0)), 12).responses[0].partitions[0]
    records = FetchedRecords(bytes(data.records), "late", 0, 0).take()
    assert {each.timestamp for each in records} == {answer.log_append_time_ms}
    assert {each.timestamp_type for each in records} == {1}


def test_retention_bytes_moves_the_start_of_the_log(broker: Broker, wire: Wire) -> None:
    config = [CreatableTopicConfig(name="retention.bytes", value="50000")]
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="short", num_partitions=1, replication_factor=1, configs=config)]
    )
    wire.call(request)
    for _ in range(40):
        wire.produce("short", [bytes(5_000)])
    ((start, end),) = broker.offsets("short")
    assert 0 < start < end == 40


def idempotent(wire: Wire, sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0) -> Any:
    return wire.produce(
        "t", [b"%d" % (sequence + n) for n in range(count)], producer_id=producer, producer_epoch=epoch,
        base_sequence=sequence,
    )  # fmt: skip


def test_a_repeated_batch_gets_its_first_offset_again(wire: Wire) -> None:
    first = [idempotent(wire, n).base_offset for n in range(5)]
    again = [idempotent(wire, n) for n in range(5)]
    assert [each.error_code for each in again] == [codes.NONE] * 5
    assert [each.base_offset for each in again] == first
    assert values(wire) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_missing_batch_is_out_of_order(wire: Wire) -> None:
    idempotent(wire, 0, 2)
    assert idempotent(wire, 3).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert idempotent(wire, 2).error_code == codes.NONE


def test_only_the_last_five_batches_are_remembered(wire: Wire) -> None:
    for n in range(6):
        idempotent(wire, n)
    assert idempotent(wire, 1).error_code == codes.NONE
    assert idempotent(wire, 0).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_starts_at_zero_and_fences_the_old(wire: Wire) -> None:
    idempotent(wire, 0)
    assert idempotent(wire, 5, epoch=1).error_code == codes.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert idempotent(wire, 0, epoch=1).error_code == codes.NONE
    assert idempotent(wire, 1, epoch=0).error_code == codes.INVALID_PRODUCER_EPOCH


def test_sequences_wrap(wire: Wire) -> None:
    last = 2**31 - 1
    assert idempotent(wire, last - 1, 2).error_code == codes.NONE
    assert idempotent(wire, 0).error_code == codes.NONE


def test_producer_ids_are_given_out_once(wire: Wire) -> None:
    first, second = (wire.call(InitProducerIdRequest(transactional_id=None)) for _ in range(2))
    assert first.error_code == second.error_code == codes.NONE
    assert 0 <= first.producer_id < second.producer_id
    refused = wire.produce_bytes("t", transactional())
    assert refused.error_code == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def transactional() -> bytes:
    from kadence.records import crc32c

    data = bytearray(encode_batch([(0, None, b"a", ())]))
    data[22] |= 0x10
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def test_the_wrong_node_says_who_leads() -> None:
    with Broker(nodes=2, topics={"t": 2}) as broker, Wire(broker, 1) as first:
        answer = first.produce("t", [b"a"], partition=1, version=10)
        assert answer.error_code == codes.NOT_LEADER_OR_FOLLOWER
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 0)
        old = first.produce("t", [b"a"], partition=1, version=9)
        assert old.error_code == codes.NOT_LEADER_OR_FOLLOWER
        with Wire(broker, 2) as second:
            assert second.produce("t", [b"a"], partition=1).error_code == codes.NONE


def to_partitions(*batches: bytes) -> ProduceRequest:
    """A Produce of one batch for each partition of "t" from 0 on."""
    parts = [PartitionProduceData(index=index, records=each) for index, each in enumerate(batches)]
    return ProduceRequest(
        acks=-1, timeout_ms=1_000, topic_data=[TopicProduceData(name="t", partition_data=parts)]
    )


def test_others_are_served_between_the_partitions_of_a_large_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k00_produce, "_BREAK_BYTES", 1)
    stage, slow, other = Stage(0), Nobody(1), Nobody(1)
    leader = Nobody(stage.cluster.topics["t"].partitions[0].leader_id)
    slow.node_id = leader.node_id
    batch = encode_batch([(1, None, b"v", ())])
    request = to_partitions(batch, batch, batch)
    stage.dispatcher.on_frame(slow, encode_request(request, 9, 1, "c"))  # type: ignore[arg-type]
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    stage.dispatcher.on_frame(other, encode_request(heartbeat, 4, 1, "c"))  # type: ignore[arg-type]
    assert (len(slow.sent), len(other.sent)) == (0, 1)
    for _ in range(2):
        assert not slow.sent
        stage.loop._serve(0)
    assert len(slow.sent) == 1
    assert stage.cluster.topics["t"].partitions[0].end_offset == 1
    stage.loop.close()


def test_a_bug_behind_a_break_ends_the_one_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(k00_produce, "_BREAK_BYTES", 1)
    stage = Stage(0)
    connection = Nobody(1)
    batch = encode_batch([(1, None, b"v", ())])
    stage.dispatcher.on_frame(connection, encode_request(to_partitions(batch, batch), 9, 1, "c"))  # type: ignore[arg-type]
    monkeypatch.setattr(k00_produce, "check_leader", None)
    stage.loop._serve(0)
    assert connection.is_closed
    assert "a bug in serving" in caplog.text
    stage.loop.close()


def test_the_batches_of_a_request_unpack_to_a_bound_in_all(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(k00_produce, "_MOST_UNPACKED_BYTES", 150_000)
    large = encode_batch([(1, None, bytes(100_000), ())], compression="gzip")
    first, second = wire.call(to_partitions(large, large), 9).responses[0].partition_responses
    assert (first.error_code, second.error_code) == (codes.NONE, codes.MESSAGE_TOO_LARGE)
    assert "send smaller requests" in second.error_message
    plain = encode_batch([(1, None, bytes(100_000), ())])
    found = wire.call(to_partitions(plain, large), 9).responses[0].partition_responses
    assert [each.error_code for each in found] == [codes.NONE] * 2
