"""The bytes of a fetch that may go out again by itself, and of the answer that lets it (`Repeat`). No socket."""

from __future__ import annotations

from typing import Final, NamedTuple

from kadence.connection.sent import LENGTH_BYTES
from kadence.protocol.client_frames import answer_header_version
from kadence.protocol.fetch import FetchRequest, FetchResponse
from kadence.wire import Writer

__all__ = ["FIRST_WITH_IDS", "Again", "again", "can_go_again"]

FIRST_WITH_IDS: Final = 13
"""The first version that names topics by id."""

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
        answer: the frame of its answer with its length, if the session has nothing to tell.
    """

    frame: bytes
    epoch_at: int
    answer: bytes


def again(
    frame: memoryview, message: FetchRequest, version: int, correlation_id: int, client_id: str
) -> Again:
    """What `Again` says of this frame.

    Versions 7 and later: those before know no sessions.
    """
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


def can_go_again(message: FetchRequest, version: int) -> bool:
    """Whether it can be sent again: it names nothing, or what it names can be left out."""
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
