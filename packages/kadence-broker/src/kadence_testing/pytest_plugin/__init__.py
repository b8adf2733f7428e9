"""The pytest plugin: a broker for the run, and for each test its own topics, groups, clients, faults and virtual time.

pytest loads it wherever Kadence is installed. So importing it loads neither clients nor brokers; a fixture imports
them when a test uses it. All names but `schema_registry` begin with ``kadence``; `caplog` is pytest's own, and waits
for what clients have logged on their threads.

PYTEST_DONT_REWRITE: this module has no assertions, and pytest would warn if it was imported before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from kadence_testing.clock import FakeClock
from kadence_testing.pytest_plugin.brokers import KadenceBroker, parse_settings, running
from kadence_testing.pytest_plugin.clients import (
    AsyncConsumers,
    AsyncProducers,
    Brokers,
    Consumers,
    Names,
    RecordTools,
    Simulations,
    Topics,
    Written,
)
from kadence_testing.pytest_plugin.space import Space

if TYPE_CHECKING:
    from kadence.producer import Producer
    from kadence_broker.faults import Faults
    from kadence_testing.schema_registry import SchemaRegistryServer

__all__ = [
    "AsyncConsumers",
    "AsyncProducers",
    "Brokers",
    "Consumers",
    "KadenceBroker",
    "Names",
    "RecordTools",
    "Simulations",
    "Topics",
    "Written",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("kadence", "Kadence: a Kafka broker for tests")
    group.addoption(
        "--kadence-broker",
        metavar="WHERE",
        help="embedded (default), kafka (starts a node of Apache Kafka), or HOST:PORT of one that runs",
    )
    group.addoption(
        "--kadence-seed",
        metavar="N",
        type=int,
        default=0,
        help="seed of kadence_simulation where a test names none (default: 0)",
    )
    parser.addini("kadence_broker", "as --kadence-broker, which comes first", default="embedded")
    parser.addini(
        "kadence_settings", "settings of every client, lines key=value under Kafka's keys", type="linelist"
    )


def _flush_logs() -> None:
    """Pass records that Kadence's threads have logged so far to the log handlers."""
    if (flush := getattr(sys.modules.get("kadence.logs"), "flush", None)) is not None:
        flush()


@pytest.hookimpl(hookwrapper=True, trylast=True)
def pytest_runtest_call() -> Generator[None]:
    """Log lines of a test's clients are reported with the test."""
    yield
    _flush_logs()


def _after_flush(look: Callable[..., Any]) -> Callable[..., Any]:
    """The same method, after records of Kadence's threads have reached the handlers."""

    def flushed(self: pytest.LogCaptureFixture, *arguments: Any) -> Any:
        _flush_logs()
        return look(self, *arguments)

    return flushed


def _caplog() -> type[pytest.LogCaptureFixture]:
    """pytest's class, with these methods. mypy considers it final."""
    theirs = pytest.LogCaptureFixture
    looks: dict[str, Any] = {
        name: property(_after_flush(getattr(theirs, name).fget)) for name in ("records", "text")
    }
    looks |= {name: _after_flush(getattr(theirs, name)) for name in ("get_records", "clear")}
    return type("LogCaptureFixture", (theirs,), looks)


