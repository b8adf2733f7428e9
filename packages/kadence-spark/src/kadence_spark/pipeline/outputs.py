"""Writes one batch, idempotently where the output allows it.

Spark repeats a batch after a crash, with the same number and the same records. Files are in a directory of each batch,
which is replaced. Delta and the sinks of `kadence_spark.lakehouse` store the number of a writer's last batch. A topic
without transactions and other formats cannot recognise a repeated batch, and get its rows twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kadence.environment import Environment
from kadence.errors import ConfigError, IllegalStateError
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.model import Output, Pipeline
from kadence_spark.pipeline.replace import BATCH, batches_of, must_fit, recover

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "FILE_FORMATS",
    "LAKEHOUSE",
    "MODES",
    "Writer",
    "guarantee",
    "lakehouse_options",
    "topic_options",
    "writer",
]

FILE_FORMATS: Final = ("parquet", "orc", "json", "csv")

LAKEHOUSE: Final = {"kadence-delta": "path", "kadence-iceberg": "table"}
"""The formats of `kadence_spark.lakehouse`, with the key and the option for the table of each."""

MODES: Final = {"kadence": ("append", "update", "complete"), "delta": ("append", "complete")}
"""The modes in which an aggregate can be written, by format; all other formats allow only append."""

_MARKER: Final = "_kadence.json"


class Writer(Protocol):
    """One output of a pipeline."""

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        """Write a batch. ``query`` is the id that Spark keeps in the checkpoint."""


def guarantee(output: Output) -> str:
    """The delivery guarantee of an output, in words."""
    is_known = (
        _has_transactions(output.options)
        if output.topic is not None
        else output.written_as in (*FILE_FORMATS, *LAKEHOUSE, "delta")
    )
    return "exactly once" if is_known else "at least once"


def _has_transactions(options: Mapping[str, str]) -> bool:
    return any(
        name.lower() == "transactions" and text.strip().lower() == "true" for name, text in options.items()
    )


def writer(output: Output, pipeline: Pipeline, environment: Environment, files: Files) -> Writer:
    """The writer of an output.

    Raises:
        ConfigError: the output lacks what its format needs.
    """
    options = environment.fill_all(output.options)
    part = "sink" if output is pipeline.sink else "dead letters"
    is_complete = (
        output is pipeline.sink and pipeline.aggregate is not None and pipeline.aggregate.mode == "complete"
    )
    if output.topic is not None:
        source = environment.fill_all(pipeline.source_options())
        return _Topic(topic_options(output, source, environment), part)
    if output.written_as in FILE_FORMATS:
        if output.path is None:
            raise ConfigError(f"a table of format {output.written_as} needs a path")
        return _Directory(output, environment.fill(output.path), options, files, part)
    if output.written_as in LAKEHOUSE:
        return _Lakehouse(output.written_as, lakehouse_options(output, environment))
    return _Table(output, environment.fill(output.place), options, "overwrite" if is_complete else "append")


def topic_options(output: Output, source: dict[str, str], environment: Environment) -> dict[str, str]:
    """The options of a topic's sink: its own client settings, or else those of the source."""
    shared = ("kafka.bootstrap.servers", "kafka.security.", "kafka.sasl.", "kafka.ssl.")
    options = {key: value for key, value in source.items() if key.startswith(shared)}
    if output.servers is not None:
        options = {"kafka.bootstrap.servers": environment.fill(output.servers)}
    return options | environment.fill_all(output.options) | {"topic": environment.fill(output.topic or "")}


def lakehouse_options(output: Output, environment: Environment) -> dict[str, str]:
    """The options of a sink of `kadence_spark.lakehouse`."""
    options = environment.fill_all(output.options)
    if output.partition_by:
        options["partitionBy"] = ",".join(output.partition_by)
    return options | {LAKEHOUSE[output.written_as]: environment.fill(output.place)}


class _Directory:
    """Files below ``path/batch=<number>``; readers see ``batch`` as a column."""

    def __init__(self, output: Output, path: str, options: dict[str, str], files: Files, part: str) -> None:
        self._output = output
        self._part = part
        self._path = path.rstrip("/")
        self._options = options
        self._files = files
        self._is_ours = False

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        self._claim(rows, query)
        if BATCH in rows.columns:
            raise ConfigError(
                f"the rows have a column {BATCH!r}, which is the name of the directories; rename it"
            )
        saver = rows.write.mode("overwrite").format(self._output.written_as).options(**self._options)
        if self._output.partition_by:
            saver = saver.partitionBy(*self._output.partition_by)
        saver.save(f"{self._path}/{BATCH}={batch}")

    def _claim(self, rows: DataFrame, query: str) -> None:
        """Check that the table belongs to this checkpoint and part: batches of others would overwrite its batches."""
        if self._is_ours:
            return
        recover(self._files, self._path)
        marker = self._files.read(f"{self._path}/{_MARKER}")
        if marker is None and self._files.names(self._path):
            raise IllegalStateError(
                f"{self._path} has files that this pipeline did not write; give the table a directory of its own"
            )
        owner = {} if marker is None else json.loads(marker)
        # A table of an older version does not name its part.
        if owner.get("part", self._part) != self._part:
            raise IllegalStateError(
                f"{self._path} holds the {owner['part']} of this pipeline, which the {self._part} would overwrite: "
                "give each a directory of its own"
            )
        if owner.get("query", query) != query:
            raise IllegalStateError(
                f"{self._path} was written under another checkpoint; "
                "bring that back, or begin a new table at another path"
            )
        must_fit(rows, self._output.written_as, self._path, batches_of(self._files, self._path))
        if marker is None:
            self._files.write(
                f"{self._path}/{_MARKER}", json.dumps({"query": query, "part": self._part}) + "\n"
            )
        self._is_ours = True


class _Table:
    """Delta, which stores the last batch of a writer, and all other formats that Spark can append to."""

    def __init__(self, output: Output, place: str, options: dict[str, str], mode: str) -> None:
        self._output = output
        self._place = place
        self._options = options
        self._mode = mode

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        saver = rows.write.mode(self._mode).format(self._output.written_as).options(**self._options)
        if self._output.written_as == "delta":
            saver = saver.option("txnAppId", query).option("txnVersion", str(batch))
        if self._output.partition_by:
            saver = saver.partitionBy(*self._output.partition_by)
        if self._output.table is not None:
            saver.saveAsTable(self._place)
        elif self._place:
            saver.save(self._place)
        else:
            saver.save()


class _Lakehouse:
    """Delta and Iceberg without their jars."""

    def __init__(self, form: str, options: dict[str, str]) -> None:
        self._form = form
        self._options = options

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        stamp = {"txnAppId": query, "txnVersion": str(batch)}
        rows.write.format(self._form).options(**self._options, **stamp).mode("append").save()


class _Topic:
    """``format("kadence")``: with transactions a batch that Spark repeats is recognised."""

    def __init__(self, options: dict[str, str], part: str) -> None:
        self._options = options
        self._part = part

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        # Sink and dead letter output each have a batch of this number.
        stamp = {"txnAppId": f"{query} {self._part}", "txnVersion": str(batch)}
        options = self._options | (stamp if _has_transactions(self._options) else {})
        rows.write.format("kadence").options(**options).mode("append").save()
