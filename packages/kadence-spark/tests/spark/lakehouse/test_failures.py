"""Writes and commits that fail: no file is left behind where the commit is not in the table, and no batch is twice."""

from __future__ import annotations

import json
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.patience import until
from tests.spark.lakehouse.conftest import Lake, needs

from kadence.errors import IllegalStateError
from kadence_spark.lakehouse.commit import ConflictError, RefusedError
from kadence_spark.lakehouse.iceberg import all_or_none
from kadence_spark.stamp import Stamp

ROWS = pa.table({"id": list(range(1000)), "part": [number % 3 for number in range(1000)]})


@contextmanager
def full_disk(largest: int) -> Iterator[None]:
    """No file may have more bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def on_disk(lake: Lake) -> set[Path]:
    return {path for path in lake.directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("largest", [0, 1500], ids=["at once", "in the midst of a file"])
def test_a_full_disk_leaves_no_files_of_a_task(lake: Lake, largest: int) -> None:
    lake.add(ROWS, partitionBy="part")
    writer, before = lake._library.prepared(lake.parsed(), ROWS.schema), on_disk(lake)
    with full_disk(largest), pytest.raises(IllegalStateError, match="too large"):
        writer.write(ROWS)
    assert on_disk(lake) == before


class Store:
    """Files that are there once they are closed, as in an object store."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def new_output(self, location: str) -> StoredOutput:
        return StoredOutput(self, location)

    def delete(self, location: str) -> None:
        if location not in self.files:
            raise FileNotFoundError(location)
        self.files.remove(location)


class StoredOutput:
    def __init__(self, store: Store, location: str) -> None:
        self._store = store
        self._location = location
        self.closed = False

    def create(self, *, overwrite: bool) -> StoredOutput:
        assert overwrite
        return self

    def close(self) -> None:
        self._store.files.add(self._location)
        self.closed = True


def test_files_that_other_threads_write_when_one_has_failed_are_not_left() -> None:
    store = Store()
    before: list[str] = []
    late: list[Any] = []

    def write(outputs: Any) -> None:
        stream = outputs.new_output("under way").create(overwrite=True)
        until(lambda: outputs.has_ended)
        before.extend(store.files)
        stream.close()

    def fail() -> None:
        with all_or_none(store, {}) as outputs:
            late.append(outputs.new_output("late"))
            outputs.new_output("failed").create(overwrite=True).close()
            threading.Thread(target=write, args=(outputs,)).start()
            until(lambda: len(outputs.streams) == 2)
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        fail()
    with pytest.raises(IllegalStateError, match="another file"):
        late[0].create(overwrite=True)
    assert before == ["failed"]
    assert not store.files


def test_a_full_disk_leaves_no_files_of_a_commit(lake: Lake) -> None:
    lake.add(ROWS, Stamp("q", 0), partitionBy="part")
    before = on_disk(lake)
    files = lake.files(ROWS)
    with full_disk(0), pytest.raises(RefusedError, match="too large") as caught:
        lake.commit(files, Stamp("q", 1))
    assert on_disk(lake) == before
    assert "\x1b" not in str(caught.value)
    assert lake.add(ROWS, Stamp("q", 1))
    assert len(lake.rows()) == 2000


def after_the_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch, problem: Exception) -> list[int]:
    """Once, the commit lands and the library raises all the same; how many commits were asked for."""
    asked = []
    owner: Any
    if lake.kind == "delta":
        import deltalake

        owner, name = deltalake.DeltaTable, "create_write_transaction"
    else:
        from pyiceberg.table import Table

        owner, name = Table, "_do_commit"
    real: Callable[..., None] = getattr(owner, name)

    def lost(*given: Any, **more: Any) -> None:
        asked.append(1)
        real(*given, **more)
        if len(asked) == 1:
            raise problem

    monkeypatch.setattr(owner, name, lost)
    return asked


@pytest.mark.parametrize("stamp", [Stamp("q", 0), None], ids=["a stream", "a batch without a number"])
@pytest.mark.parametrize("how", ["a conflict", "not known"])
def test_a_commit_that_landed_though_an_error_was_raised_is_there_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, stamp: Stamp | None, how: str
) -> None:
    lake.add(ROWS)
    files = lake.files(ROWS)
    problem: Exception
    if lake.kind == "delta":
        from deltalake.exceptions import CommitFailedError, DeltaError

        problem = CommitFailedError("exists") if how == "a conflict" else DeltaError("no answer")
    else:
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        kind = CommitFailedException if how == "a conflict" else CommitStateUnknownException
        problem = kind("no answer")
    asked = after_the_commit(lake, monkeypatch, problem)
    lake.commit(files, stamp)
    assert len(asked) == 1
    monkeypatch.undo()
    assert len(lake.rows()) == 2000
    assert stamp is None or not lake.add(ROWS, stamp)


