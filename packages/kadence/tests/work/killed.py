"""A member that a test kills: it handles ``orders``, and tells each record that it has handled.

``python -m tests.work.killed HOST:PORT``. The record with the value 0 never ends.
"""

from __future__ import annotations

import sys
import threading

from kadence import Consumer, Record


def main(servers: str) -> None:
    """Work until the kill."""
    lock = threading.Lock()

    def handle(record: Record) -> None:
        if record.value == b"0":
            threading.Event().wait()
        with lock:
            sys.stdout.write(f"{(record.value or b'').decode()}\n")
            sys.stdout.flush()

    with Consumer(
        bootstrap_servers=servers,
        group_id="g",
        auto_offset_reset="earliest",
        group_protocol="classic",
        group_instance_id="one",
        auto_commit_interval_ms=20,
    ) as consumer:
        consumer.subscribe("orders")
        consumer.process(handle, max_records=40)


if __name__ == "__main__":
    main(sys.argv[1])
