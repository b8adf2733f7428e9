"""Polls of 500 with 3 µs of Python for each record: who takes the interpreter from the application shows here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.plan import Options, Row
from harness.rates import Case, run_case
from harness.table import Goal, Table
from rows import polls

if TYPE_CHECKING:
    from harness.ground import Ground

NAMES = ("kadence", "confluent-best", "confluent-default", "aiokafka", "kafka-python")
LINES = {name: polls.LINES[name] for name in NAMES}
CASES = (
    Case("100B", "Polls of 500, 3 µs of Python for each record, 100 B", 100, 3.0),
    Case("1KiB", "Polls of 500, 3 µs of Python for each record, 1 KiB", 1024, 3.0),
    Case("100B-tls", "Polls of 500, 3 µs of Python for each record, 100 B, TLS", 100, 3.0, tls=True),
    Case("1KiB-tls", "Polls of 500, 3 µs of Python for each record, 1 KiB, TLS", 1024, 3.0, tls=True),
)


def measure(ground: Ground, options: Options) -> tuple[list[Table], list[Goal]]:
    cases = [case for case in CASES if ground.tls or not case.tls]
    # The work bounds them all: one run of the clients that are far behind is enough.
    return [
        run_case(
            "work", case, LINES, ground, options, ("confluent-default", "aiokafka", "kafka-python")
        ).table()
        for case in cases
    ], []


ROW = Row("work", LINES, measure)
