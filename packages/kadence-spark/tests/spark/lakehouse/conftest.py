"""Tables of both kinds in a directory, written by the sink's own parts without Spark, and read by DuckDB."""

from __future__ import annotations

import importlib
import os
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kadence_spark.lakehouse.commit import commit_once
from kadence_spark.lakehouse.options import TableOptions, parse
from kadence_spark.lakehouse.task import write_rows
from kadence_spark.stamp import Stamp


class Lake:
    """One table."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.kind = kind
        self.directory = directory
        self._library = importlib.import_module(f"kadence_spark.lakehouse.{kind}")

    @property
    def options(self) -> dict[str, str]:
        """Those of Spark's writer."""
        if self.kind == "delta":
            return {"path": str(self.directory / "table")}
        return {
            "table": "shop.orders",
            "catalog.type": "sql",
            "catalog.uri": f"sqlite:///{self.directory}/catalogue.db",
            "catalog.warehouse": f"file://{self.directory}/warehouse",
        }

    def parsed(self, **more: str) -> TableOptions:
        return parse(self.options | more, self.kind, streaming=False)

    def files(self, rows: pa.Table, **more: str) -> list[Any]:
        """Those that a task writes."""
        writer = self._library.prepared(self.parsed(**more), rows.schema)
        writer = pickle.loads(pickle.dumps(writer))
        return write_rows(iter(rows.to_batches()), writer)

    def commit(self, files: list[Any], stamp: Stamp | None = None, *, overwrite: bool = False) -> bool:
        files = pickle.loads(pickle.dumps(files))
        return commit_once(self.opened, files, stamp, overwrite=overwrite, wait=lambda seconds: None)

    def add(
        self, rows: pa.Table, stamp: Stamp | None = None, *, overwrite: bool = False, **more: str
    ) -> bool:
        return self.commit(self.files(rows, **more), stamp, overwrite=overwrite)

    def opened(self) -> Any:
        return self._library.opened(self.parsed())

    @property
    def table(self) -> Any:
        """The library's own."""
        return self.opened()._table

    def paths(self) -> list[str]:
        """The data files of the table's present version."""
        if self.kind == "delta":
            return list(self.table.file_uris())
        return [task.file.file_path.removeprefix("file://") for task in self.table.scan().plan_files()]

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        """All of the table, sorted, read by DuckDB from the files that the table has."""
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            found = connection.read_parquet(self.paths(), union_by_name=True)
            return sorted(found.project(columns).fetchall(), key=str)


def needs(module: str) -> None:
    """Skip where an optional library is missing, but not in the project's own checks."""
    if os.environ.get("CI") == "true":
        importlib.import_module(module)
    pytest.importorskip(module)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    needs({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    needs("duckdb")
    return Lake(request.param, tmp_path)
