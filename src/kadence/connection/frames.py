"""The four bytes before every message: its length, which is checked.

A wrong peer shows in the first length: a TLS port without TLS on this side, an HTTP server, or a plaintext port
with TLS on this side all send bytes that read as an absurd length. The error says which of them it was, instead of
"frame too large".
"""

from __future__ import annotations

from typing import Final

from kadence.errors import MalformedMessageError

__all__ = ["LENGTH_BYTES", "OPENING_LIMIT", "SHORTEST", "check_length"]

LENGTH_BYTES: Final = 4
SHORTEST: Final = 4
"""A response holds at least its correlation id."""
OPENING_LIMIT: Final = 1 << 20
"""The longest frame before a connection is ready: ApiVersions and SASL, of a peer that has not shown who it is."""

_GREETINGS: Final = {
    int.from_bytes(b"HTTP"): "an HTTP answer",
    int.from_bytes(b"<htm"): "an HTTP answer",
    int.from_bytes(b"SSH-"): "an SSH greeting",
}


def check_length(length: int, limit: int, address: str) -> None:
    """Refuse a length (signed, as read) that no honest Kafka broker would send.

    Raises:
        MalformedMessageError: names the address, the length, the limit and the likely cause.
    """
    if SHORTEST <= length <= limit and length not in _GREETINGS:
        return
    raise MalformedMessageError(
        f"{address} announced a message of {length} bytes; between {SHORTEST} and {limit} are accepted. "
        + _likely_cause(length, limit)
    )


def _likely_cause(length: int, limit: int) -> str:
    if (greeting := _GREETINGS.get(length)) is not None:
        return f"These bytes are {greeting}, so this is no Kafka listener"
    # A TLS record starts with its type (21 alert, 22 handshake) and the version 3.x.
    if (length >> 24) & 0xFF in (0x15, 0x16) and (length >> 16) & 0xFF == 0x03:
        return "These bytes are a TLS record: the listener speaks TLS; set security.protocol=SSL"
    if limit == OPENING_LIMIT:
        return "No answer before the login is so long: this is no Kafka listener, or the stream is damaged"
    if 0 < length < 2**31 and length > limit:
        return (
            "Either this is no Kafka listener, or one batch of a topic is larger than that: lower "
            "fetch.max.bytes, or the size of the topic's messages"
        )
    return "This is no Kafka listener, or the stream is damaged"
