"""What reading costs at least on this machine: bytes from a socket, checksums, records made of bytes. One thread."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

RECORDS = 10_000


@dataclass(frozen=True, slots=True)
class Floor:
    """Microseconds of processor time for one record.

    Attributes:
        raw: Fetch answers read from one socket and not looked at. checksum: CRC-32C of the record's bytes.
        records: record objects made of bytes, by 500. touched: key, value and offset read.
        columns: an Arrow table made.
    """

    raw: float
    checksum: float
    records: float
    touched: float
    columns: float

    @classmethod
    def measure(cls, bootstrap: str, topic: str, size: int, seconds: float) -> Floor:
        from kadence.records import crc32c

        data = _batch(size)
        each = seconds / 4
        checksum = _cost(lambda: _checksum(crc32c, data), each)
        made = _cost(lambda: _objects(data, touch=False), each)
        touched = _cost(lambda: _objects(data, touch=True), each)
        columns = _cost(lambda: _columns(data), each)
        raw = _raw(bootstrap, topic, len(data) / RECORDS, seconds)
        return cls(raw, checksum, made - checksum, max(touched - made, 0.0), columns - checksum)


def _cost(run: Callable[[], int], seconds: float) -> float:
    """The cheapest of many runs, in microseconds of this thread for each record."""
    run()
    best, until = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.thread_time()
        count = run()
        best = min(best, (time.thread_time() - began) / count * 1e6)
    return best


def _batch(size: int) -> bytes:
    from kadence.records import encode_batch

    value = (bytes(range(256)) * (size // 256 + 1))[:size]
    return encode_batch((1_700_000_000_000 + i, b"%016d" % i, value, ()) for i in range(RECORDS))


def _checksum(crc32c: Callable[[bytes], int], data: bytes) -> int:
    crc32c(data)
    return RECORDS


def _objects(data: bytes, *, touch: bool) -> int:
    from kadence.records import FetchedRecords

    reader = FetchedRecords(data, "topic", 0, 0)
    count = 0
    while records := reader.take(500):
        count += len(records)
        if touch:
            for record in records:
                record.key, record.value, record.offset  # noqa: B018
    return count


def _columns(data: bytes) -> int:
    from kadence.records import FetchedRecords
    from kadence.records.arrow import to_table

    return int(to_table(FetchedRecords(data, "topic", 0, 0).take_columns()).num_rows)


def _raw(bootstrap: str, topic: str, record_bytes: float, seconds: float) -> float:
    """Fetch answers of about 8 MiB from the start of the topic, asked for one at a time."""
    from kadence.protocol.fetch import FetchPartition, FetchRequest, FetchTopic

    partitions = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in range(8)
    ]
    request = FetchRequest(
        session_epoch=-1,
        min_bytes=1,
        max_bytes=50 << 20,
        topics=[FetchTopic(topic=topic, partitions=partitions)],
    )
    with _Raw(bootstrap) as client:
        client.call(request, 12)
        total, burnt, until = 0, time.thread_time(), time.perf_counter() + seconds
        while time.perf_counter() < until:
            total += client.call(request, 12)
        return (time.thread_time() - burnt) / (total / record_bytes) * 1e6


class _Raw:
    """One connection that reads answers into one buffer, over and over."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._sock = socket.create_connection((host, int(port)))
        self._buffer = memoryview(bytearray(64 << 20))

    def call(self, message: Any, version: int) -> int:
        """The size of the answer."""
        from kadence.protocol.registry import encode_request

        frame = encode_request(message, version, 1, "bench")
        self._sock.sendall(struct.pack(">i", len(frame)) + frame)
        (length,) = struct.unpack(">i", self._fill(4))
        return len(self._fill(length))

    def _fill(self, count: int) -> memoryview:
        filled = 0
        while filled < count:
            filled += self._sock.recv_into(self._buffer[filled:count])
        return self._buffer[:count]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()
