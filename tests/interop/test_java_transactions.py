"""Apache Kafka's own tools for transactions and offsets, and with them its Java clients, against our broker."""

from __future__ import annotations

import json

import pytest
from tests.cli.test_transactions import leave_hanging
from tests.interop.tools import TOOLS, Tools

from kadence import Producer
from kadence_broker import Broker
from kadence_cli.main import main

GROUPS = f"{TOOLS}.consumer.group.ConsumerGroupCommand"


def rows(table: str) -> list[list[str]]:
    """The cells of a tool's table, without its header."""
    return [line.split() for line in table.splitlines() if line.strip()][1:]


def test_javas_producer_makes_many_short_transactions(broker: Broker, tools: Tools) -> None:
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    tools(
        f"{TOOLS}.ProducerPerformance", *servers, "--topic", "t", "--num-records", "500", "--record-size",
        "100", "--throughput", "2000", "--transactional-id", "perf", "--transaction-duration-ms", "20",
    )  # fmt: skip
    # Each transaction leaves a marker in the partitions that it wrote to.
    assert sum(end for _, end in broker.offsets("t")) > 502
    read = tools(
        f"{TOOLS}.consumer.ConsoleConsumer", *servers, "--topic", "t", "--group", "g", "--from-beginning",
        "--max-messages", "500", "--timeout-ms", "60000", "--isolation-level", "read_committed",
    )  # fmt: skip
    assert [len(line) for line in read.splitlines()] == [100] * 500


def test_javas_tool_looks_at_transactions_and_aborts_one(broker: Broker, tools: Tools) -> None:
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    broker.create_topic("one", 1)

    def transactions(*arguments: str) -> list[list[str]]:
        return rows(tools(f"{TOOLS}.TransactionsCommand", *servers, *arguments))

    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="open") as producer:
        producer.init_transactions()
        for value in (b"a", b"never", b"b"):
            producer.begin_transaction()
            producer.send("one", value)
            if value == b"never":
                producer.flush()
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        producer.begin_transaction()
        producer.send("one", b"aborted by the tool")
        producer.flush()

        ((name, _, producer_id, state),) = transactions("list")
        assert (name, state) == ("open", "Ongoing")
        ((_, name, described_id, epoch, state, *_, partitions),) = transactions(
            "describe", "--transactional-id", "open"
        )
        assert (name, described_id, state, partitions) == ("open", producer_id, "Ongoing", "one-0")
        where = ("--topic", "one", "--partition", "0")
        ((known_id, known_epoch, *_, start),) = transactions("describe-producers", *where)
        assert (known_id, known_epoch, start) == (producer_id, epoch, "6")
        # Its coordinator knows of it, so it hangs nowhere.
        assert transactions("find-hanging", *where, "--max-transaction-timeout", "0") == []
        transactions("abort", *where, "--start-offset", start)
        ((*_, start),) = transactions("describe-producers", *where)
        assert start == "None"
        producer.abort_transaction()
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("one", b"c")
    read = tools(
        f"{TOOLS}.consumer.ConsoleConsumer", *servers, "--topic", "one", "--from-beginning",
        "--max-messages", "3", "--timeout-ms", "60000", "--isolation-level", "read_committed",
    )  # fmt: skip
    assert read.splitlines() == ["a", "b", "c"]


@pytest.mark.heavy
def test_javas_tool_and_ours_find_the_same_transactions(
    broker: Broker, tools: Tools, capfd: pytest.CaptureFixture[str]
) -> None:
    """Kafka's tool is the oracle for `kadence transactions`: the same rows, in the same words."""
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    broker.create_topic("orders", 1)
    leave_hanging(broker)

    def ours(*arguments: str) -> list[list[str]]:
        capfd.readouterr()
        assert main(["transactions", *arguments, "--json", "-b", broker.bootstrap_servers]) == 0
        rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
        return [[str(row[name]) for name in _SAME[arguments[0]]] for row in rows]

    def theirs(*arguments: str) -> list[list[str]]:
        return [row[: len(row) - 2] if arguments[0] == "find-hanging" else row for row in table(*arguments)]

    def table(*arguments: str) -> list[list[str]]:
        return rows(tools(f"{TOOLS}.TransactionsCommand", *servers, *arguments))

    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="open") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("orders", b"value").result()
        assert ours("list") == table("list")
        ((coordinator, name, *numbers, state, timeout, _, _, partitions),) = table(
            "describe", "--transactional-id", "open"
        )
        assert ours("describe", "open") == [
            [coordinator, name, *numbers, state, timeout, str([partitions])],
        ]
        # Kafka's writes the time when the producer wrote last, and minutes, behind these.
        where = ("--topic", "orders", "--partition", "0")
        found = ours("hanging")
        assert [[cell.replace("None", "-1") for cell in row] for row in found] == theirs(
            "find-hanging", *where
        )
        assert len(found) == 1
        producer.abort_transaction()


_SAME = {
    "list": ("transactional_id", "coordinator", "producer_id", "state"),
    "describe": (
        "coordinator", "transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "partitions",
    ),
    "hanging": ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "start_offset"),
}  # fmt: skip
"""Our columns in the order of those of Kafka's tool."""


def test_javas_tool_moves_the_offsets_of_a_group(broker: Broker, tools: Tools) -> None:
    broker.create_topic("one", 1)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(5):
            producer.send("one", b"v")

    def reset(*how: str) -> list[list[str]]:
        servers = ("--bootstrap-server", broker.bootstrap_servers)
        where = ("--group", "g", "--topic", "one", "--execute")
        return rows(tools(GROUPS, *servers, "--reset-offsets", *where, *how))

    assert reset("--to-latest") == [["g", "one", "0", "5"]]
    assert reset("--shift-by", "-2") == [["g", "one", "0", "3"]]
