"""One set of consumer tests, and the brokers that each of them asks for.

``@pytest.mark.brokers(...)`` names them; what a test, its class or its module says first counts. Without it a test runs
on the first two. A test of what the client does belongs on "virtual"; one of what a broker does, on "kafka", too.

* ``virtual``: the embedded broker in virtual time (tests/virtual.py). No threads, no signals.
* ``kafka``: real Apache Kafka.
* ``embedded``: the embedded broker behind a socket, for what needs threads of its own.
* ``mock``: librdkafka's mock cluster, a second opinion on the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest
from conftest import FAST_GROUPS
from tests.consumer.capabilities import declared
from tests.consumer.served import served
from tests.consumer.support import Cluster, Shell
from tests.virtual import VirtualCluster

from kadence_broker import Broker

__all__ = ["cluster", "served", "shell"]


DEFAULT: Final = ("virtual", "kafka")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "brokers(*kinds): where a test over `cluster` runs, see tests/consumer/conftest.py"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test over `cluster` on the brokers that it asks for."""
    # A module may have a `cluster` of its own.
    if "cluster" in metafunc.fixturenames and not hasattr(metafunc.module, "cluster"):
        asked = next(metafunc.definition.iter_markers("brokers"), None)
        metafunc.parametrize("cluster", DEFAULT if asked is None else asked.args, indirect=True)


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A broker of each kind; the test declares what it needs of one (tests/consumer/capabilities.py)."""
    try:
        needs = declared(request.node)
    except ValueError as error:
        pytest.fail(str(error), pytrace=False)
    if request.param in ("embedded", "virtual") and "broker regex" in needs:
        pytest.importorskip("re2", reason="the embedded broker matches with google-re2")
    nodes = 3 if "several brokers" in needs or "leader moves" in needs else 1
    if request.param == "virtual":
        yield from _virtual(nodes)
        return
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


def _virtual(nodes: int) -> Iterator[Cluster]:
    config = {
        # Each heartbeat costs as much of this machine's time whether it comes soon or late.
        "group.consumer.min.heartbeat.interval.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 1_000,
        "group.consumer.assignment.interval.ms": 1_000,
    }
    with closing(VirtualCluster(nodes=nodes, config=config)) as cluster:
        yield from _serving(cluster)


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
