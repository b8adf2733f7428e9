"""The errors of encoding and decoding.

Two classes only: this room knows bytes, not brokers. The connection room turns them into
`kadence.errors` at its edge.
"""

from __future__ import annotations

__all__ = ["VersionError", "WireError"]


class WireError(ValueError):
    """Bytes that are no Kafka message (truncated, lying lengths, no UTF-8), or a value that does not fit its type."""


class VersionError(WireError):
    """A version that is not spoken here, or a field set to something which the chosen version cannot carry."""
