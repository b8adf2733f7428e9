"""A broker of one's own, and both shells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import FAST_GROUPS
from tests.consumer.support import Cluster, Shell

from kadence import Broker

TOPICS = {"orders": 4, "one": 1, "out": 1, "dead": 1, "again": 2}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Broker(topics=TOPICS, config=FAST_GROUPS) as broker:
        yield Cluster("embedded", broker.bootstrap_servers, broker=broker)


@pytest.fixture(params=["threads", "asyncio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    yield shell
    if shell.runner is not None:
        shell.runner.close()
