"""The pytest plugin, in runs of pytest of their own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.patience import PATIENCE

from kadence import Admin
from kadence.admin import ConfigResource
from kadence_testing.kafka import NO_EXPIRY
from kadence_testing.pytest_plugin.brokers import embedded

PLUGIN = "kadence_testing.pytest_plugin"
OTHERS = ("hypothesispytest", "anyio", "xdist", "pytest_cov")
"""Plugins that take two seconds of a processor in each run, and have no part in these."""

INSTALLED = any(each.value == PLUGIN for each in entry_points(group="pytest11"))

ASYNC = """
import asyncio
import inspect
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    # As plugins for asyncio do: the fixtures are made outside the event loop.
    if inspect.iscoroutinefunction(pyfuncitem.function):
        names = inspect.signature(pyfuncitem.function).parameters
        asyncio.run(pyfuncitem.function(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
"""

ELSEWHERE = """
import sys
from kadence import Admin, Broker

with Broker(users={"alice": "secret"}, nodes=2) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.readline()
    login = {"security.protocol": broker.security_protocol, "sasl.mechanism": "PLAIN"}
    login |= {"sasl.username": "alice", "sasl.password": "secret"}
    with Admin({"bootstrap.servers": broker.bootstrap_servers, **login}) as admin:
        groups = [group.group_id for group in admin.list_groups()]
        left = "topics:", *admin.list_topics(), "groups:", *groups
        print(*(name.partition("-")[0] for name in left))
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """pytest in an interpreter of its own, with the plugin as its entry point gives it."""
    loads = [] if INSTALLED else ["-p", PLUGIN]
    for each in OTHERS:
        loads += "-p", f"no:{each}"
    return pytester.runpytest_subprocess(*loads, "-p", "no:cacheprovider", "-rs", *arguments)


def test_importing_it_loads_neither_clients_nor_brokers() -> None:
    code = f"import sys, {PLUGIN}; print(*sorted(each for each in sys.modules if each.startswith('kadence')))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert PLUGIN in loaded
    heavy = (
        "kadence.consumer.consumer",
        "kadence_broker",
        "kadence.producer",
        "kadence.admin",
        "kadence.net",
    )
    assert [each for each in loaded if each.startswith(heavy)] == []


def test_records_clients_and_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from kadence import Consumer, KafkaError
        from tests.patience import overdue

        def test_write_and_read(kadence_topics, kadence_records):
            topic = kadence_topics("orders", partitions=2)
            assert kadence_records.read(topic) == []
            kadence_records.write(topic, ["a", b"b", None, ("key", "c")], partition=1)
            read = kadence_records.read(topic)
            assert [(each.partition, each.key, each.value) for each in read] == [
                (1, None, b"a"), (1, None, b"b"), (1, None, None), (1, b"key", b"c")
            ]
            assert len(kadence_records.read(topic, 2)) >= 2
            texts = kadence_records.read(topic, value_deserializer=bytes.decode)
            assert [each.value for each in texts] == ["a", "b", None, "c"]

        def test_a_consumer_and_a_producer(kadence_topic, kadence_producer, kadence_consumer, kadence_group):
            kadence_producer.send(kadence_topic, b"x")
            consumer = kadence_consumer(kadence_topic, max_poll_records=1)
            assert next(consumer).value == b"x"
            assert consumer.group_metadata().group_id == kadence_group
            assert kadence_consumer(group_id="other").group_metadata().group_id == "other"

        def test_too_few(kadence_topic, kadence_records):
            kadence_records.write(kadence_topic, ["a"])
            overdue(
                lambda seconds: kadence_records.read(kadence_topic, 2, timeout=seconds),
                (pytest.fail.Exception, KafkaError),
                match=r"^1 records of topic-test_too_few-\\S+ came within \\S+ s, not 2 of them$",
            )

        def test_a_topic_that_is_not_there(kadence_records):
            for _ in range(2):  # reading it does not create it
                overdue(
                    lambda seconds: kadence_records.read("orderz", 1, timeout=seconds),
                    KafkaError,
                    match="topic 'orderz' does not exist",
                )

        def test_settings(kadence_settings, kadence_name):
            with Consumer(kadence_settings, group_id=kadence_name("group")) as consumer:
                assert [name for name in consumer.list_topics() if not name.startswith('__')] == []
    """)
    run(pytester).assert_outcomes(passed=5)


def test_names_belong_to_one_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from kadence import BrokerError

        seen = set()

        @pytest.mark.parametrize("number", [1, "two words/and more" * 20])
        def test_names(kadence_name, kadence_topics, kadence_group, number):
            topic = kadence_topics("orders")
            assert topic == kadence_name("orders") and topic.startswith("orders-test_names-")
            assert kadence_group == kadence_name("group")
            assert not seen & {topic, kadence_group}
            seen.update({topic, kadence_group})
            with pytest.raises(BrokerError, match="already exists"):
                kadence_topics("orders")
    """)
    run(pytester).assert_outcomes(passed=2)


def test_asyncio(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(ASYNC)
    pytester.makepyfile("""
        async def test_reads(kadence_topic, kadence_records, kadence_async_consumer, kadence_async_producer):
            await kadence_records.write_async(kadence_topic, ["a", "b"])
            async with kadence_async_consumer(kadence_topic) as consumer:
                assert [(await anext(consumer)).value for _ in range(2)] == [b"a", b"b"]
                await consumer.commit()
            async with kadence_async_producer(linger_ms=0) as producer:
                await (await producer.send(kadence_topic, b"c"))
            assert len(await kadence_records.read_async(kadence_topic, 3)) == 3
    """)
    run(pytester, "-W", "error").assert_outcomes(passed=1)


def test_faults_end_with_their_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from kadence.protocol.fetch import FetchRequest

        @pytest.fixture(scope="session")
        def watched(kadence_broker):
            broker = kadence_broker.need_embedded("watching")
            return broker.faults.observe(FetchRequest)

        def test_lost(kadence_faults, kadence_topic, kadence_records, watched):
            kadence_records.write(kadence_topic, ["a"])
            kadence_faults.drop(None)
            kadence_faults.freeze()

        def test_found(kadence_topic, kadence_records, watched):
            kadence_records.write(kadence_topic, ["a"])
            assert len(kadence_records.read(kadence_topic)) == 1
            assert watched.hits > 0  # a fault of more than one test stays
    """)
    run(pytester).assert_outcomes(passed=2)


def test_virtual_time_and_brokers_of_a_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_clock(kadence_clock):
            before = kadence_clock.now_ms()
            assert kadence_clock.advance(5) == before + 5

        def test_simulation(kadence_simulation):
            simulation = kadence_simulation(topics={"orders": 1})
            assert simulation.seed == 8 and kadence_simulation(seed=3).seed == 3

        def test_broker(kadence_new_broker):
            assert kadence_new_broker(nodes=2, topics={"t": 1}).node_ids == [1, 2]
    """)
    run(pytester, "--kadence-seed=8").assert_outcomes(passed=3)


def test_the_embedded_broker_takes_options(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def kadence_broker_options():
            return {"nodes": 3, "topics": {"fixed": 2}}
    """)
    pytester.makepyfile("""
        def test_it(kadence_broker, kadence_records):
            assert kadence_broker.kind == "embedded"
            assert len(kadence_broker.need_embedded("looking").node_ids) == 3
            assert kadence_records.read("fixed") == []
    """)
    run(pytester).assert_outcomes(passed=1)


def test_records_with_old_timestamps_stay_for_the_whole_run() -> None:
    """By default a broker deletes them when it has run for five minutes."""
    with embedded({}) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        resource = ConfigResource("broker", str(broker.node_ids[0]))
        found = admin.describe_configs([resource])[resource]
    assert {name: found[name].value for name in NO_EXPIRY} == {
        name: str(ms) for name, ms in NO_EXPIRY.items()
    }
    assert min(NO_EXPIRY.values()) > 3_600_000


@contextmanager
def elsewhere(pytester: pytest.Pytester) -> Iterator[Callable[[], str]]:
    """A broker that runs already, and a call that ends it and says what it had then."""
    # In a process of its own: pytester forgets the modules that this one loads during a test.
    with subprocess.Popen(
        [sys.executable, "-c", ELSEWHERE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as broker:
        assert broker.stdout is not None
        pytester.makeini(f"""
            [pytest]
            kadence_broker = {broker.stdout.readline().strip()}
            kadence_settings =
                security.protocol=SASL_PLAINTEXT
                sasl.mechanism=SCRAM-SHA-256
                sasl.username=alice
                sasl.password=secret
        """)

        def end() -> str:
            return broker.communicate("end\n", timeout=PATIENCE)[0].strip()

        yield end


def test_a_broker_elsewhere(pytester: pytest.Pytester) -> None:
    """It runs on until it is told to end, and what the tests have made is gone then; other groups are not."""
    pytester.makepyfile("""
        def read(consumer):
            next(consumer)
            consumer.commit()

        def test_work(kadence_broker, kadence_topic, kadence_records, kadence_consumer, kadence_name):
            assert kadence_broker.kind == "external" and "secret" not in repr(kadence_broker)
            kadence_records.write(kadence_topic, ["a"])
            assert len(kadence_records.read(kadence_topic, 1)) == 1
            read(kadence_consumer(kadence_topic))
            read(kadence_consumer(kadence_topic, group_id=kadence_name("own"), group_protocol="consumer"))
            read(kadence_consumer(kadence_topic, group_id="others"))

        def test_deletes_itself(kadence_broker, kadence_topic, kadence_records, kadence_consumer):
            from kadence import Admin

            kadence_records.write(kadence_topic, ["a"])
            with kadence_consumer(kadence_topic) as consumer:
                read(consumer)
                group = consumer.group_metadata().group_id
            with Admin(kadence_broker.settings) as admin:
                admin.delete_topics(kadence_topic)
                admin.delete_consumer_groups(group)

        def test_a_group_that_the_program_names(kadence_settings, kadence_name):
            from kadence import Consumer

            with Consumer(kadence_settings, group_id="of-" + kadence_name("group")) as consumer:
                consumer.subscribe("nothing")
                consumer.poll(0.1)
                consumer.unsubscribe()

        def test_faults(kadence_faults):
            raise AssertionError("it is skipped")
    """)
    with elsewhere(pytester) as end:
        result = run(pytester, "-W", "error")
        assert end() == "topics: groups: others"
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(["*kadence_faults needs the embedded broker*"])


@pytest.mark.parametrize("arguments", [(), ("-W", "error")], ids=["", "warnings are errors"])
def test_what_cannot_be_deleted_is_a_warning(pytester: pytest.Pytester, arguments: tuple[str, ...]) -> None:
    pytester.makepyfile("""
        import pytest
        from kadence import Consumer

        @pytest.fixture(scope="module")
        def keeps_on():
            kept = []
            yield kept
            for each in kept:
                each.close()

        def test_it(keeps_on, kadence_settings, kadence_topic, kadence_name, kadence_records):
            kadence_records.write(kadence_topic, ["a"])
            settings = {"group_id": kadence_name("mine"), "auto_offset_reset": "earliest"}
            keeps_on.append(Consumer(kadence_settings, **settings))
            keeps_on[0].subscribe(kadence_topic)
            next(keeps_on[0])

        def test_a_login_that_ends(kadence_topics, kadence_broker):
            kadence_topics("kept")
            kadence_broker.settings["sasl.password"] = "changed"
    """)
    with elsewhere(pytester) as end:
        result = run(pytester, *arguments)
        assert end() == "topics: kept groups: mine"
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*kadence could not delete at *: mine-test_it-* (*: the group still has members)*",
            "*kadence could not delete at *: kept-*; the rest of test_a_login_that_ends-* (*)",
        ]
    )


@pytest.mark.parametrize(
    ("ini", "arguments", "told"),
    [
        ("", ["--kadence-broker=moon"], "--kadence-broker is embedded, kafka or HOST:PORT, not 'moon'"),
        ("kadence_settings = sasl.password", [], "kadence_settings takes lines key=value"),
    ],
)
def test_what_cannot_be_used(pytester: pytest.Pytester, ini: str, arguments: list[str], told: str) -> None:
    pytester.makeini(f"[pytest]\n{ini}")
    pytester.makepyfile("def test_it(kadence_broker): pass")
    result = run(pytester, *arguments)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*{told}*"])


def test_a_broker_that_is_not_there(pytester: pytest.Pytester) -> None:
    """One wait for the run, and not one for each test."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
        pytester.makepyfile("""
            def test_one(kadence_topic): pass
            def test_two(kadence_topic): pass
        """)
        for seconds in (0.2, PATIENCE / 4):
            pytester.makeconftest(f"""
                from kadence_testing.pytest_plugin import brokers
                brokers._REACH_S = {seconds}
            """)
            result = run(pytester, f"--kadence-broker={nobody}")
            result.assert_outcomes(errors=2)
            if "refused" in result.stdout.str():
                break  # else a busy machine had no time to ask
        result.stdout.fnmatch_lines(["*UsageError: the broker of --kadence-broker cannot be used: *refused*"])


def test_tests_that_use_nothing_of_it_start_no_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_it(kadence_clock, kadence_name):
            assert kadence_name("group") and "kadence_broker" not in sys.modules
    """)
    run(pytester).assert_outcomes(passed=1)


def test_the_documented_tests_pass(pytester: pytest.Pytester) -> None:
    text = (Path(__file__).parents[4] / "docs" / "testing.md").read_text()
    snippets = dict(re.findall(r"^```python\n# tests/([\w.]+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    assert set(snippets) == {"conftest.py", "test_orders.py", "test_orders_async.py"}
    for name, code in snippets.items():
        (pytester.path / name).write_text(code + (ASYNC if name == "conftest.py" else ""))
    run(pytester).assert_outcomes(passed=2)


def test_each_test_has_a_schema_registry_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest
        from kadence_schemas import AvroDeserializer, AvroSerializer, SchemaRegistryClient

        @pytest.mark.parametrize("round", [1, 2])
        def test_write_and_read(round, schema_registry):
            client = SchemaRegistryClient(schema_registry.url)
            assert client.get_subjects() == []
            data = AvroSerializer(client, '"long"').serialize("orders", (), 5)
            assert AvroDeserializer(client).deserialize("orders", (), data) == 5
            assert client.get_subjects() == ["orders-value"]
    """)
    run(pytester).assert_outcomes(passed=2)


def test_fixtures_are_listed_with_their_sentences(pytester: pytest.Pytester) -> None:
    fixtures = run(pytester, "--fixtures").stdout.str()
    assert "kadence_topics -- " in fixtures
    assert 'Creates topics: ``kadence_topics("orders", partitions=3)`` returns the name.' in fixtures
    assert "--kadence-broker=WHERE" in run(pytester, "--help").stdout.str()
