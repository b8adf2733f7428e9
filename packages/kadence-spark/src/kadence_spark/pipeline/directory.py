"""A table of files: a directory for each batch, and a file that says whose the table is, and what its batches are like.

Readers take all files for one table, so each batch must have the format, the partitioning and the types of the others.
The table's own file has these, because files do not: a partition column is text in a directory's name, and a column
may be missing in the newest batch.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kadence.errors import IllegalStateError
from kadence_spark.pipeline.files import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "ASIDE",
    "BATCH",
    "FILE_FORMATS",
    "TIMES",
    "TYPED",
    "Directory",
    "batches_of",
    "number_of",
    "recover",
    "settings",
]

FILE_FORMATS: Final = ("parquet", "orc", "json", "csv")

TYPED: Final = ("parquet", "orc")
"""Formats that keep types. Those of the others are guessed when they are read, `bigint` for an `int`."""

BATCH: Final = "batch"
"""The column of the directories of batches, ``batch=<number>``."""

ASIDE: Final = "_replay"
"""The directory of an exchange of directories."""

TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of JSON and CSV: Spark's own formats lose microseconds."""

_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"

_AS_TEXTS: Final = ("float", "double", "timestamp")

_MARKER: Final = "_kadence.json"

_OF_CSV: Final = ("header", "sep", "delimiter", "quote", "escape", "encoding", "charset", "lineSep")
"""Options of CSV that a reader must know."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What batches are like.

    Attributes:
        since: the number of the first one. form: their format. columns: names and types in order; empty: unknown.
        options: those that a reader must know; None: unknown.
    """

    since: int
    form: str
    partition_by: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...] | None

    @classmethod
    def of_json(cls, shape: dict[str, Any]) -> Shape:
        return cls(
            shape["since"],
            shape["format"],
            tuple(shape["partition_by"]),
            tuple((name, kind) for name, kind in shape["columns"]),
            None if shape["options"] is None else tuple(sorted(shape["options"].items())),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "format": self.form,
            "partition_by": self.partition_by,
            "columns": self.columns,
            "options": None if self.options is None else dict(self.options),
        }

    def is_like(self, other: Shape) -> bool:
        """Whether the batches of both are alike."""
        return self.as_json() | {"since": 0} == other.as_json() | {"since": 0}

    def objection(self, new: Shape, path: str) -> str | None:
        """Why a reader could not take later batches for the same table."""
        back = "put it back, or begin a new table with a checkpoint of its own"
        if new.form != self.form:
            return f"the table {path} is of format {self.form}, and {new.form} now: {back}"
        if _folded(new.partition_by) != _folded(self.partition_by):
            before, now = (", ".join(each.partition_by) or "nothing" for each in (self, new))
            return f"the table {path} is partitioned by {before}, and by {now} now: {back}"
        if self.form in TYPED:
            return self._other_type(new, path)
        if self.form != "csv" or self.options is None:
            return None
        before, now = (", ".join(each._written()) for each in (self, new))
        if before.lower() != now.lower():
            return f"the columns of the table {path} were {before}, and are {now}, but CSV is read in order: {back}"
        for name in sorted(dict(self.options).keys() | dict(new.options or ()).keys()):
            was, text = (dict(each.options or ()).get(name, "not set") for each in (self, new))
            if was != text:
                return f"the option {name} of the table {path} was {was}, and is {text}: {back}"
        return None

    def _other_type(self, new: Shape, path: str) -> str | None:
        # Readers do not heed the case of names unless both are there.
        exact, folded = dict(new.columns), {name.lower(): kind for name, kind in new.columns}
        for name, kind in self.columns:
            now = exact.get(name, folded.get(name.lower(), kind))
            if now != kind:
                return (
                    f"column {name} is {now} now, and {kind} in the table {path}: cast it in a transform, or begin a "
                    "new table with a checkpoint of its own"
                )
        return None

    def _written(self) -> list[str]:
        """The columns in the files."""
        by = _folded(self.partition_by)
        return [name for name, _ in self.columns if name.lower() not in by]


