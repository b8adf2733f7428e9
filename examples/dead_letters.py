"""Records that cannot be decoded go to a dead letter topic, and are sent back repaired.

    python examples/dead_letters.py work      reads amounts; copies records that are no whole number to amounts.dead
    python examples/dead_letters.py show      lists the dead letters that were not replayed yet, with their errors
    python examples/dead_letters.py replay    repairs these, and writes them to the topic that they came from

The topics ``amounts`` and ``amounts.dead`` must exist. Ctrl-C or SIGTERM ends ``work``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from kadence import Consumer, Producer, Record, TopicPartition, stop_on_signals

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")
TOPIC, DEAD = "amounts", "amounts.dead"


def work() -> None:
    """Add up amounts. After a bad record the consumer continues once brokers have acknowledged its dead letter."""
    total = 0
    with (
        stop_on_signals(grace=25),
        Consumer(
            bootstrap_servers=SERVERS,
            group_id="adding",
            auto_offset_reset="earliest",
            value_deserializer=int,
            deserialization_errors="dead-letter",
            dead_letter_topic=DEAD,
        ) as consumer,
    ):
        consumer.subscribe(TOPIC)
        for record in consumer:
            total += record.value
            print(f"{record.value} makes {total}", flush=True)


def letters(consumer: Consumer) -> Iterator[Record]:
    """The dead letters that this group has not committed yet, up to the one that is the last at the start."""
    partitions = [TopicPartition(DEAD, found.partition) for found in consumer.partitions_for(DEAD)]
    starts = consumer.beginning_offsets(partitions)
    ends = consumer.end_offsets(partitions)
    for partition, done in consumer.committed(partitions).items():
        if done is not None:
            starts[partition] = max(starts[partition], done.offset)
    consumer.assign({partition: (starts[partition], ends[partition]) for partition in partitions})
    yield from consumer


def reader() -> Consumer:
    """A consumer of dead letters; `replay` commits in its group."""
    return Consumer(
        bootstrap_servers=SERVERS,
        group_id=f"{DEAD}.replay",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


def show() -> None:
    """Print where each letter comes from, and its error."""
    with reader() as consumer:
        for letter in letters(consumer):
            told = {
                name.removeprefix("kadence.error."): data.decode() for name, data in letter.headers if data
            }
            place = f"{told['topic']}-{told['partition']} at {told['offset']}"
            print(f"{place}: {letter.value!r}: {told['class']}: {told['message']}")


def repair(value: bytes) -> bytes:
    """Remove the currency, which one program wrote behind the amount."""
    return value.removesuffix(b" EUR")


def replay() -> None:
    """Write each letter back to the topic that it came from, under its key and with its own headers."""
    with reader() as consumer, Producer(bootstrap_servers=SERVERS) as producer:
        futures = []
        for letter in letters(consumer):
            (topic,) = (
                data.decode() for name, data in letter.headers if name == "kadence.error.topic" and data
            )
            own = [header for header in letter.headers if not header[0].startswith("kadence.error.")]
            futures.append(producer.send(topic, repair(letter.value), key=letter.key, headers=own))
        for future in futures:
            future.result(timeout=30)
        # Only now, when brokers have all of them: after a crash before this line, letters are replayed twice, not lost.
        consumer.commit()
        print(len(futures), "replayed")


if __name__ == "__main__":
    {"work": work, "show": show, "replay": replay}[sys.argv[1]]()
