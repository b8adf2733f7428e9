"""How many topic names one heartbeat may subscribe to, with KIP-848 and in share groups: each costs the others time."""

from __future__ import annotations

from collections.abc import Sized
from typing import Final

__all__ = ["MOST_NAMES", "nonsense_of_names"]

MOST_NAMES: Final = 10_000
"""Kafka has no such bound."""


def nonsense_of_names(names: Sized | None) -> str | None:
    """Why a heartbeat with these topic names is refused; None: it is not."""
    if names is None or len(names) <= MOST_NAMES:
        return None
    return f"SubscribedTopicNames has {len(names)} names. A member can subscribe to {MOST_NAMES} here."
