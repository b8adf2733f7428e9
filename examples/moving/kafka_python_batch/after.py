"""The same report with Kadence.

    python examples/moving/kafka_python_batch/after.py 1767225600000

What became of the old parts:

* ``consumer_timeout_ms=3000`` would be ``records(idle_timeout=3)``. Here ``assign`` takes ranges of offsets, from the
  first sale since the time to the present end. Iteration ends there, without waiting for 3 seconds.
* ``offsets_for_times`` is the same. There is no ``seek``, since the ranges say where to begin.
* ``create_topics`` takes a dict. The functions that serialise work here, too; names such as ``"json"`` are shorter.
  ``"json"`` writes no spaces.
* ``future.get`` is ``future.result``.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import suppress

from kadence import Admin, Consumer, Producer, TopicAlreadyExistsError, TopicPartition

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")


def create(topic: str) -> None:
    """Create the topic of reports, unless it is there."""
    with Admin(bootstrap_servers=SERVERS) as admin, suppress(TopicAlreadyExistsError):
        admin.create_topics({topic: 1})


def sums_since(since_ms: int) -> Counter[str]:
    """The cents of each shop, from the first sale at or after a time."""
    sums: Counter[str] = Counter()
    consumer: Consumer[str, dict[str, int]] = Consumer(
        bootstrap_servers=SERVERS, key_deserializer="string", value_deserializer="json"
    )
    with consumer:
        partitions = [TopicPartition("sales", found.partition) for found in consumer.partitions_for("sales")]
        if not partitions:
            sys.exit("there is no topic sales")
        starts = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
        ends = consumer.end_offsets(partitions)
        consumer.assign(
            {
                partition: (start.offset if start else ends[partition], ends[partition])
                for partition, start in starts.items()
            }
        )
        for record in consumer:
            sums[record.key] += record.value["cents"]
    return sums


def write(topic: str, sums: Counter[str]) -> None:
    """Write a record for each shop, and wait for all of them."""
    with Producer(bootstrap_servers=SERVERS, key_serializer="string", value_serializer="json") as producer:
        futures = [producer.send(topic, {"cents": cents}, key=shop) for shop, cents in sorted(sums.items())]
        for future in futures:
            future.result(timeout=30)


def main(since_ms: str) -> None:
    """Make the report."""
    create("reports")
    sums = sums_since(int(since_ms))
    write("reports", sums)
    for shop, cents in sorted(sums.items()):
        print(shop, cents)


if __name__ == "__main__":
    main(*sys.argv[1:])
