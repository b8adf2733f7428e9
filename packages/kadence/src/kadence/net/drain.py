"""The compiled poller and streams, `kadence._native.drain`.

Windows lacks the calls that they need; the Python versions run there.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

__all__ = ["COMPILED", "drain"]

COMPILED: Final = hasattr(select, "poll")
"""Whether sockets are waited for and read without the interpreter. `openssl.BOUND` is the same for TLS."""

if TYPE_CHECKING or COMPILED:
    from kadence._native import drain
else:
    drain = None
