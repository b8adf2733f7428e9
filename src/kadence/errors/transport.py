"""Errors on the way to a broker."""

from kadence.errors.base import KafkaError

__all__ = [
    "AuthenticationError",
    "ConnectError",
    "DisconnectedError",
    "MalformedMessageError",
    "RequestTimedOutError",
    "TransportError",
    "UnsupportedVersionError",
]


class TransportError(KafkaError):
    """A request or its answer was lost, or the connection to a broker failed."""

    retriable = True


class ConnectError(TransportError):
    """A broker could not be connected to.

    The message names the address, the step that failed (such as DNS, TCP or TLS) and the cause.
    """


class DisconnectedError(TransportError):
    """The connection was lost before a request was answered. The broker may or may not have carried it out."""


class RequestTimedOutError(TransportError):
    """A broker did not answer a request within request.timeout.ms."""


class MalformedMessageError(TransportError):
    """The received bytes are no Kafka message: truncated, with a wrong length, or with extra bytes at the end."""

    retriable = False


class UnsupportedVersionError(TransportError):
    """The broker and this client support no common version of an API, or that version lacks a requested feature."""

    retriable = False


class AuthenticationError(TransportError):
    """The broker refused this client's credentials or certificate."""

    retriable = False
