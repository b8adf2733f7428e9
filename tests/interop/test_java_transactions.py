"""Apache Kafka's own tools for transactions and offsets, and with them its Java clients, against our broker."""

from __future__ import annotations

from tests.interop.tools import TOOLS, Tools

from kadence import Producer
from kadence.broker import Broker

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
