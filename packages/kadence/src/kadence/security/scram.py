"""What both sides of a SCRAM login know of its mechanisms (RFC 5802, RFC 7677)."""

from __future__ import annotations

from typing import Final

__all__ = ["HASHES", "MIN_ITERATIONS"]

HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism to the name of its hash."""

MIN_ITERATIONS: Final = 4096
"""Fewer would make a stolen exchange cheap to search for the password (RFC 7677, section 4)."""
