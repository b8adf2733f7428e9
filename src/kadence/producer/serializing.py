"""What serialisers make, and how it is said that they failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kadence.errors import SerializationError

__all__ = ["checked_bytes", "failed", "made_bytes", "serialized"]


def checked_bytes(what: str, data: Any) -> bytes:
    """Bytes of anything that holds some."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    advice = f", e.g. {what}.encode()" if isinstance(data, str) else ""
    raise SerializationError(
        f"{what} must be bytes or None, not {type(data).__name__}: encode it first{advice}"
    )


def serialized(
    field: str, serializer: Any, topic: str, headers: Sequence[tuple[str, bytes | None]], data: Any
) -> bytes | None:
    """What a serialiser makes of a key or value; None stays None.

    Args:
        field: ``key`` or ``value``. serializer: None takes bytes as they are.
    """
    if data is None:
        return None
    if serializer is None:
        return checked_bytes(field, data)
    try:
        method = getattr(serializer, "serialize", None)
        made = serializer(data) if method is None else method(topic, headers, data)
    except Exception as error:
        raise failed(field, topic, error) from error
    return made_bytes(field, topic, made)


def failed(field: str, topic: str, error: Exception) -> SerializationError:
    """What is raised from what a serialiser raised."""
    # Not the data, which may be secret.
    return SerializationError(f"the {field} of a record for topic {topic!r} cannot be serialised: {error!r}")


def made_bytes(field: str, topic: str, made: Any) -> bytes:
    """The bytes that a serialiser made."""
    if isinstance(made, bytes | bytearray | memoryview):
        return bytes(made)
    raise SerializationError(
        f"{field}.serializer made {type(made).__name__} of the {field} of a record for topic {topic!r}, not bytes"
    )
