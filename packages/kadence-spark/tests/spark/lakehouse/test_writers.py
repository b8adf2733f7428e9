"""Several writers of one table, in threads and in processes of their own."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from tests.spark.lakehouse.conftest import Lake, needs

from kadence_spark.lakehouse.commit import commit_once
from kadence_spark.stamp import Stamp


def test_delta_writers_that_make_a_table_at_once_make_one(tmp_path: Path) -> None:
    """The library by itself puts the columns and the id of the second one in the place of the first one's."""
    needs("deltalake")
    at_once = Barrier(3)

    def make(number: int, place: int) -> str:
        lake = Lake("delta", tmp_path / str(place))
        lake.directory.mkdir(exist_ok=True)
        schema = pa.schema([("id", pa.int64()), (f"of_{number}", pa.int64())])
        at_once.wait()
        made: str = lake._library.prepared(lake.parsed(mergeSchema="true"), schema).layout.table
        return made

    for place in range(12):
        with ThreadPoolExecutor(3) as pool:
            made = set(pool.map(partial(make, place=place), range(3)))
        assert len(made) == 1
        names = {field.name for field in Lake("delta", tmp_path / str(place)).table.schema().fields}
        assert names == {"id", "of_0", "of_1", "of_2"}


BATCHES = 4


def drive(kind: str, directory: Path, name: str) -> int:
    """A driver: batches with columns of its own and of all, each one written again; how many were added."""
    lake, added = Lake(kind, directory), 0
    for batch in range(BATCHES):
        columns = {
            "driver": [name],
            "batch": [batch],
            f"{name}_{batch % 2}": [batch],
            f"all_{batch}": [batch],
        }
        inner = [{f"of_{name}": batch, "of_all": batch}]
        for _ in range(2):
            files = lake.files(pa.table({**columns, "inner": inner}), mergeSchema="true")
            added += commit_once(lake.opened, files, Stamp(name, batch))
    return added


@pytest.mark.heavy
def test_two_drivers_that_add_columns_and_repeat_their_batches(lake: Lake) -> None:
    names = ["a", "b"]
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        assert list(pool.map(partial(drive, lake.kind, lake.directory), names)) == [BATCHES, BATCHES]
    found = lake.table.to_pyarrow_table() if lake.kind == "delta" else lake.table.scan().to_arrow()
    rows = sorted(found.to_pylist(), key=lambda row: (row["driver"], row["batch"]))
    assert [(row["driver"], row["batch"]) for row in rows] == [
        (name, batch) for name in names for batch in range(BATCHES)
    ]
    for row in rows:
        name, batch = row.pop("driver"), row.pop("batch")
        inner = row.pop("inner")
        assert {key: value for key, value in row.items() if value is not None} == {
            f"{name}_{batch % 2}": batch,
            f"all_{batch}": batch,
        }
        assert inner == {"of_a": None, "of_b": None, f"of_{name}": batch, "of_all": batch}
    assert len(lake.rows("driver")) == 2 * BATCHES
