"""Writes one batch, idempotently where the output allows it.

Spark repeats a batch after a crash, with the same number and the same records. Files are in a directory of each batch,
which is replaced. Delta and the sinks of `kadence_spark.lakehouse` store the number of a writer's last batch. A topic
without transactions and other formats cannot recognise a repeated batch, and get its rows twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from kadence.environment import Environment
from kadence.errors import ConfigError
from kadence_spark.pipeline.directory import BATCH, FILE_FORMATS, Directory
from kadence_spark.pipeline.files import Files
from kadence_spark.pipeline.model import Output, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = [
    "FILE_FORMATS",
    "LAKEHOUSE",
    "MODES",
    "Writer",
    "directory",
    "guarantee",
    "lakehouse_options",
    "topic_options",
    "writer",
]

LAKEHOUSE: Final = {"kadence-delta": "path", "kadence-iceberg": "table"}
"""The formats of `kadence_spark.lakehouse`, with the key and the option for the table of each."""

MODES: Final = {"kadence": ("append", "update", "complete"), "delta": ("append", "complete")}
"""The modes in which an aggregate can be written, by format; all other formats allow only append."""


class Writer(Protocol):
    """One output of a pipeline."""

    def begin(self, query: str | None) -> None:
        """Check the place before anything is read. ``query`` is None if the checkpoint is new.

        Raises:
            IllegalStateError: the place belongs to others.
        """

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
    is_complete = (
        output is pipeline.sink and pipeline.aggregate is not None and pipeline.aggregate.mode == "complete"
    )
    if output.topic is not None:
        source = environment.fill_all(pipeline.source_options())
        return _Topic(topic_options(output, source, environment), _part(output, pipeline))
    if output.written_as in FILE_FORMATS:
        if output.path is None:
            raise ConfigError(f"a table of format {output.written_as} needs a path")
        return _Files(directory(output, pipeline, environment, files))
    if output.written_as in LAKEHOUSE:
        return _Lakehouse(output.written_as, lakehouse_options(output, environment))
    by = _partitions(output, environment)
    return _Table(
        output, environment.fill(output.place), by, options, "overwrite" if is_complete else "append"
    )


def directory(output: Output, pipeline: Pipeline, environment: Environment, files: Files) -> Directory:
    """The table of an output that is files."""
    return Directory(
        files,
        environment.fill(output.path or ""),
        output.written_as,
        _partitions(output, environment),
        environment.fill_all(output.options),
        _part(output, pipeline),
    )


def _part(output: Output, pipeline: Pipeline) -> str:
    return "sink" if output is pipeline.sink else "dead letters"


def _partitions(output: Output, environment: Environment) -> tuple[str, ...]:
    return tuple(map(environment.fill, output.partition_by))


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
        options["partitionBy"] = ",".join(_partitions(output, environment))
    return options | {LAKEHOUSE[output.written_as]: environment.fill(output.place)}


class _Files:
    """Files below ``path/batch=<number>``; readers see ``batch`` as a column."""

    def __init__(self, table: Directory) -> None:
        self._table = table
        self._is_checked = False

    def begin(self, query: str | None) -> None:
        self._table.claim(query, create=False)

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        if not self._is_checked:
            self._table.claim(query)
            self._table.check(rows, batch)
        self._table.save(rows, f"{self._table.path}/{BATCH}={batch}")
        if not self._is_checked:
            self._table.keep(rows, batch)
            self._is_checked = True


class _Table:
    """Delta, which stores the last batch of a writer, and all other formats that Spark can append to."""

    def __init__(
        self, output: Output, place: str, partition_by: tuple[str, ...], options: dict[str, str], mode: str
    ) -> None:
        self._output = output
        self._place = place
        self._partition_by = partition_by
        self._options = options
        self._mode = mode

    def begin(self, query: str | None) -> None:
        """The format checks its own place."""

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        saver = rows.write.mode(self._mode).format(self._output.written_as).options(**self._options)
        if self._output.written_as == "delta":
            saver = saver.option("txnAppId", query).option("txnVersion", str(batch))
        if self._partition_by:
            saver = saver.partitionBy(*self._partition_by)
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

    def begin(self, query: str | None) -> None:
        """The format checks its own place."""

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        stamp = {"txnAppId": query, "txnVersion": str(batch)}
        rows.write.format(self._form).options(**self._options, **stamp).mode("append").save()


class _Topic:
    """``format("kadence")``: with transactions a batch that Spark repeats is recognised."""

    def __init__(self, options: dict[str, str], part: str) -> None:
        self._options = options
        self._part = part

    def begin(self, query: str | None) -> None:
        """The format checks its own place."""

    def write(self, rows: DataFrame, batch: int, query: str) -> None:
        # Sink and dead letter output each have a batch of this number.
        stamp = {"txnAppId": f"{query} {self._part}", "txnVersion": str(batch)}
        options = self._options | (stamp if _has_transactions(self._options) else {})
        rows.write.format("kadence").options(**options).mode("append").save()
