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
from collections import Counter
from collections.abc import Generator, Iterator
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests import foreign, luck, schedule
from tests.consumer import capabilities
from tests.mock import MockCluster
from tests.mock import mock_cluster as running_mock

import java_archives
from kadence import logs
from kadence.errors import MissingDependencyError
from kadence_testing.kafka import Kafka
from kadence_testing.pytest_plugin.brokers import FAST_GROUPS

__all__ = ["FAST_GROUPS"]

pytest_plugins = ["pytester"]
if not entry_points(group="pytest11", name="kadence"):
    # A checkout that was installed before it had the plugin.
    pytest_plugins.append("kadence_testing.pytest_plugin")

if TYPE_CHECKING:
    from kadence_broker import Broker
    from kadence_testing.pytest_plugin import Brokers

ROOT = Path(__file__).parent
ON_CI = os.environ.get("CI") == "true"
_MISSING = pytest.StashKey[str]()
_NEEDS = pytest.StashKey[Counter[str]]()


def _raise_again(record: logging.LogRecord) -> None:
    """A line that cannot be written, as its text does not fit its arguments, fails the test."""
    raise  # noqa: PLE0704 - what the handler raised


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--keep-durations",
        action="store_true",
        help="write how long each file took to tests/durations.json, which orders the next runs",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Programs that tests start find `tests` as this process does.
    roots = [ROOT, *sorted((ROOT / "packages").iterdir())]
    os.environ["PYTHONPATH"] = os.pathsep.join(
        [*map(str, roots), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    ).rstrip(os.pathsep)
    # A run that was put into the background by a script ignores SIGINT, and so would all that it starts: these tests
    # press Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    luck.prepare()
    foreign.silence_loggers()
    logs.handler_failed = _raise_again
    config.addinivalue_line(
        "markers", "chance: has seeds or random examples; `make soak` runs it with others"
    )
    config.addinivalue_line("markers", "own_spark: starts Spark itself; such files run one after the other")
    config.addinivalue_line("markers", "shared_spark: uses the session of tests/spark/conftest.py")
    config.addinivalue_line("markers", "secured_kafka: uses the node of tests/security/conftest.py")
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
    schedule.arrange(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """All that is made while tests are collected stays: a sixth of that time went into looking at it again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """What has been imported stays: no collection during a test looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Collect the garbage of a file at its end, and keep later collections from looking at the objects that stay.

    Many tests collect the whole heap, some a hundred times. Once many modules were imported, each took half a second.
    """
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.collect()
            gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return schedule.scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(autouse=True)
def _no_finalizers_of_other_clients(request: pytest.FixtureRequest) -> Iterator[None]:
    with foreign.collected_afterwards(request.module):
        yield


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
    if config.getoption("--keep-durations"):
        reports = (each for of_kind in terminalreporter.stats.values() for each in of_kind)
        schedule.keep(each for each in reports if isinstance(each, pytest.TestReport))
    reason = config.stash.get(_MISSING, None)
    if reason is not None:
        terminalreporter.section("REAL APACHE KAFKA WAS NOT TESTED", red=True, bold=True)
        terminalreporter.line(reason)


@pytest.fixture(scope="session", autouse=True)
def _java() -> Iterator[None]:
    """Every Spark of the run has the home, and every JVM of Spark and Kafka the archive, of tools/java_archives.py."""
    installed = find_spec("pyspark")
    with pytest.MonkeyPatch.context() as patch:
        if installed is not None and installed.origin is not None:
            patch.setenv("SPARK_HOME", str(java_archives.spark_home(Path(installed.origin).parent)))
        for name, value in java_archives.environment().items():
            patch.setenv(name, value)
        yield


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
