"""The frames of a broker: the length before a message, which is checked, and the answer to a request.

No socket. A wrong peer shows in the first length: a TLS port without TLS on this side, an HTTP server, or a plaintext
port with TLS on this side all send bytes that read as an absurd length. The error says which of them it was, instead of
"frame too large".

A fetch may go out again by itself (`Repeat`): `Again` has its bytes, and those of the answer that lets it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kadence.connection.request import Request, common, ranges_of
from kadence.errors import MalformedMessageError
from kadence.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kadence.protocol.client_frames import answer_header_version
from kadence.protocol.fetch import FetchRequest, FetchResponse
from kadence.wire import WireError, Writer
from kadence.wire.reader import BoundedReader

__all__ = [
    "FIRST_WITH_IDS",
    "LAST_KNOWN_LAYOUT",
    "LENGTH_BYTES",
    "OPENING_LIMIT",
    "SHORTEST",
    "Again",
    "Sent",
    "again",
    "can_go_again",
    "check_length",
]

_CORRELATION_ID_BYTES: Final = 4

_MOST_ELEMENTS: Final = 4_000_000
"""Elements of all arrays of one answer together: Metadata of half a million partitions has so many."""

_MOST_OWN_ELEMENTS: Final = 10_000
"""The same of ApiVersions and SASL, which are read before the broker has shown who it is."""


class Sent:
    """A request in flight. ``request`` is None for the connection's own ApiVersions and SASL.

    Attributes:
        frame: the sent bytes, with their length, where those may go out again (`Request.repeat`); else None.
    """

    __slots__ = ("correlation_id", "deadline", "frame", "message", "request", "sent_at", "version")

    def __init__(
        self,
        request: Request | None,
        message: Any,
        version: int,
        correlation_id: int,
        deadline: int,
        sent_at: int,
    ) -> None:
        self.request = request
        self.message = message
        self.version = version
        self.correlation_id = correlation_id
        self.deadline = deadline
        self.sent_at = sent_at
        self.frame: memoryview | None = None

    @property
    def name(self) -> str:
        return type(self.message).__name__.removesuffix("Request")

    def decode(self, version: int, frame: Any, address: str, at: int = _CORRELATION_ID_BYTES) -> Any:
        """Read what follows the correlation id of the answer, which may be in another version than the request.

        Args:
            at: where that begins.

        Raises:
            MalformedMessageError: these bytes are no such answer.
        """
        request = type(self.message)
        most = _MOST_OWN_ELEMENTS if self.request is None else _MOST_ELEMENTS
        reader = BoundedReader(frame, at, most)
        try:
            if answer_header_version(request, version):
                reader.unknown_tags()
            # Bytes after the end are let pass, unlike in a request: librdkafka's mock cluster sends one too many in
            # flexible versions, and the frame's own length says where the next answer begins.
            return request.RESPONSE.read(reader, version)
        except WireError as error:
            raise MalformedMessageError(
                f"{address} answered {self.name} v{version} with {len(frame)} bytes that are no such answer: {error}"
            ) from error

    def lower_version(self, frame: Any, address: str) -> int:
        """The version to ask ApiVersions in after a refusal: the highest one that the broker names, else 0."""
        try:
            refusal: ApiVersionsResponse = self.decode(0, frame, address)
        except MalformedMessageError:
            # Some answer in a format of their own. Every broker understands version 0.
            return 0
        theirs = ranges_of(refusal.api_keys).get(ApiVersionsRequest.API_KEY, (0, 0))
        return common((ApiVersionsRequest.MIN_VERSION, self.version - 1), theirs) or 0


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
        return f"These bytes are {greeting}, so this is not a Kafka listener"
    # A TLS record starts with its type (21 alert, 22 handshake) and the version 3.x.
    if (length >> 24) & 0xFF in (0x15, 0x16) and (length >> 16) & 0xFF == 0x03:
        return (
            "These bytes are a TLS record: the listener speaks TLS; set security.protocol to SSL or SASL_SSL"
        )
    if limit == OPENING_LIMIT:
        return "No answer before the login is so long: this is not a Kafka listener, or the stream is damaged"
    if 0 < length < 2**31 and length > limit:
        return (
            "Either this is not a Kafka listener, or one batch of a topic is larger than that: raise fetch.max.bytes "
            "to the size of the batch"
        )
    return "This is not a Kafka listener, or the stream is damaged"


FIRST_WITH_IDS: Final = 13
"""The first version that names topics by id."""

LAST_KNOWN_LAYOUT: Final = 18
"""The last version of Fetch whose layout is known here and to the compiled poller (following.h and intake.h).

