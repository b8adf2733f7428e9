"""What a connection remembers of a request that it has sent, in order to read the answer. No socket."""

from __future__ import annotations

from typing import Any, Final

from kadence.connection import versions
from kadence.connection.request import Request
from kadence.errors import MalformedMessageError
from kadence.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kadence.protocol.client_frames import answer_header_version
from kadence.wire import WireError
from kadence.wire.bounded import BoundedReader

__all__ = ["Sent"]

_CORRELATION_ID_BYTES: Final = 4

_MOST_ELEMENTS: Final = 4_000_000
"""Elements of all arrays of one answer together: Metadata of half a million partitions has so many."""

_MOST_OWN_ELEMENTS: Final = 10_000
"""The same of ApiVersions and SASL, which are read before the broker has shown who it is."""


class Sent:
    """A request in flight. ``request`` is None for the connection's own ApiVersions and SASL.

    Attributes:
        frame: what was sent, with its length, where that may go out again (`Request.repeat`); else None.
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

    def decode(self, version: int, frame: Any, address: str) -> Any:
        """Read what follows the correlation id of the answer, which may be in another version than the request.

        Raises:
            MalformedMessageError: these bytes are no such answer.
        """
        request = type(self.message)
        most = _MOST_OWN_ELEMENTS if self.request is None else _MOST_ELEMENTS
        reader = BoundedReader(frame, _CORRELATION_ID_BYTES, most)
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
        theirs = versions.ranges_of(refusal.api_keys).get(ApiVersionsRequest.API_KEY, (0, 0))
        return versions.common((ApiVersionsRequest.MIN_VERSION, self.version - 1), theirs) or 0
