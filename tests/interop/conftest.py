"""Other people's clients against our broker: three nodes, a topic of four partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kadence.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(nodes=3, topics={"t": 4}) as running:
        yield running
