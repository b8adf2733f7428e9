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
    """The way to a broker, not its answer."""

    retriable = True


class ConnectError(TransportError):
    """No connection: the message names address and cause, and the step that failed after TCP or before it."""


class DisconnectedError(TransportError):
    """The connection was lost while a request was in flight; the broker may or may not have served it."""


class RequestTimedOutError(TransportError):
    """No answer within the request's time."""


class MalformedMessageError(TransportError):
    """Bytes that are no Kafka message: truncated, a length that lies, junk after the end."""

    retriable = False


class UnsupportedVersionError(TransportError):
    """The broker and we share no version of this API, or the version lacks something that was asked for."""

    retriable = False


class AuthenticationError(TransportError):
    """The broker refused our credentials or certificate."""

    retriable = False
