"""Groups of every kind under random trouble: no invariant is broken, and in the end everything is processed."""

from __future__ import annotations

import pytest
from tests.luck import seeds
from tests.testing.simulation.story import Story

from kadence_testing.simulation import SimulationError


@pytest.mark.parametrize("seed", seeds(1))
def test_trouble(seed: int) -> None:
    Story(seed).run()


def test_the_same_seed_is_the_same_story() -> None:
    """With crashes, cuts and all: what the broker is asked, and when, is the same to the byte."""
    first, second = Story(2), Story(2)
    first.run()
    second.run()
    assert first.trouble.told == second.trouble.told
    assert first.simulation.history.fingerprint == second.simulation.history.fingerprint


def test_a_story_that_fails_tells_what_happened() -> None:
    story = Story(2)
    story.simulation.start("breaks", lambda program: _raise())
    with pytest.raises(
        SimulationError, match=r"seed 2, at 0\.000 s: breaks raised LookupError\(\)\n  \w+ \("
    ):
        story.run()


async def _raise() -> None:
    raise LookupError
