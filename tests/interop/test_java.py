"""Apache Kafka's own command-line tools, and with them its Java client, against our broker."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.interop.librdkafka import consuming, poll_until
from tests.interop.test_confluent_kip848 import modern
from tests.interop.tools import CONFIGS, TOOLS, Tools
from tests.net.conftest import Certificates, certificates

from kadence import Producer
from kadence_broker import Broker, TlsFiles
from kadence_testing.kafka import Kafka

__all__ = ["certificates"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_console_tools_produce_and_consume_in_a_group(
    broker: Broker, tools: Tools, protocol: str
) -> None:
    servers = ["--bootstrap-server", broker.bootstrap_servers]
    lines = [f"line {number}" for number in range(100)]
    tools(f"{TOOLS}.ConsoleProducer", *servers, "--topic", "t", stdin="\n".join(lines) + "\n")
    assert sum(end for _, end in broker.offsets("t")) == 100
    got = tools(
        f"{TOOLS}.consumer.ConsoleConsumer", *servers, "--topic", "t", "--group", "g", "--from-beginning",
        "--max-messages", "100", "--timeout-ms", "60000",
        "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    assert sorted(got.split("\n")[:100]) == sorted(lines)
    described = tools(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *servers, "--describe", "--group", "g")
    rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
    found = {(row[2], row[3], row[4], row[5]) for row in rows}
    ends = [end for _, end in broker.offsets("t")]
    # It ends with its hundredth record, maybe before it knows where it stands in partitions without records.
    assert found <= {(str(partition), str(end), str(end), "0") for partition, end in enumerate(ends)}
    assert {(str(partition), str(end), str(end), "0") for partition, end in enumerate(ends) if end} <= found
    listed = tools(f"{TOOLS}.consumer.group.ConsumerGroupCommand", *servers, "--list", "--type")
    assert [line.split() for line in listed.splitlines() if line.startswith("g ")] == [
        ["g", protocol.capitalize()]
    ]


def test_topics_are_administered_by_javas_tools(broker: Broker, tools: Tools) -> None:
    servers = ["--bootstrap-server", broker.bootstrap_servers]

    def topics(*arguments: str) -> str:
        return tools(f"{TOOLS}.TopicCommand", *servers, *arguments)

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


def test_a_kip_848_group_of_java_and_librdkafka(broker: Broker, kafka: Kafka, tools: Tools) -> None:
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
            described = tools(
                f"{TOOLS}.consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap_servers,
                "--describe", "--group", "g", "--members", "--verbose",
            )  # fmt: skip
            rows = [line.split() for line in described.splitlines() if line.startswith("g ")]
            assert len(rows) == 2
            assert all("t:" in " ".join(row) for row in rows)
        finally:
            java.terminate()
        poll_until([other], lambda: len(other.assignment()) == 4)


def test_javas_tools_change_configs_and_look_at_logs(broker: Broker, tools: Tools, tmp_path: Path) -> None:
    servers = ("--bootstrap-server", broker.bootstrap_servers)
    broker.create_topic("made", 1)

    def configs(*arguments: str) -> str:
        return tools(CONFIGS, *servers, "--topic", "made", *arguments)

    configs("--alter", "--add-config", "retention.ms=60000,max.message.bytes=5000")
    configs("--alter", "--delete-config", "max.message.bytes")
    told = configs("--describe")
    assert "retention.ms=60000" in told
    assert "max.message.bytes" not in told
    sizes = tools(f"{TOOLS}.LogDirsCommand", *servers, "--describe", "--topic-list", "made")
    assert '"partition":"made-0"' in sizes
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(3):
            producer.send("made", b"v")
    wanted = tmp_path / "delete.json"
    wanted.write_text('{"version": 1, "partitions": [{"topic": "made", "partition": 0, "offset": 2}]}')
    deleted = tools(f"{TOOLS}.DeleteRecordsCommand", *servers, "--offset-json-file", str(wanted))
    assert "low_watermark: 2" in deleted
    assert broker.offsets("made") == [(2, 3)]


def test_java_logs_in_over_tls(tools: Tools, certificates: Certificates, tmp_path: Path) -> None:
    with Broker(
        topics={"t": 1}, tls=TlsFiles(certificates.server), users={"alice": "correct-horse"}
    ) as broker:
        settings = tmp_path / "client.properties"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        settings.write_text(
            "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
            f"ssl.truststore.location={certificates.ca}\n"
            f'sasl.jaas.config={module} required username="alice" password="correct-horse";\n'
        )
        told = tools(
            f"{TOOLS}.TopicCommand",
            *("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(settings), "--list"),
        )
        assert "t" in told.split()
