"""Share consumers on a network that is played by hand (`tests.worlds.queue`), closed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.worlds.queue import HandNetwork, share_consumer_of

from kadence import ShareConsumer

Made = tuple[ShareConsumer[Any, Any], HandNetwork]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Made]]:
    """Makes share consumers that are subscribed to jobs, with these settings."""
    consumers: list[ShareConsumer[Any, Any]] = []

    def of(settings: dict[str, Any] | None = None, **more: Any) -> Made:
        consumer, network = share_consumer_of(monkeypatch, settings, **more)
        consumers.append(consumer)
        return consumer, network

    yield of
    for each in consumers:
        each.close()


@pytest.fixture
def made(make: Callable[..., Made]) -> Made:
    return make()
