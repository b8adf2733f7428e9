"""A string that no repr, error or log shows."""

from __future__ import annotations

__all__ = ["Secret"]


class Secret(str):
    """A string that does not show itself in a repr or a log. ``str(secret)`` is the value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'[hidden]'"

    def __str__(self) -> str:
        return str.__str__(self)

    def __format__(self, spec: str) -> str:
        return "[hidden]"
