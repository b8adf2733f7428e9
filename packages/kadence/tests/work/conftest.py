"""The worlds of tests/work/worlds.py as fixtures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.work.worlds import Real, Simulated, World


@pytest.fixture
def simulated() -> Iterator[Simulated]:
    """A simulation, at whose end every record that was acknowledged is there."""
    with Simulated() as world:
        yield world


@pytest.fixture
def real() -> Iterator[Real]:
    """An embedded broker, and members on threads."""
    with Real() as world:
        yield world


@pytest.fixture(params=["simulated", "threads"])
def world(request: pytest.FixtureRequest) -> World:
    """Both, for what threads and event loops have code of their own for: handlers and their ends."""
    made: World = request.getfixturevalue("simulated" if request.param == "simulated" else "real")
    return made


@pytest.fixture(params=["threads", "asyncio"])
def shells(request: pytest.FixtureRequest, real: Real) -> Real:
    """An embedded broker, and members of either kind, for what drives `process` of either."""
    real.kind = request.param
    return real
