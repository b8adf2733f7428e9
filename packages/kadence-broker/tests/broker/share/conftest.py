"""A broker's insides, and a member of a share group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.share.scene import Member, Scene


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


@pytest.fixture
def member(scene: Scene) -> Member:
    return scene.member()
