"""A batch over the records of a time range, without a group; it ends by itself.

    python examples/time_range.py orders 2026-01-01T00:00+00:00 2026-01-02T00:00+00:00

It reads each partition from the first record at or after the first time up to the first one at or after the second, and
prints the number of records and the bytes of their values. With pyarrow (``pip install 'kadence[arrow]'``) it reads
Arrow tables, which is faster.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from importlib.util import find_spec

from kadence import Consumer, TopicPartition

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")


def ranges(
    consumer: Consumer, topic: str, start: datetime, end: datetime
) -> dict[TopicPartition, tuple[int, int]]:
    """Of each partition the offsets of the first record at or after ``start``, and of the first at or after ``end``."""
    partitions = [TopicPartition(topic, found.partition) for found in consumer.partitions_for(topic)]
    ends = consumer.end_offsets(partitions)

    def offsets_at(time: datetime) -> dict[TopicPartition, int]:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, int(time.timestamp() * 1000)))
        # None: no record is that late.
        return {partition: at.offset if at else ends[partition] for partition, at in found.items()}

    firsts, lasts = offsets_at(start), offsets_at(end)
    return {partition: (firsts[partition], lasts[partition]) for partition in partitions}


def in_tables(consumer: Consumer) -> tuple[int, int]:
    """The number of records and the bytes of their values."""
    import pyarrow.compute as pc

    count = size = 0
    while consumer.finished() != consumer.assignment():
        table = consumer.poll_arrow(1, columns=["value"])
        count += table.num_rows
        size += pc.sum(pc.binary_length(table["value"])).as_py() or 0
    return count, size


def one_by_one(consumer: Consumer) -> tuple[int, int]:
    """The same, without pyarrow."""
    count = size = 0
    for record in consumer:
        count += 1
        size += len(record.value or b"")
    return count, size


def main(topic: str, start: str, end: str) -> None:
    """Read the range, and print what is in it."""
    # A time without a timezone is local time.
    since, until = (datetime.fromisoformat(text).astimezone(UTC) for text in (start, end))
    with Consumer(bootstrap_servers=SERVERS) as consumer:
        consumer.assign(ranges(consumer, topic, since, until))
        count, size = in_tables(consumer) if find_spec("pyarrow") else one_by_one(consumer)
    print(f"{count} records, {size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
