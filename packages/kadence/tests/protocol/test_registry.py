"""Whole frames: headers, versions, and what a broker's port may receive."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.luck import examples
from tests.protocol.test_round_trip import mutated
from tests.protocol.values import Case, cases, messages

from kadence.protocol import registry
from kadence.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kadence.protocol.consumer_protocol_assignment import ConsumerProtocolAssignment
from kadence.protocol.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from kadence.protocol.fetch import FetchRequest, FetchResponse
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.request_header import RequestHeader
from kadence.protocol.response_header import ResponseHeader
from kadence.wire import VersionError, WireError, Writer

REQUEST_CASES = [case for case in cases() if case.struct.name.endswith("Request")]


def test_the_tables_name_every_api() -> None:
    assert registry.REQUESTS.keys() == registry.RESPONSES.keys() == registry.API_NAMES.keys()
    for key, request in registry.REQUESTS.items():
        response = registry.RESPONSES[key]
        assert request.API_KEY == response.API_KEY == key
        assert request.RESPONSE is response
        assert request.__name__ == f"{registry.API_NAMES[key]}Request"
        assert (request.MIN_VERSION, request.MAX_VERSION) == (response.MIN_VERSION, response.MAX_VERSION)
        assert request.FLEXIBLE_FROM == response.FLEXIBLE_FROM
    assert registry.api_name(3) == "Metadata"
    assert registry.api_name(999) == "UNKNOWN(999)"


@pytest.mark.parametrize(
    ("api_key", "version", "request_header", "response_header"),
    [
        (3, 8, 1, 0),  # Metadata, before and from its first flexible version
        (3, 9, 2, 1),
        (17, 1, 1, 0),  # SaslHandshake never is
        (18, 2, 1, 0),
        (18, 3, 2, 0),  # ApiVersions: flexible, but its response's header is 0
        (18, 5, 2, 0),
        (68, 0, 2, 1),
    ],
)
def test_header_versions(api_key: int, version: int, request_header: int, response_header: int) -> None:
    assert registry.request_header_version(api_key, version) == request_header
    assert registry.response_header_version(api_key, version) == response_header


@pytest.mark.parametrize("client_id", [None, "", "kadence", "ü"])
@pytest.mark.parametrize("version", range(5))
def test_a_request_comes_back_whole(version: int, client_id: str | None) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    header, message = registry.decode_request(registry.encode_request(request, version, 77, client_id))
    assert header == RequestHeader(12, version, 77, client_id)
    assert message == request


def test_the_client_id_is_never_compact() -> None:
    frame = registry.encode_request(ApiVersionsRequest(), 3, 1, "ab")
    # key, version, correlation id, int16 length + text, no tags; then two empty compact strings, no tags
    assert frame == b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x02ab\x00" + b"\x01\x01\x00"


@pytest.mark.parametrize("version", range(5))
def test_a_response_comes_back_whole(version: int) -> None:
    response = HeartbeatResponse(error_code=27)
    frame = registry.encode_response(response, version, 5)
    assert registry.decode_response(HeartbeatRequest, version, frame) == (5, response)


def test_a_refused_api_versions_answer_is_read_in_version_0() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(18, 0, 5)])
    frame = registry.encode_response(answer, 0, 9)
    for asked in range(6):
        assert registry.decode_response(ApiVersionsRequest, asked, frame) == (9, answer)


def test_bytes_after_the_end_are_refused() -> None:
    frame = registry.encode_request(MetadataRequest(), 9, 1, None)
    with pytest.raises(WireError, match="MetadataRequest version 9: 3 bytes after the end"):
        registry.decode_request(frame + b"abc")
    answer = registry.encode_response(FetchResponse(), 12, 1)
    with pytest.raises(WireError, match="FetchResponse version 12: 1 bytes after the end"):
        registry.decode_response(FetchRequest, 12, answer + b"a")


def test_an_unknown_api_or_version_keeps_its_header() -> None:
    w = Writer()
    RequestHeader(9999, 3, 41, "them").write(w, 1)
    with pytest.raises(registry.UnsupportedRequestError, match="no API has the key 9999 here") as unknown:
        registry.decode_request(w.getvalue() + b"whatever")
    assert unknown.value.header == RequestHeader(9999, 3, 41, "them")

    w = Writer()
    RequestHeader(18, 9, 42, "them").write(w, 2)
    with pytest.raises(registry.UnsupportedRequestError, match="spoken here are 0 to 5") as newer:
        registry.decode_request(w.getvalue() + b"a body of the future")
    assert newer.value.header.correlation_id == 42
    copy = pickle.loads(pickle.dumps(newer.value))
    assert (str(copy), copy.header) == (str(newer.value), newer.value.header)


def test_unknown_tags_of_headers_survive() -> None:
    w = Writer()
    RequestHeader(18, 3, 1, "a", {5: b"xyz"}).write(w, 2)
    ApiVersionsRequest("kadence", "1").write(w, 3)
    header, message = registry.decode_request(w.getvalue())
    assert header.unknown_tags == {5: b"xyz"}
    assert message == ApiVersionsRequest("kadence", "1")

    w = Writer()
    ResponseHeader(8, {1: b"q"}).write(w, 1)
    HeartbeatResponse().write(w, 4)
    assert registry.decode_response(HeartbeatRequest, 4, w.getvalue()) == (8, HeartbeatResponse())


@pytest.mark.parametrize("version", [-1, 14, 32767])
def test_a_version_out_of_range_is_refused(version: int) -> None:
    with pytest.raises(VersionError, match=r"MetadataRequest version -?\d+: spoken here are 0 to 13"):
        registry.encode_request(MetadataRequest(), version, 1, None)


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (HeartbeatRequest(generation_id=2**31), "HeartbeatRequest version 4: "),
        (HeartbeatRequest(group_id="x" * 32768), "a string of 32768 bytes"),
        (HeartbeatRequest(group_id="\ud800"), "no UTF-8 form"),
        (FetchRequest(forgotten_topics_data=[], replica_id=2**40), "FetchRequest version 4: "),
        (ProduceRequest(topic_data=[TopicProduceData(topic_id=b"short")]), "a uuid of 5 bytes"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(message: Any, complaint: str) -> None:
    version = 4 if not isinstance(message, ProduceRequest) else 13
    with pytest.raises(WireError, match=complaint):
        registry.encode_request(message, version, 1, None)


def test_records_may_be_any_buffer() -> None:
    batch = b"\x01\x02\x03" * 100
    frames = set()
    for records in (batch, bytearray(batch), memoryview(batch)):
        topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=records)])
        frames.add(registry.encode_request(ProduceRequest(topic_data=[topic]), 9, 1, None))
    assert len(frames) == 1


@examples(100)
@given(case=st.sampled_from(REQUEST_CASES), data=st.data(), seed=st.integers(0, 2**32))
def test_a_broker_survives_mutated_requests(case: Case, data: st.DataObject, seed: int) -> None:
    frame = registry.encode_request(data.draw(messages(case)), case.version, 1, "client")
    chance = random.Random(seed)
    for _ in range(20):
        try:
            registry.decode_request(mutated(frame, chance))
        except WireError:
            continue


@given(st.binary(max_size=60))
def test_a_broker_survives_any_bytes(frame: bytes) -> None:
    for prefix in (b"", b"\x00\x01\x00\x0c", b"\x00\x03\x00\x09", b"\x00\x12\x00\x03", b"\x00\x0b\x00\x06"):
        try:
            registry.decode_request(prefix + frame)
        except WireError:
            continue


@given(st.binary(max_size=60))
def test_a_client_survives_any_bytes(frame: bytes) -> None:
    for request in registry.REQUESTS.values():
        try:
            registry.decode_response(request, request.MAX_VERSION, frame)
        except WireError:
            continue


def test_consumer_protocol_messages_carry_their_version() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"],
        user_data=b"u",
        owned_partitions=[TopicPartition("a", [0, 2])],
        generation_id=7,
        rack_id="r",
    )
    for version in range(4):
        stored = registry.encode_versioned(subscription, version)
        assert stored[:2] == version.to_bytes(2, "big")
        found, read = registry.decode_versioned(ConsumerProtocolSubscription, stored)
        assert found == version
        assert read.topics == ["a", "b"]
        assert read.generation_id == (7 if version >= 2 else -1)


def test_a_subscription_of_the_future_reads_as_our_newest() -> None:
    stored = bytearray(registry.encode_versioned(ConsumerProtocolAssignment(user_data=b"u"), 3))
    stored[:2] = b"\x00\x09"
    found, read = registry.decode_versioned(
        ConsumerProtocolAssignment, bytes(stored) + b"fields of the future"
    )
    assert (found, read) == (9, ConsumerProtocolAssignment(user_data=b"u"))
    with pytest.raises(WireError, match="version -1: no such version"):
        registry.decode_versioned(ConsumerProtocolAssignment, b"\xff\xff" + bytes(20))
    with pytest.raises(WireError, match="truncated"):
        registry.decode_versioned(ConsumerProtocolAssignment, b"\x00")
