"""What all tests of this project share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def kadence_broker_options() -> dict[str, Any]:
    """Kafka waits for a second before it gives partitions to a member that comes soon after another one. Not here."""
    return {"config": {"group.consumer.assignment.interval.ms": 0}}
