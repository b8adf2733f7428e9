"""Chance in tests: the same in each `make test`, another in each round of `make soak`.

A test takes its seeds from `seeds` and the number of its examples from `examples`; never from the clock or the system.
`tools/soak.py` sets KADENCE_SOAK to the number that all chance of one round comes from, and prints it, so that a round
that failed can be run again.
"""

from __future__ import annotations

import os
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

__all__ = ["ROUND", "SOAKING", "examples", "is_random", "prepare", "seeds"]

ROUND: Final = int(os.environ.get("KADENCE_SOAK") or 0)
"""What all chance of this run begins from; 0 in `make test`."""

SOAKING: Final = bool(ROUND)

_EXAMPLES: Final = 50
"""Of a property test that names no number."""

_MORE: Final = 10
"""How many times as many seeds and examples a round of `make soak` takes."""

# How long an example takes is the machine's business: no test fails for that.
_COMMON: Final[dict[str, Any]] = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
    "print_blob": True,
}


def prepare() -> None:
    """Set up Hypothesis; before the first test module is imported, since each `given` takes what holds then."""
    settings.register_profile("test", derandomize=True, max_examples=_EXAMPLES, **_COMMON)
    settings.register_profile("soak", derandomize=False, max_examples=_EXAMPLES * _MORE, **_COMMON)
    settings.load_profile("soak" if SOAKING else "test")


def examples(count: int, **more: Any) -> settings:
    """Settings of a property test with ``count`` examples, or more of them in `make soak`."""
    return settings(max_examples=count * _MORE if SOAKING else count, **more)


def seeds(count: int) -> range:
    """Seeds of simulations: 0 to ``count`` - 1, or others and more of them in `make soak`."""
    return range(ROUND, ROUND + count * _MORE) if SOAKING else range(count)


def is_random(item: pytest.Item) -> bool:
    """Whether other seeds or examples would make another test of it."""
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return True
    return "seed" in getattr(getattr(item, "callspec", None), "params", {})
