"""A table of files: whose it is, and which rows it takes. Spark is not asked for that, save of older tables."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import StructType

from kadence.errors import IllegalStateError
from kadence_spark.pipeline.directory import Directory, recover
from kadence_spark.pipeline.files import LocalFiles


def rows(**columns: str) -> Any:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, {"int": "integer", "bigint": "long"}.get(kind, kind))
    return SimpleNamespace(schema=schema, sparkSession=None)


def table(
    path: Path, form: str = "parquet", *partition_by: str, part: str = "sink", **options: str
) -> Directory:
    return Directory(LocalFiles(), str(path), form, partition_by, options, part)


def put(made: Directory, number: int, columns: Any, query: str = "q") -> None:
    """What a run does with its first batch, but for the rows."""
    made.claim(query)
    made.check(columns, number)
    LocalFiles().write(f"{made.path}/batch={number}/part", "")
    made.keep(columns, number)


REFUSED = {
    "another type": (
        ("parquet",),
        {"x": "double"},
        ("parquet",),
        {"x": "bigint"},
        "column x is bigint now, and do",
    ),
    "in another case": (
        ("orc",),
        {"x": "int"},
        ("orc",),
        {"X": "bigint"},
        "column x is bigint now, and int in",
    ),
    "a partition's type": (
        ("parquet", "x"),
        {"id": "int", "x": "string"},
        ("parquet", "x"),
        {"id": "int", "x": "int"},
        "column x is int now, and string in",
    ),
    "another partitioning": (
        ("json", "x"),
        {"id": "int", "x": "string"},
        ("json", "id"),
        {"id": "int", "x": "string"},
        "is partitioned by x, and by id now",
    ),
    "no partitioning any more": (
        ("csv", "x"),
        {"id": "int", "x": "string"},
        ("csv",),
        {"id": "int", "x": "string"},
        "is partitioned by x, and by nothing now",
    ),
    "another order": (
        ("parquet", "x", "y"),
        {"id": "int", "x": "string", "y": "string"},
        ("parquet", "y", "x"),
        {"id": "int", "x": "string", "y": "string"},
        "is partitioned by x, y, and by y, x now",
    ),
    "another format": (
        ("parquet",),
        {"x": "int"},
        ("orc",),
        {"x": "int"},
        "is of format parquet, and orc now",
    ),
    "csv is read in order": (
        ("csv",),
        {"x": "int", "y": "string"},
        ("csv",),
        {"y": "string", "x": "int"},
        "were x, y, and are y, x, but CSV is read in order",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_rows_that_a_reader_would_not_take_for_those_of_the_table(tmp_path: Path, case: str) -> None:
    """Spark reads none of these tables as they were written, and some with other values."""
    before, old, now, new, said = REFUSED[case]
    put(table(tmp_path, *before), 0, rows(**old))
    with pytest.raises(IllegalStateError, match=said):
        put(table(tmp_path, *now), 1, rows(**new))
    put(table(tmp_path, *before), 1, rows(**old))


def test_a_column_that_was_away_comes_back_with_its_type(tmp_path: Path) -> None:
    """The newest batch does not show it, and batches of replays are older than all."""
    put(table(tmp_path), 0, rows(id="int", x="double"))
    put(table(tmp_path), 1, rows(id="int"))
    replayed = table(tmp_path)
    replayed.check(rows(id="int", y="date"))
    replayed.keep(rows(id="int", y="date"), -1)
    for number in (2, None):
        for column, kind in (("x", "double"), ("y", "date")):
            with pytest.raises(IllegalStateError, match=f"column {column} is string now, and {kind} in"):
                table(tmp_path).check(rows(id="int", **{column: "string"}), number)


def test_what_may_change(tmp_path: Path) -> None:
    put(table(tmp_path / "p"), 0, rows(id="int", x="string"))
    put(table(tmp_path / "p", compression="zstd"), 1, rows(new="date", ID="int"))
    put(table(tmp_path / "j", "json"), 0, rows(id="int", x="string"))
    put(table(tmp_path / "j", "json"), 1, rows(x="double", id="bigint"))
    put(table(tmp_path / "c", "csv", header="true"), 0, rows(id="int", x="string"))
    put(table(tmp_path / "c", "csv", HEADER="true", compression="gzip"), 1, rows(id="bigint", x="double"))


def test_options_that_a_reader_of_csv_must_know(tmp_path: Path) -> None:
    """A reader with header=true would take the first row of each later file for names."""
    put(table(tmp_path, "csv", header="true"), 0, rows(id="int"))
    with pytest.raises(
        IllegalStateError, match=r"the option header of the table .* was true, and is not set"
    ):
        put(table(tmp_path, "csv"), 1, rows(id="int"))
    with pytest.raises(IllegalStateError, match=r"the option sep of the table .* was not set, and is ;"):
        put(table(tmp_path, "csv", header="true", sep=";"), 1, rows(id="int"))


def test_a_batch_that_is_repeated_may_be_of_another_kind(tmp_path: Path) -> None:
    """It replaces the one that failed behind its files, with the file as it has been mended since."""
    put(table(tmp_path), 0, rows(id="int", x="double"))
    put(table(tmp_path, "parquet", "x"), 0, rows(id="int", x="bigint"))
    put(table(tmp_path, "parquet", "x"), 1, rows(id="int", x="bigint"))
    with pytest.raises(IllegalStateError, match="is partitioned by x"):
        put(table(tmp_path), 1, rows(id="int", x="double"))


def test_a_checkpoint_that_is_older_than_the_table(tmp_path: Path) -> None:
    """As from a backup. Its next batch would replace one, and have the rows of those behind it, too."""
    for number in range(3):
        put(table(tmp_path), number, rows(id="int"))
    put(table(tmp_path), 2, rows(id="int"))
    with pytest.raises(
        IllegalStateError, match="has batch 2 already, and the checkpoint goes on with batch 1"
    ):
        put(table(tmp_path), 1, rows(id="int"))
    put(table(tmp_path / "new"), 1, rows(id="int"), "another")


def test_a_table_that_an_older_version_has_written(tmp_path: Path) -> None:
    """Its own file does not say what batches are like; the files do. Names of directories have signs escaped."""
    files = LocalFiles()
    files.write(f"{tmp_path}/_kadence.json", json.dumps({"query": "q"}))
    files.write(f"{tmp_path}/batch=0/größe=1/a%23b=x/part-0-c000.csv.gz", "")
    files.write(f"{tmp_path}/batch=1/_SUCCESS", "")
    new = rows(**{"id": "int", "größe": "int", "a#b": "string"})
    put(table(tmp_path, "csv", "größe", "a#b"), 2, new)
    for number, made in enumerate((table(tmp_path, "csv"), table(tmp_path, "json", "größe", "a#b"))):
        with pytest.raises(
            IllegalStateError, match=("is partitioned by größe, a#b", "is of format csv")[number]
        ):
            put(made, 3, new)


def test_a_place_of_others_is_known_before_anything_is_read(tmp_path: Path) -> None:
    for query in ("q", None):
        table(tmp_path / "new").claim(query, create=False)
    assert not (tmp_path / "new").exists()
    put(table(tmp_path / "ours"), 0, rows(id="int"))
    table(tmp_path / "ours").claim("q")
    for query in ("r", None):
        with pytest.raises(IllegalStateError, match="was written under another checkpoint"):
            table(tmp_path / "ours").claim(query, create=False)
    with pytest.raises(
        IllegalStateError, match="holds the sink of this pipeline, which the dead letters would"
    ):
        table(tmp_path / "ours", part="dead letters").claim("q")
    LocalFiles().write(f"{tmp_path}/theirs/_replay/x", "")
    with pytest.raises(IllegalStateError, match="has files that this pipeline did not write"):
        table(tmp_path / "theirs").claim("q")
    # Each gets a place of its own, or its checkpoint back.
    table(tmp_path / "of letters", part="dead letters").claim("q")
    for name, query in (("of another checkpoint", "r"), ("of this pipeline", "q"), ("ours", "q")):
        table(tmp_path / name).claim(query)
    # What lies aside is not ours.
    assert (tmp_path / "theirs" / "_replay" / "x").exists()


def test_a_table_that_a_replay_of_an_older_version_has_made(tmp_path: Path) -> None:
    """Without an owner; only replays have negative numbers."""
    LocalFiles().write(f"{tmp_path}/batch=-1/part-0-c000.json", "")
    put(table(tmp_path, "json", part="dead letters"), 0, rows(id="int"), "q")
    with pytest.raises(IllegalStateError, match="was written under another checkpoint"):
        table(tmp_path, "json", part="dead letters").claim("r")


def test_an_exchange_with_a_directory_without_files(tmp_path: Path) -> None:
    """A replay leaves no row of a batch, and Spark writes no _SUCCESS: the old rows stayed beside the new ones."""
    files = LocalFiles()
    files.write(f"{tmp_path}/batch=0/part", "old")
    files.write(f"{tmp_path}/_replay/new/batch=-1/part", "new")
    (tmp_path / "_replay" / "new" / "batch=0").mkdir()
    files.write(f"{tmp_path}/_replay/journal.json", '{"directories": ["batch=0", "batch=-1"]}')
    recover(files, str(tmp_path))
    assert files.names(str(tmp_path)) == ["batch=-1", "batch=0"]
    assert files.names(f"{tmp_path}/batch=0") == []
