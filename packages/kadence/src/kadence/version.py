"""The version of Kadence, which clients send to brokers and the build puts into the package.

It is ``kadence.__version__``, too.
"""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
