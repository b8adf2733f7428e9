"""Whole frames: header and body together, for both sides of a connection.

The 4-byte length in front of a frame belongs to the connection. Header versions follow KIP-482: flexible
versions of an API have the flexible headers (request 2, response 1), others request 1 and response 0.
ApiVersions is the exception (KIP-511): its response always has header 0, because the client cannot know
yet what the broker speaks; and a broker that does not know the version asked for answers in version 0
with UNSUPPORTED_VERSION, which `decode_response` understands.
"""

from __future__ import annotations

import struct
from struct import Struct
from typing import Any, Final, TypeVar

from kadence.protocol import error_codes
from kadence.protocol.client_frames import check_version, encode_request, write_message
from kadence.protocol.message import Message, Request, Response
from kadence.protocol.request_header import RequestHeader
from kadence.protocol.response_header import ResponseHeader
from kadence.protocol.tables import API_NAMES, REQUESTS, RESPONSES
from kadence.wire import Buffer, Reader, VersionError, WireError, Writer, parser

__all__ = [
    "API_NAMES",
    "REQUESTS",
    "RESPONSES",
    "UnsupportedRequestError",
    "api_name",
    "decode_request",
    "decode_request_body",
    "decode_request_header",
    "decode_response",
    "decode_versioned",
    "encode_request",
    "encode_response",
    "encode_versioned",
    "request_header_version",
    "response_header_version",
]

_API_VERSIONS: Final = 18
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")

M = TypeVar("M", bound=Message)


class UnsupportedRequestError(VersionError):
    """A request of an API or a version that is not spoken here.

    Attributes:
        header: what the request said of itself; for an ApiVersions request of a version too new a broker
            answers it in version 0 with UNSUPPORTED_VERSION, for anything else it closes the connection.
    """

    def __init__(self, message: str, header: RequestHeader) -> None:
        super().__init__(message)
        self.header = header

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (str(self), self.header))


def api_name(api_key: int) -> str:
    """Kafka's name of an API; ``UNKNOWN(n)`` for a key that is not spoken here."""
    return API_NAMES.get(api_key) or f"UNKNOWN({api_key})"


def request_header_version(api_key: int, version: int) -> int:
    """The version of the header before a request: 1, or 2 when the request is flexible."""
    return 2 if version >= REQUESTS[api_key].FLEXIBLE_FROM else 1


def response_header_version(api_key: int, version: int) -> int:
    """The version of the header before a response: 0, or 1 when it is flexible (never for ApiVersions)."""
    if api_key == _API_VERSIONS:
        return 0
    return 1 if version >= REQUESTS[api_key].FLEXIBLE_FROM else 0


def _read(r: Reader, message: type[M], version: int) -> M:
    try:
        body = message.read(r, version)
        r.finish()
    except WireError as error:
        raise WireError(f"{message.__name__} version {version}: {error}") from error
    return body


def encode_response(message: Response, version: int, correlation_id: int) -> bytes:
    """A response's frame without its length.

    Raises:
        VersionError: the version is not spoken here, or cannot carry what the message says.
        WireError: a value does not fit its type.
    """
    check_version(type(message), version)
    api_key = message.API_KEY
    w = Writer()
    ResponseHeader(correlation_id).write(w, response_header_version(api_key, version))
    return write_message(w, message, version)


def decode_request_header(buf: Buffer, reader: type[Reader] = Reader) -> tuple[RequestHeader, Reader]:
    """The header of a request, and a ``reader`` that stands at its body.

    Works for every API and version that Kafka will ever have, because both header versions begin alike;
    the tagged fields of an unknown API's header are not read.

    Raises:
        WireError: the bytes are no request header.
    """
    r = reader(buf)
    try:
        header = RequestHeader.read(r, 1)
        request = REQUESTS.get(header.request_api_key)
        if request is not None and header.request_api_version >= request.FLEXIBLE_FROM:
            header.unknown_tags = r.unknown_tags()
    except WireError as error:
        raise WireError(f"RequestHeader: {error}") from error
    return header, r


def decode_request(buf: Buffer) -> tuple[RequestHeader, Any]:
    """A whole request frame.

    Returns:
        The header and the message, whose type is `REQUESTS[header.request_api_key]`.

    Raises:
        UnsupportedRequestError: an API or a version that is not spoken here.
        WireError: anything else that is not one whole request.
    """
    header, r = decode_request_header(buf)
    return header, decode_request_body(header, r)


def decode_request_body(header: RequestHeader, r: Reader) -> Any:
    """The message behind a header; raises as `decode_request`."""
    api_key = header.request_api_key
    version = header.request_api_version
    request = REQUESTS.get(api_key)
    if request is None:
        raise UnsupportedRequestError(f"no API has the key {api_key} here", header)
    if not request.MIN_VERSION <= version <= request.MAX_VERSION:
        raise UnsupportedRequestError(
            f"{request.__name__} version {version}: spoken here are {request.MIN_VERSION} to {request.MAX_VERSION}",
            header,
        )
    return _read(r, request, version)


def decode_response(request_cls: type[Request], version: int, buf: Buffer) -> tuple[int, Any]:
    """A whole response frame.

    Args:
        request_cls: the request it answers.
        version: the request's version. An ApiVersions answer that says UNSUPPORTED_VERSION is read in
            version 0, whatever was asked.
        buf: the frame without its length. Records of a fetch response are views of it.

    Returns:
        The correlation id and the message, whose type is `request_cls.RESPONSE`.

    Raises:
        WireError: the bytes are not one whole such response.
    """
    api_key = request_cls.API_KEY
    r = Reader(buf)
    try:
        header = ResponseHeader.read(r, response_header_version(api_key, version))
    except WireError as error:
        raise WireError(f"ResponseHeader: {error}") from error
    if api_key == _API_VERSIONS and Reader(buf, r.pos).int16() == error_codes.UNSUPPORTED_VERSION:
        version = 0
    return header.correlation_id, _read(r, RESPONSES[api_key], version)


def encode_versioned(message: Message, version: int) -> bytes:
    """A message behind its int16 version, as the consumer protocol stores subscriptions and assignments.

    Raises:
        VersionError: the version is not spoken here, or cannot carry what the message says.
        WireError: a value does not fit its type.
    """
    check_version(type(message), version)
    w = Writer()
    w.put(_INT16.pack(version))
    return write_message(w, message, version)


@parser
def decode_versioned(message: type[M], buf: Buffer) -> tuple[int, M]:
    """A message behind its int16 version.

    A version above ours is read as our newest, and what follows is left alone: the consumer protocol only
    ever grows at its end, and members of different ages share a group.

    Returns:
        The version it was written in, and the message.

    Raises:
        WireError: the bytes are not such a message.
    """
    r = Reader(buf)
    version = r.int16()
    if version < message.MIN_VERSION:
        raise WireError(f"{message.__name__} version {version}: no such version")
    try:
        return version, message.read(r, min(version, message.MAX_VERSION))
    except WireError as error:
        raise WireError(f"{message.__name__} version {version}: {error}") from error
