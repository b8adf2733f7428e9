"""A member with transactions that a test kills: it copies a topic, and tells each record that it has handled.

``python -m tests.work.killed_exactly HOST:PORT SOURCE OUT GROUP ["to the end"]``
"""

from __future__ import annotations

import sys
import threading

from kadence import Admin, Consumer, ProducerRecord, Record


def main(servers: str, source: str, out: str, group: str, to_the_end: str = "") -> None:
    """Work until the kill, or until all is committed."""

    def handle(record: Record) -> ProducerRecord:
        sys.stdout.write(f"{(record.value or b'').decode()}\n")
        sys.stdout.flush()
        return ProducerRecord(out, record.value, record.key)

    with Consumer(
        bootstrap_servers=servers,
        group_id=group,
        group_instance_id="one",
        group_protocol="classic",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        auto_commit_interval_ms=20,
    ) as consumer:
        consumer.subscribe(source)
        if to_the_end:
            threading.Thread(target=stop_at_the_end, args=(consumer, servers, source, group)).start()
        consumer.process(handle, max_records=40, transactional_id=f"{group}-one")


def stop_at_the_end(consumer: Consumer, servers: str, source: str, group: str) -> None:
    try:
        with Admin(bootstrap_servers=servers) as admin, Consumer(bootstrap_servers=servers) as looking:
            ends = looking.end_offsets([(source, p.partition) for p in looking.partitions_for(source)])
            wake = threading.Event()
            while True:
                found = admin.list_consumer_group_offsets(group)
                if all((at := found.get(p)) is not None and at.offset == end for p, end in ends.items()):
                    break
                wake.wait(0.05)
    finally:
        consumer.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
