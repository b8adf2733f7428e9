"""A worker that commits by itself, and ends in order on SIGTERM or Ctrl-C.

    python examples/worker.py

It reads the topic ``orders``, prints each order, and commits after the records of a poll are done. Started again, it
continues where it committed. Start it several times at once, and the members share the partitions.
"""

from __future__ import annotations

import logging
import os

from kadence import CommitFailedError, Consumer, Record, stop_on_signals

SERVERS = os.environ.get("KADENCE_BOOTSTRAP_SERVERS", "localhost:9092")

log = logging.getLogger("worker")


def work(order: Record) -> None:
    """What the worker is for. It may take minutes: the consumer stays in its group meanwhile."""
    print(f"{order.partition} {order.offset} {order.value.decode()}", flush=True)


def main() -> None:
    """Work until a signal comes."""
    logging.basicConfig(level=logging.INFO)
    with (
        # Some seconds less than the supervisor waits before it kills: 30 in Kubernetes.
        stop_on_signals(grace=25) as stop,
        Consumer(
            bootstrap_servers=SERVERS,
            group_id="worker",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            # After a signal the records of the poll in hand are finished: let them take less than the grace period.
            max_poll_records=100,
        ) as consumer,
    ):
        consumer.subscribe("orders")
        while not consumer.stopping:
            records = consumer.poll(1)
            for order in records:
                work(order)
            try:
                # Also without records: a poll may have passed over bad, aborted or control records. With nothing to
                # commit it sends no request.
                consumer.commit(records)
            except CommitFailedError as error:
                # Another member has these partitions now, and does these records again.
                log.warning("not committed: %s", error)
    log.info("ended by %s", stop.received.name if stop.received else "itself")


if __name__ == "__main__":
    main()
