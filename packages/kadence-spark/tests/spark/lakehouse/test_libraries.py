"""What the sinks rely on in deltalake and PyIceberg: a release that changes it fails here, with the reason."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.spark.lakehouse.conftest import Lake, needs

ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def delta(tmp_path: Path) -> Lake:
    needs("deltalake")
    lake = Lake("delta", tmp_path)
    lake.add(ROWS)
    return lake


@pytest.fixture
def iceberg(tmp_path: Path) -> Lake:
    needs("pyiceberg")
    lake = Lake("iceberg", tmp_path)
    lake.add(ROWS)
    return lake


def append(table: Any, path: str, *, retries: int | None, app: tuple[str, int] | None = None) -> None:
    """Delta: one commit of that file, which need not exist, on the table as it was opened."""
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction

    stats = json.dumps({"numRecords": 0, "minValues": {}, "maxValues": {}, "nullCount": {}})
    table.create_write_transaction(
        [AddAction(path, 1, {}, 0, True, stats)],
        "append",
        table.schema(),
        [],
        commit_properties=CommitProperties(
            max_commit_retries=retries, app_transactions=[] if app is None else [Transaction(*app)]
        ),
    )


def test_delta_repeats_an_append_by_itself_unless_it_may_not(delta: Lake) -> None:
    from deltalake.exceptions import CommitFailedError

    late, later = delta.table, delta.table
    append(delta.table, "first", retries=None)
    with pytest.raises(CommitFailedError):
        append(late, "second", retries=0)
    append(later, "third", retries=None)
    assert {Path(uri).name for uri in delta.table.file_uris()} >= {"first", "third"}
    assert "second" not in {Path(uri).name for uri in delta.table.file_uris()}
    # By which a conflict is told from what the table never takes.
    version = late.version()
    late.update_incremental()
    assert late.version() > version


def test_delta_takes_a_number_of_a_writer_that_goes_back(delta: Lake) -> None:
    """So the sink asks before it commits."""
    assert delta.table.transaction_version("app") is None
    for number in (7, 5):
        append(delta.table, f"file-{number}", retries=0, app=("app", number))
        assert delta.table.transaction_version("app") == number


def test_delta_has_one_error_for_a_conflict_and_for_what_it_cannot_write(delta: Lake) -> None:
    from deltalake.exceptions import CommitFailedError, DeltaError

    assert issubclass(CommitFailedError, DeltaError)
    log = Path(delta.options["path"], "_delta_log", f"{2:020}.json")
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": ["new"]}
    log.write_text(json.dumps({"protocol": features}))
    table = delta.table
    version = table.version()
    with pytest.raises(CommitFailedError, match=r"(?i)feature"):
        append(table, "never", retries=0)
    table.update_incremental()
    assert table.version() == version


def commit(table: Any, files: list[Any]) -> None:
    """Iceberg: one commit of these files on the table as it was opened."""
    with table.transaction() as change, change.update_snapshot().fast_append() as added:
        for each in files:
            added.append_data_file(each.data)


def test_iceberg_repeats_an_append_by_itself_unless_it_may_not(iceberg: Lake) -> None:
    from pyiceberg.exceptions import CommitFailedException

    late, later = iceberg.table, iceberg.table
    first, second, third = (iceberg.files(ROWS) for _ in range(3))
    commit(iceberg.table, first)
    late.metadata = late.metadata.model_copy(
        update={"properties": {**late.metadata.properties, "commit.retry.num-retries": "0"}}
    )
    before = late.metadata_location
    with pytest.raises(CommitFailedException):
        commit(late, second)
    # By which a conflict is told from what the table never takes.
    assert late.refresh().metadata_location != before
    commit(later, third)
    paths = {task.file.file_path for task in iceberg.table.scan().plan_files()}
    assert {first[0].data.file_path, third[0].data.file_path} <= paths
    assert second[0].data.file_path not in paths
    assert "commit.retry.num-retries" not in iceberg.table.properties


def test_iceberg_writes_files_without_a_commit_by_private_names(iceberg: Lake) -> None:
    from pyiceberg.io.pyarrow import _dataframe_to_data_files
    from pyiceberg.table.metadata import TableMetadataUtil

    names = list(inspect.signature(_dataframe_to_data_files).parameters)
    assert names[:3] == ["table_metadata", "df", "io"]
    text = iceberg.table.metadata.model_dump_json()
    assert TableMetadataUtil.parse_raw(text) == iceberg.table.metadata


def test_iceberg_has_an_error_of_its_own_for_a_conflict_and_for_what_it_does_not_know() -> None:
    needs("pyiceberg")
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

    assert not issubclass(CommitStateUnknownException, CommitFailedException)
    assert not issubclass(CommitFailedException, CommitStateUnknownException)
    assert not issubclass(CommitFailedException, OSError)


def test_iceberg_tells_a_file_that_cannot_be_written_before_it_asks_the_catalogue(
    iceberg: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    asked: list[int] = []
    monkeypatch.setattr(SqlCatalog, "commit_table", lambda *given: asked.append(1))
    files = iceberg.files(ROWS)
    table = iceberg.table
    for path in iceberg.directory.rglob("metadata"):
        path.rename(path.with_name("away"))
        path.write_text("a file where the directory was")
    with pytest.raises(OSError, match="metadata") as caught:
        commit(table, files)
    assert type(caught.value).__module__ == "builtins"
    assert asked == []
