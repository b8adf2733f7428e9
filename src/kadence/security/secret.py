"""A string that no repr, error or log shows."""

from __future__ import annotations

from typing import Final

__all__ = ["Secret"]

_HIDDEN: Final = "[hidden]"


class Secret:
    """A string that shows itself only to who calls `reveal`.

    ``str()``, f-strings, ``%s``, repr and logs have ``[hidden]``, and json refuses it.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str | Secret = "") -> None:
        self._value: str = value._value if isinstance(value, Secret) else value

    def reveal(self) -> str:
        """The value."""
        return self._value

    def __repr__(self) -> str:
        return f"'{_HIDDEN}'"

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        return _HIDDEN

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return self._value == other._value if isinstance(other, Secret) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._value)
