"""Fixtures that several rooms share: a real Kafka, librdkafka's mock cluster, our own embedded broker.

Real Kafka is one process for the whole run, started when the first test asks for it. On CI (``CI=true``)
its absence fails the tests that need it; elsewhere they are skipped, and the end of the run says so.
"""

from __future__ import annotations

import gc
import logging
import os
import random
import signal
import warnings
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests import luck, schedule
from tests.consumer import capabilities
from tests.mock import MockCluster
from tests.mock import mock_cluster as running_mock

from kadence import logs
from kadence.errors import MissingDependencyError
from kadence.testing.kafka import Kafka
from kadence.testing.pytest_plugin.brokers import FAST_GROUPS

__all__ = ["FAST_GROUPS"]

pytest_plugins = ["pytester"]
if not entry_points(group="pytest11", name="kadence"):
    # A checkout that was installed before it had the plugin.
    pytest_plugins.append("kadence.testing.pytest_plugin")

_PEERS: Final = frozenset({"kafka", "aiokafka", "confluent_kafka"})
"""Packages of clients that are not ours."""

if TYPE_CHECKING:
    from kadence.broker import Broker
    from kadence.testing.pytest_plugin import Brokers

ON_CI = os.environ.get("CI") == "true"
_MISSING = pytest.StashKey[str]()
_NEEDS = pytest.StashKey[Counter[str]]()


def _raise_again(record: logging.LogRecord) -> None:
    """A line that cannot be written, as its text does not fit its arguments, fails the test."""
    raise  # noqa: PLE0704 - what the handler raised


def pytest_configure(config: pytest.Config) -> None:
    # A run that was put into the background by a script ignores SIGINT, and so would all that it starts: these tests
    # press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    luck.prepare()
    logs.handler_failed = _raise_again
    config.addinivalue_line(
        "markers", "chance: has seeds or random examples; `make soak` runs it with others"
    )
    config.addinivalue_line(
        "markers", "needs(*names): what a test asks of its broker: tests/consumer/capabilities.py"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every test that asks for real Kafka carries the mark, so ``-m 'not kafka'`` needs no Maven."""
    config.stash[_NEEDS] = capabilities.mark(items)
    for item in items:
        if "kafka" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.kafka)
        if luck.is_random(item):
            item.add_marker(pytest.mark.chance)
    schedule.by_length(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return schedule.scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


def _origin(value: object) -> str:
    """The package that a value of a module comes from."""
    name = getattr(value, "__module__", None) or getattr(value, "__name__", "")
    return name.partition(".")[0] if isinstance(name, str) else ""


@pytest.fixture(autouse=True, scope="module")
def _sockets_of_peers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Other people's clients leave sockets to the collector: it comes here, and blames no test that runs later."""
    yield
    if any(_origin(each) in _PEERS for each in vars(request.module).values()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(autouse=True)
def _luck() -> None:
    """Backoffs, partitioners and everything else that rolls dice rolls the same ones each time."""
    random.seed(luck.ROUND)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands over what the end of the run says."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["needs"] = dict(session.config.stash.get(_NEEDS, {}))
        output["missing"] = session.config.stash.get(_MISSING, None)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Each worker has collected every test, so one's table is all of it."""
    output = getattr(node, "workeroutput", {})
    if output.get("needs"):
        node.config.stash[_NEEDS] = Counter(output["needs"])
    if output.get("missing"):
        node.config.stash[_MISSING] = output["missing"]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if asked := config.stash.get(_NEEDS, None):
        terminalreporter.section("what the brokers can, and how many tests ask for it")
        terminalreporter.write_line(capabilities.summary(asked))
    reason = config.stash.get(_MISSING, None)
    if reason is not None:
        terminalreporter.section("REAL APACHE KAFKA WAS NOT TESTED", red=True, bold=True)
        terminalreporter.line(reason)


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config) -> Iterator[Kafka]:
    """One node of real Apache Kafka for the whole run; topics and groups are the test's to name apart."""
    try:
        node = Kafka().start()
    except MissingDependencyError as error:
        if ON_CI:
            pytest.fail(f"real Kafka is required on CI: {error}")
        pytestconfig.stash[_MISSING] = str(error)
        pytest.skip(f"no real Kafka: {error}")
    yield node
    node.stop()


@pytest.fixture
def mock_cluster() -> Iterator[MockCluster]:
    """Three mock brokers inside librdkafka: a second opinion on the protocol that needs no Java."""
    with running_mock() as cluster:
        yield cluster


@pytest.fixture
def broker(kadence_new_broker: Brokers) -> Broker:
    """A fresh embedded broker for one test.

    It assigns partitions of KIP-848 groups once a second, as real Kafka does, before which many of the tests run, too.
    """
    return kadence_new_broker(config={"group.consumer.assignment.interval.ms": 1_000})
