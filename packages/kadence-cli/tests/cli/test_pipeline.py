"""``kadence pipeline``, as far as it needs no Spark: check, schema, status; and what it refuses."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.cli.shapes import SHAPES

from kadence_cli.pipeline import _document
from kadence_cli.pipeline_status import facts
from kadence_spark.pipeline.preview import Preview
from kadence_spark.pipeline.progress import Batch, Progress
from kadence_spark.pipeline.status import Status

FILE = """\
checkpoint = "out/checkpoint"
[source]
servers = "${BROKERS:-localhost:9092}"
topics = ["orders"]
[sink]
path = "out/orders"
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.toml").write_text(FILE)
    return tmp_path


def test_check(kadence: Run, here: Path) -> None:
    good = kadence("pipeline", "check", "orders.toml")
    assert (good.status, good.err) == (0, "")
    assert good.out == "orders.toml: no mistakes; --sql checks the SQL, too\n"
    (here / "bad.toml").write_text(FILE.replace("path", "pth").replace("topics", "subscribe"))
    bad = kadence("pipeline", "check", "orders.toml", "bad.toml")
    assert bad.status == 2
    assert bad.out.splitlines()[1:] == [
        "bad.toml:4: source.subscribe: ['orders'] is not a text, a number, true or false",
        "bad.toml:6: sink.pth: unknown key; did you mean 'path'?",
    ]  # fmt: skip
    missing = kadence("pipeline", "check", "none.toml", "bad.toml")
    assert missing.status == 2
    assert missing.out.splitlines()[0] == (
        "none.toml: the pipeline's file 'none.toml' cannot be read: No such file or directory"
    )
    assert missing.out.splitlines()[1:] == bad.out.splitlines()[1:]


@pytest.mark.parametrize("action", ["plan", "run", "status"])
def test_a_file_with_mistakes_is_not_run(kadence: Run, here: Path, action: str) -> None:
    (here / "bad.toml").write_text(FILE.replace("checkpoint", "checkpint"))
    ran = kadence("pipeline", action, "bad.toml")
    assert ran.status == 2
    assert "bad.toml:1: checkpint: unknown key; did you mean 'checkpoint'?" in ran.err


@pytest.mark.parametrize("action", [("plan",), ("run",), ("replay", "--topic", "orders", "--from", "0")])
def test_it_ends_soon_where_no_address_can_be_connected_to(
    kadence: Run, here: Path, monkeypatch: pytest.MonkeyPatch, action: tuple[str, ...]
) -> None:
    with socket.socket() as unheard:  # bound and not listening: it refuses, and nobody else gets the port
        unheard.bind(("127.0.0.1", 0))
        monkeypatch.setenv("BROKERS", f"127.0.0.1:{unheard.getsockname()[1]}")
        for seconds in (0.3, 1.2, 4.8, 19.2):
            monkeypatch.setattr("kadence_spark.pipeline.ranges.REACHED_S", seconds)
            ran = kadence("pipeline", action[0], "orders.toml", *action[1:])
            # On a busy machine a short time may be over before the address has refused.
            if "refused" in ran.err:
                break
    assert (ran.status, ran.out) == (1, "")
    (last,) = ran.err.splitlines()
    assert last.startswith(
        "kadence pipeline: Metadata was not answered in time by ${BROKERS}: cannot connect to"
    )
    assert last.endswith("Connection refused")
    assert "starting Spark" not in ran.err


def test_schema(kadence: Run) -> None:
    ran = kadence("pipeline", "schema")
    assert json.loads(ran.out)["required"] == ["checkpoint", "source", "sink"]


def test_status(kadence: Run, here: Path) -> None:
    nothing = kadence("pipeline", "status", "orders.toml")
    assert (nothing.status, nothing.out) == (1, "")
    assert "no pipeline has run with the checkpoint out/checkpoint" in nothing.err
    for name in ("offsets", "commits"):
        (here / "out" / "checkpoint" / name).mkdir(parents=True)
        (here / "out" / "checkpoint" / name / "3").write_text('v1\n{}\n{"orders":{"0":12}}')
    for place in ("orders.toml", "out/checkpoint"):
        (row,) = kadence("pipeline", "status", place).rows
        assert row == {"state": "unknown", "committed_batch": 3, "committed_offsets": {"orders-0": 12}}
    away = kadence("pipeline", "status", "s3://bucket/checkpoint")
    assert away.status == 1
    assert "is not on this machine; name the pipeline's file" in away.err


def test_a_plan_as_json() -> None:
    assert tuple(_document(Preview("the beginning", (), ()))) == SHAPES["pipeline plan"].fields


def test_status_in_words() -> None:
    hour = 3_600_000
    told = Progress(
        "orders", "abc", "starting", "host", 7, started_ms=10 * hour, updated_ms=10 * hour, sink="parquet out"
    )
    told = told.after_batch(Batch(0, 1_200, 1_190, 4, 6, {}, 2.0), 10 * hour + 45_000)
    told = replace(told, lag={"orders-0": 600})
    document = Status(told, "running", None).document()
    shape = SHAPES["pipeline status"]
    assert set(document) <= {*shape.fields, *shape.sometimes}
    shown = dict(facts(document, 12 * hour))
    assert shown["state"] == "running"
    assert shown["pipeline"] == "orders, into parquet out"
    assert shown["run"] == "abc, process 7 on host"
    assert shown["last heard of"] == "2.0 h ago, 45 s after it began"
    assert (shown["batches of this run"], shown["records read"]) == ("1", "1,200")
    assert (shown["rows written"], shown["records not decoded"], shown["rows dropped"]) == ("1,190", "4", "6")
    assert (shown["speed"], shown["lag"]) == ("600 records/s", "600 behind, caught up in 1 s")
    failed = dict(
        facts(Status(told.ended("failed", 11 * hour, "no disk"), "failed", None).document(), 12 * hour)
    )
    assert failed["state"].startswith("failed; the next run repeats the batch")
    assert (failed["ended"], failed["error"]) == ("60 min ago, 60 min after it began", "no disk")
    assert (failed["lag at its end"], "last batch in the outputs" in failed) == ("600 behind", False)
    assert facts({"state": "unknown", "committed_batch": 3}, 0)[1] == ("last batch in the outputs", "3")


def test_a_bound_that_is_none(kadence: Run) -> None:
    ran = kadence("pipeline", "replay", "orders.toml", "--topic", "orders", "--from", "noon")
    assert ran.status == 2
    assert "'noon' is not a place" in ran.err
    ran = kadence("pipeline", "replay", "orders.toml", "--topic", "orders", "--from", "latest")
    assert ran.status == 2
    assert "--from of a replay takes an offset or a time" in ran.err
