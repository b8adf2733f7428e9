"""The embedded broker alone: how fast it takes batches in and serves them again, to one client on loopback.

    python bench/broker.py [--seconds 2] [--value-bytes 100] [--fsync flush] [--kafka]

The broker runs in its own process. The client is one blocking socket that decodes nothing of the records,
so what is measured is the broker and the socket. ``--kafka`` asks the same of real Apache Kafka, in turns with ours;
``--fsync`` gives our broker a data directory.
"""

from __future__ import annotations

import argparse
import json
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kadence.clock import wall_ms
from kadence.protocol.create_topics import CreatableTopic, CreateTopicsRequest
from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kadence.protocol.heartbeat import HeartbeatRequest
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.registry import decode_response, encode_request
from kadence.records import encode_batch

PARTITIONS = 8
BATCHES_PER_PARTITION = 12
BATCH_BYTES = 500_000


class Client:
    """One connection that reads answers into one buffer, over and over."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)))
        self._buffer = memoryview(bytearray(64 << 20))

    def close(self) -> None:
        self._sock.close()

    def call(self, message: Any, version: int) -> memoryview:
        """Send a request; the answer's frame, valid until the next call."""
        frame = encode_request(message, version, 1, "bench")
        self._sock.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._fill(4))
        return self._fill(length)

    def _fill(self, count: int) -> memoryview:
        filled = 0
        while filled < count:
            filled += self._sock.recv_into(self._buffer[filled:count])
        return self._buffer[:count]


def produce(client: Client, batch: bytes) -> float:
    """MB/s of batches appended, one request at a time."""
    began = time.perf_counter()
    for index in range(PARTITIONS * BATCHES_PER_PARTITION):
        data = PartitionProduceData(index=index % PARTITIONS, records=batch)
        request = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[data])])
        answer = decode_response(ProduceRequest, 9, client.call(request, 9))[1]
        if answer.responses[0].partition_responses[0].error_code:
            raise SystemExit(f"a produce failed: {answer}")
    return PARTITIONS * BATCHES_PER_PARTITION * len(batch) / (time.perf_counter() - began) / 1e6


def fetch(client: Client, max_bytes: int, seconds: float) -> tuple[float, float]:
    """MB/s and ms per answer of fetches of ``max_bytes``."""
    partitions = [
        FetchPartition(partition=each, fetch_offset=0, partition_max_bytes=max_bytes)
        for each in range(PARTITIONS)
    ]
    request = FetchRequest(
        session_epoch=-1,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic="t", partitions=partitions)],
    )
    total = answers = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        total += len(client.call(request, 12))
        answers += 1
    return total / elapsed / 1e6, elapsed / answers * 1e3


def heartbeats(client: Client, seconds: float) -> float:
    """Small requests per second, one at a time."""
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    count = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        client.call(request, 4)
        count += 1
    return count / elapsed


@contextmanager
def ours(fsync: str | None) -> Iterator[str]:
    """The address of ``kadence broker`` in a process of its own."""
    command = [sys.executable, "-m", "kadence", "broker", "--port", "0"]
    with tempfile.TemporaryDirectory() as folder:
        if fsync is not None:
            command += ["--data-dir", folder, "--fsync", fsync]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as server:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())["bootstrap_servers"]
            server.terminate()


@contextmanager
def kafkas() -> Iterator[str]:
    """The address of Apache Kafka."""
    from kadence_testing.kafka import Kafka

    with Kafka() as kafka:
        yield kafka.bootstrap_servers


def measure(name: str, address: str, batch: bytes, seconds: float) -> None:
    """Print one line for each measurement."""
    client = Client(address)
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)
    client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
    # Kafka elects leaders a moment later; and both are warm then.
    time.sleep(1)
    produce(client, batch)
    print(f"{name:8} produce, {len(batch) / 1e6:.2f} MB a batch   {produce(client, batch):8.0f} MB/s")
    for max_bytes in (1 << 20, 8 << 20):
        fetch(client, max_bytes, seconds / 2)
        rate, each = fetch(client, max_bytes, seconds)
        print(f"{name:8} fetch of {max_bytes >> 20:2} MiB            {rate:8.0f} MB/s {each:8.2f} ms each")
    print(f"{name:8} heartbeats                {heartbeats(client, seconds):8.0f} /s")
    client.close()


def main() -> None:
    """Measure our broker, and Kafka beside it if asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long each fetch size is measured")
    parser.add_argument("--value-bytes", type=int, default=100, help="size of a record's value")
    parser.add_argument("--fsync", choices=("flush", "interval", "never"), help="on disk, with this policy")
    parser.add_argument(
        "--kafka", action="store_true", help="the same with Apache Kafka, twice each in turns"
    )
    arguments = parser.parse_args()
    value = bytes(arguments.value_bytes)
    count = max(BATCH_BYTES // (len(value) + 10), 1)
    batch = encode_batch([(wall_ms(), b"k", value, ()) for _ in range(count)])
    for _ in range(2 if arguments.kafka else 1):
        with ours(arguments.fsync) as address:
            measure("kadence", address, batch, arguments.seconds)
        if arguments.kafka:
            with kafkas() as address:
                measure("kafka", address, batch, arguments.seconds)


if __name__ == "__main__":
    main()
