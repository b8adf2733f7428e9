"""A registry, as tests of deserialisers have it."""

from __future__ import annotations

from tests.registry.conftest import registry

__all__ = ["registry"]
