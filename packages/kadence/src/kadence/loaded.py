"""What a module that the program has loaded holds, for code that must not load it."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["attribute_if_loaded"]


def attribute_if_loaded(module: str, name: str) -> Any | None:
    """The attribute of a module, or None where nobody has loaded it.

    None, too, while another thread imports the module for the first time: until the import has run to its end, no
    object of the program can come from it.
    """
    return getattr(sys.modules.get(module), name, None)
