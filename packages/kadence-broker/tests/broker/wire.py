"""The barest Kafka client: one blocking socket, any message, any version, any bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable
from typing import Any, Self

from tests.patience import PATIENCE
from tests.protocol.real_requests import versions

from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchTopic
from kadence.protocol.metadata import MetadataRequest
from kadence.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kadence.protocol.registry import decode_response, encode_request
from kadence.records import encode_batch
from kadence_broker import Broker
from kadence_testing import FakeClock


class Wire:
    """One connection to one node of a broker, ours or another at an address."""

    def __init__(self, broker: Broker | str, node: int = 1) -> None:
        servers = broker if isinstance(broker, str) else broker.bootstrap_servers
        host, _, port = servers.split(",")[node - 1].rpartition(":")
        self.sock = socket.create_connection((host, int(port)), timeout=PATIENCE)
        self._correlation = 0
        self._expected: list[tuple[type[Any], int, int]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.sock.close()

    def send(self, message: Any, version: int | None = None, *, expect: bool = True) -> None:
        """Send a request without waiting for its answer; in the newest version that the Kafka of the tests has, too."""
        version = versions(type(message))[-1] if version is None else version
        self._correlation += 1
        frame = encode_request(message, version, self._correlation, "wire")
        self.send_frame(frame)
        if expect:
            self._expected.append((type(message), version, self._correlation))

    def send_frame(self, frame: bytes) -> None:
        self.sock.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self) -> Any:
        """The answer to the oldest request."""
        request, version, correlation = self._expected.pop(0)
        got, response = decode_response(request, version, self.receive_frame())
        assert got == correlation
        return response

    def receive_frame(self) -> bytes:
        (length,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(length)

    def call(self, message: Any, version: int | None = None) -> Any:
        self.send(message, version)
        return self.receive()

    def is_closed(self) -> bool:
        """Whether the broker ends the connection (waits for it)."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.sock.recv(count - len(data))
            if not part:
                raise ConnectionError("the broker closed the connection")
            data += part
        return bytes(data)

    # What most tests do

    def topic_id(self, topic: str) -> bytes:
        (found,) = (each for each in self.call(MetadataRequest(topics=None)).topics if each.name == topic)
        return bytes(found.topic_id)

    def produce(
        self,
        topic: str,
        values: Iterable[bytes],
        partition: int = 0,
        *,
        acks: int = -1,
        version: int = 9,
        **batch: Any,
    ) -> Any:
        """Send one batch; the partition's part of the answer."""
        records = encode_batch(
            [(batch.pop("timestamp", 1_000), None, value, ()) for value in values], **batch
        )
        return self.produce_bytes(topic, records, partition, acks=acks, version=version)

    def send_produce(self, topic: str, values: Iterable[bytes]) -> None:
        """Send one batch without waiting for the answer."""
        records = encode_batch([(1_000, None, value, ()) for value in values])
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
        self.send(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data]), 9)

    def produce_bytes(
        self, topic: str, records: bytes | None, partition: int = 0, *, acks: int = -1, version: int = 9
    ) -> Any:
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        if version >= 13:
            data.topic_id = self.topic_id(topic)
        request = ProduceRequest(acks=acks, timeout_ms=1_000, topic_data=[data])
        if acks == 0:
            self.send(request, version, expect=False)
            return None
        return self.call(request, version).responses[0].partition_responses[0]


def pass_time(broker: Broker, clock: FakeClock, ms: int) -> None:
    """Move a broker's clock on, and wake the broker, which then does what is due."""
    clock.advance(ms)
    broker._on_loop(lambda: None)


def fetch(topic: str, *partitions: FetchPartition, **options: Any) -> FetchRequest:
    """A fetch of one topic by name, for versions up to 12."""
    options.setdefault("max_wait_ms", 0)
    options.setdefault("min_bytes", 1)
    options.setdefault("session_epoch", -1)
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=list(partitions))], **options)


def at(offset: int, partition: int = 0, max_bytes: int = 1 << 20, **options: Any) -> FetchPartition:
    """One partition of a fetch."""
    return FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, **options)
