"""A consumer's process is killed while it has records in hand."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.consumer.served import Served

from kadence import TopicPartition

# A static member: the next one has its partitions at once, and not when its session has ended.
WORKER = """
    import os, sys, time
    from kadence import Consumer
    servers, topic, group, stop_at, path = sys.argv[1:]
    done = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    consumer = Consumer(
        bootstrap_servers=servers, group_id=group, group_protocol="classic", auto_offset_reset="earliest",
        group_instance_id="worker", auto_commit_interval_ms=0, max_poll_records=10,
    )
    consumer.subscribe(topic)
    while True:
        records = consumer.poll(1.0)
        consumer.commit({})  # of nothing: it waits for the automatic commits under way
        for record in records:
            if record.value == stop_at.encode():
                print("in hand", flush=True)
                time.sleep(60)  # processing; this process will not see the end of it
            os.write(done, record.value + b"\\n")
"""


def test_a_crash_while_processing_loses_no_record(served: Served, tmp_path: Path) -> None:
    """Confluent and aiokafka commit on a timer what is still being processed (RDK #1122, #2609, #2179, KP #722).

    A real process, killed by SIGKILL with a record in hand, long after its commit interval; then another one.
    """
    done = tmp_path / "done"
    partition = TopicPartition("t", 0)
    served.produce(60)

    @contextmanager
    def worker(stop_at: str) -> Iterator[subprocess.Popen[str]]:
        """A process that has got as far as the record in hand; killed at the end."""
        arguments = [served.broker.bootstrap_servers, "t", "g", stop_at, str(done)]
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(WORKER), *arguments], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "in hand\n"
                yield process
            finally:
                process.kill()

    with worker("35") as processing:
        with pytest.raises(subprocess.TimeoutExpired):
            processing.wait(0.4)  # a timer would commit now
        committed = served.consumer(group_id="g").committed([partition])[partition]
        assert committed is not None
        assert 10 <= committed.offset <= 30
    first = [int(line) for line in done.read_text().split()]
    assert first == list(range(35))

    served.produce(1, start=60)
    with worker("60"):
        pass
    everything = [int(line) for line in done.read_text().split()]
    assert sorted(set(everything)) == list(range(60))
    again = everything[len(first) :]
    assert again[0] <= 35, "the record in hand was lost"
