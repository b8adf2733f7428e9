"""Decode one record batch: records per second to objects and to columns, beside aiokafka and kafka-python.

    python bench/decode.py [--records 10000] [--seconds 1.0] [--codec none]

Each figure is the best of many runs over the same bytes, checksum verified, by the processor time of the one thread;
the machine's noise shows in the median beside it.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator

from kadence.records import KERNEL, FetchedRecords, encode_batch

POLL = 500


def values(data: bytes) -> int:
    """Polls of 500, the value of every record touched."""
    reader = FetchedRecords(data, "topic", 0, 0)
    count = 0
    while records := reader.take(POLL):
        for record in records:
            record.value  # noqa: B018
        count += len(records)
    return count


def objects(data: bytes) -> int:
    """Polls of 500; key, value and offset of every record touched."""
    reader = FetchedRecords(data, "topic", 0, 0)
    count = 0
    while records := reader.take(POLL):
        for record in records:
            record.key, record.value, record.offset  # noqa: B018
        count += len(records)
    return count


def objects_untouched(data: bytes) -> int:
    reader = FetchedRecords(data, "topic", 0, 0)
    count = 0
    while records := reader.take(POLL):
        count += len(records)
    return count


def columns(data: bytes) -> int:
    return sum(len(part) for part in FetchedRecords(data, "topic", 0, 0).take_columns())


def columns_in_polls(data: bytes) -> int:
    reader = FetchedRecords(data, "topic", 0, 0)
    count = 0
    while parts := reader.take_columns(POLL):
        count += len(parts[0])
    return count


def arrow(data: bytes) -> int:
    from kadence.records.arrow import to_table

    return int(to_table(FetchedRecords(data, "topic", 0, 0).take_columns()).num_rows)


def aiokafka(data: bytes) -> int:
    from aiokafka.record.memory_records import MemoryRecords

    batches = MemoryRecords(data)
    count = 0
    while batches.has_next():
        batch = batches.next_batch()
        batch.validate_crc()
        for record in batch:
            record.key, record.value, record.offset  # noqa: B018
            count += 1
    return count


def kafka_python(data: bytes) -> int:
    from kafka.record import MemoryRecords

    batches = MemoryRecords(data)
    count = 0
    while batches.has_next():
        batch = batches.next_batch()
        batch.validate_crc()
        for record in batch:
            record.key, record.value, record.offset  # noqa: B018
            count += 1
    return count


def timed(run: Callable[[bytes], int], data: bytes, expected: int, seconds: float) -> Iterator[float]:
    run(data)
    deadline = time.perf_counter() + seconds
    while True:
        begin = time.thread_time()
        count = run(data)
        end = time.thread_time()
        if count != expected:
            raise SystemExit(f"{run.__name__} gave {count} records, not {expected}")
        yield count / (end - begin) / 1e6
        if time.perf_counter() > deadline:
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--codec", default="none")
    options = parser.parse_args()
    print(f"checksum {KERNEL}, gc {gc.get_threshold()}")
    for size in (100, 1024):
        value = bytes(range(256)) * (size // 256 + 1)
        data = encode_batch(
            (
                (1_700_000_000_000 + i, b"key-%012d" % i, value[i % 256 :][:size].ljust(size, b"."), ())
                for i in range(options.records)
            ),
            compression=options.codec,
        )
        print(f"\n{options.records} records, key 16 B, value {size} B, {options.codec}: {len(data)} bytes")
        print(f"{'':22}{'best':>10}{'median':>10}   M records/s")
        for run in (
            values,
            objects,
            objects_untouched,
            columns,
            columns_in_polls,
            arrow,
            aiokafka,
            kafka_python,
        ):
            rates = list(timed(run, data, options.records, options.seconds))
            print(f"{run.__name__:22}{max(rates):10.2f}{statistics.median(rates):10.2f}")


if __name__ == "__main__":
    main()
