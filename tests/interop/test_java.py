"""Apache Kafka's own command-line tools, and with them its Java client, against our broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.interop.librdkafka import consuming, poll_until
from tests.interop.test_confluent_kip848 import modern

from kadence.broker import Broker
from kadence.testing.kafka import Kafka

TOOLS = "org.apache.kafka.tools"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_tools_produce_and_consume_in_a_group(
    broker: Broker, kafka: Kafka, protocol: str
) -> None:
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    lines = [f"line {number}" for number in range(100)]
    kafka.run_tool(f"{TOOLS}.ConsoleProducer", *servers, "--topic", "t", stdin="\n".join(lines) + "\n")
    assert sum(end for _, end in broker.offsets("t")) == 100
    got = kafka.run_tool(
        f"{TOOLS}.consumer.ConsoleConsumer", *servers, "--topic", "t", "--group", "g", "--from-beginning",
        "--max-messages", "100", "--timeout-ms", "60000",
        "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    assert sorted(got.split("\n")[:100]) == sorted(lines)
    described = kafka.run_tool(
        f"{TOOLS}.consumer.group.ConsumerGroupCommand", *servers, "--describe", "--group", "g"
    )
    rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
    found = {(row[2], row[3], row[4], row[5]) for row in rows}
    ends = [end for _, end in broker.offsets("t")]
    # It ends with its hundredth record, maybe before it knows where it stands in partitions without records.
    assert found <= {(str(partition), str(end), str(end), "0") for partition, end in enumerate(ends)}
    assert {(str(partition), str(end), str(end), "0") for partition, end in enumerate(ends) if end} <= found
    listed = kafka.run_tool(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *servers, "--list", "--type")
    assert [line.split() for line in listed.splitlines() if line.startswith("g ")] == [
        ["g", protocol.capitalize()]
    ]


def test_topics_are_administered_by_javas_tools(broker: Broker, kafka: Kafka) -> None:
    servers = ["--bootstrap-server", broker.bootstrap_servers]

    def topics(*arguments: str) -> str:
        return kafka.run_tool(f"{TOOLS}.TopicCommand", *servers, *arguments)

    topics("--create", "--topic", "made", "--partitions", "3", "--config", "retention.ms=1000")
    assert broker.offsets("made") == [(0, 0)] * 3
    described = topics("--describe")
    assert "Topic: t\t" in described
    assert "PartitionCount: 3" in described
    assert "retention.ms=1000" in described


def test_a_group_of_java_and_librdkafka(broker: Broker, kafka: Kafka, tmp_path: Path) -> None:
    """Java's VerifiableConsumer writes one JSON line for each thing that happens to it."""
    config = tmp_path / "consumer.properties"
    config.write_text("heartbeat.interval.ms=100\n")
    command = kafka.tool_command(
        f"{TOOLS}.VerifiableConsumer", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t",
        "--group-id", "g", "--group-protocol", "classic", "--command-config", str(config),
        "--assignment-strategy", "org.apache.kafka.clients.consumer.RangeAssignor",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as java, consuming(broker) as other:
        try:
            poll_until([other], lambda: len(other.assignment()) == 2)
            assert java.stdout is not None
            lines = (line for line in java.stdout if '"partitions_assigned"' in line)
            assert any(line.count('"partition":') == 2 for line in lines)
            assert "Stable" in broker.describe_groups()["g"]
        finally:
            java.terminate()
        poll_until([other], lambda: len(other.assignment()) == 4)


def test_a_kip_848_group_of_java_and_librdkafka(broker: Broker, kafka: Kafka) -> None:
    command = kafka.tool_command(
        f"{TOOLS}.VerifiableConsumer", "--bootstrap-server", broker.bootstrap_servers, "--topic", "t",
        "--group-id", "g", "--group-protocol", "consumer", "--group-remote-assignor", "range",
    )  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as java, modern(broker) as other:
        try:
            poll_until([other], lambda: len(other.assignment()) == 2)
            assert java.stdout is not None
            lines = (line for line in java.stdout if '"partitions_assigned"' in line)
            assert any(line.count('"partition":') == 2 for line in lines)
            described = kafka.run_tool(
                f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap_servers,
                "--describe", "--group", "g", "--members", "--verbose",
            )  # fmt: skip
            rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
            assert len(rows) == 2
            assert all("t:" in " ".join(row) for row in rows)
        finally:
            java.terminate()
        poll_until([other], lambda: len(other.assignment()) == 4)
