"""The cluster and the topics that the benchmarks read: one real Kafka, 8 partitions, uncompressed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from harness.peers import CONFLUENT_BEST
from kadence_testing.kafka import Kafka

PARTITIONS = 8

# A broker as it runs in earnest: both compilers, G1, and a heap that is never the limit.
JVM_OPTIONS = ("-Xms1g", "-Xmx1g")


MEMORY = Path("/dev/shm")
"""Linux's file system in memory."""


def benchmark_kafka(
    directory: Path, properties: Mapping[str, str] | None = None, *, parent: Path | None = None
) -> Kafka:
    """A Kafka, not yet started, with a TLS listener whose certificate is made in ``directory``.

    ``parent``: see `Kafka`.
    """
    certificate, key = make_certificate(directory)
    settings = {
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.certificate.chain": certificate.read_text(),
        "listener.name.tls.ssl.keystore.key": key.read_text(),
        "log.retention.ms": "-1",
        # Kafka's own defaults in place of those for tests: how often members of new groups send heartbeats is part of
        # what an idle consumer costs.
        "group.consumer.heartbeat.interval.ms": "5000",
        **(properties or {}),
    }
    return Kafka(settings, listeners={"TLS": "SSL"}, jvm_options=JVM_OPTIONS, parent=parent)


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key, as PEM files."""
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += [
        "-addext",
        "subjectAltName=IP:127.0.0.1,DNS:localhost",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        raise SystemExit("openssl is needed to make a certificate for the TLS listener; install it") from None
    return certificate, key


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Create ``topic`` without records."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)]).values():
        created.result(60)


def fill(bootstrap: str, topic: str, size: int, count: int) -> None:
    """Create ``topic`` and write ``count`` records of ``size`` bytes with 16-byte keys.

    The records go to the partitions in turn and lie in batches as librdkafka's producer makes them by
    default (up to 10,000 records or 1 MB).
    """
    # Bytes that differ from record to record would cost the filling, and no uncompressed reader notices.
    value = bytes(range(256)) * (size // 256 + 1)
    fill_with(bootstrap, topic, [value[:size]], count)


def fill_with(bootstrap: str, topic: str, values: Sequence[bytes], count: int) -> None:
    """The same with these values in turn."""
    create(bootstrap, topic, PARTITIONS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000}
    )
    for number in range(count):
        key = b"%016d" % number
        while True:
            try:
                producer.produce(topic, values[number % len(values)], key, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit(f"{topic} could not be filled: records are still unsent after 120 s")
    # Now: the system would write the log to its disk beside the first clients that are measured.
    os.sync()


def warm(bootstrap: str, topic: str, count: int) -> None:
    """Read the topic once: a broker that never served these bytes is slow to its first client."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"warm-{topic}", "auto.offset.reset": "earliest"}
        | CONFLUENT_BEST
    )
    consumer.subscribe([topic])
    left = count
    while left > 0 and (messages := consumer.consume(500, 10.0)):
        left -= len(messages)
    consumer.close()


if __name__ == "__main__":
    fill(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    warm(sys.argv[1], sys.argv[2], int(sys.argv[4]))
