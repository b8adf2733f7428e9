"""Which half moves the bytes (`kadence.loading`): the compiled `_drain_c`, or its plain twins."""

from __future__ import annotations

from typing import Any, Final

from kadence.loading import compiled
from kadence.net import openssl

__all__ = ["COMPILED", "TLS", "drain"]

drain: Any = compiled("kadence.net._drain_c")
"""The module `_drain_c`; None without the extension."""

COMPILED: Final = drain is not None
"""Whether sockets are waited for and read without the interpreter."""

_FUNCTIONS: Final = openssl.functions() if COMPILED else None

TLS: Final = _FUNCTIONS is not None
"""Whether TLS is, too."""

if _FUNCTIONS is not None:
    drain.bind_openssl(*_FUNCTIONS)