def _folded(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


class Directory:
    """The table of one output of a pipeline.

    Args:
        part: of the pipeline, in words.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        form: str,
        partition_by: Sequence[str],
        options: dict[str, str],
        part: str,
    ) -> None:
        self.path = path.rstrip("/")
        self._files = files
        self._form = form
        self._partition_by = tuple(partition_by)
        self._options = options
        self._part = part
        self._before: list[Shape] = []
        self._timestamps: str | None = None

    def claim(self, query: str | None, *, create: bool = True) -> None:
        """Check that the table belongs to this checkpoint and part: batches of others would overwrite its batches.

        An exchange of directories that a crash interrupted is finished.

        Args:
            query: the id that Spark keeps in the checkpoint; None: there is none yet. create: a new table gets it.

        Raises:
            IllegalStateError: it belongs to others.
        """
        owner = self._owner()
        # Replays by older versions made tables without an owner.
        if owner is None and not all(each.startswith(f"{BATCH}=-") for each in self._files.names(self.path)):
            raise IllegalStateError(
                f"{self.path} has files that this pipeline did not write; give the table a directory of its own"
            )
        owner = owner or {}
        # A table of an older version does not name its part.
        if owner.get("part", self._part) != self._part:
            raise IllegalStateError(
                f"{self.path} holds the {owner['part']} of this pipeline, which the {self._part} would overwrite: "
                "give each a directory of its own"
            )
        if owner.get("query", query) != query:
            raise IllegalStateError(
                f"{self.path} was written under another checkpoint; "
                "bring that back, or begin a new table at another path"
            )
        if owner:
            recover(self._files, self.path)
        elif create:
            # Files of older tables have INT96, which many readers take for another time before 1677 and after 2262.
            owner = {"query": query, "part": self._part, "timestamps": "TIMESTAMP_MICROS", "shapes": []}
            self._write(owner)
        self._timestamps = owner.get("timestamps")

    def check(self, rows: DataFrame, batch: int | None = None) -> None:
        """Check that a reader could take rows for rows of the table.

        Args:
            batch: the number of the batch, which replaces one of that number; None: they are added by a replay.

        Raises:
            IllegalStateError: they have other types, or the file has another format or partitioning, than the table; or
                the table has later batches.
        """
        batches = [number_of(each) for each in batches_of(self._files, self.path)]
        later = max(batches, default=0)
        if batch is not None and later > batch:
            raise IllegalStateError(
                f"{self.path} has batch {later} already, and the checkpoint goes on with batch {batch}: it is older "
                "than the table, which would get rows twice; begin a new table with a checkpoint of its own"
            )
        new = self._shape(rows, 0)
        self._before = self._shapes(rows.sparkSession, batch)
        for each in self._before:
            if why := each.objection(new, self.path):
                raise IllegalStateError(why)

    def keep(self, rows: DataFrame, batch: int) -> None:
        """Keep what a batch is like, which was checked and has been written."""
        new = self._shape(rows, batch)
        shapes = self._before + ([] if any(new.is_like(each) for each in self._before) else [new])
        owner, made = self._owner() or {}, [each.as_json() for each in shapes]
        if owner.get("shapes") != json.loads(json.dumps(made)):
            self._write(owner | {"shapes": made})

    def save(self, rows: DataFrame, place: str) -> None:
        """Write files into a directory, in place of those that are there."""
        options = (TIMES if self._form not in TYPED else {}) | self._options
        # With the session's setting dynamic, files of other partitions would stay.
        options["partitionOverwriteMode"] = "static"
        saver = self._with_texts(rows).write.mode("overwrite").format(self._form).options(**options)
        if self._partition_by:
            saver = saver.partitionBy(*self._partition_by)
        with settings(rows.sparkSession, self._of_session(rows.sparkSession)):
            saver.save(place)

    def _with_texts(self, rows: DataFrame) -> DataFrame:
        """Partition columns as the texts of directory names.

        Spark sorts rows by the values. If two have an order of their own but one place in it, as 0.0 and -0.0, it would
        create a file twice.
        """
        from pyspark.sql import functions as f

        by = _folded(self._partition_by)
        names = [name for name, kind in rows.dtypes if name.lower() in by and kind in _AS_TEXTS]
        texts = {name: f.col("`" + name.replace("`", "``") + "`").cast("string") for name in names}
        return rows.withColumns(texts) if texts else rows

    def _of_session(self, session: SparkSession) -> dict[str, str]:
        """Settings of the session while files are written."""
        kind = self._timestamps if self._form == "parquet" else None
        is_given = kind is not None and session.sparkContext.getConf().contains(_TIMESTAMPS)
        return {} if kind is None or is_given else {_TIMESTAMPS: kind}

    def _shape(self, rows: DataFrame, since: int) -> Shape:
        given = {name.lower(): text for name, text in self._options.items()}
        known = [(name, given[name.lower()]) for name in _OF_CSV if name.lower() in given]
        return Shape(
            since,
            self._form,
            self._partition_by,
            tuple((each.name, each.dataType.simpleString()) for each in rows.schema),
            tuple(sorted(known)) if self._form == "csv" else (),
        )

    def _owner(self) -> dict[str, Any] | None:
        text = self._files.read(f"{self.path}/{_MARKER}")
        return None if text is None else dict(json.loads(text))

    def _write(self, owner: dict[str, Any]) -> None:
        self._files.write(f"{self.path}/{_MARKER}", json.dumps(owner) + "\n")

    def _shapes(self, session: SparkSession, batch: int | None) -> list[Shape]:
        """The kinds of batches before one."""
        owner = self._owner() or {}
        if "shapes" not in owner:
            # A table of an older version: the newest batch with a file; an empty batch may have none.
            names = [
                each
                for each in batches_of(self._files, self.path)
                if batch is None or number_of(each) < batch
            ]
            found = (self._found(session, name) for name in reversed(names))
            newest = next((each for each in found if each is not None), None)
            return [] if newest is None else [newest]
        shapes = [Shape.of_json(each) for each in owner["shapes"]]
        # A batch that is repeated may have been the first one of its kind.
        return [each for each in shapes if batch is None or each.since < batch]

    def _found(self, session: SparkSession, name: str) -> Shape | None:
        """What the files of a batch show."""
        from pyspark.errors import AnalysisException

        place, by, form = f"{self.path}/{name}", list[str](), ""
        while not form:
            below = [each for each in self._files.names(place) if not each.startswith(("_", "."))]
            if not below:
                return None
            if "=" in below[0]:
                by.append(unquote(below[0].partition("=")[0]))
                place = f"{place}/{below[0]}"
            else:
                form = next((each for each in FILE_FORMATS if each in below[0].split(".")), self._form)
        columns: list[tuple[str, str]] = []
        if form in TYPED:
            try:
                table = session.read.format(form).load(f"{self.path}/{name}")
            except AnalysisException:
                return None
            # Types of partition columns are guessed.
            columns = [
                (each.name, each.dataType.simpleString()) for each in table.schema if each.name not in by
            ]
        return Shape(number_of(name), form, tuple(by), tuple(columns), None)


def number_of(batch: str) -> int:
    """The number of a batch by the name of its directory."""
    return int(batch.partition("=")[2])


def batches_of(files: Files, path: str) -> list[str]:
    """The directories of a table's batches, oldest first; those of replays before them."""
    return sorted((name for name in files.names(path) if name.startswith(f"{BATCH}=")), key=number_of)


def recover(files: Files, path: str) -> None:
    """Finish an exchange of directories that a crash interrupted, or discard one without a journal."""
    path = path.rstrip("/")
    if not files.names(f"{path}/{ASIDE}"):
        return
    journal = files.read(f"{path}/{ASIDE}/journal.json")
    if journal is not None:
        # A directory that is no longer there was exchanged before the crash. One without files replaces, too.
        waiting = files.names(f"{path}/{ASIDE}/new")
        for name in json.loads(journal)["directories"]:
            if name in waiting:
                files.delete(f"{path}/{name}")
                files.move(f"{path}/{ASIDE}/new/{name}", f"{path}/{name}")
    files.delete(f"{path}/{ASIDE}")


@contextlib.contextmanager
def settings(session: SparkSession, values: Mapping[str, str]) -> Iterator[None]:
    """Settings of a session for a while."""
    before = {name: session.conf.get(name) for name in values}
    for name, value in values.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            session.conf.set(name, old or "")
