"""Every program of examples/ runs, as its head says. Those on Spark: tests/spark/pipeline/test_examples.py."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import entry_points

import pytest
from conftest import FAST_GROUPS
from tests.examples.programs import EXAMPLES, committed, finished, members, running, values, write
from tests.examples.shop import Shop, write_orders
from tests.examples.web import address, ended_in_order, got, posted, status, text
from tests.patience import PATIENCE, until

from kadence import Broker, Producer
from kadence_schemas import AvroDeserializer, SchemaRegistryClient
from kadence_testing.schema_registry import SchemaRegistryServer

AT_ONCE = {**FAST_GROUPS, "group.consumer.assignment.interval.ms": 0}
"""Who comes soon after another has its partitions at once."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=AT_ONCE) as running:
        yield running


def test_the_worker_continues_where_it_committed(
    broker: Broker, schema_registry: SchemaRegistryServer
) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("orders", 2)
    broker.create_topic("orders.dead", 1)
    orders = [(str(number % 5), f"order {number}") for number in range(20)]
    with Shop(refused="order 17") as shop:
        environment = {
            "KADENCE_SCHEMA_REGISTRY": schema_registry.url,
            "SHOP": shop.url,
            "PORT": "0",
            "OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider",
        }
        traces = write_orders(servers, schema_registry.url, orders[:15])
        with running("worker.py", servers=servers, **environment) as first:
            url = first.wait_for(r"probes and metrics: (http://.*)$")[1]
            first.wait_for(" order ")
            assert (status(f"{url}/live"), status(f"{url}/ready")) == (200, 200)
            assert first.end() == 0
        assert first.lines[-1].endswith("ended by SIGTERM")
        done = [line for line in first.lines if " order " in line]
        assert members(servers, "worker") == 0
        # What is done above an order that is not is in the commit's metadata.
        assert committed(servers, "worker") <= len(done)
        traces |= write_orders(servers, schema_registry.url, orders[15:])
        with running("worker.py", servers=servers, **environment) as second:
            url = second.wait_for(r"probes and metrics: (http://.*)$")[1]
            second.wait_for(" order ", 19 - len(done))
            one = re.compile("^kadence_consumer_work_dead_letters_total{.*} 1.0$", re.MULTILINE)
            until(lambda: one.search(text(f"{url}/metrics")), what=lambda: text(f"{url}/metrics"))
            assert second.end(signal.SIGINT) == 0
        done += [line for line in second.lines if " order " in line]
    ((_, _, letter),) = values(broker, "orders.dead")
    avro = AvroDeserializer(SchemaRegistryClient(schema_registry.url))
    assert avro.deserialize("orders.dead", (), letter) == {"item": "order 17"}
    items = [line.split(" ", 2)[2] for line in done]
    assert sorted([*items, "order 17"]) == sorted(value for _, value in orders)
    assert committed(servers, "worker") == 20
    # The service took each order once, within the trace of who wrote it, and had refused some before.
    assert sorted(call.item for call in shop.taken) == sorted(items)
    assert all(call.trace == traces[call.item] for call in shop.taken)
    assert len({call.key for call in shop.taken}) == 19
    assert sum(call.item == "order 17" for call in shop.refusals) == 3
    assert {f"order {number}" for number in range(0, 20, 3)} <= {call.item for call in shop.refusals}


def test_dead_letters_are_shown_and_come_back_repaired(broker: Broker) -> None:
    servers = broker.bootstrap_servers
    broker.create_topic("amounts", 1)
    broker.create_topic("amounts.dead", 1)
    write(servers, "amounts", [(None, "1"), ("k", "2 EUR"), (None, "3")])
    with running("dead_letters.py", "work", servers=servers) as work:
        work.wait_for("3 makes 4")
        shown = finished("dead_letters.py", "show", servers=servers)
        assert len(shown) == 1
        assert shown[0].startswith("amounts-0 at 1: b'2 EUR': ")
        assert "invalid literal for int()" in shown[0]
        assert finished("dead_letters.py", "replay", servers=servers) == ["1 replayed"]
        work.wait_for("2 makes 6")
        assert work.end() == 0
    assert values(broker, "amounts")[-1] == (0, b"k", b"2")
    assert committed(servers, "adding") == 4
    assert finished("dead_letters.py", "show", servers=servers) == []


@pytest.mark.parametrize("arrow", [True, False], ids=["tables", "records"])
def test_a_batch_over_a_time_range(broker: Broker, arrow: bool) -> None:
    broker.create_topic("orders", 3)
    hour = 3_600_000
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp() * 1000)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(48):
            # Nothing of the third partition lies in the range, or after it.
            at = start + number * hour if number % 3 < 2 else start - hour
            producer.send("orders", b"x" * 10, partition=number % 3, timestamp=at)
    times = ("2026-01-01T06:00+00:00", "2026-01-01T12:00+00:00")
    expected = sum(number % 3 < 2 for number in range(6, 12))
    printed = finished(
        "time_range.py",
        "orders",
        *times,
        servers=broker.bootstrap_servers,
        python=() if arrow else ("-c", WITHOUT_ARROW),
    )
    assert printed == [f"{expected} records, {expected * 10} bytes"]


WITHOUT_ARROW = """
import importlib.util, runpy, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "pyarrow" else find(name, *rest)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""An environment without pyarrow."""


def test_the_suite_of_a_project() -> None:
    plugin = "kadence_testing.pytest_plugin"
    loads = [] if any(each.value == plugin for each in entry_points(group="pytest11")) else ["-p", plugin]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *loads, "-p", "no:cacheprovider", str(EXAMPLES / "testing")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_service_writes_reads_and_ends_in_order(broker: Broker) -> None:
    broker.create_topic("orders", 2)
    with running("service/app.py", servers=broker.bootstrap_servers, PORT="0") as service:
        url = address(service)
        until(lambda: status(f"{url}/ready") == 200, what="not ready")
        assert status(f"{url}/live") == 200
        for customer, cents in [("ann", 950), ("bob", 100), ("ann", 50)]:
            assert "offset" in posted(f"{url}/orders", {"customer": customer, "cents": cents})
        until(lambda: got(f"{url}/totals") == {"ann": 1000, "bob": 100}, what=lambda: got(f"{url}/totals"))
        assert ended_in_order(service)
    assert members(broker.bootstrap_servers, "totals") == 0
    assert committed(broker.bootstrap_servers, "totals") == 3
