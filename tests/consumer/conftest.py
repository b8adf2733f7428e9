"""One set of consumer tests, three brokers: ours, real Apache Kafka, librdkafka's mock cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.conftest import FAST_GROUPS
from tests.consumer.capabilities import BROKERS, declared
from tests.consumer.served import served
from tests.consumer.support import Cluster, Shell

from kadence.broker import Broker

__all__ = ["cluster", "served", "shell"]


@pytest.fixture(params=list(BROKERS))
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A broker of each kind; the test declares what it needs of one (tests/consumer/capabilities.py)."""
    try:
        needs = declared(request.node)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    if request.param == "embedded" and "broker regex" in needs:
        pytest.importorskip("re2", reason="the embedded broker matches with google-re2")
    nodes = 3 if "several brokers" in needs or "leader moves" in needs else 1
    if request.param == "embedded" and nodes > 1:
        with Broker(nodes=nodes, config=FAST_GROUPS) as several:
            yield from _serving(Cluster(request.param, several.bootstrap_servers, broker=several))
        return
    fixture = {"embedded": "broker", "kafka": "kafka", "mock": "mock_cluster"}[request.param]
    broker = request.getfixturevalue(fixture)
    yield from _serving(
        Cluster(
            request.param,
            broker.bootstrap_servers,
            mock=broker if request.param == "mock" else None,
            broker=broker if request.param == "embedded" else None,
        )
    )


def _serving(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    for consumer in cluster.consumers:
        consumer.close(timeout=5)


@pytest.fixture(params=["threads", "asyncio"])
def shell(request: pytest.FixtureRequest) -> Iterator[Shell]:
    shell = Shell(request.param)
    yield shell
    if shell.runner is not None:
        shell.runner.close()
