"""Bytes ⇄ Kafka's primitive types. Knows no message, no broker, no socket; imports nothing of kadence.

Any thread may use it; a `Reader` or `Writer` belongs to whoever made it.
"""

from __future__ import annotations

from kadence.wire.reader import ZERO_UUID, Buffer, Reader, VersionError, WireError
from kadence.wire.structure import FRESH, Structure
from kadence.wire.writer import Writer

__all__ = ["FRESH", "ZERO_UUID", "Buffer", "Reader", "Structure", "VersionError", "WireError", "Writer"]
