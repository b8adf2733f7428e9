"""examples/moving/: programs on other clients and the same ones on Kadence, with the same input, give the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conftest import FAST_GROUPS
from tests.examples.programs import committed, finished, members, running, values, write
from tests.examples.web import address, ended_in_order, got, posted
from tests.patience import until

from kadence import Broker, Producer

AT_ONCE = {
    **FAST_GROUPS,
    "group.initial.rebalance.delay.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
}
SINCE = 1_767_225_600_000


def documents(broker: Broker, topic: str) -> list[tuple[int, bytes | None, Any]]:
    """The records of a topic with JSON values: where a document has spaces does not count."""
    return [(partition, key, json.loads(value)) for partition, key, value in values(broker, topic)]


def left_with(servers: str, group: str) -> int:
    """What is committed in a group that nobody is in any more."""
    assert members(servers, group) == 0
    return committed(servers, group)


@contextmanager
def cluster(**topics: int) -> Iterator[Broker]:
    """A broker for one program: with the same input each begins alike."""
    with Broker(topics=topics, config=AT_ONCE) as broker:
        yield broker


def invoices(program: str) -> Any:
    """What a worker writes and commits that is started a second time after more orders have come."""
    with cluster(orders=2, invoices=3) as broker:
        servers = broker.bootstrap_servers
        for turn in range(2):
            orders = [
                (f"order {number}", json.dumps({"customer": number % 7, "price": number, "count": turn + 1}))
                for number in range(turn * 12, turn * 12 + 12)
            ]
            write(servers, "orders", orders)
            with running(program, servers=servers) as worker:
                worker.wait_for("^invoice ", 12)
                assert worker.end() == 0, worker.lines
                assert any("assigned" in line for line in worker.lines)
        return sorted(documents(broker, "invoices"), key=str), left_with(servers, "invoicing")


def test_a_worker_on_confluent_kafka() -> None:
    before = invoices("moving/confluent_kafka_worker/before.py")
    assert len(before[0]) == before[1] == 24
    assert invoices("moving/confluent_kafka_worker/after.py") == before


def balances(program: str) -> Any:
    """What a service answers, writes and commits."""
    with cluster(payments=2) as broker:
        servers = broker.bootstrap_servers
        with running(program, servers=servers, PORT="0") as service:
            url = address(service)
            payments = [("ann", 300), ("bob", 20), ("ann", 1), ("eve", 4)]
            answers = [
                posted(f"{url}/payments", {"account": name, "cents": cents}) for name, cents in payments
            ]
            sums = {"ann": 301, "bob": 20, "eve": 4}
            until(lambda: got(f"{url}/balances") == sums, what=lambda: got(f"{url}/balances"))
            # Before it ends: the old service is cancelled, perhaps while it commits.
            until(lambda: committed(servers, "balances") == len(payments), what="not committed")
            assert ended_in_order(service)
        return answers, documents(broker, "payments"), left_with(servers, "balances")


def test_a_service_on_aiokafka() -> None:
    before = balances("moving/aiokafka_service/before.py")
    assert before[2] == 4
    assert balances("moving/aiokafka_service/after.py") == before


def report(program: str) -> Any:
    """What a batch prints and writes, to a topic that it creates."""
    with cluster(sales=3) as broker:
        with Producer(
            bootstrap_servers=broker.bootstrap_servers, key_serializer="string", value_serializer="json"
        ) as producer:
            for number in range(30):
                # The third partition has nothing since the time.
                at = SINCE + (number - 10) * 1000 if number % 3 < 2 else SINCE - 1
                producer.send(
                    "sales", {"cents": number}, key=f"shop {number % 4}", partition=number % 3, timestamp=at
                )
        printed = finished(program, str(SINCE), servers=broker.bootstrap_servers)
        return printed, documents(broker, "reports")


def test_a_batch_on_kafka_python() -> None:
    before = report("moving/kafka_python_batch/before.py")
    printed, written = before
    cents = sum(number for number in range(10, 30) if number % 3 < 2)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in printed) == cents
    assert (len(printed), len(written)) == (4, 4)
    assert report("moving/kafka_python_batch/after.py") == before


@pytest.mark.parametrize("client", ["before", "after"])
def test_a_batch_without_its_topic_says_so(client: str) -> None:
    """The topic of reports is there already, and that is no error."""
    with cluster(reports=1) as broker, pytest.raises(AssertionError, match="there is no topic sales"):
        finished(f"moving/kafka_python_batch/{client}.py", str(SINCE), servers=broker.bootstrap_servers)
