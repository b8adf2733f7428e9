"""What a client needs of frames: requests to bytes, and the header of an answer.

A message's own class says all that is needed. `registry` knows the class of every API, which is what a broker needs to
read requests; a client that loaded it would load every message of Kafka.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

from kadence.wire import Buffer, VersionError, WireError, Writer

if TYPE_CHECKING:
    from kadence.protocol.message import Message, Request

__all__ = ["answer_header_version", "check_version", "encode_frame", "encode_request", "write_message"]

_API_VERSIONS: Final = 18
_HEADER: Final = Struct(">hhi")


def answer_header_version(request: type[Request], version: int) -> int:
    """The version of the header before an answer: 0, or 1 when it is flexible (never for ApiVersions, KIP-511)."""
    return 1 if version >= request.FLEXIBLE_FROM and request.API_KEY != _API_VERSIONS else 0


def encode_request(message: Request, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """A request's frame without its length.

    Raises:
        VersionError: the version is not spoken here, or cannot carry what the message says.
        WireError: a value does not fit its type.
    """
    return _written(message, version, correlation_id, client_id).getvalue()


def encode_frame(message: Request, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """A request's frame with its length, in pieces: long buffers, such as batches, are not copied.

    Raises:
        VersionError, WireError: as `encode_request`.
    """
    return _written(message, version, correlation_id, client_id).frame()


def _written(message: Request, version: int, correlation_id: int, client_id: str | None) -> Writer:
    check_version(type(message), version)
    w = Writer()
    w.put(_HEADER.pack(message.API_KEY, version, correlation_id))
    w.put(_end_of_header(client_id, 2 if version >= message.FLEXIBLE_FROM else 1))
    _write(w, message, version)
    return w


@lru_cache(maxsize=64)
def _end_of_header(client_id: str | None, header_version: int) -> bytes:
    """What follows the correlation id in a `RequestHeader`: the same in all requests of a client."""
    w = Writer()
    w.nullable_string(client_id)
    if header_version >= 2:
        w.tags({})
    return w.getvalue()


def check_version(message: type[Message], version: int) -> None:
    """Raise `VersionError` for a version that is not spoken here."""
    if not message.MIN_VERSION <= version <= message.MAX_VERSION:
        raise VersionError(
            f"{message.__name__} version {version}: spoken here are {message.MIN_VERSION} to {message.MAX_VERSION}"
        )


def write_message(w: Writer, message: Message, version: int) -> bytes:
    """The bytes in ``w``, and the message behind them."""
    _write(w, message, version)
    return w.getvalue()


def _write(w: Writer, message: Message, version: int) -> None:
    try:
        message.write(w, version)
    except VersionError:
        raise
    except (struct.error, WireError) as error:
        raise WireError(f"{type(message).__name__} version {version}: {error}") from error
