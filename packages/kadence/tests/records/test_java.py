"""Apache Kafka's Java record code against ours: its batches through our reader, ours through its."""

from __future__ import annotations

from kadence import Consumer, Producer, TopicPartition
from kadence.admin import Admin
from kadence_testing.kafka import Kafka

TOOLS = "org.apache.kafka.tools"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def made_topic(kafka: Kafka, name: str) -> TopicPartition:
    with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        admin.create_topics({name: 1})
    return TopicPartition(name, 0)


def test_batches_of_javas_producer(kafka: Kafka) -> None:
    """Every codec as Java writes it: xerial snappy, lz4 and zstd frames that do not state their size."""
    partition = made_topic(kafka, "records-from-java")
    expected = []
    for codec in CODECS:
        lines = [f"{codec} {number} {'x' * number}" for number in range(300)]
        expected += [(codec.encode(), line.encode(), (("codec", codec.encode()),)) for line in lines]
        kafka.run_tool(
            f"{TOOLS}.ConsoleProducer", "--bootstrap-server", kafka.bootstrap_servers, "--topic", partition.topic,
            "--compression-codec", codec,
            "--reader-property", "parse.headers=true", "--reader-property", "parse.key=true",
            stdin="".join(f"codec:{codec}\t{codec}\t{line}\n" for line in lines),
        )  # fmt: skip
    got: list[tuple[object, ...]] = []
    with Consumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        while len(got) < len(expected):
            records = list(consumer.poll(timeout=30))
            assert records, f"only {len(got)} records came"
            got += [(one.key, one.value, one.headers) for one in records]
    assert got == expected


def test_java_reads_our_batches(kafka: Kafka) -> None:
    """Java's reader is the strict one: it refuses lz4 with linked blocks, and snappy must be framed as its own."""
    partition = made_topic(kafka, "records-to-java")
    expected = []
    for codec in CODECS:
        with Producer(bootstrap_servers=kafka.bootstrap_servers, compression_type=codec) as producer:
            for number in range(300):
                line = f"{codec} {number} {'y' * 10 * number}"
                producer.send(partition.topic, line.encode(), key=b"k", headers=[("codec", codec.encode())])
                expected.append(f"codec:{codec}\tk\t{line}")
    got = kafka.run_tool(
        f"{TOOLS}.consumer.ConsoleConsumer", "--bootstrap-server", kafka.bootstrap_servers,
        "--topic", partition.topic, "--from-beginning", "--max-messages", str(len(expected)),
        "--timeout-ms", "30000", "--command-property", "check.crcs=true",
        "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
    )  # fmt: skip
    assert got.splitlines()[: len(expected)] == expected
