"""This version of Kadence: brokers are told of it, and the package is built from it."""

from __future__ import annotations

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = "0.1.0"