def test_files_stay_where_a_commit_may_still_land(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.add(ROWS)
    files = lake.files(ROWS)
    before = on_disk(lake)
    if lake.kind == "delta":
        import deltalake
        from deltalake.exceptions import CommitFailedError

        def fail(*_: Any, **__: Any) -> None:
            raise CommitFailedError("Error interacting with object store: timed out")

        monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", fail)
        monkeypatch.setattr("kadence_spark.lakehouse.delta._is_here", lambda uri: False)
    else:
        from pyiceberg.catalog.sql import SqlCatalog
        from requests.exceptions import ConnectionError as NoConnectionError

        def fail(*_: Any, **__: Any) -> None:
            raise NoConnectionError("timed out")

        monkeypatch.setattr(SqlCatalog, "commit_table", fail)
    with pytest.raises(IllegalStateError, match="timed out") as caught:
        lake.commit(files, Stamp("q", 0))
    assert not isinstance(caught.value, RefusedError)
    assert before <= on_disk(lake)


def test_a_refusal_at_the_instant_of_another_commit_is_tried_again_and_stays_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.add(ROWS)
    files, tries = lake.files(ROWS), []
    owner: Any
    if lake.kind == "delta":
        import deltalake
        from deltalake.exceptions import CommitFailedError as Failed

        owner, name = deltalake.DeltaTable, "create_write_transaction"
    else:
        from pyiceberg.exceptions import CommitFailedException as Failed
        from pyiceberg.table import Table

        owner, name = Table, "_do_commit"
    real = getattr(owner, name)

    def refuse(*given: Any, **more: Any) -> None:
        tries.append(1)
        if len(tries) == 1:
            monkeypatch.setattr(owner, name, real)
            lake.add(ROWS, Stamp("other", 0))
            monkeypatch.setattr(owner, name, refuse)
        raise Failed("no such thing")

    monkeypatch.setattr(owner, name, refuse)
    with pytest.raises(RefusedError, match="no such thing"):
        lake.commit(files, Stamp("q", 0))
    assert len(tries) == 2
    monkeypatch.undo()
    assert len(lake.rows()) == 2000
    names = {
        (each.path if lake.kind == "delta" else each.data.file_path).rpartition("/")[2] for each in files
    }
    assert names.isdisjoint(path.name for path in on_disk(lake))


def test_a_lock_that_another_writer_holds_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hive's catalogue has a lock; the table may be as it was."""
    needs("pyiceberg")
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.table import Table

    lake = Lake("iceberg", tmp_path)
    files = lake.files(ROWS)

    def locked(*_: Any, **__: Any) -> None:
        raise CommitFailedException("Failed to acquire lock for shop.orders, state: WAITING")

    monkeypatch.setattr(Table, "_do_commit", locked)
    with pytest.raises(ConflictError, match="acquire lock"):
        lake.opened().commit(files, None, overwrite=False)


@pytest.mark.parametrize("what", ["a constraint", "a column that must not be null"])
def test_what_comes_to_a_delta_table_between_the_files_and_the_commit(tmp_path: Path, what: str) -> None:
    needs("deltalake")
    lake = Lake("delta", tmp_path)
    lake.add(ROWS.slice(0, 1))
    files = lake.files(ROWS)
    before = on_disk(lake)
    log = Path(lake.options["path"], "_delta_log")
    if what == "a constraint":
        lake.table.alter.add_constraint({"small": "id < 5"})
    else:
        actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
        [meta] = [action for action in actions if "metaData" in action]
        schema = json.loads(meta["metaData"]["schemaString"])
        schema["fields"][0]["nullable"] = False
        meta["metaData"]["schemaString"] = json.dumps(schema)
        (log / f"{2:020}.json").write_text(json.dumps(meta))
    with pytest.raises(RefusedError, match=r"CHECK constraints|its columns or partitioning changed"):
        lake.commit(files, Stamp("q", 0))
    assert len(before - on_disk(lake)) == len(files)


def test_an_iceberg_column_that_must_not_be_null_since_the_files_were_written(tmp_path: Path) -> None:
    needs("pyiceberg")
    lake = Lake("iceberg", tmp_path)
    full, empty = (
        lake.files(ROWS),
        lake.files(ROWS.slice(0, 1).select(["id"]).append_column("part", pa.nulls(1, pa.int64()))),
    )
    with lake.table.update_schema(allow_incompatible_changes=True) as change:
        change.update_column("part", required=True)
    with pytest.raises(RefusedError, match="column part of the table must not be null since"):
        lake.commit(empty)
    assert lake.commit(full)
    assert len(lake.rows()) == 1000
