"""One member of the demo's group, a process of its own: ``python -m examples.demo.member``.

It processes records at a set pace and reports them to its parent in JSON lines on stdout. It reads commands from
stdin: ``{"stall": SECONDS}`` (do not poll for this time, as if one record took that long) and ``{"stop": true}``.
When stdin ends, the parent has ended.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time
from collections import Counter
from itertools import groupby
from typing import Any

from kadence import Consumer, RebalanceListener, Record, TopicPartition
from kadence.consumer.events import Rebalance

__all__ = ["main"]


def _now() -> int:
    return time.monotonic_ns() // 1_000_000


def _tell(kind: str, **facts: Any) -> None:
    sys.stdout.write(json.dumps({"kind": kind, "at": _now(), **facts}, separators=(",", ":")) + "\n")
    # Flush, so that the parent gets the report even if SIGKILL comes next.
    sys.stdout.flush()


class _Teller(RebalanceListener):
    """Reports rebalances to the parent."""

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        _tell("revoked", partitions=[tp.partition for tp in partitions])

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        _tell("lost", partitions=[tp.partition for tp in partitions])


class _Member:
    def __init__(self, consumer: Consumer, pace: float) -> None:
        self._consumer = consumer
        self._pace = pace
        self._commands: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._told = 0
        self._owned: tuple[str, frozenset[TopicPartition]] = ("", frozenset())
        self.flights: Counter[str] = Counter()
        self.delay_minutes: Counter[str] = Counter()

    def run(self) -> None:
        """Poll and process until the command to stop."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        while True:
            records = self._consumer.poll(0.2)
            self._tell_changes()
            started = time.monotonic()
            for tp, part in records.by_partition().items():
                self._work(part)
                _tell("processed", partition=tp.partition, ranges=_ranges(part))
            time.sleep(max(0.0, started + len(records) / self._pace - time.monotonic()))
            while not self._commands.empty():
                command = self._commands.get()
                if "stop" in command:
                    return
                self._stall(float(command["stall"]))

    def _work(self, records: list[Record]) -> None:
        """The work of an application: parse the JSON, add up a sum."""
        for record in records:
            flight = json.loads(record.value)
            self.flights[flight["carrier"]] += 1
            self.delay_minutes[flight["carrier"]] += flight["dep_delay"] or 0

    def _stall(self, seconds: float) -> None:
        """Work that takes longer than the session, without a call of the consumer."""
        before = self._consumer.group_metadata()
        _tell("stalling", member_id=before.member_id)
        time.sleep(seconds)
        after = self._consumer.group_metadata()
        _tell("stalled", seconds=seconds, kept=before.member_id == after.member_id != "")

    def _tell_changes(self) -> None:
        rebalances = self._consumer.rebalances()
        for rebalance in rebalances[self._told :]:
            _tell("rebalance", **_plain(rebalance))
        self._told = len(rebalances)
        owned = (self._consumer.group_metadata().member_id, self._consumer.assignment())
        if owned != self._owned:
            self._owned = owned
            _tell("owns", member_id=owned[0], partitions=sorted(tp.partition for tp in owned[1]))

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(json.loads(line))
        self._commands.put({"stop": True})


def _ranges(records: list[Record]) -> list[tuple[int, int]]:
    """Runs of consecutive offsets, first and last."""
    runs = []
    for _, run in groupby(enumerate(records), lambda item: item[1].offset - item[0]):
        offsets = [record.offset for _, record in run]
        runs.append((offsets[0], offsets[-1]))
    return runs


def _plain(rebalance: Rebalance) -> dict[str, Any]:
    return {
        "cause": rebalance.cause,
        "generation": rebalance.generation,
        "started_at": rebalance.started_monotonic_ms,
        "ended_at": rebalance.ended_monotonic_ms,
        "assigned": [tp.partition for tp in rebalance.assigned],
        "added": [tp.partition for tp in rebalance.added],
        "removed": [tp.partition for tp in rebalance.removed],
    }


def main() -> None:
    """Read the arguments that the parent gives, and work."""
    parser = argparse.ArgumentParser()
    for name in ("--servers", "--topic", "--group", "--name"):
        parser.add_argument(name, required=True)
    parser.add_argument("--session-timeout-ms", type=int, required=True)
    parser.add_argument("--max-poll-interval-ms", type=int, required=True)
    parser.add_argument("--pace", type=float, required=True)
    arguments = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.servers,
            "group.id": arguments.group,
            "client.id": arguments.name,
            "group.protocol": "classic",
            "session.timeout.ms": arguments.session_timeout_ms,
            "heartbeat.interval.ms": arguments.session_timeout_ms // 3,
            "max.poll.interval.ms": arguments.max_poll_interval_ms,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 1_000,
        }
    )
    with consumer:
        consumer.subscribe([arguments.topic], listener=_Teller())
        member = _Member(consumer, arguments.pace)
        member.run()
    _tell("bye", carriers=member.flights, delay_minutes=member.delay_minutes)


if __name__ == "__main__":
    main()