@pytest.fixture
def caplog(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """pytest's own ``caplog``, with all that the threads of clients and brokers have logged so far."""
    caplog.__class__ = _caplog()
    return caplog


@pytest.fixture(scope="session")
def kadence_broker_options() -> Mapping[str, Any]:
    """Arguments of the run's embedded broker, as `kadence.Broker` takes them; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kadence_broker(
    pytestconfig: pytest.Config, kadence_broker_options: Mapping[str, Any]
) -> Iterator[KadenceBroker]:
    """The broker of this run.

    Each process of pytest-xdist starts its own, unless ``--kadence-broker`` names a running one.
    """
    where = pytestconfig.getoption("--kadence-broker") or pytestconfig.getini("kadence_broker")
    settings = parse_settings(pytestconfig.getini("kadence_settings"))
    with running(where, settings, kadence_broker_options) as broker:
        yield broker


@pytest.fixture
def kadence_settings(kadence_broker: KadenceBroker) -> dict[str, str]:
    """The settings with which a client reaches the broker, under Kafka's keys; for the program under test."""
    return dict(kadence_broker.settings)


@pytest.fixture
def _kadence_space(request: pytest.FixtureRequest) -> Iterator[Space]:
    """The topics, groups and clients of this test. The broker is started when the test first uses it."""
    with Space(lambda: request.getfixturevalue("kadence_broker"), request.node.name) as space:
        if "kadence_broker" in request.fixturenames:
            space.uses_broker()
        yield space


@pytest.fixture
def kadence_name(_kadence_space: Space) -> Names:
    """Makes names unique to the test: ``kadence_name("orders")``."""
    return Names(_kadence_space)


@pytest.fixture
def kadence_group(_kadence_space: Space) -> str:
    """The id of a group for this test alone; `kadence_consumer` uses it by default."""
    return _kadence_space.name("group")


@pytest.fixture
def kadence_topics(_kadence_space: Space) -> Topics:
    """Creates topics: ``kadence_topics("orders", partitions=3)`` returns the name."""
    return Topics(_kadence_space)


@pytest.fixture
def kadence_topic(kadence_topics: Topics) -> str:
    """A topic of one partition."""
    return kadence_topics()


@pytest.fixture
def kadence_producer(_kadence_space: Space) -> Producer:
    """A producer, closed after the test."""
    return _kadence_space.producer()


@pytest.fixture
def kadence_async_producer(_kadence_space: Space) -> AsyncProducers:
    """Makes producers for asyncio, each for one ``async with``: ``kadence_async_producer()``."""
    return AsyncProducers(_kadence_space)


@pytest.fixture
def kadence_consumer(_kadence_space: Space) -> Consumers:
    """Makes consumers: ``kadence_consumer(topic, max_poll_records=10)``."""
    return Consumers(_kadence_space)


@pytest.fixture
def kadence_async_consumer(_kadence_space: Space) -> AsyncConsumers:
    """Makes consumers for asyncio, each for one ``async with``: ``kadence_async_consumer(topic)``."""
    return AsyncConsumers(_kadence_space)


@pytest.fixture
def kadence_records(_kadence_space: Space) -> RecordTools:
    """Writes and reads records: ``kadence_records.write(topic, ["a", "b"])``, ``kadence_records.read(topic)``."""
    return RecordTools(_kadence_space)


@pytest.fixture
def kadence_faults(_kadence_space: Space) -> Faults:
    """The faults of the embedded broker; those of a test are removed after it. Other brokers: the test is skipped."""
    return _kadence_space.faults()


@pytest.fixture
def kadence_new_broker(_kadence_space: Space) -> Brokers:
    """Starts embedded brokers for this test alone: ``kadence_new_broker(nodes=3)``."""
    return Brokers(_kadence_space)


@pytest.fixture
def schema_registry() -> Iterator[SchemaRegistryServer]:
    """A schema registry for this test alone, in memory: ``SchemaRegistryClient(schema_registry.url)``."""
    from kadence_testing.schema_registry import SchemaRegistryServer

    with SchemaRegistryServer() as registry:
        yield registry


@pytest.fixture
def kadence_clock() -> FakeClock:
    """A clock that stands still until ``kadence_clock.advance(ms)``."""
    return FakeClock()


@pytest.fixture
def kadence_simulation(_kadence_space: Space, pytestconfig: pytest.Config) -> Simulations:
    """Makes simulations of whole groups in virtual time: ``kadence_simulation(topics={"orders": 6})``."""
    return Simulations(_kadence_space, pytestconfig.getoption("--kadence-seed"))
