"""``kadence pipeline``, as far as it needs no Spark: check, schema, status; and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

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


def test_a_bound_that_is_none(kadence: Run) -> None:
    ran = kadence("pipeline", "replay", "orders.toml", "--topic", "orders", "--from", "yesterday")
    assert ran.status == 2
    assert "'yesterday' is no offset, such as 1200, and no time, such as time:1700000000000" in ran.err
