"""Lengths that lie, and what they usually mean."""

from __future__ import annotations

import pytest

from kadence.connection.sent import check_length
from kadence.errors import MalformedMessageError

LIMIT = 268_435_456

CAUSES = [
    (b"HTTP", "HTTP answer"),
    (b"<htm", "HTTP answer"),
    (b"SSH-", "SSH greeting"),
    (b"\x15\x03\x01\x00", "listener speaks TLS; set security.protocol to SSL or SASL_SSL"),
    (b"\x15\x03\x03\x00", "listener speaks TLS; set security.protocol to SSL or SASL_SSL"),
    (b"\x16\x03\x03\x00", "listener speaks TLS; set security.protocol to SSL or SASL_SSL"),
    (b"\x7f\xff\xff\xff", "raise fetch.max.bytes"),
    (b"\x10\x00\x00\x01", "raise fetch.max.bytes"),
    (b"\xff\xff\xff\xff", "the stream is damaged"),
    (b"\x80\x00\x00\x00", "the stream is damaged"),
    (b"\x00\x00\x00\x00", "the stream is damaged"),
    (b"\x00\x00\x00\x03", "the stream is damaged"),
]


@pytest.mark.parametrize("length", [4, 5, LIMIT])
def test_honest_lengths_pass(length: int) -> None:
    check_length(length, LIMIT, "kafka:9092")


def test_a_greeting_is_recognised_whatever_the_limit() -> None:
    with pytest.raises(MalformedMessageError, match="HTTP answer"):
        check_length(int.from_bytes(b"HTTP"), 2**31 - 1, "kafka:9092")


@pytest.mark.parametrize(("first_bytes", "cause"), CAUSES)
def test_a_lie_names_address_length_limit_and_likely_cause(first_bytes: bytes, cause: str) -> None:
    length = int.from_bytes(first_bytes, signed=True)
    with pytest.raises(MalformedMessageError) as caught:
        check_length(length, LIMIT, "broker 1 (kafka:9092)")
    message = str(caught.value)
    assert f"broker 1 (kafka:9092) announced a message of {length} bytes; between 4 and {LIMIT}" in message
    assert cause in message
