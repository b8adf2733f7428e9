"""What the program has chosen to read. Application side."""

from __future__ import annotations

__all__ = ["Chosen"]


class Chosen:
    """What the program has chosen to read: topics by a subscription, or partitions by hand.

    Attributes:
        subscribed: topics by name. pattern: of either kind. patterns: one that is matched here, and one that the
            broker matches; they outlast an unsubscribe().
        by_hand: whether partitions are assigned by hand. followed: topics of which all partitions are.
        times: how often the program has chosen.
    """

    __slots__ = ("by_hand", "followed", "pattern", "patterns", "subscribed", "times")

    def __init__(self) -> None:
        self.subscribed: frozenset[str] | None = None
        self.pattern: str | None = None
        self.patterns: tuple[str | None, str | None] = (None, None)
        self.by_hand = False
        self.followed: frozenset[str] = frozenset()
        self.times = 0

    @property
    def is_anything(self) -> bool:
        """Whether there is a subscription, or an assignment by hand."""
        return self.by_hand or self.subscribed is not None or self.pattern is not None

    def nothing(self) -> None:
        """An unsubscribe()."""
        self.subscribed = self.pattern = None
        self.by_hand = False
        self.followed = frozenset()
