"""``kadence transactions``: who has transactions open, which of them hang, and how they are ended."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Run
from tests.patience import until

from kadence import Admin, Producer, TopicPartition
from kadence.admin import ProducerState, TransactionDescription, TransactionListing
from kadence.protocol import error_codes as ec
from kadence.protocol.describe_transactions import DescribeTransactionsRequest
from kadence.records import encode_batch
from kadence_broker import Broker
from kadence_cli.transactions import hanging

TP = TopicPartition("orders", 0)
NOW = 1_700_000_000_000


@pytest.fixture
def orders(broker: Broker) -> Iterator[Producer]:
    """A producer ``billing-1`` that has a transaction open in the second of two partitions."""
    broker.create_topic("orders", 2)
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="billing-1") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"done", partition=1)
        producer.begin_transaction()
        producer.send("orders", b"open", partition=1).result()
        yield producer
        producer.close(0)


def leave_hanging(broker: Broker, producer_id: int = 99) -> None:
    """A batch of a transaction that no coordinator knows, as a bug of a broker leaves it."""
    partition = broker._core.cluster.partition(*TP)
    assert partition is not None
    batch = encode_batch(
        [(NOW, None, b"lost", ())],
        producer_id=producer_id,
        producer_epoch=3,
        base_sequence=0,
        transactional=True,
    )
    broker._on_loop(lambda: partition.append(NOW, memoryview(batch), transactional_id="gone"))


def test_an_open_transaction_is_listed_described_and_fenced(
    kadence: Run, broker: Broker, orders: Producer
) -> None:
    (listed,) = kadence("transactions", "list").rows
    assert listed == {
        "transactional_id": "billing-1",
        "coordinator": listed["coordinator"],
        "producer_id": listed["producer_id"],
        "state": "Ongoing",
    }
    assert kadence("transactions", "list", "x*").rows == []
    assert kadence("transactions", "list", "--state", "complete-commit").rows == []
    (described,) = kadence("transactions", "describe", "bill*").rows
    assert described["partitions"] == ["orders:1"]
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", 60_000)
    assert described["started"].endswith("+00:00")
    assert described["duration_ms"] >= 0
    # Its coordinator knows it, so it does not hang, and is not aborted in one partition alone.
    ran = kadence("transactions", "hanging", "--older-than", "0")
    assert (ran.rows, ran.err) == ([], "no transaction hangs\n")
    ran = kadence("transactions", "abort", "orders:1", "--start-offset", "2")
    assert (ran.status, ran.rows) == (1, [])
    assert "`kadence transactions fence billing-1` aborts it in all its partitions" in ran.err
    rows = kadence("topics", "describe", "orders").rows
    assert [(row["first_offset"], row["last_stable"], row["next_offset"]) for row in rows] == [
        (0, 0, 0),
        (0, 2, 3),
    ]
    (fenced,) = kadence("transactions", "fence", "billing-1").rows
    assert (fenced["was"], fenced["partitions"]) == ("Ongoing", ["orders:1"])
    # What it prints as the result is that of afterwards.
    (described,) = kadence("transactions", "describe", "billing-1").rows
    assert fenced["state"] == described["state"] != "Ongoing"
    until(lambda: kadence("topics", "describe", "orders").rows[1]["last_stable"] == 4, what="it is aborted")


def test_an_id_that_nobody_knows_is_not_made(kadence: Run) -> None:
    ran = kadence("transactions", "fence", "biling-1")
    assert ran.status == 1
    assert "there is no transactional id 'biling-1'; `kadence transactions list` shows all" in ran.err
    assert kadence("transactions", "list").rows == []


def test_a_transaction_that_hangs_is_found_and_aborted(kadence: Run, broker: Broker) -> None:
    broker.create_topic("orders", 1)
    leave_hanging(broker)
    (found,) = kadence("transactions", "hanging").rows
    assert found == {
        "topic": "orders",
        "partition": 0,
        "start_offset": 0,
        "producer_id": 99,
        "producer_epoch": 3,
        "coordinator_epoch": None,
        "transactional_id": None,
        "last_written": "2023-11-14T22:13:20+00:00",
        "silent_ms": found["silent_ms"],
    }
    table = kadence("transactions", "hanging", "orders:0", "--wide").out
    assert "start_offset" in table
    ran = kadence("transactions", "abort", "orders:0", "--start-offset", "7")
    assert "no transaction of orders:0 begins at offset 7: open ones begin at 0" in ran.err
    assert kadence("transactions", "abort", "orders", "--start-offset", "0").status == 2
    ran = kadence("transactions", "abort", "orders:0", "--start-offset", "0", "--dry-run")
    assert (ran.rows, ran.err) == (
        [found | {"silent_ms": ran.rows[0]["silent_ms"]}],
        "nothing was aborted (--dry-run)\n",
    )
    assert kadence("topics", "describe", "orders").rows[0]["last_stable"] == 0
    assert kadence("transactions", "abort", "orders:0", "--start-offset", "0").status == 0
    assert kadence("topics", "describe", "orders").rows[0]["last_stable"] == 2
    assert kadence("transactions", "hanging").rows == []
    ran = kadence("transactions", "abort", "orders:0", "--start-offset", "0")
    assert "none is open there" in ran.err


def test_wrong_words(kadence: Run, broker: Broker) -> None:
    assert kadence("transactions", "list", "--state", "open").status == 2
    assert kadence("transactions", "hanging", "--older-than", "-1").status == 2
    ran = kadence("transactions", "describe", "x*")
    assert "no transaction matches 'x*'; `kadence transactions list` shows all" in ran.err


def test_a_late_epoch_is_refused(broker: Broker) -> None:
    broker.create_topic("orders", 1)
    leave_hanging(broker)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        with pytest.raises(Exception, match="INVALID_PRODUCER_EPOCH"):
            admin.abort_transaction(TP, producer_id=99, producer_epoch=2)
        admin.abort_transaction(("orders", 0), producer_id=99, producer_epoch=3)
        (state,) = admin.describe_producers(TP)[TP]
        assert state.transaction_start is None


def test_one_whose_coordinator_cannot_be_asked_does_not_look_as_if_it_hung(
    kadence: Run, broker: Broker, orders: Producer
) -> None:
    with broker.faults.error(DescribeTransactionsRequest, ec.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
        ran = kadence("transactions", "abort", "orders:1", "--start-offset", "2")
        assert (ran.status, ran.rows) == (1, [])
        assert "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" in ran.err
        assert kadence("transactions", "hanging", "--older-than", "0").status == 1


def state(producer: int, start: int | None, last: int | None) -> ProducerState:
    return ProducerState(producer, 0, 5, last, None, start)


def test_which_transactions_hang() -> None:
    """As Kafka's `find-hanging`: open, old enough, and not known to a coordinator in this partition."""
    elsewhere = TopicPartition("orders", 1)
    producers = {
        TP: [
            state(1, None, NOW - 10_000),
            state(2, 5, NOW - 10_000),
            state(3, 6, NOW - 10_000),
            state(4, 7, NOW - 10_000),
            state(5, 8, NOW - 9_999),
            state(6, 9, None),
        ]
    }
    listed = [TransactionListing("known", 3, "Ongoing", 1), TransactionListing("other", 4, "Ongoing", 1)]
    described = {
        "known": TransactionDescription("known", "Ongoing", 1, 3, 0, 60_000, NOW, frozenset({TP})),
        "other": TransactionDescription("other", "Ongoing", 1, 4, 0, 60_000, NOW, frozenset({elsewhere})),
    }
    found = hanging(producers, listed, described, NOW, 10_000)
    assert [(each.producer.producer_id, each.transactional_id) for each in found] == [
        (2, None),
        (4, "other"),
        (6, None),
    ]
