"""The type variables of the public API. Only type checkers see their defaults; Python 3.11 does not support them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["K_co", "MaybeNone", "T_co", "V_co"]

if TYPE_CHECKING:
    # Both checkers bring its types along, so nobody has to install it.
    from typing_extensions import TypeVar
else:
    from typing import TypeVar as _Plain

    def TypeVar(name: str, *, covariant: bool, default: object) -> _Plain:  # noqa: N802 - in its place
        del default
        return _Plain(name, covariant=covariant)


K_co = TypeVar("K_co", covariant=True, default=bytes)
"""What a key's deserialiser makes of bytes; bytes without one, and where nobody says, as in ``list[Record]``."""
V_co = TypeVar("V_co", covariant=True, default=bytes)
"""The same of values."""
T_co = TypeVar("T_co", covariant=True, default=Any)
"""What one deserialiser makes."""

MaybeNone = Any
"""None where a record has no key or no value. Type checkers do not insist on a test for it, as for `re.Match.group`:
most topics have none of these, and whoever reads such a topic knows.
"""
