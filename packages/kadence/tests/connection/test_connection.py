"""The sans-IO connection: bytes in, bytes out, time as numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kadence.clock import FOREVER
from kadence.connection.connection import BrokerConnection, Phase, WrongNodeError
from kadence.connection.request import Completed, Request
from kadence.errors import (
    ConnectError,
    DisconnectedError,
    MalformedMessageError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from kadence.protocol import error_codes, registry
from kadence.protocol.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kadence.protocol.fetch import FetchRequest, FetchResponse
from kadence.protocol.heartbeat import HeartbeatRequest, HeartbeatResponse
from kadence.protocol.join_group import JoinGroupRequest
from kadence.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kadence.protocol.produce import ProduceRequest, ProduceResponse

NOW = 1_000_003
EVERYTHING = [
    ApiVersion(api_key=cls.API_KEY, min_version=cls.MIN_VERSION, max_version=cls.MAX_VERSION)
    for cls in registry.REQUESTS.values()
]


def make() -> BrokerConnection:
    return BrokerConnection("broker 1 (kafka:9092)", client_id="me", request_timeout_ms=30_000)


def written(connection: BrokerConnection, now: int = NOW) -> list[tuple[Any, Any]]:
    """Write all that is outgoing; returns (header, message) of each frame."""
    stream = bytearray()
    while data := b"".join(connection.outgoing()):
        stream += data
        connection.sent(len(data), now)
    frames = []
    while stream:
        length = int.from_bytes(stream[:4])
        frames.append(registry.decode_request(bytes(stream[4 : 4 + length])))
        del stream[: 4 + length]
    return frames


def answer(
    connection: BrokerConnection, response: Any, version: int, correlation_id: int, now: int = NOW
) -> Any:
    return connection.receive(registry.encode_response(response, version, correlation_id), None, now)


def ready(ranges: list[ApiVersion] | None = None) -> BrokerConnection:
    connection = make()
    connection.open(NOW)
    [(header, message)] = written(connection)
    response = ApiVersionsResponse(api_keys=EVERYTHING if ranges is None else ranges)
    assert isinstance(message, ApiVersionsRequest)
    assert answer(connection, response, header.request_api_version, header.correlation_id) is None
    assert connection.phase is Phase.READY
    return connection


def send(
    connection: BrokerConnection, message: Any, deadline: int = NOW + 30_000, **versions: int
) -> Request:
    request = Request(message, 1, deadline)
    assert connection.send(request, NOW) is None
    return request


def test_opening_asks_for_versions_in_the_highest_version_with_our_name() -> None:
    connection = make()
    assert repr(connection) == "<connection to broker 1 (kafka:9092) opening in_flight=0>"
    connection.open(NOW)
    [(header, message)] = written(connection)
    assert header.request_api_version == ApiVersionsRequest.MAX_VERSION
    assert header.client_id == "me"
    assert message.client_software_name == "kadence"
    assert not connection.can_send(NOW)


def test_a_refused_version_is_asked_again_in_the_highest_that_the_broker_names() -> None:
    connection = make()
    connection.open(NOW)
    [(header, _)] = written(connection)
    refusal = ApiVersionsResponse(
        error_code=error_codes.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=18, min_version=0, max_version=3)],
    )
    # The refusal comes in the format of version 0, whatever was asked (KIP-511).
    assert answer(connection, refusal, 0, header.correlation_id) is None
    [(header, _)] = written(connection)
    assert header.request_api_version == 3
    answer(connection, ApiVersionsResponse(api_keys=EVERYTHING), 3, header.correlation_id)
    assert connection.phase is Phase.READY


@pytest.mark.parametrize(
    "body", [b"\x00\x23", b"\x00\x23\x00\x00\x00\x00", b"\x00\x23\x01\x00\x12\x00\x00\x00\x02\x00"]
)
def test_a_refusal_without_a_readable_range_falls_back_to_version_0(body: bytes) -> None:
    connection = make()
    connection.open(NOW)
    [(header, _)] = written(connection)
    connection.receive(header.correlation_id.to_bytes(4) + body, None, NOW)
    [(header, _)] = written(connection)
    assert header.request_api_version == 0
    answer(connection, ApiVersionsResponse(api_keys=EVERYTHING), 0, header.correlation_id)
    assert connection.phase is Phase.READY


def test_refusing_version_0_too_ends_the_connection() -> None:
    connection = make()
    connection.open(NOW)
    for _ in range(2):
        [(header, _)] = written(connection)
        refusal = ApiVersionsResponse(error_code=error_codes.UNSUPPORTED_VERSION)
        if header.request_api_version == 0:
            break
        answer(connection, refusal, 0, header.correlation_id)
    with pytest.raises(ConnectError, match=r"kafka:9092\) refused ApiVersions v0: UNSUPPORTED_VERSION"):
        answer(connection, refusal, 0, header.correlation_id)


def test_a_broker_is_asked_in_the_version_that_it_had_the_last_time() -> None:
    """Brokers before Kafka 4.4 would refuse version 5 on each connection, and cost a round trip."""
    connection = BrokerConnection("a", client_id="me", request_timeout_ms=30_000, ranges={18: (0, 3)})
    connection.open(NOW)
    [(header, _)] = written(connection)
    assert header.request_api_version == 3
    answer(connection, ApiVersionsResponse(api_keys=EVERYTHING), 3, header.correlation_id)
    assert connection.ranges[18] == (0, 5), "from now on the newer one"


def test_kip_1242_a_broker_hears_which_node_it_is_taken_for() -> None:
    connection = BrokerConnection("a:1", client_id="me", request_timeout_ms=30_000, meant=("c", 7))
    connection.open(NOW)
    [(header, message)] = written(connection)
    assert (header.request_api_version, message.cluster_id, message.node_id) == (5, "c", 7)
    refusal = ApiVersionsResponse(error_code=error_codes.REBOOTSTRAP_REQUIRED)
    with pytest.raises(WrongNodeError, match="a:1 is not node 7 of cluster c"):
        answer(connection, refusal, 5, header.correlation_id)


def test_kip_1242_who_names_no_node_is_only_refused() -> None:
    connection = make()
    connection.open(NOW)
    [(header, message)] = written(connection)
    assert (message.cluster_id, message.node_id) == (None, -1)
    refusal = ApiVersionsResponse(error_code=error_codes.REBOOTSTRAP_REQUIRED)
    with pytest.raises(ConnectError, match="REBOOTSTRAP_REQUIRED"):
        answer(connection, refusal, 5, header.correlation_id)


def test_answers_belong_to_requests_in_order() -> None:
    connection = ready()
    first = send(connection, HeartbeatRequest(group_id="g", member_id="m"))
    second = send(connection, MetadataRequest(topics=None))
    headers = [header for header, _ in written(connection)]
    assert connection.in_flight == 2
    done: Completed = answer(
        connection, HeartbeatResponse(), headers[0].request_api_version, headers[0].correlation_id, NOW + 5
    )
    assert done.request is first
    assert (done.error, done.version, done.received_at) == (None, headers[0].request_api_version, NOW + 5)
    done = answer(connection, MetadataResponse(), headers[1].request_api_version, headers[1].correlation_id)
    assert done.request is second
    assert connection.idle


def test_a_correlation_id_out_of_order_ends_the_connection() -> None:
    connection = ready()
    first = send(connection, HeartbeatRequest(group_id="g", member_id="m"))
    second = send(connection, HeartbeatRequest(group_id="g", member_id="m"))
    headers = [header for header, _ in written(connection)]
    with pytest.raises(
        MalformedMessageError, match=r"correlation id 2 where 1 \(Heartbeat\) was expected"
    ) as caught:
        answer(connection, HeartbeatResponse(), 4, headers[1].correlation_id)
    ended = connection.lose(caught.value, NOW)
    assert [item.request for item in ended] == [first, second]
    assert ended[0].error is caught.value
    assert isinstance(ended[1].error, DisconnectedError)
    assert connection.phase is Phase.CLOSED


def test_bytes_that_answer_nothing_end_the_connection() -> None:
    connection = ready()
    with pytest.raises(MalformedMessageError, match="answer no request"):
        connection.receive(b"\0\0\0\1", None, NOW)
    with pytest.raises(MalformedMessageError, match="answer no request"):
        connection.fetch_due()


def test_an_answer_that_cannot_be_read_names_api_version_and_broker() -> None:
    connection = ready()
    request = send(connection, MetadataRequest(topics=None))
    [(header, _)] = written(connection)
    with pytest.raises(
        MalformedMessageError, match=r"broker 1 \(kafka:9092\) answered Metadata v13 with 7 bytes"
    ) as caught:
        connection.receive(header.correlation_id.to_bytes(4) + b"\0\1\2", None, NOW)
    assert connection.lose(caught.value, NOW)[0] == Completed(request, None, caught.value, 13, NOW)


def test_bytes_after_the_end_of_an_answer_are_let_pass() -> None:
    connection = ready()
    send(connection, MetadataRequest(topics=None))
    [(header, _)] = written(connection)
    frame = registry.encode_response(MetadataResponse(), 13, header.correlation_id) + b"\0"
    assert connection.receive(frame, None, NOW).response == MetadataResponse()  # type: ignore[union-attr]


def test_only_fetch_answers_want_an_arena() -> None:
    connection = ready()
    send(connection, MetadataRequest(topics=None))
    fetch = send(connection, FetchRequest())
    headers = [header for header, _ in written(connection)]
    assert connection.fetch_due() is None
    answer(connection, MetadataResponse(), 13, headers[0].correlation_id)
    assert connection.fetch_due() is fetch
    done = answer(connection, FetchResponse(), headers[1].request_api_version, headers[1].correlation_id)
    assert done.response == FetchResponse()


def test_produce_without_acks_ends_when_its_last_byte_is_written() -> None:
    connection = ready()
    request = send(connection, ProduceRequest(acks=0))
    assert connection.in_flight == 1
    (data,) = connection.outgoing()
    assert data is not None
    assert connection.sent(3, NOW) is None
    assert connection.outgoing() == [data[3:]]
    assert connection.sent(len(data) - 3, NOW + 1) == Completed(
        request, None, None, ProduceRequest.MAX_VERSION, NOW + 1
    )
    assert connection.idle


def test_produce_without_acks_is_lost_with_the_connection() -> None:
    connection = ready()
    request = send(connection, ProduceRequest(acks=0))
    [ended] = connection.lose(DisconnectedError("gone"), NOW)
    assert ended.request is request
    assert isinstance(ended.error, DisconnectedError)


def test_correlation_ids_wrap_as_int32() -> None:
    connection = ready()
    connection._correlation_id = 2**31 - 2
    for expected in (2**31 - 1, 0, 1):
        send(connection, HeartbeatRequest(group_id="g", member_id="m"))
        [(header, _)] = written(connection)
        assert header.correlation_id == expected
        answer(connection, HeartbeatResponse(), header.request_api_version, expected)


def test_throttling_holds_the_client_back() -> None:
    connection = ready()
    send(connection, HeartbeatRequest(group_id="g", member_id="m"))
    [(header, _)] = written(connection)
    answer(
        connection, HeartbeatResponse(throttle_time_ms=700), header.request_api_version, header.correlation_id
    )
    assert connection.held_until == NOW + 700
    assert not connection.can_send(NOW + 699)
    assert connection.can_send(NOW + 700)


def test_throttling_gives_what_is_in_flight_as_much_more_time() -> None:
    # Kafka reads nothing of a connection that it throttles (KIP-219). A producer without idempotence that took that for
    # silence wrote everything twice.
    connection = ready()
    for _ in range(3):
        send(connection, ProduceRequest(acks=1))
    before = connection.next_deadline()
    [(first, _), *_] = written(connection)
    answer(
        connection, ProduceResponse(throttle_time_ms=30_000), first.request_api_version, first.correlation_id
    )
    assert connection.next_deadline() == before + 30_000
    assert connection.overdue(before + 29_999) is None
    assert connection.overdue(before + 30_000) is not None


def test_a_missing_api_is_told_at_once() -> None:
    connection = ready([ApiVersion(api_key=18, min_version=0, max_version=4)])
    request = Request(HeartbeatRequest(group_id="g", member_id="m"), 1, FOREVER)
    ended = connection.send(request, NOW)
    assert ended is not None
    assert isinstance(ended.error, UnsupportedVersionError)
    assert "kafka:9092) does not offer Heartbeat (API key 12)" in str(ended.error)
    assert (ended.version, connection.outgoing()) == (-1, [])


def test_a_field_that_the_version_cannot_carry_is_told_at_once_and_costs_no_id() -> None:
    connection = ready([ApiVersion(api_key=11, min_version=0, max_version=4)])
    before = connection._correlation_id
    request = Request(JoinGroupRequest(group_id="g", group_instance_id="static"), 1, FOREVER)
    ended = connection.send(request, NOW)
    assert ended is not None
    assert isinstance(ended.error, UnsupportedVersionError)
    assert "JoinGroup v4" in str(ended.error)
    assert connection._correlation_id == before
    assert connection.idle


def test_a_value_that_cannot_be_encoded_ends_only_its_request() -> None:
    connection = ready()
    ended = connection.send(Request(HeartbeatRequest(group_id="g", generation_id=2**40), 1, FOREVER), NOW)
    assert ended is not None
    assert isinstance(ended.error, MalformedMessageError)
    assert connection.can_send(NOW)


def test_requests_in_flight_are_overdue_by_the_request_timeout_or_a_later_deadline() -> None:
    connection = ready()
    short = send(connection, HeartbeatRequest(group_id="g", member_id="m"), deadline=NOW + 10)
    long = send(connection, JoinGroupRequest(group_id="g"), deadline=NOW + 300_000)
    endless = send(connection, MetadataRequest(topics=None), deadline=FOREVER)
    assert connection.next_deadline() == NOW + 30_000
    assert connection.overdue(NOW + 29_999) is None
    error = connection.overdue(NOW + 30_000)
    assert isinstance(error, RequestTimedOutError)
    errors = {item.request: item.error for item in connection.lose(error, NOW + 30_000)}
    assert isinstance(errors[short], RequestTimedOutError)
    assert isinstance(errors[long], DisconnectedError)
    assert isinstance(errors[endless], RequestTimedOutError)
    assert errors[short] is not errors[endless]


def test_losing_the_connection_before_it_opened_ends_nothing() -> None:
    connection = make()
    connection.open(NOW)
    assert connection.lose(DisconnectedError("gone"), NOW) == []


def test_g3_what_the_native_heartbeat_has_sent_is_answered_between_what_was_written_and_what_was_not() -> (
    None
):
    connection = ready()
    first, second = Request(HeartbeatRequest(), 1, FOREVER), Request(HeartbeatRequest(), 1, FOREVER)
    connection.send(first, NOW)
    ((before, _),) = written(connection)
    connection.send(second, NOW)
    beats = [Request(HeartbeatRequest(), 1, FOREVER) for _ in range(2)]
    frame, version = connection.frame(beats[0])
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    header, _ = registry.decode_request(frame[4:])
    assert header.correlation_id == -2
    connection.native_heartbeats_sent(beats, version, NOW)
    ((after, _),) = written(connection)
    ended = [
        answer(connection, HeartbeatResponse(), version, correlation_id)
        for correlation_id in (before.correlation_id, -2, -3, after.correlation_id)
    ]
    assert [item.request for item in ended] == [first, *beats, second]
    assert connection.idle


def test_g3_what_the_native_heartbeat_has_sent_ends_with_the_connection() -> None:
    connection = ready()
    beat = Request(HeartbeatRequest(), 1, FOREVER)
    connection.native_heartbeats_sent([beat], connection.frame(beat)[1], NOW)
    assert connection.in_flight == 1
    (ended,) = connection.lose(DisconnectedError("gone"), NOW)
    assert (ended.request, type(ended.error)) == (beat, DisconnectedError)


def test_g3_a_frame_for_the_native_heartbeat_needs_a_broker_that_takes_it() -> None:
    connection = ready([ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=0, max_version=4)])
    with pytest.raises(UnsupportedVersionError):
        connection.frame(Request(HeartbeatRequest(), 1, FOREVER))


def test_answers_before_the_login_may_have_few_elements() -> None:
    """Each becomes an object, and nobody knows yet who it is that answers."""
    connection = make()
    connection.open(NOW)
    [(header, _)] = written(connection)
    with pytest.raises(
        MalformedMessageError, match="the arrays of one message have more than 10000 elements"
    ):
        answer(connection, ApiVersionsResponse(api_keys=EVERYTHING * 300), 4, header.correlation_id)


def test_every_answer_may_have_as_many_elements_as_a_large_cluster_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kadence.connection.sent._MOST_ELEMENTS", 1_000)
    connection = ready()
    send(connection, MetadataRequest(topics=None))
    [(header, _)] = written(connection)
    topics = [MetadataResponseTopic(name=f"t{number}") for number in range(1_001)]
    with pytest.raises(MalformedMessageError, match="more than 1000 elements"):
        answer(connection, MetadataResponse(topics=topics), header.request_api_version, header.correlation_id)
