"""Requests as a broker reads them, answers as a client does: a message or a `WireError`, stable when written again."""

from __future__ import annotations

import functools
import struct
from typing import Any, Final

from tests.fuzz.full import full
from tests.fuzz.target import Target
from tests.protocol.real_requests import REQUEST_FOR, Ground
from tests.protocol.values import cases

from kadence.connection.sent import Sent
from kadence.errors import MalformedMessageError
from kadence.protocol import registry
from kadence.records import encode_batch
from kadence.wire import VersionError, WireError
from kadence.wire.reader import BoundedReader

__all__ = ["ANSWERS", "REQUESTS", "requests"]

_API: Final = struct.Struct(">hh")
_CORRELATION_ID: Final = 7


@functools.cache
def requests() -> tuple[tuple[type[Any], int, bytes], ...]:
    """A frame for every API in every version, as far as the version can carry what real Kafka is asked."""
    ground = Ground("t", b"\1" * 16, "g", encode_batch([(1_000, b"k", b"v", (("h", b"x"),))]))
    found = []
    for kind in registry.REQUESTS.values():
        make = REQUEST_FOR[kind]
        for version in range(kind.MIN_VERSION, kind.MAX_VERSION + 1):
            try:
                frame = registry.encode_request(make(version, ground), version, _CORRELATION_ID, "fuzz")
            except VersionError:
                frame = registry.encode_request(kind(), version, _CORRELATION_ID, "fuzz")
            found.append((kind, version, frame))
    return tuple(found)


# Requests


def _read_request(frame: bytes) -> object:
    try:
        header, reader = registry.decode_request_header(frame, BoundedReader)
        message = registry.decode_request_body(header, reader)
    except WireError as error:
        return error
    version = header.request_api_version
    written = registry.encode_request(message, version, header.correlation_id, header.client_id)
    _, again = registry.decode_request(written)
    assert again == message
    assert registry.encode_request(again, version, header.correlation_id, header.client_id) == written
    return message


# Answers


def _answer_seeds() -> list[bytes]:
    """Each behind the key and version of the request that it answers."""
    seeds = []
    for case in cases():
        key = getattr(case.python, "API_KEY", None)
        if case.python in registry.RESPONSES.values():
            answer = registry.encode_response(full(case), case.version, _CORRELATION_ID)
            seeds.append(_API.pack(key, case.version) + answer)
    return seeds


def _read_answer(data: bytes) -> object:
    if len(data) < _API.size:
        return None
    key, version = _API.unpack_from(data)
    request, frame = registry.REQUESTS.get(key), data[_API.size :]
    if request is None or not request.MIN_VERSION <= version <= request.MAX_VERSION:
        return None
    strict = _strict(request, version, frame)
    try:
        message = Sent(None, request(), version, _CORRELATION_ID, 0, 0).decode(version, frame, "a:1")
    except MalformedMessageError as error:
        assert strict is None
        return error
    # Bytes after the end are let pass here, and unlike `registry` an ApiVersions refusal is the caller's to read.
    assert strict in (None, message)
    written = registry.encode_response(message, version, _CORRELATION_ID)
    _, again = registry.decode_response(request, version, written)
    assert again == message
    return message


def _strict(request: type[Any], version: int, frame: bytes) -> object:
    try:
        return registry.decode_response(request, version, frame)[1]
    except WireError:
        return None


def _request_seeds() -> list[bytes]:
    filled = [
        registry.encode_request(full(case), case.version, _CORRELATION_ID, "fuzz")
        for case in cases()
        if case.python in registry.REQUESTS.values()
    ]
    return [frame for _, _, frame in requests()] + filled


REQUESTS: Final = Target("requests", _request_seeds, _read_request, allocation=(400, 20_000), share=230_000)
ANSWERS: Final = Target("answers", _answer_seeds, _read_answer, allocation=(400, 20_000), share=200_000)
