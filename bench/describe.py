"""Describing thousands of topics from a shell, beside Kafka's own tool.

    python bench/describe.py [--topics 5000] [--rounds 3]

One Kafka holds the topics, of one partition each. ``kadence topics describe PATTERN`` and Kafka's ``kafka-topics.sh
--describe`` take turns, each as a process of its own with its start. Printed are the seconds of each run, and the ratio
of the best. Ours prints first and next offsets, too.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence

from kadence import Admin
from kadence_testing.kafka import Kafka

MADE_AT_ONCE = 500


def create(address: str, topics: int) -> None:
    """Make topics ``t-00000`` and so on, some at a time: a controller refuses thousands in one request."""
    with Admin({"bootstrap.servers": address}) as admin:
        for begin in range(0, topics, MADE_AT_ONCE):
            names = [f"t-{number:05}" for number in range(begin, min(begin + MADE_AT_ONCE, topics))]
            admin.create_topics(dict.fromkeys(names, 1))
        # A broker learns of new topics a moment after its controller.
        while len(admin.list_topics()) < topics:
            time.sleep(0.1)


def timed(command: Sequence[str], topics: int) -> float:
    """Seconds that a command takes, if it prints a row for each topic."""
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    took = time.perf_counter() - began
    rows = sum("t-" in line for line in done.stdout.splitlines())
    if rows < topics:
        raise SystemExit(f"{command[0]} printed {rows} rows of {topics}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--topics", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with Kafka({"auto.create.topics.enable": "false"}) as kafka:
        address = kafka.bootstrap_servers
        create(address, arguments.topics)
        ours = [sys.executable, "-m", "kadence", "topics", "describe", "t-*", "-b", address]
        theirs = kafka.tool_command(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", address, "--describe"
        )
        times: dict[str, list[float]] = {"kadence": [], "kafka-topics": []}
        for _ in range(arguments.rounds):
            times["kadence"].append(timed(ours, arguments.topics))
            times["kafka-topics"].append(timed(theirs, arguments.topics))
    for name, each in times.items():
        print(f"{name:14} {'  '.join(f'{seconds:6.2f}' for seconds in each)} s")
    best, other = (min(each) for each in times.values())
    print(f"{arguments.topics:,} topics: {best / other:.2f} x")


if __name__ == "__main__":
    main()