Later ones work, but are not repeated by it. Raise the number with the poller's own, once both know the new layout.
"""

_HEADER_BYTES: Final = 10
"""API key, version, correlation id and the length of the client id."""
_EPOCH_AT: Final = 17
"""Of the session epoch among the fields of a FetchRequest from version 15 on; before, a replica id comes first."""

_EPOCH_BYTES: Final = 4


class Again(NamedTuple):
    """A fetch and its empty answer as bytes.

    Attributes:
        frame: the request with its length, as it was sent, but naming no partition. epoch_at: where its session epoch
            stands.
        answer: the frame of its answer with its length, if the session has no news.
    """

    frame: bytes
    epoch_at: int
    answer: bytes


def again(
    frame: memoryview, message: Any, version: int, correlation_id: int, client_id: str, empty: Any = None
) -> Again:
    """Make the `Again` of this frame.

    Versions 7 to `LAST_KNOWN_LAYOUT` of Fetch: those before know no sessions. Or a ShareFetch that names nothing, and
    the answer to it that is ``empty``.
    """
    if empty is not None:
        return _share_again(frame, message, version, correlation_id, client_id, empty)
    flexible = answer_header_version(FetchRequest, version)
    epoch_at = LENGTH_BYTES + _HEADER_BYTES + len(client_id.encode()) + flexible
    epoch_at += _EPOCH_AT if version >= 15 else _EPOCH_AT + 4
    w = Writer()
    w.put(correlation_id.to_bytes(4) + bytes(flexible))
    FetchResponse(session_id=message.session_id).write(w, version)
    answer = w.getvalue()
    return Again(
        _naming_nothing(frame, message, epoch_at), epoch_at, len(answer).to_bytes(LENGTH_BYTES) + answer
    )


def _share_again(
    frame: memoryview, message: Any, version: int, correlation_id: int, client_id: str, empty: Any
) -> Again:
    w = Writer()
    w.compact_nullable_string(message.group_id)
    w.compact_nullable_string(message.member_id)
    epoch_at = LENGTH_BYTES + _HEADER_BYTES + len(client_id.encode()) + 1 + len(w.getvalue())
    w = Writer()
    w.put(correlation_id.to_bytes(4) + bytes(1))
    empty.write(w, version)
    answer = w.getvalue()
    return Again(bytes(frame), epoch_at, len(answer).to_bytes(LENGTH_BYTES) + answer)


def can_go_again(message: Any, version: int) -> bool:
    """True if it can be sent again: it names no partition, or those can be left out."""
    if not isinstance(message, FetchRequest):
        return not (message.topics or message.forgotten_topics_data)
    if version > LAST_KNOWN_LAYOUT:
        return False
    return version >= FIRST_WITH_IDS or not (message.topics or message.forgotten_topics_data)


def _naming_nothing(frame: memoryview, message: FetchRequest, epoch_at: int) -> bytes:
    if not (message.topics or message.forgotten_topics_data):
        return bytes(frame)
    w = Writer()
    w.put(frame[LENGTH_BYTES : epoch_at + _EPOCH_BYTES])
    w.compact_count(0)
    w.compact_count(0)
    w.compact_string(message.rack_id)
    w.tags({})
    bare = w.getvalue()
    return len(bare).to_bytes(LENGTH_BYTES) + bare
