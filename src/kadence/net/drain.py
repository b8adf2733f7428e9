"""Which half moves the bytes: the compiled `_drain_c`, or its plain twins.

KADENCE_EXTENSION=off says plain, =require insists on the compiled one.
"""

from __future__ import annotations

import os
from typing import Any, Final

from kadence.net import openssl

__all__ = ["COMPILED", "TLS", "drain"]

drain: Any = None
"""The module `_drain_c`; None without the extension."""
if os.environ.get("KADENCE_EXTENSION", "auto") != "off":
    try:
        from kadence.net import _drain_c as drain
    except ImportError:
        if os.environ.get("KADENCE_EXTENSION") == "require":
            raise

COMPILED: Final = drain is not None
"""Whether sockets are waited for and read without the interpreter."""

_FUNCTIONS: Final = openssl.functions() if COMPILED else None

TLS: Final = _FUNCTIONS is not None
"""Whether TLS is, too."""

if _FUNCTIONS is not None:
    drain.bind_openssl(*_FUNCTIONS)
