"""What every request, response and other top-level message of this package has, as a type.

The generated classes do not inherit from it: a protocol costs nothing at run time and lets each file be
read alone.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, Self

from kadence.wire import Reader, Writer

__all__ = ["Message", "Request", "Response"]


class Message(Protocol):
    """A top-level message.

    Attributes:
        MIN_VERSION, MAX_VERSION: the versions it can be written and read in.
        FLEXIBLE_FROM: the first version with compact lengths and tagged fields (KIP-482); 32767 for never.
    """

    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    def write(self, w: Writer, version: int) -> None:
        """Appends the message in one of its versions.

        Raises:
            VersionError: a field is set that this version cannot carry.
            WireError, struct.error: a value does not fit its type.
        """

    @classmethod
    def read(cls, r: Reader, version: int) -> Self:
        """Reads one message.

        Raises:
            WireError: the bytes are not such a message.
        """


class Response(Message, Protocol):
    """A response: it knows its API."""

    API_KEY: ClassVar[int]


class Request(Message, Protocol):
    """A request: it knows its API and what answers it."""

    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type]
