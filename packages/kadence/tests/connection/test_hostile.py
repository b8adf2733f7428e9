"""Whatever bytes arrive, a connection answers with its own errors, and every request ends once."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from kadence.connection.connection import BrokerConnection
from kadence.connection.request import Completed, Request
from kadence.errors import KafkaError
from kadence.protocol import registry
from kadence.protocol.api_versions import ApiVersion, ApiVersionsResponse
from kadence.protocol.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kadence.protocol.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker

NOW = 1_000_003
VERSIONS = ApiVersionsResponse(
    api_keys=[
        ApiVersion(api_key=k, min_version=c.MIN_VERSION, max_version=c.MAX_VERSION)
        for k, c in registry.REQUESTS.items()
    ]
)
ANSWERS = [
    registry.encode_response(VERSIONS, 4, 0),
    registry.encode_response(
        MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="kafka", port=9092)]), 13, 1
    ),
    registry.encode_response(
        FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=b"records")])]),
        18,
        2,
    ),
]


@st.composite
def damaged(draw: st.DrawFn) -> list[bytes]:
    """The three answers, with bytes changed, cut off or added here and there."""
    frames = []
    for whole in ANSWERS:
        frame = bytearray(whole)
        for place in draw(st.lists(st.integers(4, len(frame) - 1), max_size=4)):
            frame[place] = draw(st.integers(0, 255))
        cut = draw(st.one_of(st.just(len(frame)), st.integers(4, len(frame))))
        frames.append(bytes(frame[:cut]) + draw(st.binary(max_size=4)))
    return frames


def drain(connection: BrokerConnection) -> None:
    while data := b"".join(connection.outgoing()):
        connection.sent(len(data), NOW)


@given(frames=damaged())
def test_damaged_answers_end_in_our_own_errors(frames: list[bytes]) -> None:
    connection = BrokerConnection("broker 1 (kafka:9092)", client_id="me", request_timeout_ms=30_000)
    connection.open(NOW)
    drain(connection)
    requests = [Request(MetadataRequest(topics=None), 1, NOW + 9), Request(FetchRequest(), 1, NOW + 9)]
    ended: list[Completed] = []
    try:
        connection.receive(frames[0], None, NOW)
        ended += filter(None, [connection.send(request, NOW) for request in requests])
        drain(connection)
        for frame in frames[1:]:
            ended += filter(None, [connection.receive(frame, None, NOW)])
    except KafkaError as error:
        ended += connection.lose(error, NOW)
    asked = [item.request for item in ended]
    assert len(set(asked)) == len(asked)
    assert set(asked) <= set(requests)
    assert connection.in_flight == 0 or len(asked) + connection.in_flight == len(requests)


@given(frame=st.binary(max_size=60))
def test_any_bytes_as_a_first_answer(frame: bytes) -> None:
    connection = BrokerConnection("broker 1 (kafka:9092)", client_id="me", request_timeout_ms=30_000)
    connection.open(NOW)
    drain(connection)
    with suppress(KafkaError):
        assert connection.receive(frame, None, NOW) is None
