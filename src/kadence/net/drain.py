"""Which half moves the bytes (`kadence.loading`): the compiled `_drain_c`, or its plain twins."""

from __future__ import annotations

from typing import Any, Final

from kadence.loading import compiled

__all__ = ["COMPILED", "drain"]

drain: Any = compiled("kadence.net._drain_c")
"""The module `_drain_c`; None without the extension."""

COMPILED: Final = drain is not None
"""Whether sockets are waited for and read without the interpreter. `openssl.BOUND` says it of TLS."""
