"""The way into the accumulator: compiled where the extension was built, else plain."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kadence.records import IMPLEMENTATION

__all__ = ["COMPILED", "Filling", "Place", "Receipt", "Shelf", "Sticky", "murmur2"]


def _is_compiled() -> bool:
    if IMPLEMENTATION == "python":
        return False
    try:
        from kadence.producer import _intake_c  # noqa: F401
    except ImportError:
        if os.environ.get("KADENCE_EXTENSION") == "require":
            raise
        return False
    return True


COMPILED: Final = _is_compiled()
"""Whether records are added outside Python."""

if TYPE_CHECKING or not COMPILED:
    from kadence.producer._intake_py import Filling, Place, Receipt, Shelf, Sticky, murmur2
else:
    from kadence.producer._intake_c import Filling, Place, Receipt, Shelf, Sticky, murmur2
