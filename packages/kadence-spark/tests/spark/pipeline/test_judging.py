"""The verdict that is kept for a batch, and what errors about it say to do. Spark's part is done by a stand-in."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as T  # noqa: N812 - as everybody calls it

from kadence.environment import Environment
from kadence.errors import IllegalStateError
from kadence_spark.pipeline import judging, run
from kadence_spark.pipeline.aggregating import Aggregation
from kadence_spark.pipeline.checks import checked
from kadence_spark.pipeline.files import LocalFiles
from kadence_spark.pipeline.judging import Judge
from kadence_spark.pipeline.reading import parse
from kadence_spark.pipeline.run import Run

FILE = """\
name = "numbers"
checkpoint = "checkpoint"
[source]
servers = "broker:9092"
topics = ["numbers"]
[decode]
format = "json"
schema = "id bigint"
[aggregate]
sql = "SELECT count(*) AS n FROM records"
mode = "update"
[sink]
topic = "counts"
"""


def schema(*names: str) -> T.StructType:
    return T.StructType([T.StructField(name, T.LongType()) for name in names])


class Batches:
    """Batches are judged into a directory. ``judged``: how often one was."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.columns = schema("id")
        self.judged = 0
        pipeline = checked(parse(FILE, "numbers.toml", {}), Environment({}))
        self.judge = Judge(pipeline, LocalFiles(), str(place))

    def run(self, number: int, plan: str = "0-10") -> None:
        with self.judge.verdict(SimpleNamespace(sparkSession=None), number, "query", plan):  # type: ignore[arg-type]
            pass

    def write(self, half: str) -> dict[str, Any]:
        """What Spark does."""
        self.judged += 1
        LocalFiles().write(f"{half}/rows/part-0.parquet", "rows")
        stored = T.StructType([*self.columns.fields, *schema("reason", "record").fields])
        return {"counts": {"records": 10, "undecoded": 0}, "schema": stored.jsonValue()}


@pytest.fixture
def batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Batches:
    made = Batches(tmp_path / "judged")

    def read(session: None, place: str, kept: Mapping[str, Any]) -> object:
        return kept

    monkeypatch.setattr(Judge, "_judge", lambda self, source, half: made.write(half))
    monkeypatch.setattr(judging, "_read", read)
    monkeypatch.setattr(judging, "settings", lambda *_: contextlib.nullcontext())
    return made


def named(error: pytest.ExceptionInfo[IllegalStateError], after: str) -> Path:
    """The path behind this word of an error."""
    return Path(str(error.value).partition(f"{after} ")[2].split()[0])


def test_a_batch_that_is_planned_with_other_offsets(batches: Batches) -> None:
    batches.run(7)
    with pytest.raises(IllegalStateError, match=r"put offsets/7 of the checkpoint back .*, delete") as caught:
        batches.run(7, "0-12")
    batches.run(7)
    assert batches.judged == 1
    shutil.rmtree(named(caught, "delete"))
    batches.run(7, "0-12")
    assert batches.judged == 2


def test_a_file_of_a_verdict_that_is_lost(batches: Batches) -> None:
    batches.run(7)
    file = batches.place / "7" / "rows" / "part-0.parquet"
    for lost in (file, batches.place / "7" / "verdict.json"):
        content = lost.read_bytes()
        lost.unlink()
        with pytest.raises(IllegalStateError, match=r"put the file back as it was, or delete") as caught:
            batches.run(7)
        lost.write_bytes(content)
        batches.run(7)
        assert batches.judged == 1
    lost.unlink()
    shutil.rmtree(named(caught, "or delete"))
    batches.run(7)
    assert batches.judged == 2


def test_columns_change_after_the_last_batch_has_ended(batches: Batches) -> None:
    """Rows of a batch that Spark repeats have the columns of the file as it was."""
    batches.run(7)
    changed = schema("id", "more")
    batches.judge.forget_ended(6)
    with pytest.raises(
        IllegalStateError, match="run the file as it was once more, and change its columns after that"
    ):
        batches.judge.check_waiting(changed)
    batches.judge.check_waiting(schema("id"))
    batches.run(7)
    batches.judge.forget_ended(7)
    batches.judge.check_waiting(changed)
    batches.columns = changed
    batches.run(8)
    assert batches.judged == 2


class Started(Exception):  # noqa: N818 - it ends the run, and is no error
    """The aggregate was started."""


def test_a_run_that_was_stopped_leaves_no_rows_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipeline that runs on ends by a stop: its last batch has ended, and Spark does not repeat it."""
    text = FILE.replace('"checkpoint"', f'"{tmp_path}"')
    pipeline = checked(parse(text, "numbers.toml", {}), Environment({}))
    monkeypatch.setattr(run, "HadoopFiles", lambda spark: LocalFiles())
    monkeypatch.setattr(Run, "_check_plan", lambda self: schema("id", "more"))
    for check in ("_check_clusters", "_check_places"):
        monkeypatch.setattr(Run, check, lambda self: None)

    def start(self: Aggregation, session: None, columns: T.StructType) -> None:
        self._judge.check_waiting(columns)
        raise Started

    monkeypatch.setattr(Aggregation, "start", start)
    made = Batches(tmp_path / "kadence" / "judged")
    monkeypatch.setattr(Judge, "_judge", lambda self, source, half: made.write(half))
    monkeypatch.setattr(judging, "_read", lambda *_: None)
    monkeypatch.setattr(judging, "settings", lambda *_: contextlib.nullcontext())
    made.run(7)
    offsets = 'v1\n{"batchTimestampMs":1}\n{"numbers":{"0":10}}'
    for number in (6, 7):
        LocalFiles().write(f"{tmp_path}/offsets/{number}", offsets)
    session: Any = None
    LocalFiles().write(f"{tmp_path}/commits/6", "v1\n{}")
    with pytest.raises(IllegalStateError, match="rows of the last batch wait for the aggregate"):
        Run(pipeline, Environment({}), session).run()
    LocalFiles().write(f"{tmp_path}/commits/7", "v1\n{}")
    with pytest.raises(Started):
        Run(pipeline, Environment({}), session).run()
