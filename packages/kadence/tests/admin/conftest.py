"""The same tests against the embedded broker and real Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kadence.admin import Admin
from kadence_broker import Broker


@pytest.fixture(params=["embedded", "kafka"])
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The same tests on both: topics and groups are named after the test."""
    if request.param == "kafka":
        yield request.getfixturevalue("kafka").bootstrap_servers
    else:
        with Broker(nodes=3) as broker:
            yield broker.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=servers) as admin:
        yield admin


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.originalname).removeprefix("test_")[:40]
